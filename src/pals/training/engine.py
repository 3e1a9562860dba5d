"""Where and how numbers are computed: device, precision, compilation, and the training step.

All differences between devices are in this file and in `cuda_graph`, and precision is decided here:

    step:  loss = method.loss(batch) under autocast;  scale * loss -> backward;  gradients averaged over processes;
           optimizer step;  method.after_step(batch)

With fp16 the scale is adjusted by torch's `GradScaler`, else it is 1. Votes, losses and statistics are computed in fp32.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from pydantic.dataclasses import dataclass as settings
from torch import Tensor, nn
from torch.optim import Optimizer

from pals.data.row_source import Inputs, TensorRows, in_blocks
from pals.methods.epoch_plan import Batch
from pals.methods.method import Method
from pals.training.cuda_graph import CapturedFunction, channels_last
from pals.training.distributed import ALONE, Ranks
from pals.util.config import STRICT
from pals.util.errors import InputError, unknown
from pals.vision.networks import Network, Output
from pals.vision.networks.fused import conv_relu

Step = Callable[[Batch], Tensor]
VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"


@settings(frozen=True, config=STRICT)
class EngineConfig:
    device: str = "auto"
    "cpu, cuda, cuda:1, mps, or auto (a CUDA device where there is one)."
    precision: Literal["auto", "fp32", "tf32", "bf16", "fp16"] = "auto"
    "Of the network; auto: bf16 on a GPU that has it in hardware, fp32 elsewhere. Votes, losses and statistics are always fp32."
    compile: bool | None = None
    "Compile the networks and capture the training step in a CUDA graph; by default on a CUDA device."
    deterministic: bool = False
    "Only deterministic kernels on a GPU: slower, and the same numbers each time. The CPU always is."
    sync_norms: bool = False
    "In a run by several processes: batch statistics of the whole batch, rather than of each process's part of it."


def find_device(name: str) -> torch.device:
    """The torch device of a name.

    Args:
        name: "cpu", "cuda", "cuda:1", "mps", or "auto": a CUDA device where there is one.

    Raises:
        InputError: the name is unknown, or this machine has no such device.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise unknown("device", name, ("auto", "cpu", "cuda", "cuda:0", "mps")) from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InputError(f"Device {name!r}: there are {torch.cuda.device_count()} CUDA devices here. Use --device cpu or auto.")
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise InputError("Device 'mps': this machine has no Apple GPU that torch can use. Use --device cpu or auto.")
    if device.type not in ("cpu", "cuda", "mps"):
        raise unknown("device", name, ("auto", "cpu", "cuda", "mps"))
    return device


def _shared_device(device: torch.device, ranks: Ranks) -> torch.device:
    """The device of one of several processes: each has a GPU of its own, or all use the CPU."""
    if device.type == "cpu":
        return device
    if device.type != "cuda" or device.index is not None:
        raise InputError(f"Device {str(device)!r} is one, but {ranks.size} processes need one each. Use --device cpu or cuda.")
    if ranks.local >= torch.cuda.device_count():
        raise InputError(
            f"Process {ranks.rank} of {ranks.size} finds no GPU of its own: this machine shows {torch.cuda.device_count()}. "
            f"Start no more processes on it than that, or use --device cpu."
        )
    torch.cuda.set_device(ranks.local)
    return torch.device("cuda", ranks.local)


def free_devices(name: str) -> tuple[str, ...]:
    """The GPUs over which runs on the device `name` can be spread, as `only_device` takes them: none where the name is that of
    one device, or of no GPU."""
    if name not in ("auto", "cuda"):
        return ()
    visible = [number.strip() for number in os.environ.get(VISIBLE_DEVICES, "").split(",") if number.strip()]
    count = torch.cuda.device_count()
    return tuple(visible[:count]) if len(visible) >= count else tuple(map(str, range(count)))


def only_device(number: str) -> dict[str, str]:
    """Environment variables of a process that may use this GPU alone."""
    return {VISIBLE_DEVICES: number}


def forget_compiled() -> None:
    """Drop compiled code. Torch keeps a limited amount per process, and beyond it networks run uncompiled and slowly."""
    if "torch._dynamo" in sys.modules:  # else nothing was compiled
        torch.compiler.reset()


def release_memory() -> None:
    """Free the GPU memory of finished runs: networks and graphs refer to each other until the garbage collector finds them."""
    if torch.cuda.is_available():
        gc.collect()
        torch.cuda.empty_cache()


