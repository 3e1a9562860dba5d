"""Runs as jobs of a Slurm cluster, handed over by submitit."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pals.bench.stop import Stop
from pals.bench.work import Outcome, Tell, Work, run_job
from pals.util.errors import InputError

POLL = 1.0
MINUTES = 24 * 60  # asked for per job unless told otherwise; a job that needs longer is queued again and goes on


class Resumable:
    """`run_job`; when its time is up or its place is wanted for others, it is queued again."""

    def __call__(self, work: Work) -> Outcome:
        return run_job(work)

    def checkpoint(self, work: Work) -> Any:
        import submitit

        return submitit.helpers.DelayedSubmission(self, work)


def on_slurm(works: Sequence[Work], *, jobs: int, stop: Stop, tell: Tell, options: Mapping[str, Any]) -> Iterator[Outcome]:
    """One job array, `jobs` of it at a time, one GPU each. `options` go to submitit's executor: slurm_partition=gpu,
    timeout_min=600; cluster=local runs them here. Stopping ends the waiting, not the jobs."""
    try:
        import submitit
    except ImportError:
        raise InputError("submitit is not installed. Run: pip install 'pals-learn[slurm]'") from None
    gpus = int(any(work.values["engine"]["device"] != "cpu" for work in works))
    wishes = {
        "name": "pals",
        "timeout_min": MINUTES,
        "gpus_per_node": gpus,
        "slurm_array_parallelism": jobs,
        **options,
    }
    logs = Path(works[0].base) / "slurm"
    try:
        executor = submitit.AutoExecutor(logs, cluster=str(wishes.pop("cluster", "slurm")))
        executor.update_parameters(**wishes)
    except (RuntimeError, NameError, TypeError, ValueError) as error:
        why = str(error).splitlines()[0].rstrip(".?")
        raise InputError(f"Slurm rejected the job: {why}. Give its options as --cluster slurm_partition=gpu.") from None
    lasting = [replace(work, stop=None) for work in works]  # they are the cluster's now
    running = dict(zip(executor.map_array(Resumable(), lasting), works, strict=True))
    while running and not stop.asked:
        for job in [job for job in running if job.done()]:
            yield _outcome(job, running.pop(job))
        time.sleep(POLL)


def _outcome(job: Any, work: Work) -> Outcome:
    error = job.exception()
    if error is None:
        outcome: Outcome = job.result()
        return outcome
    last = (str(error).strip() or type(error).__name__).splitlines()[-1]
    return Outcome(work.name, work.folder, "failed", f"Job {job.job_id}: {last} (see {job.paths.stderr})")
