"""The folder of a run: its owner, the fingerprints of data and code, `config.yaml` and `run.json`."""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import torch

import pals
from pals.data.row_source import Inputs
from pals.labels.candidates import CandidateSets
from pals.runs.run_config import DataConfig, RunConfig
from pals.runs.run_json import RUN_FORMAT, read_about, refuse_strange
from pals.training.checkpoint import refuse_other_settings
from pals.util.config import read_yaml, to_yaml
from pals.util.errors import InputError
from pals.util.even_sample import evenly_spaced
from pals.util.files import is_unfinished, write_json, write_text
from pals.util.locks import is_lock
from pals.util.plugins import plugin_files, plugins_used

FINGERPRINT_ITEMS = 1000
"""Items that the fingerprint of the data reads."""


def load_run_config(folder: Path, expected: RunConfig | None = None) -> RunConfig:
    """The settings of the run in a folder.

    Args:
        folder: of a run.
        expected: settings that the run should have. They are returned, and nothing is checked again, if the file holds the
            same values.

    Raises:
        InputError: the folder is not one of a run, is of a newer version, or its settings are invalid.
    """
    refuse_strange(folder)
    values = read_yaml(folder / "config.yaml")
    if expected is not None and values == expected.to_dict():
        return expected
    try:
        return RunConfig.of(values)
    except InputError as error:
        raise InputError(f"{folder / 'config.yaml'}: {error}{_missing_plugins(folder)}") from None


def _missing_plugins(folder: Path) -> str:
    """A hint to name the plug-ins that the run was made with. Their files are not run unless the user names them."""
    listed = read_about(folder).get("plugins")
    made_with = [str(one.get("file")) for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    missing = [file for file in made_with if file not in plugin_files()]
    flags = " ".join(f"--plugin {shlex.quote(file)}" for file in missing)
    return f" This run was made with plug-ins that were not named now: add {flags}" if missing else ""


def check_folder(folder: Path, config: RunConfig) -> None:
    """Refuse a folder with another run or other files. A setting that the run's version did not have counts as its default."""
    if (folder / "config.yaml").exists():
        refuse_other_settings(folder / "config.yaml", load_run_config(folder).to_dict(), config.to_dict())
    elif not _is_free(folder):
        raise InputError(f"{folder} exists, but does not hold a PALS run. Choose another --out, or empty it first.")


def data_mark(inputs: Inputs, candidates: CandidateSets) -> str:
    """A fingerprint of the candidates and of at most 1,000 items, which may be in a file of any size."""
    row_M = evenly_spaced(len(inputs), FINGERPRINT_ITEMS)
    mark = hashlib.blake2b(repr((tuple(inputs.shape), inputs.dtype, candidates.class_names)).encode(), digest_size=12)
    for part in (inputs[row_M], candidates.allowed_NC):
        mark.update(part.contiguous().cpu().numpy().data)
    return mark.hexdigest()


def refuse_other_data(folder: Path, mark: str) -> None:
    """Refuse data with another fingerprint than the run's. Folders of early versions have none."""
    if read_about(folder).get("data_mark", mark) != mark:
        raise InputError(f"{folder} holds a run on other items or candidates. Give its --data-dir, or choose another --out.")


def check_base(base: Path, runs: str) -> None:
    """Refuse a folder for several runs that has other content; `runs` is the pattern of their folders."""
    if (base / "config.yaml").exists():
        raise InputError(f"{base} is the folder of a single run. Choose another --out for several.")
    if not _is_free(base) and not any(base.glob(f"{runs}/config.yaml")):
        raise InputError(f"{base} exists, but does not hold a PALS run. Choose another --out, or empty it first.")


def _is_free(folder: Path) -> bool:
    """Whether the folder does not exist, or has only files of a process that was killed at its very start."""
    if not folder.is_dir():
        return not folder.exists()
    return all(path.is_dir() or is_unfinished(path) or is_lock(path) for path in folder.rglob("*"))


def claim_folder(folder: Path, config: RunConfig, more: Mapping[str, Any] | None = None) -> None:
    """Make the run's folder, which `check_folder` has accepted, and write `config.yaml` and `run.json`, with `more` in it."""
    for path in folder.iterdir() if folder.exists() else ():
        if is_unfinished(path):
            path.unlink()
    if not (folder / "config.yaml").exists():
        write_text(folder / "config.yaml", to_yaml(config.to_dict()))
    if (folder / "run.json").exists():
        return
    facts = {
        "format": RUN_FORMAT,
        "pals": pals.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "commit": commit(),
        "machine": platform.platform(),
        "command": sys.argv,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": config.seed,
        **({"plugins": plugins_used()} if plugins_used() else {}),
        **(more or {}),
    }
    write_json(folder / "run.json", facts)


@cache
def commit() -> str | None:
    """The commit of the running code, with "+changes" where files differ from it; the variable PALS_COMMIT overrides it."""
    if os.environ.get("PALS_COMMIT"):
        return os.environ["PALS_COMMIT"]
    root = Path(pals.__file__)
    git = ["git", "-C", str(root.parent)]
    tracked = [*git, "ls-files", "--error-unmatch", root.name]  # an installed package may lie in another checkout
    status = [*git, "status", "--porcelain=v2", "--branch", "--", "."]
    try:
        subprocess.run(tracked, capture_output=True, check=True, timeout=20)
        answer = subprocess.run(status, capture_output=True, check=True, timeout=20, text=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    lines, heading = answer.splitlines(), "# branch.oid "
    first = next((line.removeprefix(heading) for line in lines if line.startswith(heading)), None)
    return f"{first}+changes" if first and any(not line.startswith("#") for line in lines) else first


def code_mark() -> str:
    """A fingerprint of the running code, plug-ins included."""
    root = Path(pals.__file__).parent
    mark = hashlib.blake2b(repr((torch.__version__, sorted(one["sha256"] for one in plugins_used()))).encode(), digest_size=12)
    for path in sorted(root.rglob("*.py")):
        mark.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return mark.hexdigest()


def default_folder(config: RunConfig) -> Path:
    """The folder of a run for which none is given, named by data, method, encoder and rates."""
    data, loader = config.data, config.loader
    suffix = f"-{config.network.name.replace(':', '-').replace('/', '-')}" if config.network.is_encoder else ""
    suffix += f"-{loader.label}" if loader is not None and loader.label else ""
    if isinstance(data, DataConfig) and not (loader is not None and loader.answered):
        suffix += f"-q{data.partial_rate:g}-eta{data.noise_rate:g}"
    return Path("runs") / f"{data.name}-{config.method_name}{suffix}"
