"""One run as a piece of work that can be handed to any process on any machine."""

from __future__ import annotations

import contextlib
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pals.bench.jobs import Job, changes, kind, state
from pals.bench.stop import Stop
from pals.runs.run import Run
from pals.runs.run_config import RunConfig
from pals.training.distributed import LostError, joined
from pals.training.engine import forget_compiled, release_memory
from pals.util.errors import InputError
from pals.util.files import write_text
from pals.util.locks import BusyError
from pals.util.plugins import load_plugins, plugin_files

Tell = Callable[[Mapping[str, Any]], None]
"""Is told of each run that begins, {work, total, done}, and of each epoch, {work, record}."""

TOGETHER = 4  # methods that may share compiled networks: each adds variants, and torch keeps few
_compiled: dict[tuple[Any, ...], set[str]] = {}  # in this process: the methods that used networks of the present kind


@dataclass(frozen=True)
class Work:
    """All that a process needs to know of a run: plain values, no objects."""

    name: str
    recipe: str | None
    folder: str
    base: str
    "Folder for what a launcher leaves behind."
    values: Mapping[str, Any]
    data_dir: str | None = None
    stop: str | None = None
    "Stop once this file exists."
    drop_checkpoint: bool = False
    "Delete the checkpoint, which is large, once the run is done."
    at_a_time: int = 1
    "Runs that share a device: with more than one, how long they take says nothing."
    command: tuple[str, ...] = ()
    "What the user typed: whoever does it may have been started by something else."
    plugins: tuple[str, ...] = ()
    "Plug-in files that the user named."
    changed: tuple[str, ...] = ()
    "Settings in which it is not the recipe's."
    processes: int = 1
    "So many share the run, on a cluster."
    stop_after: int | None = None
    "Stop after this many epochs."


@dataclass(frozen=True)
class Outcome:
    """What became of a piece of work."""

    name: str
    folder: str
    kind: Literal["done", "skipped", "stopped", "busy", "failed"]
    "skipped: it was done before. busy: another process is working on it."
    message: str = ""
    accuracy: float | None = None
    "Per cent of the test items, last epoch."
    seconds: float = 0.0


def work_of(
    job: Job,
    base: Path,
    *,
    data_dir: Path | None = None,
    stop: Stop | None = None,
    drop_checkpoint: bool = False,
    at_a_time: int = 1,
) -> Work:
    """Paths from the root on: whoever does it may be in another folder."""
    return Work(
        name=job.name,
        recipe=job.recipe.name,
        folder=str(job.folder.resolve()),
        base=str(base.resolve()),
        values=job.config.to_dict(),
        data_dir=None if data_dir is None else str(data_dir.resolve()),
        stop=None if stop is None else str(stop.file),
        drop_checkpoint=drop_checkpoint,
        at_a_time=at_a_time,
        command=tuple(sys.argv),
        plugins=plugin_files(),
        changed=tuple(key for key, _, _ in changes(job.recipe.config(job.seed, job.epochs), job.config)),
    )


def work_for(
    config: RunConfig,
    folder: Path,
    base: Path,
    *,
    data_dir: Path | None = None,
    stop: Stop | None = None,
    processes: int = 1,
    stop_after: int | None = None,
) -> Work:
    """A run of nobody's recipe. `base` lies outside of its folder, which holds the run alone."""
    return Work(
        name=f"{config.method_name} seed {config.seed}",
        recipe=None,
        folder=str(folder.resolve()),
        base=str(base.resolve()),
        values=config.to_dict(),
        data_dir=None if data_dir is None else str(data_dir.resolve()),
        stop=None if stop is None else str(stop.file),
        command=tuple(sys.argv),
        plugins=plugin_files(),
        processes=processes,
        stop_after=stop_after,
    )


def run_job(work: Work, tell: Tell = lambda event: None) -> Outcome:
    """Do it in this process, which may be one of several that share the run: skip it when done, go on where it was cut off. A
    failure is an outcome, not an exception."""
    started = time.perf_counter()
    folder = Path(work.folder)
    outcome: Literal["done", "skipped", "stopped", "busy", "failed"]
    message, accuracy = "", None
    try:
        load_plugins(work.plugins)
        outcome, accuracy = _train(work, tell)
    except BusyError as busy:
        outcome, message = "busy", busy.who
    except InputError as error:
        outcome, message = "failed", str(error)
    except Exception as error:  # one run that breaks must not take the others along
        outcome, message = "failed", _keep_traceback(folder, error)
    release_memory()
    return Outcome(work.name, work.folder, outcome, message, accuracy, time.perf_counter() - started)


def outcome_of_all(outcomes: Sequence[Outcome]) -> Outcome:
    """Of a run that several processes share: what the first says, unless it only knows that another has ended."""
    return min(outcomes, key=lambda outcome: outcome.message == str(LostError()))


def _train(work: Work, tell: Tell) -> tuple[Literal["done", "skipped", "stopped"], float | None]:
    config, folder = RunConfig.of(work.values), Path(work.folder)
    with joined() as ranks:
        if ranks.any(_asked(work)):
            return "stopped", None
        if ranks.once(lambda: state(folder, config).kind) == "done":
            return "skipped", None
        _share_compiled(config)
        data_dir = None if work.data_dir is None else Path(work.data_dir)
        about = {name: getattr(work, name) for name in ("recipe", "at_a_time", "command", "changed")}
        run = Run(config, folder, data_dir, about=about, ranks=ranks)
        tell({"work": work.name, "total": config.train.epochs, "done": run.resumed_at})
        last: Mapping[str, Any] = {}
        for last in run.epochs(stop_after=work.stop_after, asked=lambda: _asked(work)):
            tell({"work": work.name, "record": last})
    if not run.trainer.progress.done:
        return "stopped", None
    error_file(folder).unlink(missing_ok=True)
    if work.drop_checkpoint:
        (folder / "checkpoint.pt").unlink(missing_ok=True)
    accuracy = last.get("test_accuracy")
    return "done", None if accuracy is None else 100 * accuracy


def _share_compiled(config: RunConfig) -> None:
    """What was compiled stays for runs of the same kind, and goes before it becomes too much."""
    methods = _compiled.get(kind(config), set()) | {config.method_name}
    if kind(config) not in _compiled or len(methods) > TOGETHER:
        forget_compiled()
        _compiled.clear()
        methods = {config.method_name}
    _compiled[kind(config)] = methods


def _asked(work: Work) -> bool:
    return work.stop is not None and Path(work.stop).exists()


def error_file(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.error.txt")


def _keep_traceback(folder: Path, error: Exception) -> str:
    """The error in a sentence; all of it goes into a file beside the folder."""
    text = "".join(traceback.format_exception(error))
    traceback.clear_frames(error.__traceback__)  # they hold the run's memory
    reason = f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0]}"
    with contextlib.suppress(InputError):
        write_text(error_file(folder), text)
    return f"{reason} (all of it in {error_file(folder)})"
