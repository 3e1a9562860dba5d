"""What perfect kernels for batch norm, ReLU and residual sums would save in an epoch.

    python benchmarks/speed/norms.py

One compiled training step of ResNet-18 on two views of 256 pictures of 32 px in bf16, its kernels timed by the profiler and
sorted into convolutions and matrix products, and all that only moves memory. Beside it what the norms must move at least, at
the speed of a plain copy: forward two reads (statistics, then the values) and one write; backward two reads for the sums, two
more and one write for the gradient; one read more forward where a residual is added, and one write for its gradient. Prints a
table and one JSON line.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import torch
from _measure import report, seconds
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from pals.vision.networks import build_network
from pals.vision.networks.batchnorm import Norm
from pals.vision.networks.residual import BasicBlock

FORWARD, BACKWARD, RESIDUAL = 3, 5, 2
"""Passes over a norm's input, and more of them where a residual is added."""
ARITHMETIC = ("conv", "gemm", "cutlass", "xmma", "cudnn", "sm90", "sm80", "dgrad", "wgrad", "implicit")
"""In the names of kernels that multiply."""


def bytes_of_norms(network: nn.Module, images: Tensor) -> int:
    """What the norms move at least in one step."""
    moved = 0

    def count(passes: int) -> Callable[..., None]:
        def hook(module: nn.Module, inputs: tuple[Tensor, ...], output: Any) -> None:
            nonlocal moved
            moved += passes * inputs[0].numel() * 2  # bf16

        return hook

    residual = {block.bn2 for block in network.modules() if isinstance(block, BasicBlock)}
    norms = [module for module in network.modules() if isinstance(module, Norm)]
    hooks = [norm.register_forward_hook(count(FORWARD + BACKWARD + RESIDUAL * (norm in residual))) for norm in norms]
    with torch.no_grad():
        network(images)
    for hook in hooks:
        hook.remove()
    return moved


def copy_speed(device: str) -> float:
    """Bytes a second, reads and writes together, of a copy that no cache holds."""
    source = torch.empty(2**30 if device == "cuda" else 2**24, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * len(source) / seconds({"copy": lambda: target.copy_(source)}, 10, device)["copy"].best


def step_of(network: Any, views: list[Tensor], device: str) -> Callable[[], None]:
    label_N = torch.randint(10, (len(views[0]),), device=device)

    def step() -> None:
        with torch.autocast(device, torch.bfloat16):
            outputs = network.each(views)
            loss = sum(nn.functional.cross_entropy(output.logits.float(), label_N) for output in outputs)
        loss.backward()
        network.zero_grad(set_to_none=False)

    return step


def kernel_seconds(step: Callable[[], None], device: str, repeats: int) -> dict[str, float]:
    """By kind, of one step."""
    with profile(activities=[ProfilerActivity.CUDA if device == "cuda" else ProfilerActivity.CPU]) as found:
        for _ in range(repeats):
            step()
    kinds = {"arithmetic": 0.0, "memory": 0.0}
    for kernel in found.key_averages():
        spent = kernel.self_device_time_total if device == "cuda" else kernel.self_cpu_time_total
        name = kernel.key.lower()
        fused = name.startswith("triton")  # a fused kernel is named after all it does, a convolution before it included
        kinds["arithmetic" if not fused and any(word in name for word in ARITHMETIC) else "memory"] += spent / 1e6 / repeats
    return kinds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=196, help="of an epoch")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--no-compile", action="store_true")
    args = parser.parse_args()
    network = build_network("resnet18", (3, 32, 32), 10).to(args.device, memory_format=torch.channels_last)
    views = [
        torch.rand(args.batch, 3, 32, 32, device=args.device).contiguous(memory_format=torch.channels_last) for _ in range(2)
    ]
    moved, speed = bytes_of_norms(network, torch.cat(views)), copy_speed(args.device)
    step = step_of(network, views, args.device)
    if not args.no_compile:
        step = torch.compile(step)
    for _ in range(3):
        step()
    kinds = kernel_seconds(step, args.device, args.repeats)
    perfect = moved / speed
    result = {
        "step_ms": 1e3 * seconds({"step": step}, args.repeats, args.device)["step"].median,
        "arithmetic_ms": 1e3 * kinds["arithmetic"],
        "memory_ms": 1e3 * kinds["memory"],
        "norms_at_least_ms": 1e3 * perfect,
        "copy_gb_s": speed / 1e9,
        "norms_gb": moved / 1e9,
        "saved_s_an_epoch_at_most": args.steps * (kinds["memory"] - perfect),
    }
    report("norms", [result], args.device)


if __name__ == "__main__":
    main()
