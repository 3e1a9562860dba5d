"""Recipes and what came of them as a table: ours beside the paper's, never two schedules in one."""

from __future__ import annotations

import os
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from pals.bench.paper.experiments import Experiment, find
from pals.bench.paper.published import caption, epoch_seconds
from pals.bench.report.result_table import Column, Entry, Mark, RunLink, Score, Speed, Table
from pals.bench.report.statistics import Summary, paired, summarise, verdict
from pals.bench.run_records import Result, collect, read_records
from pals.methods import find_method
from pals.util.errors import InputError, unknown

YARDSTICK = "noisy-comparison/cifar10-q0.3-eta0.3/supervised"
"""The run whose epochs the others' are counted in."""

TITLES = {
    "figure2": "Figure 2",
    "timing": "Training time in seconds per epoch",
    "partial-check": "Methods for partial labels, with the same network and batches",
    "noisy-comparison": "Methods for noisy candidate sets, with the same network and batches",
}


def gather(experiments: Sequence[Experiment], runs: Path, epochs: int | None = None) -> dict[str, list[Result]]:
    """The finished runs of each experiment, from the folder of a bench or a file of records (.jsonl). With `epochs`, only
    shortened runs: an experiment whose full schedule has that length has none."""
    epochs = _schedule(experiments, epochs)
    wanted = [experiment for experiment in experiments if epochs is None or experiment.length(epochs) != experiment.length()]
    if any(experiment.epochs for experiment in experiments) and YARDSTICK not in {
        experiment.name for experiment in experiments
    }:
        wanted.append(find(YARDSTICK))
    if runs.suffix != ".jsonl":
        return collect(wanted, runs, epochs)
    records = read_records(runs)
    found: dict[str, list[Result]] = {}
    for experiment in wanted:
        place = experiment.folder(Path(), 1, epochs).parent.as_posix()
        same = [record for record in records if PurePosixPath(record.run).parent.as_posix() == place]
        _refuse_twice(runs, same)
        _refuse_changed(runs, same)
        found[experiment.name] = sorted(same, key=lambda record: record.seed)
    return found


def _own_length(experiments: Sequence[Experiment]) -> int | None:
    """The epochs of a study."""
    return next((experiment.epochs for experiment in experiments if experiment.epochs), None)


def _schedule(experiments: Sequence[Experiment], epochs: int | None) -> int | None:
    """What is asked for in its own length is not shortened."""
    whole = epochs == _own_length(experiments) or all(experiment.length() == epochs for experiment in experiments)
    return None if whole else epochs


def _refuse_twice(path: Path, records: Sequence[Result]) -> None:
    seeds = [record.seed for record in records]
    if len(set(seeds)) < len(seeds):
        raise InputError(f"{path} has two records of {records[0].run}. Keep one of each seed.")


def _refuse_changed(path: Path, records: Sequence[Result]) -> None:
    """As where run folders are read: numbers of other settings are not the experiment's."""
    for record in records:
        if record.changed:
            keys = ", ".join(record.changed)
            raise InputError(f"{path}: {record.run} has settings that differ from the experiment's ({keys}). Leave it out.")


def make_table(
    experiments: Sequence[Experiment],
    results: Mapping[str, Sequence[Result]],
    *,
    runs: Path,
    epochs: int | None = None,
    against: str | None = None,
    page: Path | None = None,
) -> Table:
    """The table of these experiments. `runs` is where the results were gathered from, `page` the file in which the table will
    be, where its links start; `against` names a row that the others are compared with."""
    if not experiments:
        raise InputError("There is nothing to show: no experiment was chosen.")
    rows = list(dict.fromkeys(experiment.row for experiment in experiments))
    if against is not None and against.lower() not in {row.lower() for row in rows}:
        raise unknown("row", against, rows)
    name, epochs = experiments[0].table, _schedule(experiments, epochs)
    other = next((row for row in rows if against is not None and row.lower() == against.lower()), None)
    return Table(
        name=name,
        title=_title(experiments),
        entries=tuple(_entry(experiment, experiments, results, other, epochs, runs, page) for experiment in experiments),
        columns=_columns(experiments, results),
        epochs=epochs,
        against=other,
        study_epochs=_own_length(experiments),
        quantity="seconds" if name == "timing" else "accuracy",
        notes=_notes(experiments, results),
    )


def _title(experiments: Sequence[Experiment]) -> str:
    name = experiments[0].table
    if name == "grid":
        return experiments[0].group
    words = f"Table {name}" if name.isdigit() else TITLES.get(name, name)
    return f"{words}: {caption(name).rstrip('.')}" if caption(name) and name != "timing" else words


