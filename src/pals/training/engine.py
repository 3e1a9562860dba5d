"""Where and how numbers are computed: device, precision, the training step. The only file that names a kind of device."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import time
import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

import torch
from pydantic.dataclasses import dataclass as settings
from torch import Tensor, nn
from torch.optim import Optimizer

from pals.data.row_source import Inputs, TensorRows, in_blocks
from pals.methods.method import Batch, Method
from pals.training.distributed import ALONE, Ranks
from pals.util.config import STRICT
from pals.util.errors import InputError, unknown
from pals.vision.networks import Network, Output
from pals.vision.networks.fused import conv_relu

Step = Callable[[Batch], Tensor]
VISIBLE = "CUDA_VISIBLE_DEVICES"
WARM_UP = 3  # ordinary calls before a graph is captured: libraries choose their kernels in these


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
    """The device called so, or an error that says what there is."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise unknown("device", name, ("auto", "cpu", "cuda", "cuda:0", "mps")) from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InputError(
            f"Device {name!r}: this machine shows {torch.cuda.device_count()} CUDA devices. Use --device cpu or auto."
        )
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise InputError("Device 'mps': this machine has no Apple GPU that torch can use. Use --device cpu or auto.")
    if device.type not in ("cpu", "cuda", "mps"):
        raise unknown("device", name, ("auto", "cpu", "cuda", "mps"))
    return device


def _shared_device(device: torch.device, ranks: Ranks) -> torch.device:
    """Where one of several processes computes: each on a GPU of its own, or all on the CPU."""
    if device.type == "cpu":
        return device
    if device.type != "cuda" or device.index is not None:
        raise InputError(
            f"Device {str(device)!r} is one device, but this run has {ranks.size} processes. Use --device cpu or cuda."
        )
    if ranks.local >= torch.cuda.device_count():
        raise InputError(
            f"Process {ranks.rank} of {ranks.size} finds no GPU of its own: this machine shows {torch.cuda.device_count()}. "
            f"Start no more processes on it than that, or use --device cpu."
        )
    torch.cuda.set_device(ranks.local)
    return torch.device("cuda", ranks.local)


def free_devices(name: str) -> tuple[str, ...]:
    """The GPUs between which work on the device called `name` may be spread, as `only_device` takes them: none where it names
    one, or is no GPU."""
    if name not in ("auto", "cuda"):
        return ()
    visible = [number.strip() for number in os.environ.get(VISIBLE, "").split(",") if number.strip()]
    count = torch.cuda.device_count()
    return tuple(visible[:count]) if len(visible) >= count else tuple(map(str, range(count)))


def only_device(number: str) -> dict[str, str]:
    """Environment of a process that shall see this GPU alone."""
    return {VISIBLE: number}


def forget_compiled() -> None:
    """Drop compiled code. What one process may hold is limited, and beyond the limit networks run slowly, as they are."""
    if "torch._dynamo" in sys.modules:  # or nothing was ever compiled
        torch.compiler.reset()


def release_memory() -> None:
    """Give back the GPU memory of runs that are over: networks and graphs hold each other until somebody looks for them."""
    if torch.cuda.is_available():
        gc.collect()
        torch.cuda.empty_cache()


