"""Which encoder looks at the pictures where nobody named one: that whose features predict people's answers best."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pals.crowd.closed_form import picture_gain
from pals.pipeline.progress import Monitor
from pals.pipeline.stages.images import read_pictures
from pals.pipeline.stages.patches import PatchSettings, SeenPatches, by_patches
from pals.pipeline.stages.read_answers import answered
from pals.readers import Votes
from pals.runs.extractor import Normalisation, frozen_network, patches_name, size_for, sized_encoder
from pals.runs.feature_cache import content_mark, encode_cached
from pals.runs.run_config import NetworkConfig, VotesConfig
from pals.training.extract import encode
from pals.util.even_sample import evenly_spaced
from pals.util.words import how_many
from pals.vision.images.pixel_statistics import image_statistics
from pals.vision.networks import Network
from pals.vision.networks.patch_features import PatchNetwork
from pals.vision.pretrained import ENCODERS, PATCHES, availability, find_encoder

DEFAULT = "efficientnet-lite0"
SAMPLE = 400
"""Pictures on which encoders are compared."""


class Choice(NamedTuple):
    name: str
    reason: str
    encoded: int = 0
    "Pictures that this encoder looked at for the first time when it was compared."
    seen: SeenPatches | None = None
    "What patches made of them, if they are chosen."


@dataclass(frozen=True)
class Trial:
    """What encoders are compared on, and what the run will do with the one that is chosen."""

    data: VotesConfig
    votes: Votes
    side: int
    "Of the pictures: the median of the shorter ones, in pixels."
    cache: Path
    device: str
    seed: int
    solved: bool
    "Nothing will be trained on the features."

    @cached_property
    def sample(self) -> list[str]:
        row = np.flatnonzero(answered(self.votes))
        return [self.votes.items[r] for r in row[evenly_spaced(len(row), SAMPLE).numpy()]]


def choose_encoder(trial: Trial) -> Choice:
    """Patches or EfficientNet-Lite0: whichever helps more to predict answers that were left out, on a sample of pictures."""
    found = availability(ENCODERS[DEFAULT])
    if not found.ready:
        return Choice(PATCHES, f"Encoder: {PATCHES}, cut from your own pictures. {found.reason}")
    tried = {name: _try(name, trial) for name in (DEFAULT, PATCHES)}
    best, other = sorted(tried, key=lambda name: -tried[name].gain)
    on = f"on {how_many(len(trial.sample), 'picture')}"
    if tried[best].gain <= 0:
        reason = f"Encoder: {DEFAULT}; neither it nor {PATCHES} helps to predict people's answers ({on})."
        return Choice(DEFAULT, reason, tried[DEFAULT].encoded)
    gains = [f"{np.expm1(tried[name].gain):.1%}" for name in (best, other)]
    how = "as well as" if gains[0] == gains[1] else "better than"
    likelier = f"{on} it makes an answer {gains[0]} likelier, {other} {gains[1]}"
    reason = f"Encoder: {best}, which predicts people's answers {how} {other} ({likelier})."
    return Choice(best, reason, tried[best].encoded, tried[best].seen)


class Tried(NamedTuple):
    gain: float
    encoded: int = 0
    seen: SeenPatches | None = None


def _try(name: str, trial: Trial) -> Tried:
    data = replace(trial.data, size=size_for(name, trial.side), skip_bad=True)
    inputs, names, _ = read_pictures(data, trial.sample, trial.cache, None, Monitor())
    part, _ = trial.votes.match(names)
    if name == PATCHES:
        seen = _by_patches(inputs[:], trial)
        return Tried(picture_gain(part, seen.made.features_ND), seen=seen)
    features_ND, encoded = _pretrained(name, inputs[:], trial)
    return Tried(picture_gain(part, features_ND), encoded)


def _pretrained(name: str, images: Tensor, trial: Trial) -> tuple[Tensor, int]:
    """And how many pictures had to be encoded."""
    found = find_encoder(name)
    encoder = sized_encoder(name, found.network, Normalisation(found.mean, found.std))
    return encode_cached(images, encoder, trial.cache, trial.device)


def _by_patches(images: Tensor, trial: Trial) -> SeenPatches:
    """As the run does it, which has no need to do it again if the sample is all there is."""
    mirror, statistics = trial.data.mirror, Normalisation(*image_statistics(images))
    settings = PatchSettings(statistics, trial.seed, mirror, trial.solved)
    with torch.random.fork_rng(devices=[]):
        network = frozen_network(NetworkConfig(patches_name(mirror), frozen=True), images.shape[-1], trial.seed)
    assert isinstance(network, PatchNetwork)
    mark = settings.mark(content_mark(images), network)

    def look(network: Network) -> Tensor:
        return encode(images, sized_encoder(PATCHES, network, statistics), trial.device)

    return SeenPatches(mark, by_patches(network, images, settings, look))
