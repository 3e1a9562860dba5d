"""Weights from a local checkpoint into a network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from pals.util.errors import InputError
from pals.util.words import in_short, quoted
from pals.vision.networks.network import Network

WRAPPERS = ("state_dict", "model", "model_state_dict", "network")
"""Keys of the weights in the checkpoints of training scripts."""

PREFIXES = ("module.", "model.", "encoder.", "backbone.", "network.", "_orig_mod.")
"""Prefixes of parameter names by wrappers: parallel training, compilation, a model around the encoder."""

FOREIGN_HEAD = "fc."
"""The ImageNet classifier of torchvision and timm, never loaded, since its classes are others."""

OWN_HEADS = ("classifier.", "projection.")
"""New layers on a pretrained encoder, which a checkpoint may lack."""


@dataclass(frozen=True)
class LoadReport:
    """Names of parameters: loaded, dropped (not loaded on purpose), and fresh (not in the file, so newly initialised)."""

    path: Path
    loaded: tuple[str, ...]
    dropped: tuple[str, ...]
    fresh: tuple[str, ...]


def load_weights(network: Network, path: Path | str, *, classifier: bool = True) -> LoadReport:
    """Loads weights from a file with torchvision's, timm's or our own names, all or none.

    Args:
        network: The network to fill.
        path: A .pt, .pth or .safetensors file.
        classifier: Whether to load the file's classifier; False for other classes. Default True.

    Returns:
        `LoadReport`: what was loaded.

    Raises:
        InputError: The file is missing or damaged, or its weights do not fit; it names them, and the network is unchanged.
    """
    path = Path(path)
    found = {network.own_name(name): value for name, value in read_weights(path).items()}
    left_out = (FOREIGN_HEAD,) if classifier else (FOREIGN_HEAD, "classifier.")
    dropped = tuple(name for name in found if name.startswith(left_out))
    found = {name: value for name, value in found.items() if name not in dropped}
    own: dict[str, Tensor] = network.state_dict()
    _check_fit(found, own, path)
    _check_values(found, own, path)
    with torch.no_grad():
        for name, value in found.items():
            own[name].copy_(value)
    return LoadReport(path, tuple(found), dropped, tuple(name for name in own if name not in found))


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors in a file of weights by name, without the prefixes of wrappers."""
    result: dict[str, Tensor] = {}
    for full_name, value in _unwrap(_read(path), path).items():
        name = full_name
        while prefix := next((p for p in PREFIXES if name.startswith(p)), ""):
            name = name.removeprefix(prefix)
        if name in result and not name.startswith(FOREIGN_HEAD):
            raise InputError(f"{path} holds {quoted(name)} twice, by prefix. Save one model's `state_dict()` alone.")
        result[name] = value
    return result


def _read(path: Path) -> Any:
    if not path.is_file():
        raise InputError(f"There is no weights file {path}. Check the path; weights are never downloaded.")
    try:
        if path.suffix == ".safetensors":
            return load_file(path, device="cpu")
        return torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise InputError(f"Cannot read the weights file {path}: {error.strerror or error}.") from None
    except Exception as error:  # readers of damaged files fail in many ways: zip, pickle, header, end of file
        if "Unsupported global" in str(error):
            raise InputError(f"{path} holds Python objects, which could run code. Save only the `state_dict()`.") from None
        raise InputError(f"{path} is damaged or not a checkpoint. Get or save it again as .pt, .pth or .safetensors.") from None


def _unwrap(value: Any, path: Path) -> dict[str, Tensor]:
    """The mapping from names to tensors, at any depth of the checkpoint; other entries (epoch, options) are ignored."""
    while isinstance(value, Mapping):
        inner = next((value[key] for key in WRAPPERS if isinstance(value.get(key), Mapping)), None)
        if inner is None:
            break
        value = inner
    tensors = {str(k): v for k, v in value.items() if isinstance(v, Tensor)} if isinstance(value, Mapping) else {}
    if not tensors:
        what = f"a {type(value).__name__}"
        if isinstance(value, Mapping):
            what = f"the keys {_some(map(str, value))}" if value else "an empty dictionary"
        raise InputError(f"{path} holds no weights, but {what}. Save the `state_dict()` of the model there.")
    return tensors


def _check_fit(found: Mapping[str, Tensor], own: Mapping[str, Tensor], path: Path) -> None:
    """Every difference between checkpoint and network, in one error."""
    missing = [name for name in own if name not in found and not name.startswith(OWN_HEADS)]
    missing = [name for name in missing if not name.endswith("num_batches_tracked")]  # absent from files of before 2018
    unexpected = [name for name in found if name not in own]
    shapes = [
        f"{name} {tuple(value.shape)} instead of {tuple(own[name].shape)}"
        for name, value in found.items()
        if name in own and value.shape != own[name].shape
    ]
    parts = [("missing", missing), ("unexpected", unexpected), ("of another shape", shapes)]
    faults = [f"{kind}: {_some(names)}" for kind, names in parts if names]
    if faults:
        raise InputError(f"Weights in {path} do not fit the network; {'; '.join(faults)}. {_hint(missing, unexpected, shapes)}")


def _check_values(found: Mapping[str, Tensor], own: Mapping[str, Tensor], path: Path) -> None:
    """Raises unless all values are finite floating-point numbers in the precision of the network."""
    for name, value in found.items():
        if not own[name].is_floating_point():
            continue
        if not value.is_floating_point():
            kind = str(value.dtype).removeprefix("torch.")
            raise InputError(
                f"The weights in {path} are not floating-point numbers: {in_short(name)} is {kind}. "
                "Save those of the model before it was quantised or converted."
            )
        refuse_not_finite({name: value.to(own[name].dtype)}, path)


def refuse_not_finite(weights: Mapping[str, Tensor], path: Path, hint: str = "Take one from before that happened") -> None:
    """Raises if a weight is NaN or infinite."""
    for name, value in weights.items():
        bad = int((~value.isfinite()).sum())
        if bad:
            raise InputError(
                f"The weights in {path} are damaged: {bad} of the {value.numel()} values of {in_short(name)} are NaN or "
                f"infinite. {hint}."
            )


def _hint(missing: list[str], unexpected: list[str], shapes: list[str]) -> str:
    if not missing and not unexpected:
        if all(text.startswith("classifier.") for text in shapes):
            return "It was trained on other classes: load it with classifier=False to take the encoder alone."
        if len(shapes) == 1 and shapes[0].startswith("conv1."):
            return "Only the first layer differs: choose the network with that stem, or give images with as many channels."
    return "Choose the network that the file was made for."


def _some(names: Iterable[str], limit: int = 4) -> str:
    """The first few names and the number of the others."""
    every = list(names)
    more = f" and {len(every) - limit} more" if len(every) > limit else ""
    return ", ".join(map(in_short, every[:limit])) + more
