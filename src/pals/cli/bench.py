"""`pals bench`: many runs by one command, for a table of the paper or a grid of settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from pals.cli.base import DataDir, Device, Plugin, Set, app, console, errors, say
from pals.cli.launching import Cluster, Launcher, launch_and_show, show_troubles
from pals.cli.recipes import Cells, Methods, Which, words
from pals.cli.seeds import Seed, Seeds, chosen_seeds
from pals.cli.table import show
from pals.util.errors import InputError
from pals.util.words import duration, how_many

if TYPE_CHECKING:
    from pals.bench.jobs import Job, State
    from pals.bench.paper.experiments import Experiment


@app.command()
def bench(
    names: Annotated[list[str] | None, typer.Argument(help="Recipes to run, by name or pattern; see `pals recipes`.")] = None,
    table: Which = None,
    grid: Annotated[
        Path | None, typer.Option(help="Run your own comparison from a YAML file with base, rows and columns.")
    ] = None,
    seeds: Seeds = None,
    seed: Seed = None,
    methods: Methods = None,
    cells: Cells = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Shorten every schedule to this many epochs; stored apart from full runs.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for all runs, laid out as cell/method/schedule/seed.")] = Path("runs/bench"),
    jobs: Annotated[int, typer.Option(min=1, help="Parallel runs per GPU, or in total without a GPU.")] = 1,
    launcher: Launcher = "local",
    cluster: Cluster = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the runs and estimate their time without running anything.")
    ] = False,
    drop_checkpoints: Annotated[
        bool, typer.Option("--drop-checkpoints", help="Delete each run's (large) checkpoint when it finishes.")
    ] = False,
    data_dir: DataDir = None,
    device: Device = None,
    set_: Set = None,
    plugin: Plugin = None,
) -> None:
    """Run the missing cells of a table. Finished runs are kept and interrupted ones resume.

    Ctrl-C stops after the current epoch and loses nothing; run the same command again to resume.

    Example:  pals bench --table 1 --methods PALS --cells 'cifar10-*' --seeds 3 --epochs 50 --dry-run
    """
    from pals.bench.jobs import plan, state
    from pals.bench.run_records import write_records
    from pals.bench.work import Stop, work_of
    from pals.util.config import override

    experiments = _experiments(names or [], table, grid, words(methods), words(cells))
    extra = override({"engine": {"device": device}} if device else {}, set_ or [])
    planned = plan(experiments, chosen_seeds(seeds, seed, [1]), epochs, out, extra)
    states = [state(job.folder, job.config) for job in planned]
    missing = [job for job, found in zip(planned, states, strict=True) if found.kind != "done"]
    say(f"{how_many(len(planned), 'run')}: {len(planned) - len(missing)} done, {len(missing)} to do, in {out}")
    if dry_run:
        _print_plan(planned, states)
        return
    stop, options = Stop(out), override({}, cluster or [])
    common: dict[str, Any] = {"data_dir": data_dir, "stop": stop, "drop_checkpoint": drop_checkpoints}
    works = [work_of(job, out, **common, at_a_time=_at_a_time(launcher, jobs, len(missing), options)) for job in missing]
    outcomes, stopped = launch_and_show(works, launcher, jobs, stop, options)
    if any(state(job.folder, job.config).kind == "done" for job in planned):
        if set_:  # these are no table's numbers
            _list_results(planned)
        else:
            _show_tables(experiments, out, epochs)
        say(f"Run folders: {out}  (a record of each: {write_records(out)})")
    show_troubles(outcomes)
    if stopped:
        left = len(missing) - sum(outcome.kind in ("done", "skipped") for outcome in outcomes)
        errors.print(f"Stopped with {how_many(left, 'run')} left. Run the same command to continue.", highlight=False)
        raise typer.Exit(stopped.code)
    if any(outcome.kind == "failed" for outcome in outcomes):
        raise typer.Exit(1)


def _experiments(
    names: Sequence[str], table: str | None, grid: Path | None, methods: list[str] | None, cells: list[str] | None
) -> list[Experiment]:
    from pals.bench.grid import read_grid
    from pals.bench.paper.experiments import narrowed, no_experiment, select

    if not names and table is None and grid is None:
        raise InputError("Which runs? Name a --table, recipes (see `pals recipes`) or a --grid file.")
    if grid is not None and table is not None:
        raise InputError("--grid and --table cannot be combined; run one after the other.")
    found = narrowed(read_grid(grid), methods, cells) if grid is not None else select(table, methods, cells)
    for name in names:
        if not any(fnmatchcase(one.name, name) for one in found):
            raise no_experiment(name, [one.name for one in found])
    return [one for one in found if not names or any(fnmatchcase(one.name, name) for name in names)]


def _print_plan(planned: Sequence[Job], states: Sequence[State]) -> None:
    """The runs and how far they are. The time left is known where a run of the experiment has measured an epoch here."""
    from pals.training.run_log import read_epochs

    table = Table("recipe", "seed", "epochs", "state")
    table.add_column("time left", justify="right", no_wrap=True)
    measured: dict[Path, list[float]] = {}  # seconds of the epochs of all seeds
    for job, found in zip(planned, states, strict=True):
        if found.kind != "missing":
            measured.setdefault(job.folder.parent, []).extend(
                epoch["seconds"] - epoch.get("warmup_seconds", 0.0) for epoch in read_epochs(job.folder)
            )
    times: list[float | None] = []  # of what is to do
    for job, found in zip(planned, states, strict=True):
        time = ""
        if found.kind != "done":
            seconds, left = measured.get(job.folder.parent), job.config.train.epochs - found.epoch * (found.phase == "main")
            times.append(median(seconds) * left if seconds else None)
            time = duration(times[-1])
        table.add_row(escape(job.experiment.name), str(job.seed), str(job.config.train.epochs), str(found), time)
    console.print(table)
    known = [time for time in times if time is not None]
    if known:
        say(f"The remaining runs take about {duration(sum(known))} by the epochs measured so far.")
    if len(known) < len(times):
        say(f"There is no time estimate for {how_many(len(times) - len(known), 'run')}: none of their epochs was measured yet.")


def _at_a_time(launcher: str, jobs: int, runs: int, options: Mapping[str, Any]) -> int:
    """Runs that will share a device: a Slurm gives each its own, but without one all are begun at once."""
    if launcher == "slurm":
        return runs if options.get("cluster") == "local" else 1
    return min(jobs, runs)


def _show_tables(experiments: Sequence[Experiment], out: Path, epochs: int | None) -> None:
    from pals.bench.report.results_frame import gather, make_table

    for name in dict.fromkeys(experiment.table for experiment in experiments):
        of_it = [experiment for experiment in experiments if experiment.table == name]
        show(make_table(of_it, gather(of_it, out, epochs), runs=out, epochs=epochs))


def _list_results(planned: Sequence[Job]) -> None:
    from pals.bench.jobs import state
    from pals.bench.run_records import read_result

    table = Table("recipe, with --set", "seed", "accuracy", "seconds", title="Test accuracy, last epoch")
    for job in planned:
        if state(job.folder, job.config).kind == "done":
            result = read_result(job.folder)
            table.add_row(escape(job.experiment.name), str(job.seed), f"{result.accuracy:.2f}", f"{result.seconds:.0f}")
    console.print(table)
