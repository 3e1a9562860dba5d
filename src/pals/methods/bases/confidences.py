"""What RC, CC, PRODEN, LWS and others share: one network, and a confidence in each label that is renewed at each visit."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from pals.methods.method import Batch, Kind, Method, Problem
from pals.methods.parts.losses import uniform_on
from pals.util.config import STRICT


class Confidence(Method):
    """Starts from equal confidence in all candidates. A subclass has a loss, and says in `after_step` what to remember. Its
    options are those below and its own."""

    @dataclass(frozen=True, config=STRICT)
    class Config:
        view: Literal["weak", "eval"] = "weak"
        "Inputs to train on: augmented (weak), or unaugmented (eval)."

    kind: ClassVar[Kind] = "partial"

    def __init__(self, config: Any, problem: Problem) -> None:
        super().__init__(config, problem)
        self.views = (config.view,)
        self.network = problem.network()
        self.confidence_NC: Tensor
        self.register_buffer("confidence_NC", uniform_on(self.allowed_NC))

    @property
    def predictor(self) -> nn.Module:
        return self.network

    def remember(self, batch: Batch, confidence_BC: Tensor) -> None:
        """Write the rows of these items. Of an item that the order puts twice into one batch, either row is kept: both come
        from the same network and sum to one."""
        self.confidence_NC[batch.index_B] = confidence_BC

    def posterior(self) -> Tensor:
        return self.confidence_NC
