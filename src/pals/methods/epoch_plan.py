"""What a method asks the training loop for: groups of items with targets for an epoch, which come back as batches."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Group:
    """Items to visit in an epoch; `parts/sampling.py` makes orders.

    Args:
        order_M: items in order; one may come more than once.
        target: labels (N) or soft labels (N x C) of all items of the data set.
        batch_size: None: the run's.
        views: names of views; None: the method's.

    >>> import torch
    >>> len(pals.Group(torch.tensor([2, 0, 1]), batch_size=2).order_M)
    3
    """

    order_M: Tensor
    target: Tensor | None = None
    batch_size: int | None = None
    views: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Selection:
    """The items selected in an epoch, with their labels: for the log and for grading, not for training.

    Args:
        selected_N: bool.
        label_N: labels, int64; those of other items do not count.

    >>> import torch
    >>> selection = pals.Selection(torch.tensor([True, False]), torch.tensor([1, -1]))
    >>> int(selection.selected_N.sum())
    1
    """

    selected_N: Tensor
    label_N: Tensor


@dataclass(frozen=True)
class EpochPlan:
    """What to train on in an epoch. The group `main` sets the number of steps; shorter groups start again from the front.

    Args:
        groups: groups by name, one of them `main`.
        selection: for the log.
        drop_last: leave out a short last batch.

    >>> import torch
    >>> plan = pals.EpochPlan.of(torch.tensor([2, 0, 1, 2]), target=torch.tensor([1, 0, 1]))
    >>> plan.steps(batch_size=3)
    2
    """

    groups: Mapping[str, Group]
    selection: Selection | None = None
    drop_last: bool = False

    @classmethod
    def of(cls, order_M: Tensor, target: Tensor | None = None, **more: Any) -> EpochPlan:
        """A plan with one group.

        Args:
            order_M: items in order.
            target: labels or soft labels of all items.
            more: other arguments of the plan.
        """
        return cls({"main": Group(order_M, target)}, **more)

    def steps(self, batch_size: int) -> int:
        """Number of batches in the main group, including a short last one unless it is dropped.

        Args:
            batch_size: of the run.
        """
        main = self.groups["main"]
        full, rest = divmod(len(main.order_M), main.batch_size or batch_size)
        return full if self.drop_last and full else full + (rest > 0)

    def filled(self, batch_size: int) -> EpochPlan:
        """The same plan with a full last batch: the order starts again from the front.

        Args:
            batch_size: of the run.
        """
        main = self.groups["main"]
        length = len(main.order_M)
        full = length + -length % (main.batch_size or batch_size)
        order_M = main.order_M[torch.arange(full, device=main.order_M.device) % max(length, 1)]
        return replace(self, groups={**self.groups, "main": replace(main, order_M=order_M)})


@dataclass(frozen=True)
class Batch:
    """The data of one training step: the group `main`, and others in `groups`.

    Args:
        index_B: items.
        views: inputs of each view.
        target: their rows of the target.
        random: this step's row of `Method.random_inputs`.
        groups: batches of the other groups.

    >>> import torch
    >>> batch = pals.Batch(torch.tensor([3, 1]), (torch.zeros(2, 5),), target=None)
    >>> len(batch.tensors())
    2
    """

    index_B: Tensor
    views: tuple[Tensor, ...]
    target: Tensor | None
    random: Mapping[str, Tensor] = field(default_factory=dict)
    groups: Mapping[str, Batch] = field(default_factory=dict)

    def tensors(self) -> list[Tensor]:
        """All tensors as a flat list, for the engine."""
        own = [self.index_B, *self.views, *([] if self.target is None else [self.target]), *self.random.values()]
        return own + [tensor for group in self.groups.values() for tensor in group.tensors()]

    def structure(self) -> Hashable:
        """The role of each tensor of `tensors`: batches of different structure may have tensors of equal shapes."""
        groups = tuple((name, group.structure()) for name, group in self.groups.items())
        return len(self.views), self.target is not None, tuple(self.random), groups

    def rebuild(self, tensors: Sequence[Tensor]) -> Batch:
        """A batch of the same structure from a list as `tensors` returns.

        Args:
            tensors: the list.
        """
        return self._rebuild(iter(tensors))

    def _rebuild(self, rest: Iterator[Tensor]) -> Batch:
        return Batch(
            index_B=next(rest),
            views=tuple(next(rest) for _ in self.views),
            target=None if self.target is None else next(rest),
            random={name: next(rest) for name in self.random},
            groups={name: group._rebuild(rest) for name, group in self.groups.items()},
        )
