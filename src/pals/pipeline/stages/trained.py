"""The result of stage 4, however the classifier was learned."""

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
from pals.util.words import in_brief
from pals.vision.networks import Network


@dataclass(frozen=True)
class Trained:
    """A classifier, and the labels fused from answers and classifier: N items, C classes, D feature width.

    Args:
        encoded: Stage 3.
        network: Trained on all items with answers; reads images, vectors, or features of the encoder. None with answers alone.
        part: Name of the network and standardisation of its inputs.
        temperature: Softmax temperature that calibrates the network.
        features_ND: Features by which items are compared.
        fusion: Posterior from answers and classifiers; each classifier counts only for items whose answers it was not trained
            on.
        predicted_NC: Calibrated predictions, also by classifiers that were not trained on the item's answers.
        device: Where neighbours are searched.
        training: What was run, on what data, for how long.
        spectrum: Decomposition of the features by the closed form.
        remarks: Sentences for the summary.
    """

    encoded: Encoded
    network: Network | None
    part: Part | None
    temperature: float
    features_ND: Tensor
    fusion: Fusion
    predicted_NC: np.ndarray
    device: torch.device
    training: Mapping[str, Any]
    spectrum: Spectrum | None = None
    remarks: tuple[str, ...] = ()

    __repr__ = in_brief

    @property
    def loaded(self) -> Loaded:
        return self.encoded.loaded

    @property
    def plan(self) -> Plan:
        return self.encoded.plan
