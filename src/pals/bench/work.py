"""A run as plain values that can go to any process on any machine, and its execution there.

`work_of` turns a planned run into a `Work`; `run_job` executes it and returns an `Outcome`.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
import traceback
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pals.bench.jobs import Job, run_kind, state
from pals.runs.run import Run
from pals.runs.run_config import RunConfig
from pals.training.distributed import PeerLostError, joined
from pals.training.engine import forget_compiled, release_memory
from pals.util.errors import InputError
from pals.util.files import write_text
from pals.util.interrupt import Interrupt
from pals.util.locks import BusyError
from pals.util.plugins import load_plugins, plugin_files

OnEvent = Callable[[Mapping[str, Any]], None]
"""Called when a run begins, with {work, total, done}, and after each of its epochs, with {work, record}."""

MAX_COMPILED_METHODS = 4
"""Methods that may share compiled networks: each adds variants, and torch keeps few."""
_compiled: dict[tuple[Any, ...], set[str]] = {}  # in this process: the methods that used networks of the present kind


@dataclass(frozen=True)
class Work:
    """All that a process needs to execute a run: plain values, no objects."""

    name: str
    recipe: str | None
    "Name of the experiment, if it is a run of one."
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
    "Runs that share a device. The times of a run that shared its device are not compared."
    command: tuple[str, ...] = ()
    "The command line; the process that executes the run may have been started by another one."
    plugins: tuple[str, ...] = ()
    "Plug-in files that the user named."
    changed: tuple[str, ...] = ()
    "Settings that are not the experiment's."
    processes: int = 1
    "Processes that share the run, on a cluster."
    stop_after: int | None = None
    "Stop after this many epochs."


@dataclass(frozen=True)
class Outcome:
    """The result of executing a run."""

    name: str
    folder: str
    kind: Literal["done", "skipped", "stopped", "busy", "failed"]
    "skipped: it was done before. busy: another process is working on it."
    message: str = ""
    accuracy: float | None = None
    "Per cent of the test items, last epoch."
    seconds: float = 0.0


class Stop(Interrupt):
    """A request to stop that processes on several machines can see: a file in the folder that they share."""

    def __init__(self, base: Path) -> None:
        super().__init__()
        self.file = base.resolve() / f".stop-{os.getpid()}-{uuid.uuid4().hex[:8]}"

    def request(self) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.touch()

    @property
    def requested(self) -> bool:
        return self.file.exists()

    def clear(self) -> None:
        self.file.unlink(missing_ok=True)


def work_of(
    job: Job,
    base: Path,
    *,
    data_dir: Path | None = None,
    stop: Stop | None = None,
    drop_checkpoint: bool = False,
    at_a_time: int = 1,
) -> Work:
    """A planned run as plain values, with absolute paths: it may be executed in another working directory.

    Args:
        job: the planned run.
        base: folder of all runs.
        data_dir: folder of the data sets; by default the usual one.
        stop: request to stop that the run obeys.
        drop_checkpoint: delete the checkpoint when the run is done.
        at_a_time: runs that will share the device.
    """
    work = work_for(job.config, job.folder, base, data_dir=data_dir, stop=stop)
    name = job.experiment.name
    return replace(work, name=job.name, recipe=name, drop_checkpoint=drop_checkpoint, at_a_time=at_a_time, changed=job.changed)


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
    """A run that belongs to no experiment, as plain values.

    Args:
        config: its settings.
        folder: of the run.
        base: folder for what a launcher leaves behind; it lies outside of `folder`.
        data_dir: folder of the data sets; by default the usual one.
        stop: request to stop that the run obeys.
        processes: that share the run, on a cluster.
        stop_after: end after this many epochs; by default after the whole schedule.
    """
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


def run_job(work: Work, on_event: OnEvent = lambda event: None) -> Outcome:
    """Execute a run in this process, which may be one of several that share it.

    A finished run is skipped, an interrupted one resumes.

    Args:
        work: the run.
        on_event: called with the progress.

    Returns:
        The outcome; a failure is an outcome too, not an exception.
    """
    started = time.perf_counter()
    folder = Path(work.folder)
    outcome: Literal["done", "skipped", "stopped", "busy", "failed"]
    message, accuracy = "", None
    try:
        load_plugins(work.plugins)
        outcome, accuracy = _train(work, on_event)
    except BusyError as busy:
        outcome, message = "busy", busy.who
    except InputError as error:
        outcome, message = "failed", str(error)
    except Exception as error:  # one run that breaks must not take the others along
        text = "".join(traceback.format_exception(error))
        traceback.clear_frames(error.__traceback__)  # the frames keep the run's memory
        with contextlib.suppress(InputError):
            write_text(error_file(folder), text)
        reason = f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0]}"
        outcome, message = "failed", f"{reason} (all of it in {error_file(folder)})"
    release_memory()
    return Outcome(work.name, work.folder, outcome, message, accuracy, time.perf_counter() - started)


def outcome_of_all(outcomes: Sequence[Outcome]) -> Outcome:
    """The outcome of a run that several processes share: the first one that does not only report that another has ended."""
    return min(outcomes, key=lambda outcome: outcome.message == str(PeerLostError()))


def _train(work: Work, on_event: OnEvent) -> tuple[Literal["done", "skipped", "stopped"], float | None]:
    config, folder = RunConfig.of(work.values), Path(work.folder)

    def stop_requested() -> bool:
        return work.stop is not None and Path(work.stop).exists()

    with joined() as ranks:
        if ranks.any(stop_requested()):
            return "stopped", None
        if ranks.once(lambda: state(folder, config).kind) == "done":
            return "skipped", None
        _share_compiled(config)
        data_dir = None if work.data_dir is None else Path(work.data_dir)
        about = {name: getattr(work, name) for name in ("recipe", "at_a_time", "command", "changed")}
        run = Run(config, folder, data_dir, about=about, ranks=ranks)
        on_event({"work": work.name, "total": config.train.epochs, "done": run.resumed_at})
        last: Mapping[str, Any] = {}
        for last in run.epochs(stop_after=work.stop_after, stop_requested=stop_requested):
            on_event({"work": work.name, "record": last})
    if not run.trainer.progress.done:
        return "stopped", None
    error_file(folder).unlink(missing_ok=True)
    if work.drop_checkpoint:
        (folder / "checkpoint.pt").unlink(missing_ok=True)
    accuracy = last.get("test_accuracy")
    return "done", None if accuracy is None else 100 * accuracy


def _share_compiled(config: RunConfig) -> None:
    """Keep compiled networks for runs of the same kind; drop them before there are too many variants."""
    kind = run_kind(config)
    methods = _compiled.get(kind, set()) | {config.method_name}
    if kind not in _compiled or len(methods) > MAX_COMPILED_METHODS:
        forget_compiled()
        _compiled.clear()
        methods = {config.method_name}
    _compiled[kind] = methods


def error_file(folder: Path) -> Path:
    """The file beside a run folder in which an unexpected error is kept."""
    return folder.with_name(f"{folder.name}.error.txt")
