"""Plain average over the candidates: the baseline that takes every candidate for equally likely, to the end."""

from __future__ import annotations

from typing import ClassVar

from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from pals.methods.method import Batch, Kind, Method, Problem
from pals.methods.parts.losses import soft_cross_entropy, uniform_on
from pals.util.config import STRICT


class Average(Method):
    """Cross-entropy against the uniform distribution on the candidate set:

        L = -(1/|S|) sum_{c in S} log p_c

    With one candidate per item this is ordinary supervised training, so the same method on the true labels gives the
    upper bound.
    """

    @dataclass(frozen=True, config=STRICT)
    class Config:
        """No options."""

    kind: ClassVar[Kind] = "partial"
    reference: ClassVar[str] = "Hüllermeier and Beringer 2005; Cour et al. 2009"

    def __init__(self, config: Config, problem: Problem) -> None:
        super().__init__(config, problem)
        self.network = problem.network()

    @property
    def predictor(self) -> nn.Module:
        return self.network

    def loss(self, batch: Batch) -> Tensor:
        logits_BC = self.network(batch.views[0]).logits
        return soft_cross_entropy(logits_BC, uniform_on(self.allowed_NC[batch.index_B])).mean()
