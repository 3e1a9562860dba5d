"""What methods share that train nothing: they see the features of all training items once and compare new items with them."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from pals.methods.method import Context, EpochPlan, Kind, Method, Phase, Problem, Selection, check_neighbors
from pals.vision.networks import Output

Features = Literal["input", "network"]
FLOOR = 1e-12
"""Where a score or a residual is nothing, its logarithm is taken of this instead."""


class Inputs(nn.Module):
    """The network that does nothing: the features of an item are its numbers."""

    def forward(self, x: Tensor) -> Output:
        return Output(x.new_zeros(len(x), 1), x.flatten(1))


class FromFeatures(Method):
    """One epoch without steps: `fit` gets the features of all items, fills `confidence_NC` and gives each item's label.

    The method itself is the predictor. Its options must have `neighbors` and `features`.
    """

    kind: ClassVar[Kind] = "classical"
    networks: ClassVar[int] = 0
    cost: ClassVar[float] = 0.0
    capturable: ClassVar[bool] = False  # a search for neighbours reads from the device
    views: tuple[str, ...] = ()

    def __init__(self, config: Any, problem: Problem) -> None:
        super().__init__(config, problem)
        check_neighbors(config.neighbors, self.num_items)
        self.encoder = Inputs() if config.features == "input" else problem.network().requires_grad_(False)
        self.features_ND: Tensor
        self.confidence_NC: Tensor
        self.register_buffer("features_ND", torch.zeros(self.num_items, 0))  # their width is known once they are seen
        self.register_buffer("confidence_NC", torch.zeros(self.allowed_NC.shape))

    @property
    def predictor(self) -> nn.Module:
        return self

    def phase(self, number: int) -> Phase | None:
        return Phase("fit", epochs=1) if number == 0 else None

    def plan_epoch(self, ctx: Context) -> EpochPlan:
        self.features_ND = ctx.outputs(self.encoder).features
        label_N = self.fit()
        everyone_N = torch.ones_like(label_N, dtype=torch.bool)
        return EpochPlan.of(label_N[:0], selection=Selection(everyone_N, label_N))

    def fit(self) -> Tensor:
        """From `features_ND` and `allowed_NC` to `confidence_NC`; gives the label that each training item is held to have."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Output:
        features_BD = self.encoder(x).features.float()
        return Output(self.answer(features_BD), features_BD)

    def answer(self, features_BD: Tensor) -> Tensor:
        """Scores of new items: logarithms of what, scaled to sum to one, are class probabilities."""
        raise NotImplementedError

    def posterior(self) -> Tensor | None:
        return self.confidence_NC if self.features_ND.shape[1] else None

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *more: Any) -> None:
        saved = state_dict.get(f"{prefix}features_ND")
        if saved is not None:
            self.features_ND = self.features_ND.new_empty(saved.shape)
        super()._load_from_state_dict(state_dict, prefix, *more)
