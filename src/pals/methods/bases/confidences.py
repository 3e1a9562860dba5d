"""Base class of RC, CC, PRODEN, LWS and others: one network, and a soft label per item that is updated at each visit.

s_i = uniform on S_i at first;  the rows of a batch are replaced after its step
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from pals.methods.epoch_plan import Batch
from pals.methods.method import Kind, Method, Problem
from pals.pseudo_labels.simplex import uniform_on
from pals.util.config import STRICT


class ConfidenceMethod(Method):
    """A method with one network and soft labels. A subclass has a `loss`, and calls `store` in `after_step`.

    Args:
        config: options.
        problem: candidates and networks.
    """

    @dataclass(frozen=True, config=STRICT)
    class Config:
        view: Literal["weak", "eval"] = "weak"
        "Inputs to train on: augmented (weak), or unaugmented (eval)."

    kind: ClassVar[Kind] = "partial"

    def __init__(self, config: Any, problem: Problem) -> None:
        super().__init__(config, problem)
        self.views = (config.view,)
        self.network = problem.network()
        self.confidence_NC = nn.Buffer(uniform_on(self.allowed_NC))

    def store(self, batch: Batch, confidence_BC: Tensor) -> None:
        """Replace the soft labels of a batch. Of an item that is in the batch twice either row is kept.

        Args:
            batch: the batch.
            confidence_BC: new soft labels.
        """
        self.confidence_NC[batch.index_B] = confidence_BC

    def posterior(self) -> Tensor:
        return self.confidence_NC
