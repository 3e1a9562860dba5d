"""Launchers execute planned runs: on this machine, by Ray (`on_ray`) or by Slurm (`on_slurm`).

On this machine runs are executed in this process, or in several that live on from run to run, spread over the GPUs.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

import torch

from pals.bench.on_ray import on_ray
from pals.bench.on_slurm import on_slurm
from pals.bench.work import OnEvent, Outcome, Stop, Work, run_job
from pals.training.engine import free_devices, only_device
from pals.util.errors import InputError, unknown

WORKER_POLL_SECONDS = 0.2
_inbox: list[Any] = []  # in a worker: the queue for its progress


def on_this_machine(
    works: Sequence[Work], *, jobs: int, stop: Stop, on_event: OnEvent, options: Mapping[str, Any]
) -> Iterator[Outcome]:
    """`jobs` runs at a time on each GPU, or in all where there is none; parameters as for `launch`."""
    if options:
        raise InputError(f"The local launcher has no options; found {', '.join(options)}. Leave out --cluster.")
    chosen = {str(work.values["engine"]["device"]) for work in works}
    devices = free_devices(chosen.pop()) if len(chosen) == 1 else ()  # runs are spread if none names a GPU of its own
    places = min(jobs * max(1, len(devices)), len(works))
    if places > 1:
        yield from _in_workers(works, places, devices, stop, on_event)
        return
    for work in works:
        if stop.requested:
            return
        yield run_job(work, on_event)


def _in_workers(works: Sequence[Work], places: int, devices: Sequence[str], stop: Stop, on_event: OnEvent) -> Iterator[Outcome]:
    context = multiprocessing.get_context("spawn")  # a forked process cannot use a GPU that its parent has used
    events: Any = context.Queue()
    threads = max(1, (os.cpu_count() or 1) // places)
    waiting, running = list(reversed(works)), dict[Future[Outcome], tuple[int, Work]]()
    pools: dict[int, ProcessPoolExecutor] = {}

    def submit(place: int) -> None:
        if not waiting or stop.requested:
            return
        if place not in pools:
            pools[place] = ProcessPoolExecutor(1, context, _begin_worker, (events, threads))
        with _environment(only_device(devices[place % len(devices)]) if devices else {}):
            work = waiting.pop()
            running[pools[place].submit(_in_worker, work)] = (place, work)

    try:
        for place in range(places):
            submit(place)
        while running:
            ended, _ = wait(running, timeout=WORKER_POLL_SECONDS, return_when=FIRST_COMPLETED)
            _pass_on(events, on_event)
            for future in ended:
                place, work = running.pop(future)
                yield _outcome(future, work)
                if future.exception() is not None:  # this worker is gone: the next run gets a new one
                    pools.pop(place).shutdown(wait=False)
                submit(place)
    finally:
        for pool in pools.values():
            for process in list((pool._processes or {}).values()) if running else ():
                process.kill()  # after a second Ctrl-C or an internal error; otherwise nothing is running any more
            pool.shutdown(wait=True, cancel_futures=True)
        events.close()


def _outcome(future: Future[Outcome], work: Work) -> Outcome:
    error = future.exception()
    if error is None:
        return future.result()
    if not isinstance(error, BrokenProcessPool):
        raise error
    why = "Its process was killed, perhaps for lack of memory. Run the same command to resume it, with a lower --jobs."
    return Outcome(work.name, work.folder, "failed", why)


def _begin_worker(events: Any, threads: int) -> None:
    """Ignore requests to end: a terminal's Ctrl-C and a service manager's SIGTERM reach all processes, but only the command
    acts on them. No worker outlives the command."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    _inbox[:] = [events]
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(threads)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)  # at any moment: a run folder survives the sudden end of its process


def _in_worker(work: Work) -> Outcome:
    return run_job(work, _inbox[0].put)


def _pass_on(events: Any, on_event: OnEvent) -> None:
    while True:
        try:
            on_event(events.get_nowait())
        except queue.Empty:
            return


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Environment variables for the processes started in this block."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


LAUNCHERS: Mapping[str, Callable[..., Iterator[Outcome]]] = {"local": on_this_machine, "ray": on_ray, "slurm": on_slurm}


def launch(
    works: Sequence[Work],
    launcher: str = "local",
    *,
    jobs: int = 1,
    stop: Stop,
    on_event: OnEvent = lambda event: None,
    options: Mapping[str, Any] | None = None,
) -> Iterator[Outcome]:
    """Execute runs.

    Args:
        works: the runs.
        launcher: a name in `LAUNCHERS`.
        jobs: runs at a time on each GPU.
        stop: request to stop; runs that have not begun by then have no outcome.
        on_event: called with the progress of runs on this machine.
        options: of the launcher.

    Yields:
        Outcomes as runs end.

    Raises:
        InputError: if there is no such launcher, or an option of it is wrong.
    """
    if launcher not in LAUNCHERS:
        raise unknown("launcher", launcher, LAUNCHERS)
    if works:
        yield from LAUNCHERS[launcher](works, jobs=jobs, stop=stop, on_event=on_event, options=options or {})
