"""Runs as tasks of a Ray cluster: the one at RAY_ADDRESS, one that runs on this machine, or a temporary one."""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pals.bench.work import OnEvent, Outcome, Stop, Work, outcome_of_all, run_job
from pals.training.distributed import COLLECTIVE_TIMEOUT, RESUME_HINT, ranks_from_environment
from pals.util.errors import InputError
from pals.util.files import read_json, write_json
from pals.util.words import pip_install

RAY_POLL_SECONDS = 0.5


def on_ray(works: Sequence[Work], *, jobs: int, stop: Stop, on_event: OnEvent, options: Mapping[str, Any]) -> Iterator[Outcome]:
    """Execute runs on a Ray cluster, whose machines must share the run folders.

    Args:
        works: the runs; those that several processes share are executed one after the other.
        jobs: runs at a time on each GPU of the cluster; one per CPU where it has no GPU.
        stop: request to stop; tasks end with their epoch, or as soon as they begin.
        on_event: not called: progress stays on the cluster.
        options: of `ray.init`.

    Yields:
        Outcomes as runs end.

    Raises:
        InputError: if Ray is not installed or cannot be started, or the cluster has too few processors.
    """
    try:
        import ray
    except ImportError:
        raise InputError(f"Ray is not installed. Run: {pip_install('ray')}") from None
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no data leave the machine
    ours = not ray.is_initialized()
    if ours:
        settings = {"include_dashboard": False, "log_to_driver": False, "logging_level": "warning", **options}
        try:
            ray.init(**settings)
        except (OSError, RuntimeError, ValueError, TypeError) as error:  # ConnectionError is an OSError
            raise InputError(f"Cannot start Ray ({str(error).splitlines()[0].rstrip('.')}). Check --cluster.") from None
    try:
        use_gpu = ray.cluster_resources().get("GPU", 0) > 0 and any(w.values["engine"]["device"] != "cpu" for w in works)
        if works[0].processes > 1:
            _refuse_few(ray.cluster_resources(), "GPU" if use_gpu else "CPU", works[0].processes)
            yield from (_by_several(work, gpu=use_gpu) for work in works)
            return
        share: dict[str, Any] = {"num_gpus": 1 / jobs} if use_gpu else {"num_cpus": 1}
        task = ray.remote(max_retries=1, **share)(run_job)  # a run whose machine is lost resumes on another
        running = {task.remote(work): work for work in works}
        while running:
            ended, _ = ray.wait(list(running), timeout=RAY_POLL_SECONDS)
            for reference in ended:
                yield _outcome(ray, reference, running.pop(reference))
    finally:
        if ours:
            ray.shutdown()


def _outcome(ray: Any, reference: Any, work: Work) -> Outcome:
    try:
        outcome: Outcome = ray.get(reference)
    except ray.exceptions.RayError as error:
        return Outcome(work.name, work.folder, "failed", f"{type(error).__name__}: {str(error).strip().splitlines()[0]}")
    return outcome


def _refuse_few(resources: Mapping[str, float], kind: str, processes: int) -> None:
    """Ray would wait for missing processors forever."""
    if resources.get(kind, 0) < processes:
        raise InputError(f"{processes} processes need one {kind} each; Ray has {resources.get(kind, 0):g}. Lower --processes.")


class _FailedError(Exception):
    """Carries an outcome from one of several processes to the command."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome)
        self.outcome = outcome


def _by_several(work: Work, *, gpu: bool) -> Outcome:
    """Execute a run by Ray's TorchTrainer, in a thread: in the main thread it would catch Ctrl-C and end at once."""
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    folder, name = Path(work.base), f"ray-{uuid.uuid4().hex[:8]}"
    result = folder / name / "outcome.json"  # versions of Ray differ in what a process may return
    trainer = TorchTrainer(
        _share,
        train_loop_config={"work": work, "result": str(result)},
        torch_config=TorchConfig(
            backend="cpu:gloo,cuda:nccl" if gpu else "gloo", timeout_s=int(COLLECTIVE_TIMEOUT.total_seconds())
        ),
        scaling_config=ScalingConfig(num_workers=work.processes, use_gpu=gpu),
        run_config=RunConfig(storage_path=str(folder), name=name),
    )
    pool = ThreadPoolExecutor(1)
    try:
        ended = pool.submit(trainer.fit)
        while not wait([ended], RAY_POLL_SECONDS).done:
            pass
        ended.result()
        return Outcome(**read_json(result))
    except Exception as error:  # the types differ between versions of Ray
        return _failure(error, work)
    finally:
        pool.shutdown(wait=False)
        shutil.rmtree(folder / name, ignore_errors=True)
        with contextlib.suppress(OSError):
            folder.rmdir()  # unless it has other files


def _share(config: Mapping[str, Any]) -> None:
    """Execute the run in each process, after Ray has connected them."""
    outcome = run_job(config["work"])
    if outcome.kind == "failed":
        raise _FailedError(outcome)
    if ranks_from_environment().is_first:
        write_json(Path(config["result"]), asdict(outcome))


def _failure(error: Exception, work: Work) -> Outcome:
    failures = getattr(error, "worker_failures", {})
    known = [failure.outcome for _, failure in sorted(failures.items()) if isinstance(failure, _FailedError)]
    died = [rank for rank, failure in sorted(failures.items()) if not isinstance(failure, _FailedError)]
    if known and not died:
        return outcome_of_all(known)
    who, what = (f"Process {died[0]} of {work.processes}: ", failures[died[0]]) if died else ("", error)
    why = f"{type(what).__name__}: {str(what).strip().splitlines()[0].rstrip('.')}"
    return Outcome(work.name, work.folder, "failed", f"{who}{why}. {RESUME_HINT}")
