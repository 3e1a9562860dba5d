"""Early stopping without the truth: items that are not trained on, and how often a prediction for them is a candidate.

The published codes of some methods watch the accuracy on a validation set with true labels. There is none here. The covering
rate of noisy candidate sets stands in for it: it grows with the accuracy as long as the true label is a candidate more often
than a wrong one.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pals.labels.covering import covering_rate
from pals.methods.method import Context
from pals.methods.parts.sampling import part


class HeldOut(nn.Module):
    """A fixed random share of the items, the best covering rate so far, and how often in a row it was missed. All of it is in
    buffers, so that a run that goes on goes on counting."""

    def __init__(self, items: int, share: float) -> None:
        super().__init__()
        order_N = torch.randperm(items)
        held = part(share, items)
        self.held_M: Tensor
        self.trained_M: Tensor
        self.best: Tensor
        self.missed: Tensor
        self.register_buffer("held_M", order_N[:held].sort().values)
        self.register_buffer("trained_M", order_N[held:].sort().values)
        self.register_buffer("best", torch.zeros(()))
        self.register_buffer("missed", torch.zeros((), dtype=torch.int64))

    def covering_rate(self, ctx: Context, network: nn.Module, allowed_NC: Tensor) -> float | None:
        """How often the prediction for an item held out is one of its candidates; None where there is no such item."""
        return covering_rate_of(ctx, allowed_NC, self.held_M, network) if len(self.held_M) else None

    def patience_ends(self, rate: float | None, patience: int, *, level_misses: bool) -> bool:
        """Count one more rate; whether so many have missed the best, one after the other."""
        if rate is None:
            return False
        best = float(self.best)
        if rate < best or (level_misses and rate == best):
            self.missed += 1
        else:
            self.best.fill_(rate)
            self.missed.zero_()
        return int(self.missed) >= patience

    def forget(self) -> None:
        """Start to count again."""
        self.best.zero_()
        self.missed.zero_()


def covering_rate_of(ctx: Context, allowed_NC: Tensor, rows_M: Tensor, network: nn.Module | None = None) -> float:
    """Of the predictor, or of another network, on these items; rounded as the buffer that keeps the best one is."""
    return float(covering_rate(ctx.outputs(network, rows_M=rows_M).logits, allowed_NC[rows_M]).float())
