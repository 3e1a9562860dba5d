"""Several processes for one run, by torch.distributed: who they are, what they share, what they must have in common.

Networks are what takes the time, so these are what is shared (`util.process_group`): of each batch every process computes
its rows and gets the output of all. The plan, losses, labels and all state of a method are made by every process, of whole
batches and in the same way, so that they are the same everywhere; what is left of chance in the order of a device's sums is
taken out by `settle` and `same`, after which all have what the first process has. It alone writes files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import Optimizer

from pals.methods import EpochPlan
from pals.util.errors import InputError
from pals.util.process_group import working
from pals.vision.networks.batchnorm import Norm

T = TypeVar("T")
VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
"""What torchrun tells each process."""
PATIENCE = timedelta(hours=2)
"""For a process that is slow. One that has died is noticed at once: its connections close."""
LARGE = 1 << 20
"""Bytes from which on a tensor is sent by itself."""
GO_ON = "Run the same command to continue from the last checkpoint."


class ElsewhereError(InputError):
    """Another process has failed, and says why."""


class LostError(InputError):
    """Another process has ended without a word."""

    def __init__(self) -> None:
        super().__init__(f"Another process of this run has ended, so this one ends too. {GO_ON}")


@dataclass(frozen=True)
class Ranks:
    """The processes of a run, and which of them this is. With one of them nothing here does anything."""

    rank: int = 0
    size: int = 1
    local: int = 0
    "Number of this process on its machine."
    sync_norms: bool = False
    "Batch statistics are those of the whole batch; else those of each process's rows."

    @property
    def several(self) -> bool:
        return self.size > 1

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    # ---- a batch that is shared

    @contextmanager
    def together(self) -> Iterator[None]:
        """Networks called within share their batches."""
        with working(self if self.several else None):
            yield

    def rows(self, x_B: Tensor) -> Tensor:
        """This process's part: as many rows as the others', or one more or less."""
        return x_B[self._bound(self.rank, len(x_B)) : self._bound(self.rank + 1, len(x_B))]

    def _bound(self, rank: int, rows: int) -> int:
        return rank * rows // self.size

    def gathered(self, own_M: Tensor, rows: int) -> Tensor:
        """The parts of all, in order. What follows is taken to be computed alike by all processes: each gets the gradient of
        its own rows, times the number of processes, so that the mean over them (`average`) is the gradient of the whole batch,
        also of parameters that the processes use outside of shared passes."""
        if not self.several:
            return own_M
        longest = -(-rows // self.size)
        padded = torch.cat([own_M, own_M.new_zeros(longest - len(own_M), *own_M.shape[1:])])
        parts = _stack(padded, self, alike=True)
        counts = [self._bound(rank + 1, rows) - self._bound(rank, rows) for rank in range(self.size)]
        return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])

    def stacked(self, own: Tensor) -> Tensor:
        """One tensor of each process, one above the other; the gradients of all come back to each."""
        return _stack(own, self, alike=False)

    @torch.no_grad()
    def average(self, tensors: Sequence[Tensor]) -> None:
        """Each becomes its mean over the processes, in one exchange."""
        if self.several and tensors:
            flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
            dist.all_reduce(flat)
            flat /= self.size
            for tensor, part in zip(tensors, _parts(flat, [tensor.numel() for tensor in tensors]), strict=True):
                tensor.copy_(part.view(tensor.shape))

    def average_gradients(self, optimizer: Optimizer) -> None:
        """After a backward pass: those of the whole batch, in all processes."""
        if self.several:
            parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
            self.average([parameter.grad for parameter in parameters if parameter.grad is not None])

    def check_norms(self, module: nn.Module) -> None:
        """Refuse norms whose statistics cannot be shared where they are to be."""
        if self.several and self.sync_norms:
            for name, part in module.named_modules():
                if isinstance(part, _BatchNorm) and not isinstance(part, Norm):
                    raise InputError(
                        f"The norm {name} is torch's own or timm's, and only those of pals.vision.networks.batchnorm share "
                        f"batch statistics between processes. Leave out engine.sync_norms, or use another network."
                    )

    # ---- what must be the same

    @torch.no_grad()
    def settle(self, module: nn.Module) -> None:
        """Running batch statistics become the mean over the processes, all else what it is in the first."""
        if not self.several:
            return
        norms = [part for part in module.modules() if isinstance(part, _BatchNorm)]
        self.average([value for norm in norms for value in (norm.running_mean, norm.running_var) if value is not None])
        state = [*module.parameters(), *module.buffers()]
        for tensor in state:
            if tensor.nbytes >= LARGE:  # by itself: tables of N x C must not be copied into one row first
                flat = _as_bytes(tensor)
                dist.broadcast(flat, 0)
                tensor.copy_(flat.view(tensor.dtype).view(tensor.shape))
        small = [tensor for tensor in state if 0 < tensor.nbytes < LARGE]
        if small:
            flat = torch.cat([_as_bytes(tensor) for tensor in small])
            dist.broadcast(flat, 0)
            for tensor, part in zip(small, _parts(flat, [tensor.nbytes for tensor in small]), strict=True):
                tensor.copy_(part.clone().view(tensor.dtype).view(tensor.shape))

    def same(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Those of the first process."""
        if not self.several:
            return dict(tensors)
        found = {}
        for name, (shape, dtype) in self.told({name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}).items():
            device = tensors[name].device
            flat = _as_bytes(tensors[name]) if self.is_first else _as_bytes(torch.empty(shape, dtype=dtype, device=device))
            if flat.numel():
                dist.broadcast(flat, 0)
            found[name] = flat.view(dtype).view(shape)
        return found

    def same_plan(self, plan: EpochPlan) -> EpochPlan:
        """The one that the first process made."""
        if not self.several:
            return plan
        orders = self.same({name: group.order_M for name, group in plan.groups.items()})
        targets = self.same({name: group.target for name, group in plan.groups.items() if group.target is not None})
        groups = {name: replace(group, order_M=orders[name], target=targets.get(name)) for name, group in plan.groups.items()}
        return replace(plan, groups=groups)

    def told(self, value: T) -> T:
        """What the first process says; plain values, and tensors in the host's memory."""
        if not self.several:
            return value
        said = [value]
        dist.broadcast_object_list(said, 0)
        return said[0]

    def any(self, value: bool) -> bool:
        """Whether it is so in any process."""
        return any(self._all(value))

    def _all(self, value: T) -> list[T]:
        if not self.several:
            return [value]
        found: list[T | None] = [None] * self.size
        dist.all_gather_object(found, value)
        return cast(list[T], found)

    # ---- what goes wrong

    @contextmanager
    def agreed(self) -> Iterator[None]:
        """What goes wrong within, in any process, ends all, and the first process says it. Nothing may be exchanged within."""
        error: InputError | None = None
        try:
            yield
        except InputError as found:
            error = found
        if not self.several:
            if error is not None:
                raise error
            return
        said = self._all(None if error is None else str(error))
        failed = [rank for rank, text in enumerate(said) if text is not None]
        if failed and self.is_first:
            others = "" if failed[0] == 0 else f"Process {failed[0]} of {self.size}: "
            raise InputError(f"{others}{said[failed[0]]}") from None
        if failed:
            raise ElsewhereError(said[failed[0]]) from None

    def once(self, work: Callable[[], T]) -> T:
        """Done by the first process alone; all get what it gave, as `told`, or end if it failed."""
        result: T | None = None
        with self.agreed():
            if self.is_first:
                result = work()
        return cast(T, self.told(result))

    def refuse_differences(self, marks: Mapping[str, str]) -> None:
        """All processes must have the same of each."""
        with self.agreed():
            for rank, other in enumerate(self._all(dict(marks))):
                differing = [name for name, mark in marks.items() if other.get(name) != mark]
                if differing:
                    raise InputError(
                        f"Processes {self.rank} and {rank} of {self.size} have different {' and '.join(differing)}. All "
                        f"processes of a run need the same code, settings and data."
                    )


