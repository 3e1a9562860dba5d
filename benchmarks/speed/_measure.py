"""Shared by the speed benchmarks: fair timing, peak memory, and results with their provenance."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from pals.runs.run_folder import commit


class Times(NamedTuple):
    """Seconds of several runs of one thing."""

    median: float
    best: float  # the least disturbed by whatever else the machine did


def seconds(variants: Mapping[str, Callable[[], object]], repeats: int, device: str = "cpu") -> dict[str, Times]:
    """Times of each variant. They take turns, so that a busy moment of the machine falls on all of them."""
    wait = torch.cuda.synchronize if device.startswith("cuda") else lambda: None
    times: dict[str, list[float]] = {name: [] for name in variants}
    for turn in range(repeats + 1):
        for name, run in variants.items():
            wait()
            start = time.perf_counter()
            run()
            wait()
            if turn:  # the first warms up
                times[name].append(time.perf_counter() - start)
    return {name: Times(statistics.median(values), min(values)) for name, values in times.items()}


def peak_bytes(run: Callable[[], object], device: str = "cpu") -> int:
    """Peak memory of a call beyond the present use. On a CPU (Linux) it is right once, in a fresh process.

    There the process's highest size is compared with its present one, so an earlier, higher peak makes a call
    worse, never better. (`ru_maxrss` would not do: a child process inherits it from its parent.)
    """
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        return torch.cuda.max_memory_allocated() - before
    before = _process_size("VmRSS")
    run()
    return _process_size("VmHWM") - before


def in_fresh_process(arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> Any:
    """Run this script again with other arguments; its last line of output, read as JSON."""
    command = [sys.executable, sys.argv[0], *arguments]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})})
    return json.loads(done.stdout.splitlines()[-1])


def report(title: str, results: Sequence[Mapping[str, Any]], device: str = "cpu") -> None:
    """A small table for people, then one JSON line per result with all that is needed to repeat it."""
    columns = list(results[0])
    cells = [[_short(result[column]) for column in columns] for result in results]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    print(f"\n{title}")
    for row in [columns, *cells]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    for result in results:
        print(json.dumps({"benchmark": title, **result, **origin(device)}))


def _process_size(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "-" if value is None else str(value)


def origin(device: str) -> dict[str, Any]:
    """Hardware, versions, commit and command."""
    gpu = torch.cuda.get_device_name() if device.startswith("cuda") else None
    return {
        "hardware": {"cpu": _cpu_name(), "threads": torch.get_num_threads(), "gpu": gpu},
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "commit": commit(),
        "command": " ".join(["python", *sys.argv]),
    }


def _cpu_name() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor())
