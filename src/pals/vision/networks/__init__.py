"""Networks by name: each computes features and logits for inputs of a shape (`Network`).

Weights are read from local files; only `timm:` networks can download theirs, if the user asks.

Shape letters: B batch, C classes, D feature width, H height, W width, P parts of a batch, M rows of a process.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn

from pals.util.errors import InputError
from pals.util.registry import Registry
from pals.vision.networks import resnets
from pals.vision.networks.densenet import densenet121
from pals.vision.networks.efficientnet_lite import EfficientNetLite
from pals.vision.networks.network import Network, Output
from pals.vision.networks.patch_features import PatchNetwork
from pals.vision.networks.small_networks import MLP, ConvNet9, RootLinear, SmallCNN, SmallResNet
from pals.vision.networks.timm_network import PREFIX, build_timm
from pals.vision.networks.weight_loading import LoadReport, load_weights

Builder = Callable[[tuple[int, ...], int], Network]  # shape of one input, number of classes


def build_network(name: str, input_shape: tuple[int, ...], num_classes: int) -> Network:
    """Builds a newly initialised network.

    Args:
        name: A key of `NETWORKS`, or "timm:NAME" for a network of timm.
        input_shape: (channels, height, width), or (features,) for "mlp" and "linear".
        num_classes: Two or more.

    Returns:
        The network.

    Raises:
        InputError: An unknown name, or a shape that the network cannot read.
    """
    if num_classes < 2:
        raise InputError(f"A network needs at least two classes to tell apart; found {num_classes}.")
    if name.startswith(PREFIX):
        return build_timm(name, tuple(input_shape), num_classes)
    network = NETWORKS.find(name)(tuple(input_shape), num_classes)
    if not isinstance(network, Network) or not isinstance(getattr(network, "classifier", None), nn.Linear):
        raise InputError(f"The network {name!r} must be a pals.Network with an nn.Linear `classifier`; found {type(network)}.")
    return network


def _for_images(name: str, make: Callable[[int, int], Network], smallest: int = 1) -> Builder:
    """A builder from `make(channels, num_classes)`; images have at least `smallest` pixels a side."""

    def build(input_shape: tuple[int, ...], num_classes: int) -> Network:
        channels, side = _channels_and_side(name, input_shape)
        if side < smallest:
            raise InputError(f"Network {name!r} needs {smallest} pixels a side, not {input_shape}. Enlarge, or 'small-cnn'.")
        return make(channels, num_classes)

    return build


def _small_cnn(input_shape: tuple[int, ...], num_classes: int) -> Network:
    channels, side = _channels_and_side("small-cnn", input_shape)
    return SmallCNN(channels, num_classes, side)


def _for_vectors(name: str, make: Callable[[int, int], Network]) -> Builder:
    """A builder from `make(width, num_classes)`."""

    def build(input_shape: tuple[int, ...], num_classes: int) -> Network:
        if len(input_shape) != 1 or input_shape[0] < 1:
            raise InputError(
                f"Network {name!r} reads feature vectors, but one input has shape {input_shape}. "
                "For images choose 'small-cnn' or 'resnet18'; otherwise flatten each input to one row."
            )
        return make(input_shape[0], num_classes)

    return build


def _channels_and_side(name: str, input_shape: tuple[int, ...]) -> tuple[int, int]:
    """Channels and the shorter side."""
    if len(input_shape) != 3:
        hint = "For feature vectors choose 'mlp'." if len(input_shape) == 1 else "Give (channels, height, width)."
        raise InputError(f"Network {name!r} reads images, but one input has shape {input_shape}. {hint}")
    channels, height, width = input_shape
    if min(input_shape) < 1:
        raise InputError(f"Network {name!r} reads images; shape {input_shape} holds no pixel.")
    if width in (1, 3, 4) and channels > 4:
        raise InputError(f"Images {input_shape} seem to have channels last. Give (channels, height, width).")
    return channels, min(height, width)


_IMAGES: dict[str, tuple[Callable[[int, int], Network], int]] = {  # maker, fewest pixels a side
    "small-resnet": (SmallResNet, 1),
    "patches": (PatchNetwork, 9),
    "patches-no-mirror": (partial(PatchNetwork, mirror=False), 9),  # left and right are not the same
    "resnet18": (resnets.resnet18, 1),
    "preact-resnet18": (resnets.preact_resnet18, 1),
    "resnet20": (partial(resnets.thin_resnet, depth=3), 1),
    "resnet32": (partial(resnets.thin_resnet, depth=5), 1),
    "wrn-34-10": (resnets.wrn_34_10, 1),
    "wrn-28-2": (resnets.wrn_28_2, 1),
    "resnext50": (resnets.resnext50, 1),
    "se-resnet50": (resnets.se_resnet50, 1),
    "densenet121": (densenet121, 8),  # three 2x2 average pools
    "convnet9": (ConvNet9, 28),  # two 2x2 pools, then three convolutions without padding
    "imagenet-resnet18": (resnets.imagenet_resnet18, 1),
    "imagenet-resnet34": (resnets.imagenet_resnet34, 1),
    "imagenet-resnet50": (resnets.imagenet_resnet50, 1),
    "imagenet-resnet50-projected": (partial(resnets.imagenet_resnet50, projection=512), 1),
    "efficientnet-lite0": (partial(EfficientNetLite, 0), 1),
    "efficientnet-lite1": (partial(EfficientNetLite, 1), 1),
    "efficientnet-lite2": (partial(EfficientNetLite, 2), 1),
}


def _check(name: str, build: Any) -> None:
    if not callable(build):
        raise InputError(f"The network {name!r} is {build!r}, not a function build(input_shape, num_classes).")


_BUILT_IN: dict[str, Builder] = {
    "small-cnn": _small_cnn,
    "mlp": _for_vectors("mlp", MLP),
    "linear": _for_vectors("linear", RootLinear),
    **{name: _for_images(name, make, smallest) for name, (make, smallest) in _IMAGES.items()},
}
NETWORKS: Registry[Builder] = Registry("network", "pals.networks", _BUILT_IN, _check)
"""Functions (input_shape, num_classes) -> Network by name; a plug-in adds its own."""

__all__ = ["MLP", "NETWORKS", "LoadReport", "Network", "Output", "SmallCNN", "build_network", "load_weights"]
