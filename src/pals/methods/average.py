"""Plain average over the candidates: the baseline that treats all candidates as equally likely.

    L = -1/|S| sum_{c in S} log p_c

With one candidate per item this is supervised training, so that the same method on the true labels is the upper bound.
Symbols: S candidates; p predictions.
References: Hüllermeier and Beringer, IDA 2005; Cour et al., CVPR 2009. Page: docs/methods/average.md.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic.dataclasses import dataclass
from torch import Tensor

from pals.methods.epoch_plan import Batch
from pals.methods.method import Kind, Method, Problem
from pals.methods.parts.losses import soft_cross_entropy
from pals.pseudo_labels.simplex import uniform_on
from pals.util.config import STRICT


class Average(Method):
    """Cross-entropy against the uniform distribution on the candidates.

    Args:
        config: no options.
        problem: candidates and networks.
    """

    @dataclass(frozen=True, config=STRICT)
    class Config:
        """No options."""

    kind: ClassVar[Kind] = "partial"
    reference: ClassVar[str] = "Hüllermeier and Beringer 2005; Cour et al. 2009"

    def __init__(self, config: Config, problem: Problem) -> None:
        super().__init__(config, problem)
        self.network = problem.network()

    def loss(self, batch: Batch) -> Tensor:
        logits_BC = self.network(batch.views[0]).logits
        return soft_cross_entropy(logits_BC, uniform_on(self.allowed_NC[batch.index_B])).mean()