class Engine:
    """Runs a method's steps and a network's inference on one device in one precision."""

    def __init__(self, config: EngineConfig, ranks: Ranks = ALONE) -> None:
        """`ranks`: the processes that share the work on each batch."""
        self.ranks = replace(ranks, sync_norms=config.sync_norms)
        self.device = _shared_device(find_device(config.device), ranks) if ranks.several else find_device(config.device)
        self.precision = self._precision(config.precision)
        self.compiled = self.device.type == "cuda" if config.compile is None else config.compile
        if ranks.several and config.sync_norms:  # no compiler sees through what norms exchange
            self.compiled = False
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.precision == "fp16")
        self.warmup_seconds = 0.0
        self.deterministic = config.deterministic
        self._forwards: dict[int, Callable[[Tensor], Output]] = {}
        self._set_switches()
        if self.compiled:
            # methods with several networks, groups and modes need more variants of one than torch allows by default
            limit = "recompile_limit" if hasattr(torch._dynamo.config, "recompile_limit") else "cache_size_limit"
            setattr(torch._dynamo.config, limit, 32)

    def _set_switches(self) -> None:
        """torch has one set of these for the whole process: every engine sets its own before it computes."""
        if self.deterministic:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it cuBLAS refuses
        if torch.are_deterministic_algorithms_enabled() != self.deterministic:  # to ask is free, to set imports the compiler
            torch.use_deterministic_algorithms(self.deterministic)
        if self.device.type == "cuda":
            torch.set_float32_matmul_precision("high" if self.precision == "tf32" else "highest")
            torch.backends.cudnn.allow_tf32 = self.precision == "tf32"
            torch.backends.cudnn.benchmark = not self.deterministic
            torch.backends.cudnn.benchmark_limit = 0  # try every kernel there is, once, and not only the first ten
            warnings.filterwarnings("ignore", "TensorFloat32 tensor cores")  # the compiler's advice; fp32 was asked for

    def _precision(self, name: str) -> str:
        if name == "auto":
            # left to itself, torch also counts GPUs that emulate bf16 (V100, T4)
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
        """Items whose views are made at once: many on a GPU, which is quickest with few large operations."""
        return 65536 if self.device.type == "cuda" else 2048

    def generator(self, seed: int) -> torch.Generator:
        return torch.Generator(self.device).manual_seed(seed)

    def autocast(self, *, cached: bool = True) -> contextlib.AbstractContextManager[Any]:
        """`cached`: weights are cast once for as long as the context lasts."""
        dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(self.precision)
        if dtype is None:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=dtype, cache_enabled=cached)

    def place(self, module: nn.Module) -> None:
        """Move a module here, in the memory layout that convolutions like best, and have its networks compiled."""
        self._forwards.clear()  # captured with networks that may be gone
        self.ranks.check_norms(module)
        module.to(self.device)
        if self.device.type == "cuda":
            module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if self.compiled:
            for part in module.modules():
                if isinstance(part, Network) and part._compiled_call_impl is None:
                    part.compile(dynamic=False)

    def hold(self, inputs: Inputs) -> Inputs:
        """The data set: a tensor on the device, or a source where it would take more than half of the GPU's free memory, or is
        one that the host's memory need not hold."""
        if self.device.type != "cuda":
            return inputs.to(self.device) if isinstance(inputs, Tensor) else inputs
        free, total = torch.cuda.mem_get_info(self.device)
        if inputs.nbytes > (total if self.ranks.several else free) / 2:  # of several processes all must find the same
            return TensorRows(inputs) if isinstance(inputs, Tensor) else inputs
        if isinstance(inputs, Tensor):
            return inputs.to(self.device)
        held = torch.empty(inputs.shape, dtype=inputs.dtype, device=self.device)
        start = 0
        for part in in_blocks(inputs):
            held[start : start + len(part)] = self.send(part)
            start += len(part)
        return held

    def send(self, rows: Tensor) -> Tensor:
        """A batch on the device. From the host it goes through pinned memory, for which nobody has to wait: torch gives such
        memory away again only once it was copied from."""
        if self.device.type == "cuda" and rows.device.type == "cpu":
            rows = rows.pin_memory()
        return rows.to(self.device, non_blocking=True)

    def optimizer(self, kind: type[Optimizer], groups: Sequence[dict[str, Any]], **options: Any) -> Optimizer:
        """On a GPU one kernel for all parameters, with the learning rate in device memory so that a graph can read it."""
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
        """As saved; the learning rate is set at each step, so the tensor that holds it stays the one made here."""
        rates = [group["lr"] for group in optimizer.param_groups]
        optimizer.load_state_dict(state)
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate

    def step(self, method: Method, optimizer: Optimizer) -> Step:
        """One training step as a function of the batch; gives the loss, still on the device."""
        self._set_switches()
        scaler = self.scaler

        def step(batch: Batch) -> Tensor:
            optimizer.zero_grad(set_to_none=True)
            with self.ranks.together():
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

        scaled = scaler.is_enabled()  # it reads from the device
        if not self._captures(method) or scaled:
            return step
        graphs: dict[tuple[Hashable, ...], Captured] = {}

        def replay(batch: Batch) -> Tensor:
            tensors, key = batch.tensors(), (method.graph_key, batch.structure())
            if key not in graphs:
                shell = batch.rebuild([t.new_empty(0) for t in tensors])  # the batch's make without its memory
                graphs[key] = Captured(lambda *inputs: (step(shell.rebuild(inputs)),), self)
            return graphs[key](*tensors)[0]

        return replay

    @contextlib.contextmanager
    def inference(self, network: nn.Module) -> Iterator[Callable[[Tensor], Output]]:
        """The network in eval mode, without gradients; afterwards it is in the mode it was in. What a call gives is
        overwritten by the next."""
        was_training = network.training
        network.eval()
        self._set_switches()
        try:
            # a graph must not record copies of weights that are cached outside it: they are gone when it is replayed
            with torch.inference_mode(), self.ranks.together(), self.autocast(cached=not self._captures(network)):
                yield self._forward(network)
        finally:
            network.train(was_training)

    def _captures(self, module: nn.Module) -> bool:
        """Whether it goes into a CUDA graph; what several processes exchange in between does not."""
        compiled = self.device.type == "cuda" and self.compiled and not self.ranks.several
        return compiled and getattr(module, "capturable", True)

    def _forward(self, network: nn.Module) -> Callable[[Tensor], Output]:
        if not self._captures(network):
            return network
        if id(network) not in self._forwards:
            captured = Captured(lambda x: network(x), self)
            self._forwards[id(network)] = lambda x: Output(*captured(x))
        return self._forwards[id(network)]

    def random_state(self) -> dict[str, Tensor]:
        """torch's own generators, which dropout and network initialisation draw from."""
        state = {"cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            state["cuda"] = torch.cuda.get_rng_state(self.device)
        return state

    def set_random_state(self, state: dict[str, Tensor]) -> None:
        torch.set_rng_state(state["cpu"])
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(state["cuda"], self.device)

    @contextlib.contextmanager
    def memory(self, remedy: str) -> Iterator[None]:
        """Running out of device memory becomes a sentence that says what to change."""
        try:
            yield
        except torch.OutOfMemoryError:
            free, total = torch.cuda.mem_get_info(self.device)
            raise InputError(
                f"The GPU's memory ({total / 2**30:.0f} GiB, {free / 2**30:.1f} free) is too small. {remedy}"
            ) from None

    def free_memory(self) -> None:
        """Give back what is kept for speed alone."""
        self._forwards.clear()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def synchronize(self) -> None:
        """Wait for the device, so that a clock on the host tells the truth."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def start_momentum(optimizer: Optimizer) -> None:
    """Momentum of zero where the fused kernel of SGD would miss it: it takes all parameters for new, or none, so one whose
    first gradient comes later than others' (a head that joins after the warm-up) needs a buffer beforehand."""
    for group in optimizer.param_groups:
        if group.get("fused") and group.get("momentum"):
            for parameter in group["params"]:
                if parameter.grad is not None and optimizer.state[parameter].get("momentum_buffer") is None:
                    optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)