class Engine:
    """Runs a method's steps and a network's inference on one device in one precision."""

    def __init__(self, config: EngineConfig, ranks: Ranks = ALONE) -> None:
        """Choose the device and set torch's switches.

        Args:
            config: device, precision, compilation.
            ranks: the processes that share each batch; default: this one alone.

        Raises:
            InputError: the device does not exist, or does not have the precision.
        """
        self.ranks = replace(ranks, sync_norms=config.sync_norms)
        self.device = _shared_device(find_device(config.device), ranks) if ranks.several else find_device(config.device)
        self.precision = self._precision(config.precision)
        self.compiled = self.device.type == "cuda" if config.compile is None else config.compile
        if ranks.several and config.sync_norms:  # compilers cannot trace what norms exchange
            self.compiled = False
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.precision == "fp16")
        self.warmup_seconds = 0.0
        self.deterministic = config.deterministic
        self._forwards: dict[int, Callable[[Tensor], Output]] = {}
        self._set_switches()
        if self.compiled:
            # methods with several networks, groups and modes need more variants of one network than torch allows by default
            limit = "recompile_limit" if hasattr(torch._dynamo.config, "recompile_limit") else "cache_size_limit"
            setattr(torch._dynamo.config, limit, 32)

    def _set_switches(self) -> None:
        """Set torch's global switches, which each engine does before it computes."""
        if self.deterministic:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it cuBLAS refuses
        if torch.are_deterministic_algorithms_enabled() != self.deterministic:  # setting it imports the compiler
            torch.use_deterministic_algorithms(self.deterministic)
        if self.device.type == "cuda":
            torch.set_float32_matmul_precision("high" if self.precision == "tf32" else "highest")
            torch.backends.cudnn.allow_tf32 = self.precision == "tf32"
            torch.backends.cudnn.benchmark = not self.deterministic
            torch.backends.cudnn.benchmark_limit = 0  # try every kernel once, not only the first ten
            warnings.filterwarnings("ignore", "TensorFloat32 tensor cores")  # the compiler's advice; fp32 was chosen

    def _precision(self, name: str) -> str:
        if name == "auto":
            # by default torch also counts GPUs that emulate bf16 (V100, T4)
            real = self.device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
            return "bf16" if real else "fp32"
        if self.device.type == "cpu" and name in ("tf32", "fp16"):
            raise InputError(f"Precision {name!r} needs a CUDA device; on the CPU use fp32 or bf16.")
        return name

    def describe(self) -> str:
        name = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else self.device.type
        return f"{name}, {self.precision}" + (f", {self.ranks.size} processes" if self.ranks.several else "")

    @property
    def chunk(self) -> int:
        """Items whose views are made at once: many on a GPU, where few large operations are fastest."""
        return 65536 if self.device.type == "cuda" else 2048

    def generator(self, seed: int) -> torch.Generator:
        return torch.Generator(self.device).manual_seed(seed)

    def autocast(self, *, cached: bool = True) -> contextlib.AbstractContextManager[Any]:
        """torch.autocast in the engine's precision; with `cached` each weight is cast once within it."""
        dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(self.precision)
        if dtype is None:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=dtype, cache_enabled=cached)

    def place(self, module: nn.Module) -> None:
        """Move a module to the device in the memory format channels_last, and compile its networks."""
        self._forwards.clear()  # captured with networks that may no longer exist
        self.ranks.check_norms(module)
        module.to(self.device)
        if self.device.type == "cuda":
            module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if self.compiled:
            for part in module.modules():
                if isinstance(part, Network) and part._compiled_call_impl is None:
                    part.compile(dynamic=False)

    def place_inputs(self, inputs: Inputs) -> Inputs:
        """The inputs of a data set, N rows, on the device if possible.

        Returns:
            A tensor on the device; an `ItemSource` where the inputs would take more than half of the GPU's free memory, or
            where a source is used on the CPU.
        """
        if self.device.type != "cuda":
            return inputs.to(self.device) if isinstance(inputs, Tensor) else inputs
        free, total = torch.cuda.mem_get_info(self.device)
        if inputs.nbytes > (total if self.ranks.several else free) / 2:  # the same decision in all processes
            return TensorRows(inputs) if isinstance(inputs, Tensor) else inputs
        if isinstance(inputs, Tensor):
            return inputs.to(self.device)
        placed = torch.empty(inputs.shape, dtype=inputs.dtype, device=self.device)
        start = 0
        for part in in_blocks(inputs):
            placed[start : start + len(part)] = self.send(part)
            start += len(part)
        return placed

    def send(self, rows: Tensor) -> Tensor:
        """A batch on the device. From the host it is copied through pinned memory, asynchronously: torch reuses such memory
        only after the copy."""
        if self.device.type == "cuda" and rows.device.type == "cpu":
            rows = rows.pin_memory()
        return rows.to(self.device, non_blocking=True)

    def optimizer(self, kind: type[Optimizer], groups: Sequence[dict[str, Any]], **options: Any) -> Optimizer:
        """An optimizer; on a GPU one kernel for all parameters, with the rate in device memory so that a graph can read it."""
        if self.device.type == "cuda":
            groups = [{**group, "lr": torch.zeros((), device=self.device)} for group in groups]
            options |= {"fused": True, **({"capturable": True} if issubclass(kind, torch.optim.Adam) else {})}
        return kind(groups, lr=0.0, **options)  # type: ignore[call-arg]

    def set_learning_rate(self, optimizer: Optimizer, rate: float) -> None:
        for group in optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate * group["scale"])
            else:
                group["lr"] = rate * group["scale"]

    def load_optimizer(self, optimizer: Optimizer, state: dict[str, Any]) -> None:
        """Load a saved state, but keep the tensors of the learning rates, which are set at each step and which graphs read."""
        rates = [group["lr"] for group in optimizer.param_groups]
        optimizer.load_state_dict(state)
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate

    def step(self, method: Method, optimizer: Optimizer) -> Step:
        """One training step as a function of a batch.

        Args:
            method: computes the loss; its networks are trained.
            optimizer: of the parameters that the step changes.

        Returns:
            A function that takes a `Batch`, updates the parameters and returns the loss, a scalar on the device.
        """
        self._set_switches()
        scaler = self.scaler

        def step(batch: Batch) -> Tensor:
            optimizer.zero_grad(set_to_none=True)
            with self.ranks.sharded():
                with self.autocast():
                    loss = method.loss(batch)
                scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
                self.ranks.average_gradients(optimizer)
                start_momentum(optimizer)
                scaler.step(optimizer)
                scaler.update()
                with torch.no_grad(), self.autocast():
                    method.after_step(batch)
            return loss.detach()

        if not self._captures(method) or scaler.is_enabled():  # a scaler reads from the device, which a graph cannot
            return step
        graphs: dict[tuple[Hashable, ...], CapturedFunction] = {}

        def replay(batch: Batch) -> Tensor:
            tensors, key = batch.tensors(), (method.graph_key, batch.structure())
            if key not in graphs:
                template = batch.rebuild([t.new_empty(0) for t in tensors])  # the structure of the batch without its memory
                graphs[key] = CapturedFunction(lambda *inputs: (step(template.rebuild(inputs)),), self)
            return graphs[key](*tensors)[0]

        return replay

    @contextlib.contextmanager
    def inference(self, network: nn.Module) -> Iterator[Callable[[Tensor], Output]]:
        """The forward pass of a network in eval mode without gradients; afterwards its mode is restored. The output of a call
        is overwritten by the next."""
        was_training = network.training
        network.eval()
        self._set_switches()
        try:
            # a graph must not record cast weights that are cached outside it: they no longer exist when it is replayed
            with torch.inference_mode(), self.ranks.sharded(), self.autocast(cached=not self._captures(network)):
                yield self._forward(network)
        finally:
            network.train(was_training)

    def _captures(self, module: nn.Module) -> bool:
        """Whether the module runs as a CUDA graph, which cannot contain exchanges between processes."""
        compiled = self.device.type == "cuda" and self.compiled and not self.ranks.several
        return compiled and getattr(module, "capturable", True)

    def _forward(self, network: nn.Module) -> Callable[[Tensor], Output]:
        if not self._captures(network):
            return network
        if id(network) not in self._forwards:
            captured = CapturedFunction(lambda x: network(x), self)
            self._forwards[id(network)] = lambda x: Output(*captured(x))
        return self._forwards[id(network)]

    def random_state(self) -> dict[str, Tensor]:
        """The states of torch's global generators, which dropout and network initialisation use."""
        state = {"cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            state["cuda"] = torch.cuda.get_rng_state(self.device)
        return state

    def set_random_state(self, state: dict[str, Tensor]) -> None:
        torch.set_rng_state(state["cpu"])
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(state["cuda"], self.device)

    @contextlib.contextmanager
    def memory(self, hint: str) -> Iterator[None]:
        """Turn torch's out-of-memory error into an `InputError` that ends with this hint."""
        try:
            yield
        except torch.OutOfMemoryError:
            free, total = torch.cuda.mem_get_info(self.device)
            raise InputError(f"The GPU memory ({total / 2**30:.0f} GiB, {free / 2**30:.1f} free) is full. {hint}") from None

    def free_memory(self) -> None:
        """Free captured graphs and torch's cache of device memory."""
        self._forwards.clear()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def synchronize(self) -> None:
        """Wait for the device, for timing."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def start_momentum(optimizer: Optimizer) -> None:
    """Create zero momentum buffers for parameters without one.

    The fused kernel of SGD treats either all parameters as new or none, so a parameter whose first gradient comes later than
    the others' (a head that is added after the warm-up) needs its buffer beforehand.
    """
    for group in optimizer.param_groups:
        if group.get("fused") and group.get("momentum"):
            for parameter in group["params"]:
                if parameter.grad is not None and optimizer.state[parameter].get("momentum_buffer") is None:
                    optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)


def _conv_relu_by_cudnn(
    x: Tensor, weight: Tensor, bias: Tensor, shortcut: Tensor | None, stride: Sequence[int], padding: Sequence[int]
) -> Tensor:
    """`pals.vision.networks.fused.conv_relu` as one kernel of cuDNN."""
    weight, dilation = channels_last(weight), [1, 1]
    if shortcut is None:
        return torch.cudnn_convolution_relu(x, weight, bias, stride, padding, dilation, 1)
    return torch.cudnn_convolution_add_relu(x, weight, shortcut, 1.0, bias, stride, padding, dilation, 1)


if torch.version.cuda is not None:  # not AMD's devices, which have the same name
    conv_relu.register_kernel("cuda", _conv_relu_by_cudnn)
