"""Which encoder looks at the pictures: the one that was named, or the one whose features predict people's answers best."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from pals.crowd.closed_form import picture_gain
from pals.data import find_weights
from pals.fitting.store import encode_kept
from pals.fitting.votes import answered
from pals.readers import Votes
from pals.runs.settings import VotesConfig
from pals.training.encoding import encode
from pals.util.errors import InputError, unknown
from pals.util.words import how_many
from pals.vision.backbones.timm import DOWNLOAD, PREFIX, native_size
from pals.vision.encoders import (
    ENCODERS,
    ENDINGS,
    PATCHES,
    Encoder,
    availability,
    find_encoder,
    input_size,
    network_of_file,
    weights_file,
)
from pals.vision.images import load_images

AUTO = "auto"
DEFAULT = "efficientnet-lite0"
SAMPLE = 400
"""Pictures on which encoders are compared."""
PATCHED = (32, 64)
"""Pixels a side of pictures that patches are cut from; larger ones show them no more, and take longer."""


class Choice(NamedTuple):
    name: str
    reason: str


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
        return {"name": encoder, "frozen": frozen, **({} if frozen else {"weights": str(path)})}
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
    raise unknown("encoder", encoder, (AUTO, *ENCODERS, f"{PREFIX}NAME", "FILE.pth"))


def size_for(name: str, side: int) -> int:
    """Pixels a side at which the pictures are decoded for a frozen network, their shorter side being `side`."""
    if name == PATCHES:
        return next((size for size in PATCHED if side <= 1.5 * size), PATCHED[-1])
    if name.startswith(PREFIX):
        return native_size(name)
    listed = ENCODERS.get(name)
    return input_size(listed.size if listed is not None and listed.size else 224, side)


def choose_encoder(data: VotesConfig, votes: Votes, side: int, cache: Path, device: str = "cpu") -> Choice:
    """Patches or EfficientNet-Lite0: whichever helps more to predict answers that were left out, on a sample of pictures."""
    found = availability(ENCODERS[DEFAULT])
    if not found.ready:
        return Choice(PATCHES, f"Encoder: {PATCHES}, cut from your own pictures. {found.reason}")
    row = np.flatnonzero(answered(votes))
    sample = [votes.items[r] for r in row[:: -(-len(row) // SAMPLE)]]
    gain = {name: _gain(name, data, votes, sample, size_for(name, side), cache, device) for name in (DEFAULT, PATCHES)}
    best, other = sorted(gain, key=lambda name: -gain[name])
    words = f"on {how_many(len(sample), 'picture')}: a gain of {gain[best]:.3f} nats an answer against {gain[other]:.3f}"
    if gain[best] <= 0:
        return Choice(DEFAULT, f"Encoder: {DEFAULT}; neither it nor {PATCHES} helps to predict people's answers {words}.")
    return Choice(best, f"Encoder: {best}, which predicts people's answers better than {other} ({words}).")


def _gain(name: str, data: VotesConfig, votes: Votes, sample: list[str], size: int, cache: Path, device: str) -> float:
    table = load_images(Path(data.images or ""), size, cache=cache, names=sample, skip_bad=True, how=data.resize)
    part, _ = votes.match(table.names)
    return picture_gain(part, _features(name, table.images, cache, device))


def _features(name: str, images: Tensor, cache: Path, device: str) -> Tensor:
    if name == PATCHES:
        return encode(images, find_encoder(PATCHES, images=images), device)
    found = find_encoder(name)
    as_they_are = Encoder(name, found.network, None, found.mean, found.std, found.sha256, found.licence)
    return encode_kept(images, as_they_are, cache, device)[0]
