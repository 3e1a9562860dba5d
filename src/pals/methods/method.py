"""The interface between a method and the one training loop.

Most methods need three things: `views` (which augmented views they want), `plan_epoch` (who is trained on, with which
target) and `loss`. The rest is there for methods with an averaged network, a queue, prototypes, two networks or phases;
`docs/adding-a-method.md` has examples. A method never builds optimisers, reads files, prints, or knows its
data set, and it never sees the truth or the test set.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from pals.labels.candidates import CandidateSets
from pals.util.errors import InputError
from pals.vision.augment import MethodView
from pals.vision.networks import Network, Output

Kind = Literal["noisy partial", "partial", "noisy label", "classical"]


@dataclass(frozen=True)
class Problem:
    """Everything a method may know before it starts."""

    candidates: CandidateSets
    network: Callable[..., Network]  # network(): a fresh one, newly initialised; network("mlp"): another kind


@dataclass(frozen=True)
class Group:
    """Items to visit in this epoch, in order; repetitions count. `parts/sampling.py` makes such orders."""

    order_M: Tensor
    target: Tensor | None = None  # one row per item of the data set: labels (N) or soft labels (N x C)
    batch_size: int | None = None  # None: the run's
    views: tuple[str, ...] | None = None  # None: the method's


@dataclass(frozen=True)
class Selection:
    """The items trusted in this epoch, with their labels: for the log and for grading, not for training."""

    selected_N: Tensor  # bool
    label_N: Tensor


@dataclass(frozen=True)
class EpochPlan:
    """What to train on in an epoch. The group `main` sets the number of steps; shorter groups start again from the front.

    >>> import torch
    >>> plan = pals.EpochPlan.of(torch.tensor([2, 0, 1, 2]), target=torch.tensor([1, 0, 1]))
    >>> plan.steps(batch_size=3)
    2
    """

    groups: Mapping[str, Group]
    selection: Selection | None = None
    drop_last: bool = False  # leave out a short last batch

    @classmethod
    def of(cls, order_M: Tensor, target: Tensor | None = None, **more: Any) -> EpochPlan:
        """The common case: one group."""
        return cls({"main": Group(order_M, target)}, **more)

    def steps(self, batch_size: int) -> int:
        """Number of batches in the main group, including a short last one unless it is dropped."""
        main = self.groups["main"]
        full, rest = divmod(len(main.order_M), main.batch_size or batch_size)
        return full if self.drop_last and full else full + (rest > 0)

    def filled(self, batch_size: int) -> EpochPlan:
        """The same plan with a full last batch."""
        main = self.groups["main"]
        length = len(main.order_M)
        full = length + -length % (main.batch_size or batch_size)
        order_M = main.order_M[torch.arange(full, device=main.order_M.device) % max(length, 1)]
        return replace(self, groups={**self.groups, "main": replace(main, order_M=order_M)})


@dataclass(frozen=True)
class Batch:
    """The data of one training step. The fields hold the group `main`; `groups` holds the others."""

    index_B: Tensor
    views: tuple[Tensor, ...]
    target: Tensor | None
    random: Mapping[str, Tensor] = field(default_factory=dict)  # this step's row of `Method.random_inputs`
    groups: Mapping[str, Batch] = field(default_factory=dict)

    def tensors(self) -> list[Tensor]:
        """All its tensors as a flat list, for the engine."""
        own = [self.index_B, *self.views, *([] if self.target is None else [self.target]), *self.random.values()]
        return own + [tensor for group in self.groups.values() for tensor in group.tensors()]

    def structure(self) -> Hashable:
        """What each tensor of `tensors` is; batches that differ in it are not to be mixed up, even where their tensors' shapes
        are the same."""
        groups = tuple((name, group.structure()) for name, group in self.groups.items())
        return len(self.views), self.target is not None, tuple(self.random), groups

    def rebuild(self, tensors: Sequence[Tensor]) -> Batch:
        """A batch of the same structure from such a list."""
        return self._rebuild(iter(tensors))

    def _rebuild(self, rest: Iterator[Tensor]) -> Batch:
        return Batch(
            index_B=next(rest),
            views=tuple(next(rest) for _ in self.views),
            target=None if self.target is None else next(rest),
            random={name: next(rest) for name in self.random},
            groups={name: group._rebuild(rest) for name, group in self.groups.items()},
        )


class Context(Protocol):
    """What a method may ask of the run. Passes over the data are lazy and cached for the epoch: unused ones cost nothing."""

    phase: str
    epoch: int  # within the phase, from 1
    epochs: int  # of the phase
    batch_size: int
    generator: torch.Generator  # on the device: orders and other large draws
    rng: np.random.Generator  # on the host: a few numbers, such as mix-up weights

    def outputs(self, network: nn.Module | None = None, view: str = "eval", rows_M: Tensor | None = None) -> Output:
        """Outputs of a network (default: the predictor) in eval mode for all training items, in their order, or for some."""
        ...

    def features(self, network: nn.Module | None = None) -> Tensor:
        """N x D features of a network (default: the predictor) on the eval view."""
        ...

    def probabilities(self, view: str = "eval", network: nn.Module | None = None) -> Tensor:
        """N x C class probabilities of a network (default: the predictor)."""
        ...


@dataclass(frozen=True)
class Phase:
    """A sequence of epochs with one optimiser. A method with stages has several. A method that only needs the features of the
    training items has one epoch with an empty plan; one that needs no training at all has no phase."""

    name: str
    epochs: int | None = None  # None: the run's
    modules: Sequence[nn.Module] | None = None  # what is trained; None: everything that asks for a gradient
    settings: Mapping[str, Any] = field(default_factory=dict)  # training settings that differ from the run's


def check_neighbors(wanted: int, items: int) -> None:
    """Refuse more neighbours than there are, before anything is computed."""
    if wanted >= items:
        raise InputError(
            f"{wanted} neighbours are to vote, but each of the {items} items has only {items - 1} others. "
            f"Lower method.neighbors."
        )


class Method(nn.Module):
    """Learns from candidate sets. State is kept in buffers and submodules, so moving to a device and resuming need no code.

    `loss` depends only on parameters, buffers and the batch: random numbers are already in `batch.random`, shapes are
    static, and nothing is read back to the host, so it can be compiled and captured in a graph. What it passes on to
    `after_step` of the same batch (predictions, keys) may be an ordinary attribute.
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

    def __init__(self, config: Any, problem: Problem) -> None:
        super().__init__()
        self.config = config
        self.num_classes = problem.candidates.num_classes
        self.num_items = len(problem.candidates)
        self.allowed_NC: Tensor
        self.register_buffer("allowed_NC", problem.candidates.allowed_NC.clone())

    @property
    def predictor(self) -> nn.Module:
        """The module used at inference; its forward returns an `Output`."""
        raise NotImplementedError

    @property
    def graph_key(self) -> str:
        """Name of the code path that `loss` currently takes. If the loss switches in Python (say, after a warm-up), the name
        must change too; otherwise a captured step would repeat the old path."""
        return ""

    def phase(self, number: int) -> Phase | None:
        """The phase with this number, from 0, or None after the last one. It may depend only on the method's state."""
        return Phase("main") if number == 0 else None

    def begin_phase(self, number: int) -> None:
        """Called once before the phase's first epoch: make fresh networks, reset buffers. A resumed run calls it on the new
        object for every phase begun so far, before it loads the saved state."""

    def plan_epoch(self, ctx: Context) -> EpochPlan | None:
        """The items to train on, their order and targets. None: one shuffled pass over all items, without targets."""
        return None

    def random_inputs(self, ctx: Context, steps: int) -> Mapping[str, Tensor]:
        """All random numbers that `loss` needs in this epoch, one row per step."""
        return {}

    def loss(self, batch: Batch) -> Tensor:
        """The mean loss of a batch."""
        raise NotImplementedError

    def after_step(self, batch: Batch) -> None:
        """Updates after the optimiser's step, without gradients: averaged networks, queues, prototypes."""

    def end_epoch(self, ctx: Context) -> bool:
        """A decision after the epoch; True ends the phase early."""
        return False

    def posterior(self) -> Tensor | None:
        """N x C: how likely the method currently considers each label, for reports. None before it has an opinion."""
        return None

    def statistics(self) -> Mapping[str, float]:
        """A few numbers about this epoch, for the log."""
        return {}
