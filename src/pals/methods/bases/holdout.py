"""What ALIM and IRNet share beyond the trunk: confidences that move from the first epoch on, and, where something about the
sets has to be found out first, items that are held out until it is known. Not a method itself."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from pals.labels.covering import covering_rate
from pals.methods.bases.early_stopping import HeldOut, covering_rate_of
from pals.methods.bases.prototypes import Contrastive
from pals.methods.method import Context, EpochPlan, Problem
from pals.util.config import STRICT

FEWEST = 100  # fewer items say too little about a share: with 100 its standard error is at most 5 points


class Robust(Contrastive):
    """`wants_held_out` of a method made from it says whether it has a question to the items held out; once it has its answer,
    `release` gives them back to training. Without such items, as in tiny data, those trained on are asked."""

    @dataclass(frozen=True, config=STRICT)
    class Config(Contrastive.Config):
        confidence_from: int = Field(default=1, ge=1)
        "First epoch in which the confidences move; before it they are uniform on the candidates."
        noise_rate: float | None = Field(default=None, ge=0, lt=1)
        "Share of the sets without the true label; null: estimated once, from items held out until then."
        held_out: float = Field(default=0.1, ge=0, lt=1)
        "Share of the items held out of training until what is not given has been estimated; 0: use training items."

    def __init__(self, config: Any, problem: Problem) -> None:
        super().__init__(config, problem)
        self.settled = False  # whether confidences move; set anew each epoch
        self.held_out = HeldOut(self.num_items, config.held_out if self.wants_held_out else 0.0)
        self.released: Tensor
        self.rate: Tensor
        self.register_buffer("released", torch.tensor(False))
        self.register_buffer("rate", torch.tensor(-1.0))  # estimated; -1: not yet

    @property
    def wants_held_out(self) -> bool:
        raise NotImplementedError

    @property
    def graph_key(self) -> str:
        return "settled" if self.settled else "uniform"

    def plan_epoch(self, ctx: Context) -> EpochPlan:
        self.settled = ctx.epoch >= self.config.confidence_from
        return super().plan_epoch(ctx)

    def trained_on(self) -> Tensor:
        return super().trained_on() if self.released else self.held_out.trained_M

    def asked(self) -> Tensor:
        """The items that answer what has to be found out."""
        return self.held_out.held_M if len(self.held_out.held_M) else self.held_out.trained_M

    def covering_rate(self, ctx: Context) -> float:
        """Share of the asked items whose most likely class is a candidate. It takes the place of the accuracy that published
        codes read from the test set: if sets are noisy at random it is a straight line in the accuracy."""
        return covering_rate_of(ctx, self.allowed_NC, self.asked())

    def estimate(self, ctx: Context) -> None:
        """Find out the noise rate."""
        row_M = self.asked()
        probability_MC = ctx.outputs(rows_M=row_M).logits.softmax(dim=1)
        self.rate.fill_(estimate_noise_rate(probability_MC, self.allowed_NC[row_M]))

    def release(self) -> None:
        """From now on all items are trained on."""
        self.released.fill_(True)

    @property
    def noise_rate(self) -> float | None:
        """As given or estimated; None before that."""
        if self.config.noise_rate is not None:
            return float(self.config.noise_rate)
        return float(self.rate) if self.rate >= 0 else None

    def statistics(self) -> Mapping[str, float]:
        return {} if self.noise_rate is None else {"noise_rate": self.noise_rate}


def estimate_noise_rate(probability_MC: Tensor, allowed_MC: Tensor) -> float:
    """Of the items about which the network is surest, a quarter but not fewer than `FEWEST`, the share whose prediction is no
    candidate. Those predictions are nearly all right, so it is the sets that miss the label; what is wrong among them makes the
    estimate too high. How sure the network is does not enter: trained on soft targets it is far less sure than right."""
    surest_M = probability_MC.amax(dim=1).argsort(descending=True, stable=True)
    surest_M = surest_M[: max(math.ceil(len(surest_M) / 4), FEWEST)]
    return 1 - float(covering_rate(probability_MC[surest_M], allowed_MC[surest_M]))
