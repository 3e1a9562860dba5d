"""Features by patches, which are cut from the images themselves: made once from the same images, in the comparison of encoders
or in the run."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from pals.data.row_source import Inputs
from pals.runs.extractor import Normalisation, cut_patches
from pals.runs.feature_cache import RunFeatures, encoder_state, features_mark
from pals.vision.networks import Network
from pals.vision.networks.patch_features import PatchNetwork, Responses
from pals.vision.pretrained import PATCHES

REDUCED_ITEMS = 10_000  # items whose responses are projected on principal components at a time
MAX_RESPONSE_BYTES = 512 << 20  # of responses to patches, in memory and on disk


class PatchSettings(NamedTuple):
    """What decides, beside the images, which patches are cut and which of their responses are stored."""

    statistics: Normalisation
    seed: int
    mirror: bool
    solved: bool
    "Whether nothing is trained: then items are not compared by all responses."

    def mark(self, content: str, uncut: PatchNetwork) -> str:
        """Changes with these settings, with the images, whose mark is `content`, and with the network before patches are
        cut."""
        return features_mark(content, PATCHES, uncut, (*self.statistics, self.seed, self.mirror, self.solved))


class CutPatches(NamedTuple):
    """Features by patches, and the mark of what they were made from."""

    mark: str
    features: RunFeatures


def patch_features(
    encoder: PatchNetwork, images: Inputs, settings: PatchSettings, encode_all: Callable[[Network], Tensor]
) -> RunFeatures:
    """Cut patches into `encoder` and encode all images. All responses are stored as well if items are compared by them and they
    take at most MAX_RESPONSE_BYTES; else their principal components are used."""
    cut_patches(encoder, images, settings.statistics, settings.seed)
    if settings.solved or 4 * len(images) * encoder.components.shape[1] > MAX_RESPONSE_BYTES:
        return RunFeatures(encode_all(encoder), learned=encoder_state(encoder))
    responses_ND = encode_all(Responses(encoder))
    with torch.no_grad():
        features_ND = torch.cat([encoder.reduced(part_BD) for part_BD in torch.split(responses_ND, REDUCED_ITEMS)])
    return RunFeatures(features_ND, responses_ND, encoder_state(encoder))
