"""What stage 4 leaves, whichever way the classifier was learned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pals.crowd import Fusion
from pals.crowd.linear_ridge import Spectrum
from pals.model import Part
from pals.pipeline.stages.encode import Encoded
from pals.pipeline.stages.load import Loaded
from pals.pipeline.stages.plan import Plan
from pals.vision.networks import Network


@dataclass(frozen=True)
class Trained:
    """A classifier, what answers and classifier together say of all items, and how each was come by."""

    encoded: Encoded
    network: Network | None
    "Learned from all items with answers; reads pictures, vectors, or what an encoder makes of pictures. None of answers alone."
    part: Part | None
    "What the network is called and how its inputs are standardised."
    temperature: float
    "That makes its probabilities honest."
    features_ND: Tensor
    "In which alike items are near each other."
    fusion: Fusion
    "What answers and classifiers say together; a classifier speaks only of items whose answers it has not seen."
    predicted_NC: np.ndarray
    "What the classifiers say by themselves, calibrated and again of items whose answers they have not seen."
    device: torch.device
    training: Mapping[str, Any]
    "What was run, on what, how long."
    spectrum: Spectrum | None = None
    "Of the features, where the closed form has decomposed them."
    remarks: tuple[str, ...] = ()
    "Sentences for the summary."

    @property
    def loaded(self) -> Loaded:
        return self.encoded.loaded

    @property
    def plan(self) -> Plan:
        return self.encoded.plan