ALONE = Ranks()


class _Stack(torch.autograd.Function):
    """Tensors of all processes, one above the other."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, ranks: Ranks, alike: bool) -> Tensor:
        ctx.ranks, ctx.alike = ranks, alike
        flat = _as_bytes(own)
        stack = flat.new_empty(ranks.size * len(flat))
        if len(flat):
            dist.all_gather(list(stack.chunk(ranks.size)), flat)
        return stack.view(own.dtype).view(ranks.size, *own.shape)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """`alike`: all processes compute the same from the stack, so each knows the whole gradient of its part."""
        ranks, (stack,) = ctx.ranks, gradients
        if ctx.alike:
            return stack[ranks.rank] * ranks.size, None, None
        stack = stack.contiguous()
        dist.all_reduce(stack)
        return stack[ranks.rank], None, None


def _stack(own: Tensor, ranks: Ranks, *, alike: bool) -> Tensor:
    stack: Tensor = _Stack.apply(own, ranks, alike)  # type: ignore[no-untyped-call]
    return stack


def _as_bytes(tensor: Tensor) -> Tensor:
    """In one row; backends of torch.distributed know few types, and bytes are one of them."""
    return tensor.detach().contiguous().view(-1).view(torch.uint8)


def _parts(flat: Tensor, lengths: Sequence[int]) -> Sequence[Tensor]:
    return torch.split(flat, list(lengths))


# ---- how a run's processes find each other


def started_as() -> Ranks:
    """Which process torchrun, or whoever sets the same variables, has started this one as."""
    said = [os.environ.get(name) for name in VARIABLES]
    if None in said or said[1] == "1":
        return ALONE
    try:
        rank, size, local = (int(cast(str, value)) for value in said[:3])
    except ValueError:
        raise InputError(f"RANK, WORLD_SIZE and LOCAL_RANK are {said[:3]}, but torchrun sets numbers.") from None
    if not (0 <= rank < size and local >= 0):
        raise InputError(f"RANK {rank}, WORLD_SIZE {size} and LOCAL_RANK {local} do not go together: ranks count from 0.")
    return Ranks(rank, size, local)


@contextmanager
def joined() -> Iterator[Ranks]:
    """This process together with the others of its run. If one of them ends, so does this one, by `LostError`."""
    ranks = started_as()
    if not ranks.several:
        yield ranks
        return
    met = dist.is_initialized()  # whoever started them, as Ray does, has seen to it, and will to its end
    if not met:
        _connect()
    try:
        yield ranks
    except (ElsewhereError, LostError):
        raise
    except InputError as error:
        raise InputError(str(error) if ranks.is_first else f"Process {ranks.rank} of {ranks.size}: {error}") from None
    except RuntimeError as error:
        if isinstance(error, dist.DistError) or "gloo" in str(error).lower():
            raise LostError from None
        raise
    if not met:
        dist.destroy_process_group()


def _connect() -> None:
    # Its functions have the group that exists at their import as a default. Were it imported later (optimizers do), they would
    # keep the group, and its threads, beyond its end: until the interpreter's, where a thread that wants to run aborts.
    import torch.distributed.nn.functional  # noqa: F401

    try:
        dist.init_process_group(timeout=PATIENCE)
    except (dist.DistError, ValueError) as error:  # a port that is no number, or too large, is a ValueError
        address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        reason = "it is in use" if "EADDRINUSE" in str(error) else str(error).splitlines()[0].rstrip(".")
        raise InputError(
            f"The processes of this run cannot meet at {address}: {reason}. Choose another port (torchrun --master-port, or "
            f"the variable MASTER_PORT)."
        ) from None
