"""A batch that several processes put through a network together: each computes its rows, and all get the output of all rows.
The exact search for neighbours is shared likewise.

So whatever is made of an output (a loss, labels, confidences, queues, prototypes) is made by every process, of the whole batch
and in the same way, and stays the same in all of them. A method need not know how many there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor


class Team(Protocol):
    """The processes; `training.distributed` has the real one."""

    @property
    def size(self) -> int: ...

    @property
    def sync_norms(self) -> bool:
        """Whether batch statistics are those of the whole batch, or each process takes those of its rows."""
        ...

    def rows(self, x_B: Tensor) -> Tensor:
        """This process's part of a batch that all of them hold."""
        ...

    def gathered(self, own_M: Tensor, rows: int) -> Tensor:
        """The parts of all, in the order of the batch; for a loss that all processes compute alike."""
        ...

    def stacked(self, own: Tensor) -> Tensor:
        """The tensors of all, one above the other; the gradients of all come back to each."""
        ...


_team: Team | None = None  # an ordinary variable: compilers see through it, and a process is in one team at most


def team_for(x_B: Tensor) -> Team | None:
    """Those who share the work on this batch; None where it is not shared. A batch with fewer rows than there are processes is
    computed whole by each of them."""
    return None if _team is None or len(x_B) < _team.size else _team


@contextmanager
def working(team: Team | None) -> Iterator[None]:
    """Networks and searches called within share their batches with this team."""
    global _team
    before, _team = _team, team
    try:
        yield
    finally:
        _team = before
