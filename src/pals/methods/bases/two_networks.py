"""Base class of DivideMix and ELR+: one label per item, made from the annotators' votes, and an ensemble of two networks.

    logits(x) = (logits_1(x) + logits_2(x)) / 2

Both networks make a step at once: their losses add up, and as they share no parameter each is trained as if alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from pals.labels.candidates import CandidateSets
from pals.methods.method import Context, Kind, Method, Problem
from pals.methods.parts.sampling import shuffled
from pals.pseudo_labels.simplex import normalize_rows, one_hot, uniform_on
from pals.util.config import SEEDS, STRICT
from pals.vision.networks import Network, Output

Labels = Literal["majority", "votes", "candidates"]


class NetworkPair(nn.Module):
    """Two networks; their prediction is the mean of their logits, which is linear in their concatenated features.

    Args:
        first: a network.
        second: another of the same kind.
    """

    def __init__(self, first: Network, second: Network) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x: Tensor) -> Output:
        one, two = self.first(x), self.second(x)
        return Output((one.logits + two.logits) / 2, torch.cat([one.features, two.features], dim=1))

    def both(self) -> tuple[Network, Network]:
        """The two networks."""
        return self.first, self.second


class TwoNetworkMethod(Method):
    """A method that trains two networks on one label per item, each in its own order.

    Args:
        config: options.
        problem: candidates and networks.
    """

    @dataclass(frozen=True, config=STRICT)
    class Config:
        labels: Labels = "majority"
        """How an item's one label is chosen: the candidate with the most votes, a vote drawn at random, or a candidate drawn at
        random whatever its votes. Ties are broken at random; without counted votes, all candidates tie."""
        label_seed: int = Field(default=42, ge=0, lt=SEEDS)
        "Seed of these draws, so that runs with different seeds learn from the same labels."

    kind: ClassVar[Kind] = "noisy label"
    networks: ClassVar[int] = 2

    def __init__(self, config: Any, problem: Problem) -> None:
        super().__init__(config, problem)
        self.pair = NetworkPair(problem.network(), problem.network())
        generator = torch.Generator().manual_seed(config.label_seed)
        self.label_N = nn.Buffer(single_labels(problem.candidates, config.labels, generator))

    @property
    def predictor(self) -> nn.Module:
        return self.pair

    def orders(self, ctx: Context) -> Sequence[Tensor]:
        """All items, shuffled for each network.

        Args:
            ctx: the run.
        """
        items_N = torch.arange(self.num_items, device=self.label_N.device)
        return [shuffled(items_N, ctx.generator) for _ in self.pair.both()]

    def targets(self, index_B: Tensor) -> Tensor:
        """One-hot labels, B x C.

        Args:
            index_B: items.
        """
        return one_hot(self.label_N[index_B], self.num_classes).float()


def single_labels(candidates: CandidateSets, how: Labels, generator: torch.Generator) -> Tensor:
    """Choose one candidate of each item.

    Args:
        candidates: candidates and votes.
        how: see `TwoNetworkMethod.Config`.
        generator: random numbers for draws and ties.

    Returns:
        int64, N.
    """
    weight_NC = uniform_on(candidates.allowed_NC) if how == "candidates" else _vote_weights(candidates)
    if how == "majority":
        weight_NC = (weight_NC == weight_NC.amax(dim=1, keepdim=True)).float()
    return torch.multinomial(weight_NC, 1, generator=generator).squeeze(1)


def vote_shares(candidates: CandidateSets) -> Tensor:
    """Each candidate's share of the votes; equal shares where none was counted.

    Args:
        candidates: candidates and votes.

    Returns:
        float32, N x C.
    """
    return normalize_rows(_vote_weights(candidates).float())


def _vote_weights(candidates: CandidateSets) -> Tensor:
    """Votes for candidates, or equal weights; rows need not sum to one."""
    uniform_NC = uniform_on(candidates.allowed_NC)
    if candidates.frequency_NC is None:
        return uniform_NC
    counted_NC = candidates.frequency_NC * candidates.allowed_NC
    return torch.where(counted_NC.any(dim=1, keepdim=True), counted_NC, uniform_NC)
