"""Batches shared by several processes: each computes its rows, and all get the output of all rows.

Losses, labels, queues and prototypes are then computed by every process from the whole batch, so they stay equal in all, and a
method need not know the number of processes. The exact search for neighbours is shared in the same way.

Shape letters: B rows of the batch, M rows of this process.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor


class ProcessGroup(Protocol):
    """A process group; implemented by `training.distributed`."""

    @property
    def size(self) -> int: ...

    @property
    def sync_norms(self) -> bool:
        """Whether batch statistics are computed over the whole batch, not over the rows of each process."""
        ...

    def rows(self, x_B: Tensor) -> Tensor:
        """This process's rows of a batch that all processes have."""
        ...

    def gathered(self, own_M: Tensor, rows: int) -> Tensor:
        """The rows of all processes, in the order of the batch, for a loss that every process computes."""
        ...

    def stacked(self, own: Tensor) -> Tensor:
        """The tensors of all processes along a new first dimension; gradients flow back to each process."""
        ...


_group: ProcessGroup | None = None  # a plain variable, which compilers can trace; a process is in one group at most


def group_for(x_B: Tensor) -> ProcessGroup | None:
    """The process group that shares this batch; None if it is not shared.

    If a batch has fewer rows than there are processes, each process computes all of it.
    """
    return None if _group is None or len(x_B) < _group.size else _group


@contextmanager
def shared_by(group: ProcessGroup | None) -> Iterator[None]:
    """Networks and searches called within the block share their batches with this group."""
    global _group
    before, _group = _group, group
    try:
        yield
    finally:
        _group = before
