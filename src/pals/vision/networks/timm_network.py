"""Networks of the package timm as `Network`: `timm:NAME`. timm is optional and imported only for such a name."""

from __future__ import annotations

import difflib
import importlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from pals.util.errors import InputError
from pals.util.words import pip_install
from pals.vision.networks.network import Network, Output
from pals.vision.networks.resnets import IMAGENET

PREFIX = "timm:"
DOWNLOAD = "timm"
"""In place of a weights file: timm downloads its own pretrained weights."""
CLIP_HEADS = ("visual.proj", "module.visual.proj")
"""Projections of images to the space of texts, in files with both networks of a CLIP."""


class TimmNetwork(Network):
    """A timm network without its head, followed by our classifier.

    `mean` and `std` are those of the images (pixels from 0 to 1) that timm's pretrained weights were trained on.
    """

    def __init__(self, body: nn.Module, width: int, num_classes: int, about: dict[str, Any]) -> None:
        super().__init__()
        self.body = body
        self.classifier = nn.Linear(width, num_classes)
        self.mean: tuple[float, ...] = tuple(about["mean"])
        self.std: tuple[float, ...] = tuple(about["std"])

    def encode(self, x: Tensor) -> Tensor:
        single = self.training and len(x) == 1  # one item has no statistics: as in `Norm`, the running ones are used
        modules = self.body.modules() if single else ()
        norms = [module for module in modules if isinstance(module, nn.modules.batchnorm._BatchNorm)]
        for norm in norms:
            norm.eval()
        try:
            features: Tensor = self.body(x)
            return features
        finally:
            for norm in norms:
                norm.train()

    def each(self, views: Sequence[Tensor]) -> list[Output]:
        """One pass per view: timm's norms cannot separate several batches in one pass."""
        return [self(view) for view in views]


def build_timm(name: str, input_shape: tuple[int, ...], num_classes: int, *, weights: str | Path | None = None) -> TimmNetwork:
    """Builds a network of timm.

    Args:
        name: Name in timm, with or without "timm:" before it.
        input_shape: Channels, height and width of an image.
        num_classes: Two or more.
        weights: A .pt, .pth or .safetensors file as timm's networks save it, with or without a head; "timm" lets timm download
            its own; default None: newly initialised.

    Raises:
        InputError: timm is not installed, has no such network, or the network, the images and the weights do not fit.
    """
    timm, name = _known(name)
    if len(input_shape) != 3 or min(input_shape) < 1:
        raise InputError(f"Network 'timm:{name}' reads images, but one input has shape {tuple(input_shape)}.")
    if num_classes < 2:
        raise InputError(f"A network needs at least two classes to tell apart; found {num_classes}.")
    with _as_input_error(f"timm cannot make {name!r} for images of shape {tuple(input_shape)}"):
        body = _create(timm, name, input_shape, num_classes=0)
    if weights == DOWNLOAD:
        body = _download(timm, name, input_shape)
    elif weights is not None:
        _load(timm, body, name, input_shape, Path(weights))
    width = _feature_width(body, name, input_shape)
    return TimmNetwork(body, width, num_classes, body.pretrained_cfg)


def native_size(name: str) -> int:
    """Pixels a side of the images that timm's weights of this network were trained on."""
    about = _about(name)
    return 224 if about is None else int(about.input_size[1])


