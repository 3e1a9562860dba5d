"""The share of the sets without the true label: as given, or found out once from items held out until then."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pals.methods.bases.early_stopping import HeldOut
from pals.methods.bases.holdout import estimate_noise_rate
from pals.methods.method import Context


class NoiseRate(nn.Module):
    """While it is not known a share of the items is not trained on: a network that has learnt their sets by heart would find
    its predictions in them. Without such items, as in tiny data, those trained on are asked."""

    def __init__(self, given: float | None, items: int, held_out: float) -> None:
        super().__init__()
        self.given = given
        self.apart = HeldOut(items, held_out if given is None else 0.0)
        self.rate: Tensor
        self.register_buffer("rate", torch.tensor(-1.0))  # estimated; -1: not yet

    @property
    def value(self) -> float:
        """As given or estimated; -1 before that."""
        return float(self.rate) if self.given is None else self.given

    @property
    def known(self) -> bool:
        return self.value >= 0

    def trained_on(self) -> Tensor:
        """The items of an epoch, in order."""
        apart = self.apart
        return torch.cat([apart.trained_M, apart.held_M]).sort().values if self.known else apart.trained_M

    def find(self, ctx: Context, allowed_NC: Tensor) -> None:
        """Estimate it, by the rule of `estimate_noise_rate`."""
        row_M = self.apart.held_M if len(self.apart.held_M) else self.apart.trained_M
        probability_MC = ctx.outputs(rows_M=row_M).logits.softmax(dim=1)
        self.rate.fill_(estimate_noise_rate(probability_MC, allowed_NC[row_M]))


def partial_rate_of(allowed_NC: Tensor, noise_rate: float) -> float:
    """The chance that a wrong label is a candidate, by the mean size of the sets: 1 - eta + q (C - 1)."""
    mean = float(allowed_NC.sum(dim=1).double().mean())
    return min(max((mean - 1 + noise_rate) / (allowed_NC.shape[1] - 1), 0.0), 1.0)
