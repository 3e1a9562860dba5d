"""A holdout: early stopping and the noise rate without the truth. Also the base class of ALIM and IRNet.

    covering rate = mean_i [argmax p_i in S_i]
    noise rate    = 1 - covering rate of the items with the highest max p, a quarter of them but at least `MIN_RATE_ITEMS`

The covering rate replaces the validation accuracy of published codes: it rises with the accuracy as long as the true label is a
candidate more often than a wrong one. Predictions on the items with the highest confidence are nearly all right, so their
covering rate is that of the true labels; errors among them make the noise rate too high. Both are computed on a holdout because
a network that has memorised the sets would underestimate the noise; without a holdout, as in tiny data, on the training items.

Symbols: p predictions; S candidates. The estimate is ours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from pals.labels.covering import covering_rate
from pals.methods.bases.prototypes import PrototypeMethod
from pals.methods.epoch_plan import EpochPlan
from pals.methods.method import Context, Problem
from pals.methods.parts.sampling import part
from pals.util.config import STRICT

MIN_RATE_ITEMS = 100
"""With fewer items the standard error of the noise rate would exceed 5 points."""


class Holdout(nn.Module):
    """A fixed random share of the items, with the state of early stopping and of the noise rate.

    Args:
        items: number of items N.
        share: share of them in the holdout.

    >>> holdout = Holdout(10, 0.2)
    >>> len(holdout.index_M), len(holdout.trained_on())
    (2, 8)
    >>> holdout.release()
    >>> len(holdout.trained_on())
    10
    """

    def __init__(self, items: int, share: float) -> None:
        super().__init__()
        order_N = torch.randperm(items)
        count = part(share, items)
        self.index_M = nn.Buffer(order_N[:count].sort().values)
        self.others_M = nn.Buffer(order_N[count:].sort().values)
        self.best = nn.Buffer(torch.zeros(()))  # covering rate
        self.misses = nn.Buffer(torch.zeros((), dtype=torch.int64))  # in a row
        self.rate = nn.Buffer(torch.tensor(-1.0))  # of noise; -1: not estimated
        self.released = nn.Buffer(torch.tensor(False))

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *more: Any) -> None:
        rate = state_dict.setdefault(f"{prefix}rate", self.rate)  # checkpoints of version 0.2 lack one of these or both
        state_dict.setdefault(f"{prefix}released", rate >= 0)
        super()._load_from_state_dict(state_dict, prefix, *more)

    def trained_on(self) -> Tensor:
        """The items to train on, in order: all but the holdout, and all after `release`."""
        return torch.cat([self.others_M, self.index_M]).sort().values if self.released else self.others_M

    def release(self) -> None:
        """Train on all items from now on."""
        self.released.fill_(True)

    def estimation_items(self) -> Tensor:
        """The holdout, or without one all training items."""
        return self.index_M if len(self.index_M) else self.others_M

    def covering_rate(self, ctx: Context, allowed_NC: Tensor, network: nn.Module | None = None) -> float:
        """The covering rate on the estimation items.

        Args:
            ctx: the run.
            allowed_NC: candidates of all items.
            network: by default the predictor.

        Returns:
            Rounded to float32, as the best rate is stored.
        """
        row_M = self.estimation_items()
        return float(covering_rate(ctx.outputs(network, rows_M=row_M).logits, allowed_NC[row_M]).float())

    def estimate_noise_rate(self, ctx: Context, allowed_NC: Tensor) -> None:
        """Estimate `rate` by the predictor on the estimation items.

        Args:
            ctx: the run.
            allowed_NC: candidates of all items.
        """
        row_M = self.estimation_items()
        self.rate.fill_(estimate_noise_rate(ctx.outputs(rows_M=row_M).logits.softmax(dim=1), allowed_NC[row_M]))

    def should_stop(self, rate: float, patience: int, *, strict: bool) -> bool:
        """Early stopping: record one more covering rate.

        Args:
            rate: the covering rate.
            patience: number of misses in a row after which to stop.
            strict: a rate equal to the best one is a miss.

        Returns:
            Whether to stop.
        """
        best = float(self.best)
        if rate < best or (strict and rate == best):
            self.misses.add_(1)
        else:
            self.best.fill_(rate)
            self.misses.zero_()
        return int(self.misses) >= patience

    def reset(self) -> None:
        """Start early stopping again."""
        self.best.zero_()
        self.misses.zero_()


class HoldoutMethod(PrototypeMethod):
    """Soft labels are updated from an epoch on, and a holdout is not trained on until the noise rate is estimated.

    A subclass defines `needs_holdout` and calls `holdout.release` once its estimates are done.

    Args:
        config: options.
        problem: candidates and networks.
    """

    @dataclass(frozen=True, config=STRICT)
    class Config(PrototypeMethod.Config):
        confidence_from: int = Field(default=1, ge=1)
        "First epoch in which the confidences move; before it they are uniform on the candidates."
        noise_rate: float | None = Field(default=None, ge=0, lt=1)
        "Share of the sets without the true label; null: estimated once, from a holdout."
        held_out: float = Field(default=0.1, ge=0, lt=1)
        "Share of the items in the holdout, which trains only after the estimates; 0: estimate on training items."

    def __init__(self, config: Any, problem: Problem) -> None:
        super().__init__(config, problem)
        self.updates_confidence = False  # in this epoch
        self.holdout = Holdout(self.num_items, config.held_out if self.needs_holdout else 0.0)

    @property
    def needs_holdout(self) -> bool:
        """Whether something is to be estimated on a holdout."""
        raise NotImplementedError

    @property
    def graph_key(self) -> str:
        return "settled" if self.updates_confidence else "uniform"

    def plan_epoch(self, ctx: Context) -> EpochPlan:
        self.updates_confidence = ctx.epoch >= self.config.confidence_from
        return super().plan_epoch(ctx)

    def trained_on(self) -> Tensor:
        return self.holdout.trained_on()

    @property
    def noise_rate(self) -> float | None:
        """As given or estimated; None before the estimate."""
        if self.config.noise_rate is not None:
            return float(self.config.noise_rate)
        return float(self.holdout.rate) if self.holdout.rate >= 0 else None

    def statistics(self) -> Mapping[str, float]:
        return {} if self.noise_rate is None else {"noise_rate": self.noise_rate}


def estimate_noise_rate(probability_MC: Tensor, allowed_MC: Tensor) -> float:
    """Estimate the share of sets without the true label.

    Only the order of the confidences is used: a network trained on soft targets is far less confident than accurate.

    Args:
        probability_MC: class probabilities.
        allowed_MC: candidates, bool.

    Returns:
        Between 0 and 1.

    >>> estimate_noise_rate(torch.eye(2), torch.tensor([[True, False], [True, False]]))
    0.5
    """
    order_M = probability_MC.amax(dim=1).argsort(descending=True, stable=True)
    order_M = order_M[: max(math.ceil(len(order_M) / 4), MIN_RATE_ITEMS)]
    return 1 - float(covering_rate(probability_MC[order_M], allowed_MC[order_M]))


def estimate_partial_rate(allowed_NC: Tensor, noise_rate: float) -> float:
    """The probability q that a wrong label is a candidate, from the mean set size 1 - eta + q (C - 1).

    Args:
        allowed_NC: candidates, bool.
        noise_rate: eta.

    Returns:
        Between 0 and 1.

    >>> estimate_partial_rate(torch.tensor([[True, True, False]]), 0.0)
    0.5
    """
    mean = float(allowed_NC.sum(dim=1).double().mean())
    return min(max((mean - 1 + noise_rate) / (allowed_NC.shape[1] - 1), 0.0), 1.0)
