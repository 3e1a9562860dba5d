"""The features of a frozen network, kept in the run's folder: computed once, read back when the run is resumed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from pals.data import Inputs
from pals.data.row_source import in_blocks
from pals.model.saved import checksum
from pals.training.inference import OnBatch
from pals.util.files import write_bytes
from pals.vision.networks import Network

FILE_NAME = "features.safetensors"
FORMAT = 1
TEXT = "pals"  # the one key of the file's metadata


@dataclass(frozen=True)
class Features:
    """What a frozen network makes of all items."""

    features_ND: Tensor
    responses_ND: Tensor | None = None
    "To patches, where they are not too many to be kept."
    learned: dict[str, Tensor] = field(default_factory=dict)
    "State of an encoder that was learned from the pictures themselves."


def content_mark(inputs: Inputs, progress: OnBatch = lambda done, total: None) -> str:
    """Changes with any pixel or number, and with the order of the items."""
    mark = hashlib.blake2b(repr((tuple(inputs.shape), inputs.dtype)).encode(), digest_size=12)
    done = 0
    for part in in_blocks(inputs):
        mark.update(part.contiguous().numpy().data)
        progress(done := done + len(part), len(inputs))
    return mark.hexdigest()


def features_mark(content: str, network: str, encoder: Network, more: Sequence[object]) -> str:
    """Changes with the pictures, the kind of network, any of its weights (its own classifier is not asked), and `more`."""
    mark = hashlib.blake2b(repr((content, network, *more)).encode(), digest_size=12)
    for name, value in body_of(encoder).items():
        mark.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        mark.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return mark.hexdigest()


def body_of(encoder: Network) -> dict[str, Tensor]:
    """All weights and statistics but those of the encoder's own classifier."""
    return {name: value for name, value in encoder.state_dict().items() if not name.startswith("classifier.")}


def write_features(folder: Path, mark: str, kept: Features) -> None:
    """Write the file, whole or not at all."""
    tensors = {"features": kept.features_ND, **{f"learned.{name}": value for name, value in kept.learned.items()}}
    if kept.responses_ND is not None:
        tensors["responses"] = kept.responses_ND
    tensors = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    about = {"format": FORMAT, "mark": mark}
    text = json.dumps({**about, "sha256": checksum(about, tensors)})
    write_bytes(folder / FILE_NAME, to_bytes(tensors, {TEXT: text}))


def read_features(folder: Path, mark: str) -> Features | None:
    """What was kept under this mark; None where there is nothing, something else, or a damaged file: it is made again."""
    about = {"format": FORMAT, "mark": mark}
    try:
        with safe_open(str(folder / FILE_NAME), framework="pt", device="cpu") as file:
            found = json.loads((file.metadata() or {}).get(TEXT, "{}"))
            if {key: found.get(key) for key in about} != about:
                return None
            tensors = {name: file.get_tensor(name) for name in list(file.keys())}
    except (OSError, SafetensorError, ValueError):
        return None
    if found.get("sha256") != checksum(about, tensors) or "features" not in tensors:
        return None
    learned = {name.removeprefix("learned."): value for name, value in tensors.items() if name.startswith("learned.")}
    return Features(tensors["features"], tensors.get("responses"), learned)
