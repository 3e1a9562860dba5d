"""Where and how numbers are computed: device, precision, the training step. The only file that names a kind of device."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from pals.backbones import Output
from pals.config import STRICT
from pals.errors import InputError, unknown
from pals.methods.base import Batch, Method

Step = Callable[[Batch], Tensor]


@dataclass(frozen=True, config=STRICT)
class EngineConfig:
    device: str = "auto"
    "cpu, cuda, cuda:1, mps, or auto (a CUDA device where there is one)."
    precision: Literal["auto", "fp32", "tf32", "bf16", "fp16"] = "auto"
    "Of the network; auto is bf16 on a GPU that has it and fp32 elsewhere. Votes, losses and statistics are always fp32."
    deterministic: bool = False
    "Only deterministic kernels on a GPU: slower, and the same numbers each time. The CPU always is."


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


class Engine:
    """Runs a method's steps and a network's inference on one device in one precision."""

    def __init__(self, config: EngineConfig) -> None:
        self.device = find_device(config.device)
        self.precision = self._precision(config.precision)
        if self.device.type == "cuda":
            torch.set_float32_matmul_precision("high" if self.precision == "tf32" else "highest")
            torch.backends.cudnn.allow_tf32 = self.precision == "tf32"
        if config.deterministic:
            torch.use_deterministic_algorithms(True)

    def _precision(self, name: str) -> str:
        if name == "auto":
            return "bf16" if self.device.type == "cuda" and torch.cuda.is_bf16_supported() else "fp32"
        if self.device.type == "cpu" and name in ("tf32", "fp16"):
            raise InputError(f"Precision {name!r} needs a CUDA device; on the CPU use fp32 or bf16.")
        return name

    def generator(self, seed: int) -> torch.Generator:
        return torch.Generator(self.device).manual_seed(seed)

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(self.precision)
        return contextlib.nullcontext() if dtype is None else torch.autocast(self.device.type, dtype=dtype)

    def place(self, module: nn.Module) -> None:
        """Move a module here, in the memory layout that convolutions like best."""
        module.to(self.device)
        if self.device.type == "cuda":
            module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def step(self, method: Method, optimizer: torch.optim.Optimizer) -> Step:
        """One training step as a function of the batch; gives the loss, still on the device."""
        scaler = torch.amp.GradScaler(self.device.type, enabled=self.precision == "fp16")

        def step(batch: Batch) -> Tensor:
            optimizer.zero_grad(set_to_none=True)
            with self.autocast():
                loss = method.loss(batch)
            scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
            scaler.step(optimizer)
            scaler.update()
            with torch.no_grad():
                method.after_step(batch)
            return loss.detach()

        return step

    def set_learning_rate(self, optimizer: torch.optim.Optimizer, rate: float) -> None:
        for group in optimizer.param_groups:
            group["lr"] = rate * group["scale"]

    @contextlib.contextmanager
    def inference(self, network: nn.Module) -> Iterator[Callable[[Tensor], Output]]:
        """The network in eval mode, without gradients; afterwards it is in the mode it was in."""
        was_training = network.training
        network.eval()
        try:
            with torch.inference_mode(), self.autocast():
                yield network
        finally:
            network.train(was_training)

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

    def describe(self) -> str:
        name = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else self.device.type
        return f"{name}, {self.precision}"
