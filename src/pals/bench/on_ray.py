"""Runs as tasks of a Ray cluster: the one that RAY_ADDRESS names, one that runs here, or one that is started for the time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pals.bench.stop import Stop
from pals.bench.work import Outcome, Tell, Work, run_job
from pals.util.errors import InputError

POLL = 0.5


def on_ray(works: Sequence[Work], *, jobs: int, stop: Stop, tell: Tell, options: Mapping[str, Any]) -> Iterator[Outcome]:
    """`jobs` at a time on each GPU of the cluster, or one per CPU where it has none. All machines must see the run folders.
    `options` go to `ray.init`. After a stop tasks end with their epoch, or as soon as they begin."""
    try:
        import ray
    except ImportError:
        raise InputError("Ray is not installed. Run: pip install 'pals-learn[ray]'") from None
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent to anybody unless the user wants it
    ours = not ray.is_initialized()
    if ours:
        wishes = {"include_dashboard": False, "log_to_driver": False, "logging_level": "warning", **options}
        try:
            ray.init(**wishes)
        except (OSError, RuntimeError, ValueError, TypeError) as error:  # ConnectionError is an OSError
            raise InputError(
                f"Ray does not start: {str(error).splitlines()[0].rstrip('.')}. Options go to ray.init as --cluster KEY=VALUE."
            ) from None
    try:
        wants_gpu = ray.cluster_resources().get("GPU", 0) > 0 and any(w.values["engine"]["device"] != "cpu" for w in works)
        share: dict[str, Any] = {"num_gpus": 1 / jobs} if wants_gpu else {"num_cpus": 1}
        task = ray.remote(max_retries=1, **share)(run_job)  # a run whose machine is lost goes on elsewhere
        running = {task.remote(work): work for work in works}
        while running:
            ended, _ = ray.wait(list(running), timeout=POLL)
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
