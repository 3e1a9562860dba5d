"""What PALS and SRSE share, which label by a vote of neighbours: the network, and help for the first epochs, when its features
are too poor to vote with (more neighbours, features that need no training). Not a method itself."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from pals.methods.bases.frozen_features import patch_features, untrained_features
from pals.methods.method import Context, Method, Problem, check_neighbors
from pals.pseudo_labels import Auto, likeliest_neighbors
from pals.pseudo_labels.knn import Backend, check_backend
from pals.util.config import STRICT
from pals.util.errors import InputError


class ByNeighbors(Method):
    """A method that labels items by a vote of their neighbours in each epoch."""

    @dataclass(frozen=True, config=STRICT)
    class Config:
        neighbors: Annotated[int, Field(ge=1)] | Auto = 15
        "K: number of neighbours that vote; auto: the K that makes the candidate sets most likely, chosen in the first epoch."
        neighbor_backend: Backend = "torch"
        "Neighbour search: torch (exact, on the device); on the CPU faiss-flat (exact), faiss-hnsw or faiss-ivf (approximate)."
        early_epochs: int = Field(default=20, ge=1)
        "Number of first epochs over which `neighbors_start` acts."
        neighbors_start: int | None = Field(default=None, ge=1)
        "Number of neighbours in the first epoch; falls geometrically to `neighbors` over the early epochs. None: always K."
        start: Literal["network", "patches", "untrained"] = "network"
        """Features for the votes of the first `start_epochs`: the network's; similarity to patches of the pictures (patches),
        which needs no training; or (untrained) the same for pictures and the raw vectors otherwise."""
        start_epochs: int = Field(default=5, ge=1)
        "Number of epochs that use the features of `start`."
        use_frequencies: bool = True
        "Weight candidates' votes by people's vote counts, if known."

    counted_in_epochs: ClassVar[tuple[str, ...]] = ("early_epochs", "start_epochs")
    removed_options: ClassVar[Mapping[str, Any]] = {"relabel_every": 1.0, "average": 0.0, "average_until": 1.0}

    def __init__(self, config: Any, problem: Problem) -> None:
        super().__init__(config, problem)
        if config.neighbors == "auto" and config.neighbors_start is not None:
            raise InputError("method.neighbors_start falls to a number of neighbours: leave it out with method.neighbors=auto.")
        wanted = 1 if config.neighbors == "auto" else config.neighbors
        check_neighbors(max(wanted, config.neighbors_start or 0), self.num_items)
        check_backend(config.neighbor_backend)
        self.network = problem.network()
        self.prior_NC: Tensor | None
        self.register_buffer("prior_NC", problem.candidates.frequency_NC if config.use_frequencies else None)
        self.found_neighbors: Tensor
        if config.neighbors == "auto":
            self.register_buffer("found_neighbors", torch.tensor(0))  # 0: not yet
        self.frozen_ND: Tensor | None = None  # in the first epochs; made again when a run goes on

    @property
    def predictor(self) -> nn.Module:
        return self.network

    def voters(self, ctx: Context, features_ND: Tensor) -> int:
        """How many neighbours vote in this epoch, in which they are found by these features."""
        c = self.config
        if c.neighbors != "auto":
            return neighbors_at(ctx.epoch, c.neighbors_start, c.neighbors, c.early_epochs)
        if not self.found_neighbors:
            ballot_NC = self.allowed_NC if self.prior_NC is None else self.allowed_NC * self.prior_NC
            self.found_neighbors.fill_(likeliest_neighbors(features_ND, self.allowed_NC, ballot_NC, backend=c.neighbor_backend))
        return int(self.found_neighbors)

    def start_features(self, ctx: Context) -> Tensor | None:
        """N x D features to search neighbours by in the first epochs, if those of the network are not to be used."""
        if self.config.start == "network" or ctx.epoch > self.config.start_epochs:
            self.frozen_ND = None  # frees the memory
        elif self.frozen_ND is None:
            make = patch_features if self.config.start == "patches" else untrained_features
            self.frozen_ND = make(ctx, self.num_items, self.allowed_NC.device)
        return self.frozen_ND


def neighbors_at(epoch: int, first: int | None, last: int, epochs: int) -> int:
    """How many neighbours vote in this epoch (from 1): falls geometrically from `first` to `last`, reached after `epochs`."""
    if first is None or epoch >= epochs:
        return last
    return round(first * math.pow(last / first, (epoch - 1) / (epochs - 1)))
