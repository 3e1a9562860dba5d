"""What `--encoder NAME` means: settings of the network, and the size at which it sees pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pals.data import find_weights
from pals.util.errors import InputError
from pals.vision.networks.timm_network import DOWNLOAD, PREFIX, native_size
from pals.vision.pretrained import ENCODERS, ENDINGS, PATCHES, input_size, network_of_file, unknown_encoder, weights_file

AUTO = "auto"
PATCHED = (32, 64)
"""Pixels a side of pictures that patches are cut from; larger ones show them no more, and take longer."""


def network_settings(encoder: str, weights: str | Path | None = None, frozen: bool | None = None) -> dict[str, Any]:
    """What `--encoder NAME` means as settings of the network."""
    frozen = True if frozen is None else frozen
    if encoder in (AUTO, *ENCODERS) and weights is not None:
        raise InputError(f"Encoder {encoder!r} has weights of its own: leave out --weights, or give that file as --encoder.")
    if encoder in (AUTO, PATCHES):
        if not frozen:
            raise InputError(f"Encoder {encoder!r} cannot be trained: name a pretrained one (`pals encoders`) for --no-frozen.")
        return {"name": encoder, "frozen": True}
    if encoder in ENCODERS:
        path = weights_file(ENCODERS[encoder])
        return {"name": encoder, "frozen": frozen, **({} if frozen or path is None else {"weights": str(path)})}
    if encoder.startswith(PREFIX):
        if weights is None:
            raise InputError(
                f"Encoder {encoder!r} needs pretrained weights: --weights FILE, or --weights {DOWNLOAD} to let timm download "
                "its own."
            )
        return {"name": encoder, "frozen": frozen, "weights": str(weights)}
    if encoder.endswith(ENDINGS):
        path = Path(find_weights(encoder))
        return {"name": network_of_file(path), "frozen": frozen, "weights": str(path.resolve())}
    raise unknown_encoder(encoder, AUTO)


def dataset_network_settings(encoder: str, weights: str | Path | None = None, frozen: bool | None = None) -> dict[str, Any]:
    """The same for a data set, whose own recipe may name other weights."""
    if encoder == AUTO:
        raise InputError(f"Encoder {AUTO!r} compares encoders by people's answers, which `pals fit` has: name one here.")
    return {"weights": None, **network_settings(encoder, weights, frozen), "adapt": True}


def size_for(name: str, side: int) -> int:
    """Pixels a side at which the pictures are decoded for a pretrained network, their shorter side being `side`."""
    if name == PATCHES:
        return next((size for size in PATCHED if side <= 1.5 * size), PATCHED[-1])
    if name.startswith(PREFIX):
        return native_size(name)
    listed = ENCODERS.get(name)
    return input_size(listed.size if listed is not None and listed.size else 224, side)
