"""Runs on this machine: in this process, or in several that live on from run to run, spread over the GPUs."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

import torch

from pals.bench.job import Outcome, Tell, Work, run_job
from pals.bench.stop import Stop
from pals.training.engine import free_devices, only_device
from pals.util.errors import InputError

POLL = 0.2  # seconds between looks at the workers
_inbox: list[Any] = []  # in a worker: the queue to tell the command of progress


def on_this_machine(
    works: Sequence[Work], *, jobs: int, stop: Stop, tell: Tell, options: Mapping[str, Any]
) -> Iterator[Outcome]:
    """`jobs` at a time on each GPU, or in all where there is none. Outcomes come as runs end."""
    if options:
        raise InputError(f"The local launcher has no options; found {', '.join(options)}. Leave out --cluster.")
    devices = _devices(works)
    places = min(jobs * max(1, len(devices)), len(works))
    if places > 1:
        yield from _in_workers(works, places, devices, stop, tell)
        return
    for work in works:
        if stop.asked:
            return
        yield run_job(work, tell)


def _devices(works: Sequence[Work]) -> tuple[str, ...]:
    """The GPUs over which the runs may be spread, if no run insists on one."""
    wanted = {str(work.values["engine"]["device"]) for work in works}
    return free_devices(wanted.pop()) if len(wanted) == 1 else ()


def _in_workers(works: Sequence[Work], places: int, devices: Sequence[str], stop: Stop, tell: Tell) -> Iterator[Outcome]:
    context = multiprocessing.get_context("spawn")  # a forked process cannot use a GPU that its parent looked at
    told: Any = context.Queue()
    threads = max(1, (os.cpu_count() or 1) // places)
    waiting, running = list(reversed(works)), dict[Future[Outcome], tuple[int, Work]]()
    pools: dict[int, ProcessPoolExecutor] = {}

    def submit(place: int) -> None:
        if not waiting or stop.asked:
            return
        if place not in pools:
            pools[place] = ProcessPoolExecutor(1, context, _begin_worker, (told, threads))
        with _environment(only_device(devices[place % len(devices)]) if devices else {}):
            work = waiting.pop()
            running[pools[place].submit(_in_worker, work)] = (place, work)

    try:
        for place in range(places):
            submit(place)
        while running:
            ended, _ = wait(running, timeout=POLL, return_when=FIRST_COMPLETED)
            _pass_on(told, tell)
            for future in ended:
                place, work = running.pop(future)
                yield _outcome(future, work)
                if future.exception() is not None:  # this worker is gone: the next run gets a new one
                    pools.pop(place).shutdown(wait=False)
                submit(place)
    finally:
        for pool in pools.values():
            _end(pool, at_once=bool(running))
        told.close()


def _outcome(future: Future[Outcome], work: Work) -> Outcome:
    error = future.exception()
    if error is None:
        return future.result()
    if not isinstance(error, BrokenProcessPool):
        raise error
    why = "Its process was killed, perhaps for lack of memory. Run the same command to resume it, with a lower --jobs."
    return Outcome(work.name, work.folder, "failed", why)


def _begin_worker(told: Any, threads: int) -> None:
    """Ctrl-C in the terminal comes to all processes, and so does a service manager's request to end, but only the command is
    to act on it; and no worker outlives it."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    _inbox[:] = [told]
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(threads)
    threading.Thread(target=_follow_parent, daemon=True).start()


def _follow_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)  # whatever it was doing: a run folder stands a process's death at any moment


def _in_worker(work: Work) -> Outcome:
    return run_job(work, _inbox[0].put)


def _pass_on(told: Any, tell: Tell) -> None:
    while True:
        try:
            tell(told.get_nowait())
        except queue.Empty:
            return


def _end(pool: ProcessPoolExecutor, *, at_once: bool) -> None:
    """At once only after a second Ctrl-C, or an error of ours: otherwise nothing is running any more."""
    processes = list((pool._processes or {}).values())
    if at_once:
        for process in processes:
            process.kill()
    pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """For processes started meanwhile."""
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
