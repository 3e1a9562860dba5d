"""The interface between a method and the one training loop.

Most methods define three things: `views` (augmented views), `plan_epoch` (items to train on, with targets) and `loss`. The rest
serves methods with an averaged network, a queue, prototypes, two networks or phases; `docs/adding-a-method.md` has examples. A
method never builds optimisers, reads files, prints, or knows its data set, and it never sees the truth or the test set.

Shapes: N items, M visits or part of the items, C classes, B batch, D feature width, K neighbours; Q, V, S, T, H, E, P, G, 2 and
others are explained where they are used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from pals.labels.candidates import CandidateSets
from pals.methods.epoch_plan import Batch, EpochPlan
from pals.util.errors import InputError
from pals.vision.augment import MethodView
from pals.vision.networks import Network, Output

Kind = Literal["noisy partial", "partial", "noisy label", "classical"]
FORMER_STATE = {
    "held_out.held_M": "holdout.index_M",
    "held_out.trained_M": "holdout.others_M",
    "held_out.missed": "holdout.misses",
    "held_out.": "holdout.",
    "noise.apart.held_M": "holdout.index_M",
    "noise.apart.trained_M": "holdout.others_M",
    "noise.apart.missed": "holdout.misses",
    "noise.apart.": "holdout.",
    "noise.rate": "holdout.rate",
    "rate": "holdout.rate",
    "released": "holdout.released",
    "place": "queue_start",
    "slow.": "ema.",
}
"""Beginnings of names in checkpoints of version 0.2, with those of today; a name that a method still has is kept."""


@dataclass(frozen=True)
class Problem:
    """What a method knows before it starts.

    Args:
        candidates: candidate sets of the training items, perhaps with vote counts.
        network: `network()` makes a newly initialised network, `network("mlp")` one of another kind.

    >>> import torch
    >>> candidates = pals.CandidateSets.from_matrix(torch.tensor([[True, False], [True, True]]))
    >>> problem = pals.Problem(candidates, network=lambda name=None: torch.nn.Linear(2, 2))
    >>> problem.candidates.num_classes
    2
    """

    candidates: CandidateSets
    network: Callable[..., Network]


class Context(Protocol):
    """What the run offers a method. Passes over the data are lazy and cached for the epoch: unused ones cost nothing.

    Attributes:
        phase: name of the phase.
        epoch: within the phase, from 1.
        epochs: of the phase.
        batch_size: of the run.
        generator: random numbers on the device, for orders and other large draws.
        rng: random numbers on the host, for a few numbers such as mix-up weights.
    """

    phase: str
    epoch: int
    epochs: int
    batch_size: int
    generator: torch.Generator
    rng: np.random.Generator

    def outputs(self, network: nn.Module | None = None, view: str = "eval", rows_M: Tensor | None = None) -> Output:
        """Logits and features of training items, in eval mode.

        Args:
            network: by default the predictor.
            view: name of the view.
            rows_M: items; by default all, in order.
        """
        ...

    def features(self, network: nn.Module | None = None) -> Tensor:
        """Features of all training items on the eval view, N x D.

        Args:
            network: by default the predictor.
        """
        ...

    def probabilities(self, view: str = "eval", network: nn.Module | None = None) -> Tensor:
        """Class probabilities of all training items, N x C.

        Args:
            view: name of the view.
            network: by default the predictor.
        """
        ...


@dataclass(frozen=True)
class Phase:
    """A sequence of epochs with one optimiser. A method with stages has several phases. A method that only needs the features
    of the training items has one epoch with an empty plan.

    Args:
        name: for the log.
        epochs: None: the run's.
        modules: modules that are trained; None: all parameters that require a gradient.
        settings: training settings that differ from the run's.

    >>> pals.Phase("warm-up", epochs=5, settings={"lr": 0.1}).epochs
    5
    """

    name: str
    epochs: int | None = None
    modules: Sequence[nn.Module] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


def check_neighbors(neighbors: int, items: int) -> None:
    """Check that there are enough items, before anything is computed.

    Args:
        neighbors: number of neighbours.
        items: number of items.

    Raises:
        InputError: for fewer other items than neighbours.
    """
    if neighbors >= items:
        raise InputError(f"{neighbors} neighbours are to vote, but an item has only {items - 1}. Lower method.neighbors.")


class Method(nn.Module):
    """Learns from candidate sets. State is kept in buffers and submodules, so moving to a device and resuming need no code.

    `loss` depends only on parameters, buffers and the batch: random numbers are in `batch.random`, shapes are static, and
    nothing is read back to the host, so that it can be compiled and captured in a graph. Tensors for `after_step` of the same
    batch (predictions, keys) may be ordinary attributes.

    Args:
        config: options, an instance of `Config`.
        problem: candidates and networks.

    >>> class Supervised(pals.METHODS["average"]):
    ...     def loss(self, batch):
    ...         logits_BC = self.network(batch.views[0]).logits
    ...         return torch.nn.functional.cross_entropy(logits_BC, self.allowed_NC[batch.index_B].int().argmax(dim=1))
    >>> Supervised.kind, Supervised.views
    ('partial', ('weak',))
    """

    @dataclass(frozen=True)
    class Config:
        """Options; replaced in each method."""

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    "Named sets of options; the first is the default. A method with presets also has an option `preset`."
    small_preset: ClassVar[tuple[str, int] | None] = None
    "A preset, and up to how many items estimators and `fit` use it by default."
    preset_draws: ClassVar[Mapping[str, int]] = {}
    "Per preset, how many items an estimator should draw in total, so that it trains for more epochs on few items."
    preset_epochs: ClassVar[Mapping[str, int]] = {}
    "Per preset, the number of epochs it is designed for; data sets that ask for more are capped at it unless the user sets it."

    kind: ClassVar[Kind] = "partial"
    reference: ClassVar[str] = ""
    networks: ClassVar[int] = 1
    "Number of networks that it trains."
    cost: ClassVar[float] = 1.0
    "Cost of a step relative to plain supervised training, counted in passes through a network."
    counted_in_epochs: ClassVar[tuple[str, ...]] = ()
    "Options that scale with the length of the schedule; those ending in `_from` name a first epoch."
    begins_after: ClassVar[tuple[str, ...]] = ()
    "Options that name a number of epochs after which something begins."
    removed_options: ClassVar[Mapping[str, Any]] = {}
    "Options of earlier versions, each with the value at which it did nothing: run folders name them."
    views: tuple[str, ...] = ("weak",)
    own_views: ClassVar[Mapping[str, MethodView]] = {}
    "The method's own views by name: how to make them, and which view to use instead if items are vectors."
    capturable: ClassVar[bool] = True
    """Whether `loss` and `after_step` can be captured in a graph, as described above. A predictor whose forward pass cannot be
    captured has an attribute of the same name."""

    network: Network

    def __init__(self, config: Any, problem: Problem) -> None:
        super().__init__()
        self.config = config
        self.num_classes = problem.candidates.num_classes
        self.num_items = len(problem.candidates)
        self.allowed_NC = nn.Buffer(problem.candidates.allowed_NC.clone())

    @property
    def predictor(self) -> nn.Module:
        """The module that predicts; its forward pass returns an `Output`. By default `network`."""
        return self.network

    @property
    def graph_key(self) -> str:
        """Name of the code path that `loss` currently takes. If the loss switches in Python (as after a warm-up), the name
        must change too; otherwise a captured step would repeat the old path."""
        return ""

    def phase(self, number: int) -> Phase | None:
        """A phase; it may depend only on the method's state.

        Args:
            number: from 0.

        Returns:
            None after the last phase.
        """
        return Phase("main") if number == 0 else None

    def begin_phase(self, number: int) -> None:
        """Called once before the phase's first epoch, to make new networks or reset buffers. A resumed run calls it on the new
        object for every phase begun so far, before it loads the saved state.

        Args:
            number: of the phase, from 0.
        """

    def plan_epoch(self, ctx: Context) -> EpochPlan | None:
        """Plan an epoch: items, order and targets.

        Args:
            ctx: the run.

        Returns:
            None: one shuffled pass over all items, without targets.
        """
        return None

    def random_inputs(self, ctx: Context, steps: int) -> Mapping[str, Tensor]:
        """All random numbers that `loss` needs in an epoch.

        Args:
            ctx: the run.
            steps: steps of the epoch.

        Returns:
            Tensors by name, one row per step.
        """
        return {}

    def loss(self, batch: Batch) -> Tensor:
        """The mean loss of a batch.

        Args:
            batch: the batch.
        """
        raise NotImplementedError

    def after_step(self, batch: Batch) -> None:
        """Updates after the optimiser's step, without gradients: averaged networks, queues, prototypes.

        Args:
            batch: the batch of the step.
        """

    def end_epoch(self, ctx: Context) -> bool:
        """Decide after an epoch whether the phase ends early.

        Args:
            ctx: the run.
        """
        return False

    def posterior(self) -> Tensor | None:
        """The current posterior of each item's class, N x C, for reports; None before the first estimate."""
        return None

    def statistics(self) -> Mapping[str, float]:
        """A few numbers about this epoch, for the log."""
        return {}

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *more: Any) -> None:
        own = self.state_dict(prefix=prefix)
        for name in [name for name in state_dict if name not in own]:
            for old, new in FORMER_STATE.items():
                if name.startswith(prefix + old):
                    state_dict[prefix + new + name.removeprefix(prefix + old)] = state_dict.pop(name)
                    break
        super()._load_from_state_dict(state_dict, prefix, *more)
