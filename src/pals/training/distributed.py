"""One run by several processes, by torch.distributed: who they are, what they share, and what they must have in common.

The forward pass takes most of the time, so it is shared (`util.process_group`): of a batch x_B, process r of P computes rows
r B / P to (r + 1) B / P and gets the outputs of all B. Losses, plans, labels and the state of a method are computed by every
process from the whole batch, hence the same everywhere. The gradient that a process gets is that of its own rows times P, so
that the mean over the processes is the gradient of the batch:

    grad L = (1 / P) sum_r P * dL / d(rows of r)

Differences in the order of a device's sums are removed by `sync_module` and `broadcast_tensors`, which copy from the first
process. Only the first process writes files.
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
from pals.util.process_group import shared_by
from pals.vision.networks.batchnorm import Norm

T = TypeVar("T")
TORCHRUN_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
"""Environment variables that torchrun sets for each process."""
COLLECTIVE_TIMEOUT = timedelta(hours=2)
"""For a process that is slow. One that has died is noticed at once, because its connections close."""
LARGE_TENSOR_BYTES = 1 << 20
"""From this size on a tensor is broadcast by itself."""
RESUME_HINT = "Run the same command to continue from the last checkpoint."


class PeerError(InputError):
    """Another process of the run has failed and reports why."""


class PeerLostError(InputError):
    """Another process of the run has ended without an error message."""

    def __init__(self) -> None:
        super().__init__(f"Another process of this run has ended, so this one ends too. {RESUME_HINT}")


@dataclass(frozen=True)
class Ranks:
    """The processes of a run, and which of them this is. With a single process every method does nothing."""

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
    def sharded(self) -> Iterator[None]:
        """Networks that are called within share their batches."""
        with shared_by(self if self.several else None):
            yield

    def rows(self, x_B: Tensor) -> Tensor:
        """This process's rows of a batch: as many as the others', or one more or less."""
        return x_B[self._bound(self.rank, len(x_B)) : self._bound(self.rank + 1, len(x_B))]

    def _bound(self, rank: int, rows: int) -> int:
        return rank * rows // self.size

    def gathered(self, own_M: Tensor, rows: int) -> Tensor:
        """The rows of all processes, in order.

        Every process must compute the same from the result. It then gets the gradient of its own rows times P, also for
        parameters that are used outside of shared passes, and `average_gradients` gives the gradient of the whole batch.
        """
        if not self.several:
            return own_M
        longest = -(-rows // self.size)
        padded = torch.cat([own_M, own_M.new_zeros(longest - len(own_M), *own_M.shape[1:])])
        parts = _all_gather(padded, self, alike=True)
        counts = [self._bound(rank + 1, rows) - self._bound(rank, rows) for rank in range(self.size)]
        return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])

    def stacked(self, own: Tensor) -> Tensor:
        """One tensor of each process, P x its shape; each process gets the sum of all gradients of its tensor."""
        return _all_gather(own, self, alike=False)

    @torch.no_grad()
    def average(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its mean over the processes, in one exchange."""
        if self.several and tensors:
            flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
            dist.all_reduce(flat)
            flat /= self.size
            for tensor, part in zip(tensors, torch.split(flat, [tensor.numel() for tensor in tensors]), strict=True):
                tensor.copy_(part.view(tensor.shape))

    def average_gradients(self, optimizer: Optimizer) -> None:
        """After a backward pass: the gradients of the whole batch, in all processes."""
        if self.several:
            parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
            self.average([parameter.grad for parameter in parameters if parameter.grad is not None])

    def check_norms(self, module: nn.Module) -> None:
        """Refuse normalisation layers that cannot share batch statistics where `sync_norms` is set."""
        if self.several and self.sync_norms:
            for name, part in module.named_modules():
                if isinstance(part, _BatchNorm) and not isinstance(part, Norm):
                    raise InputError(
                        f"The norm {name} is torch's own or timm's, and only those of pals.vision.networks.batchnorm share "
                        f"batch statistics between processes. Leave out engine.sync_norms, or use another network."
                    )

    # ---- what must be the same

    @torch.no_grad()
    def sync_module(self, module: nn.Module) -> None:
        """Average the running batch statistics over the processes, then copy the whole state of the first process."""
        if not self.several:
            return
        norms = [part for part in module.modules() if isinstance(part, _BatchNorm)]
        self.average([value for norm in norms for value in (norm.running_mean, norm.running_var) if value is not None])
        state = [tensor for tensor in (*module.parameters(), *module.buffers()) if tensor.nbytes]
        # Large tensors, such as tables of N x C, go one by one; small ones are copied into one buffer first.
        small = [tensor for tensor in state if tensor.nbytes < LARGE_TENSOR_BYTES]
        for tensors in (*([tensor] for tensor in state if tensor.nbytes >= LARGE_TENSOR_BYTES), small):
            if tensors:
                parts = [_as_bytes(tensor) for tensor in tensors]
                flat = parts[0] if len(parts) == 1 else torch.cat(parts)
                dist.broadcast(flat, 0)
                for tensor, part in zip(tensors, torch.split(flat, [len(part) for part in parts]), strict=True):
                    same = part if len(parts) == 1 else part.clone()  # at an address that its type can be read from
                    tensor.copy_(same.view(tensor.dtype).view(tensor.shape))

    def broadcast_tensors(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors of the first process, under the same names; their shapes may differ between processes."""
        if not self.several:
            return dict(tensors)
        made = {}
        for name, (shape, dtype) in self.broadcast({name: (x.shape, x.dtype) for name, x in tensors.items()}).items():
            own = tensors[name]
            flat = _as_bytes(own if self.is_first else torch.empty(shape, dtype=dtype, device=own.device))
            if flat.numel():
                dist.broadcast(flat, 0)
            made[name] = flat.view(dtype).view(shape)
        return made

    def broadcast_plan(self, plan: EpochPlan) -> EpochPlan:
        """The epoch plan of the first process."""
        if not self.several:
            return plan
        orders = self.broadcast_tensors({name: group.order_M for name, group in plan.groups.items()})
        targets = {name: group.target for name, group in plan.groups.items() if group.target is not None}
        targets = self.broadcast_tensors(targets)
        groups = {name: replace(group, order_M=orders[name], target=targets.get(name)) for name, group in plan.groups.items()}
        return replace(plan, groups=groups)

    def broadcast(self, value: T) -> T:
        """The value of the first process: plain values, and tensors in the host's memory."""
        if not self.several:
            return value
        values = [value]
        dist.broadcast_object_list(values, 0)
        return values[0]

    def any(self, value: bool) -> bool:
        """Whether the value is true in any process."""
        return any(self._all(value))

    def _all(self, value: T) -> list[T]:
        if not self.several:
            return [value]
        values: list[T | None] = [None] * self.size
        dist.all_gather_object(values, value)
        return cast(list[T], values)

    # ---- errors

    @contextmanager
    def raise_together(self) -> Iterator[None]:
        """An `InputError` within, in any process, is raised in all: as itself by the first, as `PeerError` by the others.
        Nothing may be exchanged within."""
        error: InputError | None = None
        try:
            yield
        except InputError as caught:
            error = caught
        if not self.several:
            if error is not None:
                raise error
            return
        messages = self._all(None if error is None else str(error))
        failed = [rank for rank, text in enumerate(messages) if text is not None]
        if failed and self.is_first:
            others = "" if failed[0] == 0 else f"Process {failed[0]} of {self.size}: "
            raise InputError(f"{others}{messages[failed[0]]}") from None
        if failed:
            raise PeerError(messages[failed[0]]) from None

    def once(self, work: Callable[[], T]) -> T:
        """Run `work` in the first process alone; all get its result, or fail with it."""
        result: T | None = None
        with self.raise_together():
            if self.is_first:
                result = work()
        return cast(T, self.broadcast(result))

    def refuse_differences(self, marks: Mapping[str, str]) -> None:
        """Refuse processes whose marks (of code, settings, data) differ."""
        with self.raise_together():
            for rank, other in enumerate(self._all(dict(marks))):
                differing = [name for name, mark in marks.items() if other.get(name) != mark]
                if differing:
                    raise InputError(
                        f"Processes {self.rank} and {rank} of {self.size} have different {' and '.join(differing)}. All "
                        f"processes of a run need the same code, settings and data."
                    )


ALONE = Ranks()


class _AllGather(torch.autograd.Function):
    """Tensors of all processes, P x shape."""

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
        """With `alike` all processes compute the same from the stack, so each knows the whole gradient of its part."""
        ranks, (stack,) = ctx.ranks, gradients
        if ctx.alike:
            return stack[ranks.rank] * ranks.size, None, None
        stack = stack.contiguous()
        dist.all_reduce(stack)
        return stack[ranks.rank], None, None


def _all_gather(own: Tensor, ranks: Ranks, *, alike: bool) -> Tensor:
    stack: Tensor = _AllGather.apply(own, ranks, alike)  # type: ignore[no-untyped-call]
    return stack


def _as_bytes(tensor: Tensor) -> Tensor:
    """The tensor as one row of bytes, a type that every backend of torch.distributed has."""
    return tensor.detach().contiguous().view(-1).view(torch.uint8)


# ---- how the processes of a run connect


def ranks_from_environment() -> Ranks:
    """Which process this is, by the variables that torchrun sets; `ALONE` without them."""
    values = [os.environ.get(name) for name in TORCHRUN_VARIABLES]
    if None in values or values[1] == "1":
        return ALONE
    try:
        rank, size, local = (int(cast(str, value)) for value in values[:3])
    except ValueError:
        raise InputError(f"RANK, WORLD_SIZE and LOCAL_RANK are {values[:3]}, but torchrun sets numbers.") from None
    if not (0 <= rank < size and local >= 0):
        raise InputError(f"RANK {rank}, WORLD_SIZE {size} and LOCAL_RANK {local} do not go together: ranks count from 0.")
    return Ranks(rank, size, local)


@contextmanager
def joined() -> Iterator[Ranks]:
    """Connect this process with the others of its run. If one of them ends, this one does too, by `PeerLostError`."""
    ranks = ranks_from_environment()
    if not ranks.several:
        yield ranks
        return
    connected = dist.is_initialized()  # by Ray, for example, which also closes the connection
    if not connected:
        _connect()
    try:
        yield ranks
    except (PeerError, PeerLostError):
        raise
    except InputError as error:
        raise InputError(str(error) if ranks.is_first else f"Process {ranks.rank} of {ranks.size}: {error}") from None
    except RuntimeError as error:
        if isinstance(error, dist.DistError) or "gloo" in str(error).lower():
            raise PeerLostError from None
        raise
    if not connected:
        dist.destroy_process_group()


def _connect() -> None:
    # The functions of this module take the group that exists at their import as a default. Imported later (optimizers do so),
    # they would keep the group and its threads alive until the interpreter ends, where a running thread aborts the process.
    import torch.distributed.nn.functional  # noqa: F401

    try:
        dist.init_process_group(timeout=COLLECTIVE_TIMEOUT)
    except (dist.DistError, ValueError) as error:  # a port that is no number, or too large, is a ValueError
        address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        reason = "it is in use" if "EADDRINUSE" in str(error) else str(error).splitlines()[0].rstrip(".")
        raise InputError(f"The processes cannot meet at {address}: {reason}. Choose another MASTER_PORT.") from None
