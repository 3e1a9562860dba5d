"""Networks of the package timm behind our interface: `timm:NAME`. timm is optional and imported only when asked for."""

from __future__ import annotations

import difflib
import importlib
import logging
from collections.abc import Mapping, Sequence
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
"""The word that, in place of a weights file, lets timm fetch its own pretrained weights."""
CLIP_HEADS = ("visual.proj", "module.visual.proj")
"""What maps images to the space of texts, in files that hold both networks of a CLIP."""


class TimmNetwork(Network):
    """A timm network without its head, then our classifier. `mean` and `std` are those of the images, with pixels from
    0 to 1, that timm's pretrained weights were made for."""

    def __init__(self, body: nn.Module, width: int, num_classes: int, about: dict[str, Any]) -> None:
        super().__init__()
        self.body = body
        self.classifier = nn.Linear(width, num_classes)
        self.mean: tuple[float, ...] = tuple(about["mean"])
        self.std: tuple[float, ...] = tuple(about["std"])

    def encode(self, x: Tensor) -> Tensor:
        if not self.training or len(x) > 1:
            return self._features(x)
        norms = [module for module in self.body.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
        for norm in norms:  # one item has no statistics of its own: as in `Norm`, the running ones are used
            norm.eval()
        try:
            return self._features(x)
        finally:
            for norm in norms:
                norm.train()

    def _features(self, x: Tensor) -> Tensor:
        features: Tensor = self.body(x)
        return features

    def each(self, views: Sequence[Tensor]) -> list[Output]:
        """One pass after the other: timm's norms cannot keep several batches apart in one."""
        return [self(view) for view in views]


def build_timm(name: str, input_shape: tuple[int, ...], num_classes: int, *, weights: str | Path | None = None) -> TimmNetwork:
    """The network that timm calls `name` (with or without "timm:" before it) for images of this shape.

    weights: a local .pt, .pth or .safetensors file as timm's networks save it, with or without a head; "timm" lets timm
    download its own; None leaves the network newly initialised. Nothing is ever downloaded unasked.
    """
    timm, name = _known(name)
    if len(input_shape) != 3 or min(input_shape) < 1:
        raise InputError(f"Network 'timm:{name}' reads images, but one input has shape {tuple(input_shape)}.")
    if num_classes < 2:
        raise InputError(f"A network needs at least two classes to tell apart; found {num_classes}.")
    body = _create(timm, name, input_shape, num_classes=0)
    if weights == DOWNLOAD:
        body = _download(timm, name, input_shape)
    elif weights is not None:
        _load(timm, body, name, input_shape, Path(weights))
    width = _feature_width(body, name, input_shape)
    return TimmNetwork(body, width, num_classes, body.pretrained_cfg)


def native_size(name: str) -> int:
    """Pixels a side of the images that timm's weights of this network were trained with."""
    about = _about(name)
    return 224 if about is None else int(about.input_size[1])


def native_statistics(name: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation of those images; as `TimmNetwork` has them, without making one."""
    about = _about(name)
    return IMAGENET if about is None else (tuple(about.mean), tuple(about.std))


def _about(name: str) -> Any:
    """What timm knows of the weights of this network; None without any."""
    timm, name = _known(name)
    return timm.get_pretrained_cfg(name)


def _known(name: str) -> tuple[ModuleType, str]:
    """timm, and the name that it has for the network."""
    timm, name = _import_timm(name), name.removeprefix(PREFIX)
    if not timm.is_model(name.partition(".")[0]):
        near = difflib.get_close_matches(name.lower(), timm.list_models(), n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise InputError(f"Unknown timm network {name!r}: {hint}timm.list_models() lists all of them.")
    return timm, name


def _import_timm(name: str) -> ModuleType:
    try:
        return importlib.import_module("timm")
    except ImportError:
        raise InputError(f"Network {name!r} needs the package timm: {pip_install('timm')}.") from None
    except RuntimeError as error:  # a torchvision that was built for another torch
        raise InputError(
            f"The package timm cannot be used here: {_first_line(error)}. Reinstall torch and torchvision."
        ) from None


def _download(timm: ModuleType, name: str, input_shape: tuple[int, ...]) -> Any:
    """The hub's client tries again and again without a connection, and logs each time; one sentence at the end is enough."""
    hub = logging.getLogger("huggingface_hub")
    level = hub.level
    hub.setLevel(logging.CRITICAL)
    try:
        return _made(timm, name, input_shape, num_classes=0, pretrained=True)
    except Exception as error:  # of the network, of the hub, of the file: they have no common class
        reason = _first_line(error).partition(". ")[0]
        raise InputError(
            f"timm could not download the weights of {name!r} ({reason}): go online, or download the file elsewhere and "
            "give it as --weights FILE."
        ) from None
    finally:
        hub.setLevel(level)


def _made(timm: ModuleType, name: str, input_shape: tuple[int, ...], **options: Any) -> Any:
    """timm's network for this shape; those made for one size (transformers) are told ours."""
    about = timm.get_pretrained_cfg(name)
    if about is not None and about.fixed_input_size:
        options["img_size"] = tuple(input_shape[1:])
    return timm.create_model(name, in_chans=input_shape[0], **options)


def _create(timm: ModuleType, name: str, input_shape: tuple[int, ...], **options: Any) -> Any:
    try:
        return _made(timm, name, input_shape, **options)
    except Exception as error:  # what timm raises differs from network to network: assertions, type errors, no connection
        raise InputError(f"timm cannot make {name!r} for images of shape {tuple(input_shape)}: {_first_line(error)}.") from None


def _load(timm: ModuleType, body: Any, name: str, input_shape: tuple[int, ...], path: Path) -> None:
    """All of the body's weights from a file, or an error. timm reads it (tensors only), renames what older files call
    otherwise and brings position embeddings to our size; to have it check every name, it is given a head like the file's."""
    if not path.is_file():
        raise InputError(f"There is no weights file {path}. Check the path, or write weights='timm' to let timm download them.")
    try:
        state = timm.models.load_state_dict(str(path), weights_only=True)
        heads = body.pretrained_cfg.get("classifier") or ()
        state = {key: value for key, value in state.items() if isinstance(value, Tensor)}
        classes = _outputs(state, _tuple(heads))
    except Exception as error:  # readers of damaged files fail in many ways; torch's advice to trust a file is not repeated
        reason = "it is damaged, or holds Python objects besides tensors" if "weights" in str(error) else _first_line(error)
        raise InputError(
            f"Cannot read the weights file {path}: {reason}. Fetch it again, or save it again with tensors only."
        ) from None
    if not state:  # timm would take nothing for no file at all, and download one
        raise InputError(f"{path} holds no weights. Save the `state_dict()` of the model there.")
    overlay = {"state_dict": state, "num_classes": classes, "custom_load": False, "label_offset": 0}
    try:
        whole = _made(timm, name, input_shape, num_classes=classes, pretrained=True, pretrained_cfg_overlay=overlay)
    except Exception as error:  # as in `_create`
        raise InputError(
            f"The weights in {path} do not fit timm's {name!r} ({_first_line(error)}). Name the network that the "
            "file was saved from."
        ) from None
    wanted = body.state_dict()
    body.load_state_dict({key: value for key, value in whole.state_dict().items() if key in wanted})


def _outputs(state: Mapping[str, Tensor], heads: tuple[str, ...]) -> int:
    """How many outputs the head in a file has; 0 without one. That of a CLIP as OpenAI saves it lies the other way round."""
    own = [len(state[f"{head}.weight"]) for head in heads if f"{head}.weight" in state]
    clip = [state[name].shape[1] for name in CLIP_HEADS if name in state]
    return next(iter(own + clip), 0)


def _feature_width(body: nn.Module, name: str, input_shape: tuple[int, ...]) -> int:
    """By trying it: what timm says of itself is not right for every network, and some need larger images than ours."""
    was_training = body.training
    body.eval()
    try:
        with torch.inference_mode():
            features: Tensor = body(torch.zeros(1, *input_shape))
    except (RuntimeError, ValueError, AssertionError, IndexError) as error:
        raise InputError(
            f"Network 'timm:{name}' cannot read images of shape {tuple(input_shape)}: {_first_line(error)}. "
            f"Give larger images, or choose another network."
        ) from None
    finally:
        body.train(was_training)
    if features.ndim != 2:
        raise InputError(f"Network 'timm:{name}' gives features of shape {tuple(features.shape[1:])} per image, not a vector.")
    return features.shape[1]


def _tuple(value: str | tuple[str, ...]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = " ".join(lines[:2]) if lines else type(error).__name__
    return text.rstrip(".") if len(text) < 300 else f"{text[:297]}..."
