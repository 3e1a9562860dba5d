"""Base class of methods that train nothing: they compare new items with the features of all training items."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from pals.methods.epoch_plan import EpochPlan, Selection
from pals.methods.method import Context, Kind, Method, Phase, Problem, check_neighbors
from pals.vision.networks import Output

Features = Literal["input", "network"]
MIN_SCORE = 1e-12
"""Smallest score or residual whose logarithm is taken."""


class Inputs(nn.Module):
    """The identity as a network: the features of an item are its numbers."""

    def forward(self, x: Tensor) -> Output:
        return Output(x.new_zeros(len(x), 1), x.flatten(1))


class FeatureMethod(Method):
    """One epoch without steps, in which a subclass fits to the features; the method itself is the predictor.

    Its options must have `neighbors` and `features`.

    Args:
        config: options.
        problem: candidates and networks.
    """

    kind: ClassVar[Kind] = "classical"
    networks: ClassVar[int] = 0
    cost: ClassVar[float] = 0.0
    capturable: ClassVar[bool] = False  # a neighbour search reads from the device
    views: tuple[str, ...] = ()

    def __init__(self, config: Any, problem: Problem) -> None:
        super().__init__(config, problem)
        check_neighbors(config.neighbors, self.num_items)
        self.encoder = Inputs() if config.features == "input" else problem.network().requires_grad_(False)
        self.features_ND: Tensor = nn.Buffer(torch.zeros(self.num_items, 0))  # the width is known after the first pass
        self.confidence_NC: Tensor = nn.Buffer(torch.zeros(self.allowed_NC.shape))

    @property
    def predictor(self) -> nn.Module:
        return self

    def phase(self, number: int) -> Phase | None:
        return Phase("fit", epochs=1) if number == 0 else None

    def plan_epoch(self, ctx: Context) -> EpochPlan:
        self.features_ND = ctx.outputs(self.encoder).features
        label_N = self.fit()
        return EpochPlan.of(label_N[:0], selection=Selection(torch.ones_like(label_N, dtype=torch.bool), label_N))

    def fit(self) -> Tensor:
        """Compute `confidence_NC` from `features_ND` and `allowed_NC`.

        Returns:
            The label of each training item, int64, N.
        """
        raise NotImplementedError

    def forward(self, x: Tensor) -> Output:
        features_BD = self.encoder(x).features.float()
        return Output(self.log_scores(features_BD), features_BD)

    def log_scores(self, features_BD: Tensor) -> Tensor:
        """Scores of new items, B x C: their softmax are class probabilities.

        Args:
            features_BD: features of the items.
        """
        raise NotImplementedError

    def posterior(self) -> Tensor | None:
        return self.confidence_NC if self.features_ND.shape[1] else None

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *more: Any) -> None:
        saved = state_dict.get(f"{prefix}features_ND")
        if saved is not None:
            self.features_ND = self.features_ND.new_empty(saved.shape)
        super()._load_from_state_dict(state_dict, prefix, *more)
