"""What DivideMix and ELR+ share: one label per item, made from what people said, and two networks that answer together. Not a
method itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from pals.labels.candidates import CandidateSets
from pals.methods.bases.prototypes import members
from pals.methods.method import Context, Kind, Method, Problem
from pals.methods.parts.losses import uniform_on
from pals.methods.parts.mixup import draw_weights
from pals.methods.parts.sampling import shuffled
from pals.util.config import SEEDS, STRICT
from pals.vision.networks import Network, Output

Labels = Literal["majority", "votes", "candidates"]


class Pair(nn.Module):
    """Two networks of one kind. Their answer is the mean of their logits, as in the codes of both methods, and so it is still
    linear in the features, which are put side by side."""

    def __init__(self, first: Network, second: Network) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x: Tensor) -> Output:
        one, two = self.first(x), self.second(x)
        return Output((one.logits + two.logits) / 2, torch.cat([one.features, two.features], dim=1))

    def both(self) -> tuple[Network, Network]:
        return self.first, self.second

    def pairs(self) -> tuple[tuple[Network, Network], tuple[Network, Network]]:
        """Each with the other as its peer."""
        return (self.first, self.second), (self.second, self.first)


class TwoNetworks(Method):
    """Both networks make a step at once: their losses add up, and as they share no parameter each is trained as if alone. Each
    goes through the data in an order of its own."""

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
        self.pair = Pair(problem.network(), problem.network())
        self.label_N: Tensor
        generator = torch.Generator().manual_seed(config.label_seed)
        self.register_buffer("label_N", single_labels(problem.candidates, config.labels, generator))

    @property
    def predictor(self) -> nn.Module:
        return self.pair

    def orders(self, ctx: Context) -> Sequence[Tensor]:
        """All items, shuffled for each of the networks."""
        everything = torch.arange(self.num_items, device=self.label_N.device)
        return [shuffled(everything, ctx.generator) for _ in self.pair.both()]

    def targets(self, index_B: Tensor) -> Tensor:
        """B x C: the items' labels, one-hot."""
        return members(self.label_N[index_B], self.num_classes).float()

    def draw_mixing(self, ctx: Context, steps: int, rows: int, zeta: float) -> dict[str, Tensor]:
        """For each step and network the weight of its mix-up, and numbers for a permutation of so many rows."""
        device, networks = self.label_N.device, len(self.pair.both())
        weight = draw_weights((steps, networks), zeta, ctx.rng, fold=True)
        uniform = torch.rand(steps, networks, rows, generator=ctx.generator, device=device)
        return {"weight": weight.to(device), "uniform": uniform}


def single_labels(candidates: CandidateSets, how: Labels, generator: torch.Generator) -> Tensor:
    """One candidate of each item; see `TwoNetworks.Config`."""
    weight_NC = uniform_on(candidates.allowed_NC) if how == "candidates" else _vote_weights(candidates)
    if how == "majority":
        weight_NC = (weight_NC == weight_NC.amax(dim=1, keepdim=True)).float()
    return torch.multinomial(weight_NC, 1, generator=generator).squeeze(1)


def vote_shares(candidates: CandidateSets) -> Tensor:
    """N x C: each candidate's share of the votes; each the same where none was counted."""
    weight_NC = _vote_weights(candidates).float()
    return weight_NC / weight_NC.sum(dim=1, keepdim=True)


def _vote_weights(candidates: CandidateSets) -> Tensor:
    """N x C: votes for candidates, or each the same; rows need not sum to one."""
    uniform_NC = uniform_on(candidates.allowed_NC)
    if candidates.frequency_NC is None:
        return uniform_NC
    counted_NC = candidates.frequency_NC * candidates.allowed_NC
    return torch.where(counted_NC.any(dim=1, keepdim=True), counted_NC, uniform_NC)