def native_statistics(name: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of these images, without building the network."""
    about = _about(name)
    return IMAGENET if about is None else (tuple(about.mean), tuple(about.std))


def _about(name: str) -> Any:
    """timm's description of the weights of this network, or None."""
    timm, name = _known(name)
    return timm.get_pretrained_cfg(name)


def _known(name: str) -> tuple[ModuleType, str]:
    """timm, and the name of the network in it."""
    try:
        timm = importlib.import_module("timm")
    except ImportError:
        raise InputError(f"Network {name!r} needs the package timm: {pip_install('timm')}.") from None
    except RuntimeError as error:  # a torchvision that was built for another torch
        reason = _first_lines(error)
        raise InputError(f"The package timm cannot be used here: {reason}. Reinstall torch and torchvision.") from None
    name = name.removeprefix(PREFIX)
    if not timm.is_model(name.partition(".")[0]):
        near = difflib.get_close_matches(name.lower(), timm.list_models(), n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise InputError(f"Unknown timm network {name!r}: {hint}timm.list_models() lists all of them.")
    return timm, name


@contextmanager
def _as_input_error(found: str, hint: str = "") -> Iterator[None]:
    """Any error in this block becomes an InputError: those of timm, of the hub and of readers have no common class."""
    try:
        yield
    except Exception as error:
        # torch's advice to trust a file is not repeated
        unsafe = "weights_only" in str(error) or "Weights only" in str(error)
        reason = "it is damaged, or holds Python objects besides tensors" if unsafe else _first_lines(error)
        raise InputError(f"{found}: {reason}.{hint}") from None


def _create(timm: ModuleType, name: str, input_shape: tuple[int, ...], **options: Any) -> Any:
    """timm's network for this shape; networks of a fixed size (transformers) get ours."""
    about = timm.get_pretrained_cfg(name)
    if about is not None and about.fixed_input_size:
        options["img_size"] = tuple(input_shape[1:])
    return timm.create_model(name, in_chans=input_shape[0], **options)


def _download(timm: ModuleType, name: str, input_shape: tuple[int, ...]) -> Any:
    """The network with timm's own weights. Without a connection the hub's client would log each attempt."""
    hub = logging.getLogger("huggingface_hub")
    level = hub.level
    hub.setLevel(logging.CRITICAL)
    hint = " Go online, or download the file elsewhere and give it as --weights FILE."
    try:
        with _as_input_error(f"timm could not download the weights of {name!r}", hint):
            return _create(timm, name, input_shape, num_classes=0, pretrained=True)
    finally:
        hub.setLevel(level)


def _load(timm: ModuleType, body: Any, name: str, input_shape: tuple[int, ...], path: Path) -> None:
    """Loads all weights of the body from a file.

    timm reads it (tensors only), replaces names of older files and resizes position embeddings. It checks every name, so it
    gets a network with a head like the file's.
    """
    if not path.is_file():
        raise InputError(f"There is no weights file {path}. Check the path, or write weights='timm' to let timm download them.")
    with _as_input_error(f"Cannot read the weights file {path}", " Fetch it again, or save it again with tensors only."):
        state = timm.models.load_state_dict(str(path), weights_only=True)
        heads = body.pretrained_cfg.get("classifier") or ()
        state = {key: value for key, value in state.items() if isinstance(value, Tensor)}
        classes = _outputs(state, (heads,) if isinstance(heads, str) else tuple(heads))
    if not state:  # timm would take nothing for no file at all, and download one
        raise InputError(f"{path} holds no weights. Save the `state_dict()` of the model there.")
    overlay = {"state_dict": state, "num_classes": classes, "custom_load": False, "label_offset": 0}
    hint = " Name the network that the file was saved from."
    with _as_input_error(f"The weights in {path} do not fit timm's {name!r}", hint):
        whole = _create(timm, name, input_shape, num_classes=classes, pretrained=True, pretrained_cfg_overlay=overlay)
    wanted = body.state_dict()
    body.load_state_dict({key: value for key, value in whole.state_dict().items() if key in wanted})


def _outputs(state: Mapping[str, Tensor], heads: tuple[str, ...]) -> int:
    """Number of outputs of the head in a file; 0 without one. The head of a CLIP of OpenAI is transposed."""
    own = [len(state[f"{head}.weight"]) for head in heads if f"{head}.weight" in state]
    clip = [state[name].shape[1] for name in CLIP_HEADS if name in state]
    return next(iter(own + clip), 0)


def _feature_width(body: nn.Module, name: str, input_shape: tuple[int, ...]) -> int:
    """Width of the features, by a trial: timm's own number is wrong for some networks, and some need larger images."""
    was_training = body.training
    body.eval()
    found = f"Network 'timm:{name}' cannot read images of shape {tuple(input_shape)}"
    try:
        with _as_input_error(found, " Give larger images, or choose another network."), torch.inference_mode():
            features: Tensor = body(torch.zeros(1, *input_shape))
    finally:
        body.train(was_training)
    if features.ndim != 2:
        raise InputError(f"Network 'timm:{name}' gives features of shape {tuple(features.shape[1:])} per image, not a vector.")
    return features.shape[1]


def _first_lines(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = " ".join(lines[:2]) if lines else type(error).__name__
    return text.rstrip(".") if len(text) < 300 else f"{text[:297]}..."
