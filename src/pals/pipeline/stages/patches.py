"""Features by patches, which are cut from the very pictures that they look at: of the same pictures they are made once, be it
to compare encoders or for the run."""

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

REDUCED = 10_000  # items whose responses are brought to principal components at a time
MOST_RESPONSES = 512 << 20  # bytes of responses to patches that are kept, in memory and on disk

Look = Callable[[Network], Tensor]
"""What a network makes of all pictures."""


class PatchSettings(NamedTuple):
    """What decides, beside the pictures, which patches are cut and what is kept of them."""

    statistics: Normalisation
    seed: int
    mirror: bool
    solved: bool
    "Nothing is trained, so that items are not compared by all responses."

    def mark(self, content: str, uncut: PatchNetwork) -> str:
        """Changes with these and with the pictures, whose own mark is `content`."""
        return features_mark(content, PATCHES, uncut, (*self.statistics, self.seed, self.mirror, self.solved))


class SeenPatches(NamedTuple):
    """Features by patches, and the mark of what they were made of."""

    mark: str
    made: RunFeatures


def by_patches(encoder: PatchNetwork, images: Inputs, settings: PatchSettings, look: Look) -> RunFeatures:
    """Cut patches into `encoder`, and look at all pictures. All responses are kept as well, if there is room and they are
    compared."""
    cut_patches(encoder, images, settings.statistics, settings.seed)
    if settings.solved or not bytes_of_responses(encoder, len(images)):
        return RunFeatures(look(encoder), learned=encoder_state(encoder))
    responses_ND = look(Responses(encoder))
    with torch.no_grad():
        features_ND = torch.cat([encoder.reduced(part_BD) for part_BD in torch.split(responses_ND, REDUCED)])
    return RunFeatures(features_ND, responses_ND, encoder_state(encoder))


def bytes_of_responses(encoder: PatchNetwork, items: int) -> int:
    """What the responses of a patch network to so many pictures take, all of which are compared; 0 where they are too many and
    their principal components must do."""
    needed = 4 * items * encoder.components.shape[1]
    return needed if needed <= MOST_RESPONSES else 0
