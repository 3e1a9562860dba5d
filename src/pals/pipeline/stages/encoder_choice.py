"""Choice of an encoder that the user left open: the one whose features predict the annotators' answers best.

For each encoder the closed form is fitted on a sample of the images, and its gain is the mean log-probability of held-out
answers above that of a fit to the answers alone (`pals.crowd.closed_form.picture_gain`).
"""

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
from pals.pipeline.stages.images import read_images
from pals.pipeline.stages.patches import CutPatches, PatchSettings, patch_features
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

DEFAULT_ENCODER = "efficientnet-lite0"
MAX_COMPARED_IMAGES = 400


class EncoderChoice(NamedTuple):
    """The chosen encoder.

    Args:
        name: The encoder.
        reason: A sentence for the user.
        patches: Features by patches that the comparison made, if patches are chosen.
    """

    name: str
    reason: str
    patches: CutPatches | None = None


@dataclass(frozen=True)
class Comparison:
    """What encoders are compared on.

    Args:
        data: Settings of the data.
        votes: The answers.
        side: Median of the images' shorter sides, in pixels.
        cache: Folder of decoded images and features.
        device: Where images are encoded.
        seed: For patches.
        solved: Whether nothing will be trained on the features.
    """

    data: VotesConfig
    votes: Votes
    side: int
    cache: Path
    device: str
    seed: int
    solved: bool

    @cached_property
    def sample(self) -> list[str]:
        """Evenly spaced answered items."""
        row = np.flatnonzero(answered(self.votes))
        return [self.votes.items[r] for r in row[evenly_spaced(len(row), MAX_COMPARED_IMAGES).numpy()]]

    def gain(self, name: str) -> tuple[float, EncoderChoice]:
        """The gain of an encoder on the sample, and the choice that it would be."""
        data = replace(self.data, size=size_for(name, self.side), skip_bad=True)
        inputs, names, _ = read_images(data, self.sample, self.cache, None, Monitor())
        votes, _ = self.votes.match(names)
        if name == PATCHES:
            cut = self._patches(inputs[:])
            return picture_gain(votes, cut.features.features_ND), EncoderChoice(name, "", cut)
        found = find_encoder(name)
        encoder = sized_encoder(name, found.network, Normalisation(found.mean, found.std))
        features_ND, _ = encode_cached(inputs[:], encoder, self.cache, self.device)
        return picture_gain(votes, features_ND), EncoderChoice(name, "")

    def _patches(self, images: Tensor) -> CutPatches:
        """As the run cuts them, which uses these again if the sample is all images."""
        mirror, statistics = self.data.mirror, Normalisation(*image_statistics(images))
        settings = PatchSettings(statistics, self.seed, mirror, self.solved)
        with torch.random.fork_rng(devices=[]):
            network = frozen_network(NetworkConfig(patches_name(mirror), frozen=True), images.shape[-1], self.seed)
        assert isinstance(network, PatchNetwork)
        mark = settings.mark(content_mark(images), network)

        def encode_all(network: Network) -> Tensor:
            return encode(images, sized_encoder(PATCHES, network, statistics), self.device)

        return CutPatches(mark, patch_features(network, images, settings, encode_all))


def choose_encoder(comparison: Comparison) -> EncoderChoice:
    """EfficientNet-Lite0 or patches, whichever has the larger gain."""
    found = availability(ENCODERS[DEFAULT_ENCODER])
    if not found.ready:
        return EncoderChoice(PATCHES, f"Encoder: {PATCHES}, cut from your own images. {found.reason}")
    tried = {name: comparison.gain(name) for name in (DEFAULT_ENCODER, PATCHES)}
    best, other = sorted(tried, key=lambda name: -tried[name][0])
    (gain, choice), on = tried[best], f"on {how_many(len(comparison.sample), 'image')}"
    if gain <= 0:
        reason = f"Encoder: {DEFAULT_ENCODER}; neither it nor {PATCHES} helps to predict the answers ({on})."
        return tried[DEFAULT_ENCODER][1]._replace(reason=reason)
    gains = [f"{np.expm1(tried[name][0]):.1%}" for name in (best, other)]
    how = "as well as" if gains[0] == gains[1] else "better than"
    likelier = f"{on} it makes an answer {gains[0]} likelier, {other} {gains[1]}"
    return choice._replace(reason=f"Encoder: {best}, which predicts the answers {how} {other} ({likelier}).")
