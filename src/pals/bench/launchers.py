"""Who runs the jobs: this machine, Ray or Slurm."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pals.bench.job import Outcome, Tell, Work, run_job, work_for, work_of
from pals.bench.on_ray import on_ray
from pals.bench.on_slurm import on_slurm
from pals.bench.run_local import on_this_machine
from pals.bench.stop import Stop
from pals.util.errors import unknown

__all__ = ["LAUNCHERS", "Outcome", "Tell", "Work", "launch", "run_job", "work_for", "work_of"]

LAUNCHERS: Mapping[str, Callable[..., Iterator[Outcome]]] = {
    "local": on_this_machine,
    "ray": on_ray,
    "slurm": on_slurm,
}


def launch(
    works: Sequence[Work],
    launcher: str = "local",
    *,
    jobs: int = 1,
    stop: Stop,
    tell: Tell = lambda event: None,
    options: Mapping[str, Any] | None = None,
) -> Iterator[Outcome]:
    """Have all of it done; outcomes come as runs end. After a stop those that were not begun are not among them."""
    if launcher not in LAUNCHERS:
        raise unknown("launcher", launcher, LAUNCHERS)
    if works:
        yield from LAUNCHERS[launcher](works, jobs=jobs, stop=stop, tell=tell, options=options or {})
