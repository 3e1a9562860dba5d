"""Runs by a launcher and their progress, for `pals bench` and `pals train`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from pals.cli.base import STOPPING_RUN, console, errors, say
from pals.util.errors import InputError

if TYPE_CHECKING:
    from pals.bench.work import Outcome, Stop, Work
    from pals.runs.run_config import RunConfig
    from pals.util.interrupt import Stopped

Launcher = Annotated[str, typer.Option(help="Where to run: local, ray or slurm.")]
Cluster = Annotated[list[str] | None, typer.Option(help="Launcher option, e.g. slurm_partition=gpu. Repeatable.")]

STOPPING_NOTES = {
    "local": STOPPING_RUN,
    "slurm": "No longer waiting. The jobs keep running on the cluster; run the same command later to see their results.",
}


def hand_over(
    configs: Sequence[RunConfig],
    folders: Sequence[Path],
    base: Path,
    data_dir: Path | None,
    processes: int,
    stop_after: int | None,
    launcher: str,
    options: Mapping[str, Any],
) -> None:
    """`pals train` on a cluster, each run by `processes` processes. The files of the launcher are beside `base`."""
    from pals.bench.work import Stop, work_for

    beside = base.with_name(f"{base.name}.cluster")
    stop = Stop(beside)
    common: dict[str, Any] = {"data_dir": data_dir, "stop": stop, "processes": processes, "stop_after": stop_after}
    works = [work_for(config, folder, beside, **common) for config, folder in zip(configs, folders, strict=True)]
    outcomes, stopped = launch_and_show(works, launcher, len(works), stop, options)
    for outcome in outcomes:
        if outcome.kind in ("failed", "busy"):
            raise InputError(outcome.message if len(works) == 1 else f"{outcome.name}: {outcome.message}")
    if stopped:
        raise stopped


def launch_and_show(
    works: Sequence[Work], launcher: str, jobs: int, stop: Stop, options: Mapping[str, Any]
) -> tuple[list[Outcome], Stopped | None]:
    """Launch the runs and show their progress. Returns the outcome of each run that was begun, and what stopped them."""
    from pals.bench.launchers import launch
    from pals.util.display import Reporter, RunDisplay

    shown, outcomes = dict[str, RunDisplay](), list["Outcome"]()
    with Reporter(console).showing() as reporter:

        def show_event(event: Mapping[str, Any]) -> None:
            name = event["work"]
            if "record" in event and name in shown:
                shown[name].record(event["record"])
            elif "total" in event:
                if event["done"]:
                    reporter.line(f"{name}: continuing after epoch {event['done']}.")
                shown[name] = reporter.begin(name, event["total"], event["done"])

        with stop.on_signal(lambda: reporter.line(STOPPING_NOTES.get(launcher, STOPPING_NOTES["local"]))):
            for outcome in launch(works, launcher, jobs=jobs, stop=stop, on_event=show_event, options=options):
                outcomes.append(outcome)
                line = f"{len(outcomes)}/{len(works)} {_outcome_line(outcome, why=len(works) > 1)}"
                begun = shown.pop(outcome.name, None)
                begun.end(line) if begun is not None else reporter.line(line)
            return outcomes, stop.stopped if stop.requested else None


def _outcome_line(outcome: Outcome, *, why: bool) -> str:
    """The outcome in one line, with the reason of a failure if `why`."""
    if outcome.kind in ("failed", "busy"):
        return f"{outcome.name}: {outcome.kind}{f': {outcome.message}' if why else ''}"
    score = f", accuracy {outcome.accuracy:.2f}" if outcome.accuracy is not None else ""
    return f"{outcome.name}: {outcome.kind}{score} ({outcome.seconds:.0f} s)"


def show_troubles(outcomes: Sequence[Outcome]) -> None:
    """Print the runs that failed or were busy; a reason that several share is printed once."""
    failed: dict[str, list[str]] = {}
    for outcome in outcomes:
        if outcome.kind == "busy":
            say(f"Skipped: {outcome.name}: {outcome.message}")
        if outcome.kind == "failed":
            failed.setdefault(outcome.message, []).append(outcome.name)
    for message, names in failed.items():
        text = escape(f"{', '.join(names)}: {message}")
        errors.print(f"[bold red]Failed:[/] {text}", highlight=False, soft_wrap=True)