def _entry(
    experiment: Experiment,
    experiments: Sequence[Experiment],
    results: Mapping[str, Sequence[Result]],
    against: str | None,
    epochs: int | None,
    runs: Path,
    page: Path | None,
) -> Entry:
    timing = experiment.table == "timing"
    found = _timed(results, experiment.name) if timing else results.get(experiment.name, ())
    value_of = _by_seed(experiment, results)
    summary = summarise(list(value_of.values()))
    published: tuple[float, float | None] | None = experiment.published
    if timing:
        seconds = epoch_seconds(experiment.row, experiment.column)
        published = None if seconds is None else (seconds, None)
    compared = None
    if against is not None and experiment.row != against:
        other = _beside(experiment, against, experiments)
        difference = None if other is None else paired(value_of, _by_seed(other, results))
        compared = None if difference is None else (difference.mean, difference.low, difference.high)
    return Entry(
        row=experiment.row,
        column=experiment.column,
        group=experiment.group,
        ours=_score(experiment, summary, found, epochs, runs, page),
        published=published,
        mark=_mark(summary, None if timing else published),
        against=compared,
        speed=_speed(experiment, experiments, results),
        note=experiment.note,
    )


def _mark(summary: Summary | None, published: tuple[float, float | None] | None) -> Mark:
    if published is None:
        return "not run" if summary is None else ""
    return verdict(summary, published)


def _by_seed(experiment: Experiment, results: Mapping[str, Sequence[Result]]) -> dict[int, float]:
    """What a table shows of each run: its accuracy, or the seconds of an epoch."""
    if experiment.table == "timing":
        return {result.seed: result.epoch_seconds for result in _timed(results, experiment.name)}
    return {result.seed: result.accuracy for result in results.get(experiment.name, ())}


def _beside(experiment: Experiment, row: str, experiments: Sequence[Experiment]) -> Experiment | None:
    """Another row in the same column; in a table with groups of rows the row may be in any of them."""
    return next((other for other in experiments if other.row == row and other.column == experiment.column), None)


def _score(
    experiment: Experiment,
    summary: Summary | None,
    results: Sequence[Result],
    epochs: int | None,
    runs: Path,
    page: Path | None,
) -> Score | None:
    """`epochs`: as many as the table is of, if it is of shortened runs. A phase of a run in several may have fewer."""
    if summary is None:
        return None
    links = tuple(
        RunLink(
            seed=result.seed,
            accuracy=result.accuracy,
            epochs=epochs if epochs and result.epochs == experiment.length(epochs) else result.epochs,
            shortened=result.epochs != experiment.length(),
            folder=folder_of(result, runs).as_posix(),
            href=link(folder_of(result, runs), page),
            commit=result.commit,
        )
        for result in results
    )
    return Score(summary.mean, summary.std, links)


def folder_of(result: Result, runs: Path) -> Path:
    """A record's own folder is named from where the records lie; without one, it is the place it had in its bench."""
    if runs.suffix == ".jsonl":
        return runs.parent / result.folder if result.folder else Path(result.run)
    return Path(result.folder)


def link(folder: Path, page: Path | None) -> str:
    """From the page, where there is something to lead to."""
    if not folder.exists():
        return ""
    start = Path() if page is None else page.parent
    return quote(Path(os.path.relpath(folder, start)).as_posix(), safe="/+")


def _speed(experiment: Experiment, experiments: Sequence[Experiment], results: Mapping[str, Sequence[Result]]) -> Speed | None:
    found = _timed(results, experiment.name)
    if not found:
        return None
    epoch = statistics.median(result.epoch_seconds for result in found)
    hardware = {result.hardware for result in found}
    plain = [result for result in _timed(results, YARDSTICK) if {result.hardware} == hardware]
    studied = experiment.epochs is not None
    base = statistics.median(result.epoch_seconds for result in plain) if plain and studied else None
    return Speed(
        epoch_seconds=epoch,
        total_seconds=statistics.fmean(result.seconds for result in found),
        times_supervised=epoch / base if base else None,
        cost=find_method(experiment.method).cost if studied else None,
        hardware="; ".join(sorted(hardware)),
    )


def _timed(results: Mapping[str, Sequence[Result]], experiment: str) -> list[Result]:
    """Those runs of a experiment that had their device to themselves."""
    return [result for result in results.get(experiment, ()) if result.timed]


def _columns(experiments: Sequence[Experiment], results: Mapping[str, Sequence[Result]]) -> tuple[Column, ...]:
    columns: dict[str, Column] = {}
    for experiment in experiments:
        if experiment.column in columns:
            continue
        data = experiment.full.data
        found = [result for other in experiments if other.column == experiment.column for result in results.get(other.name, ())]
        measured = [result.effective_noise for result in found if result.effective_noise is not None]
        made = experiment.table != "timing" and ("partial_rate" in experiment.values["data"] or bool(measured))
        columns[experiment.column] = Column(
            experiment.column,
            experiment.group,
            protocol=str(getattr(data, "protocol", "")) if made else "",
            nominal_noise=getattr(data, "noise_rate", None) if made else None,
            effective_noise=statistics.fmean(measured) if measured else None,
        )
    return tuple(columns.values())


def _notes(experiments: Sequence[Experiment], results: Mapping[str, Sequence[Result]]) -> tuple[str, ...]:
    """What is to be known of the settings of runs that are shown."""
    notes: dict[str, list[str]] = {}
    for experiment in experiments:
        if experiment.note and results.get(experiment.name):
            rows = notes.setdefault(experiment.note, [])
            if experiment.row not in rows:
                rows.append(experiment.row)
    paper = [f"The paper's: {caption('timing')}"] if experiments[0].table == "timing" else []
    return (*paper, *[f"{', '.join(rows)}: {note}" for note, rows in notes.items()])
