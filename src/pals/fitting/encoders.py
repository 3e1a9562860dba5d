"""Which encoder looks at the pictures where nobody named one: that whose features predict people's answers best."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from torch import Tensor

from pals.crowd.closed_form import picture_gain
from pals.fitting.monitor import Monitor
from pals.fitting.pictures import read_pictures
from pals.fitting.votes import answered
from pals.readers import Votes
from pals.runs.encoders import size_for
from pals.runs.settings import VotesConfig
from pals.runs.store import encode_kept
from pals.training.encoding import encode
from pals.util.words import how_many
from pals.vision.encoders import ENCODERS, PATCHES, Encoder, availability, find_encoder

DEFAULT = "efficientnet-lite0"
SAMPLE = 400
"""Pictures on which encoders are compared."""


class Choice(NamedTuple):
    name: str
    reason: str
    encoded: int = 0
    "Pictures that this encoder looked at for the first time when it was compared."


def choose_encoder(data: VotesConfig, votes: Votes, side: int, cache: Path, device: str = "cpu") -> Choice:
    """Patches or EfficientNet-Lite0: whichever helps more to predict answers that were left out, on a sample of pictures."""
    found = availability(ENCODERS[DEFAULT])
    if not found.ready:
        return Choice(PATCHES, f"Encoder: {PATCHES}, cut from your own pictures. {found.reason}")
    row = np.flatnonzero(answered(votes))
    sample = [votes.items[r] for r in row[:: -(-len(row) // SAMPLE)]]
    tried = {name: _try(name, data, votes, sample, size_for(name, side), cache, device) for name in (DEFAULT, PATCHES)}
    best, other = sorted(tried, key=lambda name: -tried[name].gain)
    on = f"on {how_many(len(sample), 'picture')}"
    if tried[best].gain <= 0:
        reason = f"Encoder: {DEFAULT}; neither it nor {PATCHES} helps to predict people's answers ({on})."
        return Choice(DEFAULT, reason, tried[DEFAULT].encoded)
    likelier = f"{on} it makes an answer {np.expm1(tried[best].gain):.1%} likelier, {other} {np.expm1(tried[other].gain):.1%}"
    reason = f"Encoder: {best}, which predicts people's answers better than {other} ({likelier})."
    return Choice(best, reason, tried[best].encoded)


class Tried(NamedTuple):
    gain: float
    encoded: int


def _try(name: str, data: VotesConfig, votes: Votes, sample: list[str], size: int, cache: Path, device: str) -> Tried:
    inputs, names, _ = read_pictures(replace(data, size=size, skip_bad=True), sample, cache, None, Monitor())
    part, _ = votes.match(names)
    features_ND, encoded = _features(name, inputs[:], cache, device)
    return Tried(picture_gain(part, features_ND), encoded)


def _features(name: str, images: Tensor, cache: Path, device: str) -> tuple[Tensor, int]:
    """And how many pictures had to be encoded; what patches make of a sample is not kept."""
    if name == PATCHES:
        return encode(images, find_encoder(PATCHES, images=images), device), 0
    found = find_encoder(name)
    as_they_are = Encoder(name, found.network, None, found.mean, found.std, found.sha256, found.licence)
    return encode_kept(images, as_they_are, cache, device)