class Captured:
    """A function of tensors of fixed shapes as a CUDA graph: after a few ordinary calls it is launched as a whole, and the
    host is no longer in the way. Its results are overwritten by the next call."""

    def __init__(self, function: Callable[..., Sequence[Tensor]], engine: Engine) -> None:
        self.function, self.engine = function, engine
        self.stream = torch.cuda.Stream(engine.device)  # type: ignore[no-untyped-call]
        self.states: dict[Any, _GraphState] = {}

    def __call__(self, *inputs: Tensor) -> Sequence[Tensor]:
        state = self.states.setdefault(tuple((t.shape, t.dtype) for t in inputs), _GraphState())
        if state.graph is None:
            started = time.perf_counter()
            result = self._warm_up(inputs) if state.calls < WARM_UP else self._capture(state, inputs)
            state.calls += 1
            self.engine.synchronize()
            self.engine.warmup_seconds += time.perf_counter() - started
            return result
        return self._replay(state, inputs)

    def _warm_up(self, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        self.stream.wait_stream(torch.cuda.current_stream(self.engine.device))
        with torch.cuda.stream(self.stream):
            result = self.function(*map(_arranged, inputs))
        torch.cuda.current_stream(self.engine.device).wait_stream(self.stream)
        return result

    def _capture(self, state: _GraphState, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        state.inputs = [_arranged(t).clone() for t in inputs]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream):  # records, does not run
            state.outputs = self.function(*state.inputs)
        state.graph = graph
        return self._replay(state, inputs)

    def _replay(self, state: _GraphState, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        torch._foreach_copy_(state.inputs, list(inputs))
        cast(torch.cuda.CUDAGraph, state.graph).replay()
        return state.outputs


@dataclass
class _GraphState:
    calls: int = 0
    graph: torch.cuda.CUDAGraph | None = None
    inputs: list[Tensor] = field(default_factory=list)
    outputs: Sequence[Tensor] = ()


def _arranged(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x.contiguous()


def _conv_relu_by_cudnn(
    x: Tensor, weight: Tensor, bias: Tensor, shortcut: Tensor | None, stride: Sequence[int], padding: Sequence[int]
) -> Tensor:
    """`pals.vision.networks.fused.conv_relu` in one kernel."""
    weight, dilation = _arranged(weight), [1, 1]
    if shortcut is None:
        return torch.cudnn_convolution_relu(x, weight, bias, stride, padding, dilation, 1)
    return torch.cudnn_convolution_add_relu(x, weight, shortcut, 1.0, bias, stride, padding, dilation, 1)


if torch.version.cuda is not None:  # not AMD's, which go by the same name
    conv_relu.register_kernel("cuda", _conv_relu_by_cudnn)
