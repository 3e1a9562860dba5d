"""What a run offers a method that plans an epoch, with numbers of the test's own."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from pals.vision.networks import Output


@dataclass
class Offered:
    """Remembers what was asked for. A test overrides what its method may ask for beyond probabilities."""

    features_ND: Tensor
    predicted_NC: Tensor
    epoch: int = 1
    epochs: int = 11
    batch_size: int = 8
    phase: str = "main"
    generator: torch.Generator = field(default_factory=lambda: torch.Generator().manual_seed(5))
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(5))
    asked: list[str] = field(default_factory=list)

    def features(self, network: nn.Module | None = None) -> Tensor:
        raise AssertionError("this method needs no pass for features alone")

    def probabilities(self, view: str = "eval", network: nn.Module | None = None) -> Tensor:
        self.asked.append(view)
        return self.predicted_NC

    def outputs(self, network: nn.Module | None = None, view: str = "eval", rows_M: Tensor | None = None) -> Output:
        raise AssertionError("this method needs features or probabilities, not both at once")
