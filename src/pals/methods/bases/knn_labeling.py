"""Base class of PALS and SRSE, which label items by a vote of their nearest neighbours in each epoch.

Early epochs, in which the network's features are poor, may use more neighbours and features that need no training:
    K(t) = K_start (K / K_start)^((t - 1) / (E - 1)) for t <= E, then K
Both methods train on one or two views of each batch with mix-up; the passes of the views are shared here.

Symbols: t epoch from 1; K `neighbors`; K_start `neighbors_start`; E `early_epochs`. The schedule is ours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from pals.methods.bases.frozen_features import patch_features, untrained_features
from pals.methods.method import Context, Kind, Method, Problem, check_neighbors
from pals.methods.parts.mixup import draw_mixup
from pals.pseudo_labels.faiss_search import Backend, check_backend
from pals.pseudo_labels.reliable_subset import Auto, likeliest_neighbors
from pals.util.config import STRICT
from pals.util.errors import InputError


class KNNMethod(Method):
    """A method that labels items by a vote of their neighbours in each epoch.

    A subclass has the options below and `mixup`, `zeta`, `fold_mixup` and `view_pass`.

    Args:
        config: options.
        problem: candidates and networks.

    Raises:
        InputError: for more neighbours than items, or a neighbour search that is not installed.
    """

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
        """Features for the votes of the first `start_epochs`: the network's; similarity to patches of the images (patches),
        which needs no training; or (untrained) the same for images and the raw vectors otherwise."""
        start_epochs: int = Field(default=5, ge=1)
        "Number of epochs that use the features of `start`."
        use_frequencies: bool = True
        "Weight candidates' votes by the annotators' vote counts, if known."

    kind: ClassVar[Kind] = "noisy partial"
    counted_in_epochs: ClassVar[tuple[str, ...]] = ("early_epochs", "start_epochs")
    removed_options: ClassVar[Mapping[str, Any]] = {"relabel_every": 1.0, "average": 0.0, "average_until": 1.0}
    views: tuple[str, ...] = ("weak", "strong")

    def __init__(self, config: Any, problem: Problem) -> None:
        super().__init__(config, problem)
        if config.neighbors == "auto" and config.neighbors_start is not None:
            raise InputError("method.neighbors_start falls to a number of neighbours: leave it out with method.neighbors=auto.")
        neighbors = 1 if config.neighbors == "auto" else config.neighbors
        check_neighbors(max(neighbors, config.neighbors_start or 0), self.num_items)
        check_backend(config.neighbor_backend)
        self.network = problem.network()
        prior_NC = problem.candidates.frequency_NC if config.use_frequencies else None
        self.prior_NC = None if prior_NC is None else nn.Buffer(prior_NC)
        if config.neighbors == "auto":
            self.found_neighbors = nn.Buffer(torch.tensor(0))  # 0: not yet chosen
        self.frozen_ND: Tensor | None = None  # features of the first epochs; a resumed run computes them again

    def num_neighbors(self, ctx: Context, features_ND: Tensor) -> int:
        """The number of neighbours that vote in this epoch.

        Args:
            ctx: the run.
            features_ND: features by which neighbours are found.
        """
        c = self.config
        if c.neighbors != "auto":
            return neighbors_at(ctx.epoch, c.neighbors_start, c.neighbors, c.early_epochs)
        if not self.found_neighbors:
            ballot_NC = self.allowed_NC if self.prior_NC is None else self.allowed_NC * self.prior_NC
            self.found_neighbors.fill_(likeliest_neighbors(features_ND, self.allowed_NC, ballot_NC, backend=c.neighbor_backend))
        return int(self.found_neighbors)

    def start_features(self, ctx: Context) -> Tensor | None:
        """Features that replace the network's in the first epochs, N x D; None where the network's are used.

        Args:
            ctx: the run.
        """
        if self.config.start == "network" or ctx.epoch > self.config.start_epochs:
            self.frozen_ND = None  # frees the memory
        elif self.frozen_ND is None:
            compute = patch_features if self.config.start == "patches" else untrained_features
            self.frozen_ND = compute(ctx, self.num_items, self.allowed_NC.device)
        return self.frozen_ND

    def random_inputs(self, ctx: Context, steps: int) -> Mapping[str, Tensor]:
        c, shape = self.config, (steps, len(self.views))
        return draw_mixup(shape, ctx.batch_size, c.zeta, ctx.rng, ctx.generator, fold=c.fold_mixup) if c.mixup else {}

    def view_logits(self, views: Sequence[Tensor]) -> Sequence[Tensor]:
        """Logits of each view: from separate passes, one joined batch, or one pass with batch statistics per view.

        Args:
            views: inputs of the views.
        """
        if len(views) == 1 or self.config.view_pass == "separate":
            return [self.network(x_B).logits for x_B in views]
        if self.config.view_pass == "joined":
            return self.network(torch.cat(list(views))).logits.chunk(len(views))
        return [output.logits for output in self.network.each(views)]


def neighbors_at(epoch: int, first: int | None, last: int, epochs: int) -> int:
    """The number of neighbours in an epoch, K(t).

    Args:
        epoch: t, from 1.
        first: K_start; None: always K.
        last: K.
        epochs: E.

    >>> [neighbors_at(epoch, 250, 15, 20) for epoch in (1, 10, 20)]
    [250, 66, 15]
    """
    if first is None or epoch >= epochs:
        return last
    return round(first * math.pow(last / first, (epoch - 1) / (epochs - 1)))
