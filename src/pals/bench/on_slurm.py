"""Runs as jobs of a Slurm cluster, submitted by submitit."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pals.bench.work import OnEvent, Outcome, Stop, Work, outcome_of_all, run_job
from pals.training.distributed import RESUME_HINT
from pals.util.errors import InputError
from pals.util.words import pip_install

SLURM_POLL_SECONDS = 1.0
JOB_MINUTES = 24 * 60  # default time limit of a job; one that needs longer is queued again and resumes


class Resumable:
    """`run_job` for each task of a job, which is queued again when its time is up or it is pre-empted."""

    def __call__(self, work: Work) -> Outcome:
        if work.processes > 1:
            from submitit.helpers import TorchDistributedEnvironment

            TorchDistributedEnvironment().export(set_cuda_visible_devices=False, overwrite=True)
        return run_job(work)

    def checkpoint(self, work: Work) -> Any:
        import submitit

        return submitit.helpers.DelayedSubmission(self, work)


def on_slurm(
    works: Sequence[Work], *, jobs: int, stop: Stop, on_event: OnEvent, options: Mapping[str, Any]
) -> Iterator[Outcome]:
    """Execute runs as one job array, with one task and one GPU for each process of a run.

    Args:
        works: the runs.
        jobs: jobs of the array that run at a time.
        stop: request to stop: it ends the waiting, not the jobs.
        on_event: not called: progress stays on the cluster.
        options: of submitit's executor, such as slurm_partition=gpu or timeout_min=600; cluster=local runs them here.

    Yields:
        Outcomes as jobs end.

    Raises:
        InputError: if submitit is not installed, or Slurm rejects the jobs.
    """
    try:
        import submitit
    except ImportError:
        raise InputError(f"submitit is not installed. Run: {pip_install('slurm')}") from None
    processes, nodes = works[0].processes, options.get("nodes", 1)
    if not isinstance(nodes, int) or nodes < 1 or processes % nodes:
        raise InputError(f"{processes} processes cannot be divided evenly among {nodes} nodes. Change --processes or nodes.")
    tasks = processes // nodes
    gpus = tasks * any(work.values["engine"]["device"] != "cpu" for work in works)
    settings = {
        "name": "pals",
        "timeout_min": JOB_MINUTES,
        "tasks_per_node": tasks,
        "gpus_per_node": gpus,
        "slurm_array_parallelism": jobs,
        **options,
    }
    logs = Path(works[0].base) / "slurm"
    try:
        executor = submitit.AutoExecutor(logs, cluster=str(settings.pop("cluster", "slurm")))
        executor.update_parameters(**settings)
    except (RuntimeError, NameError, TypeError, ValueError) as error:
        why = str(error).splitlines()[0].rstrip(".?")
        raise InputError(f"Slurm rejected the job: {why}. Give its options as --cluster slurm_partition=gpu.") from None
    lasting = [replace(work, stop=None) for work in works]  # from now on only the cluster stops them
    running = dict(zip(executor.map_array(Resumable(), lasting), works, strict=True))
    while running and not stop.requested:
        for job in [job for job in running if job.done()]:
            yield _outcome(job, running.pop(job))
        time.sleep(SLURM_POLL_SECONDS)


def _outcome(job: Any, work: Work) -> Outcome:
    tasks = [job.task(number) for number in range(job.num_tasks)]
    for task in tasks:
        error = task.exception()
        if error is not None:
            why = f"Job {job.job_id}: {_reason(error, task, work)} (see {task.paths.stderr})"
            return Outcome(work.name, work.folder, "failed", f"{why}. {RESUME_HINT}")
    return outcome_of_all([task.result() for task in tasks])


def _reason(error: Exception, task: Any, work: Work) -> str:
    """The last line of an error. For a killed process submitit has no error and quotes its log, which is not shown."""
    from submitit.core.utils import UncompletedJobError

    if not isinstance(error, UncompletedJobError):
        return (str(error).strip() or type(error).__name__).splitlines()[-1].rstrip(".")
    who = "it" if work.processes == 1 else f"process {task.task_id} of {work.processes}"
    return f"{who} ended without an error message"
