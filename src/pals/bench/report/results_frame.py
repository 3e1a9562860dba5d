"""Results as data frames: a long one with a row for each run, and its summary with a row for each experiment.

    runs         results_frame: experiment x seed, with the accuracy, the times and the published number beside it
    entries      entries_frame: mean, sample standard deviation and number of runs; the difference to the paper, judged by
                 Welch's t-test; the paired difference to another row; times relative to training on true labels
    ResultTable  the entries of one table with all that a renderer needs

A table never mixes schedules: its runs have the full schedule, or one that was shortened to one number of epochs.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Literal
from urllib.parse import quote

import pandas as pd

from pals.bench.paper.experiments import Experiment, find
from pals.bench.paper.published import caption, epoch_seconds
from pals.bench.report.result_table import ResultTable
from pals.bench.report.statistics import paired, summarise, verdict
from pals.bench.run_records import RunResult, collect, read_records
from pals.methods import find_method
from pals.util.errors import InputError, unknown

BASELINE_RUN = "noisy-comparison/cifar10-q0.3-eta0.3/supervised"
"""Training on true labels: the unit for epoch times of our studies."""
TABLE_TITLES = {
    "figure2": "Figure 2",
    "timing": "Training time in seconds per epoch",
    "partial-check": "Methods for partial labels, with the same network and batches",
    "noisy-comparison": "Methods for noisy candidate sets, with the same network and batches",
}


RESULT_COLUMNS = ("seed", "accuracy", "seconds", "epoch_seconds", "timed", "hardware", "effective_noise", "commit")
RUN_KEYS = ("seed", "accuracy", "epochs", "shortened", "folder", "href", "commit")


def gather(experiments: Sequence[Experiment], runs: Path, epochs: int | None = None) -> dict[str, list[RunResult]]:
    """The finished runs of experiments.

    Args:
        experiments: those of a table.
        runs: folder of a bench, or a file of records (.jsonl).
        epochs: take runs shortened to this many epochs, and none of an experiment whose full schedule has that length.

    Returns:
        Results by the experiment's name, ordered by seed; for a study also those of `BASELINE_RUN`.

    Raises:
        InputError: if there are two records of one run, or runs with other settings than their experiment.
    """
    epochs = _schedule(experiments, epochs)
    chosen = [one for one in experiments if epochs is None or one.length(epochs) != one.length()]
    if any(one.epochs for one in experiments) and BASELINE_RUN not in {one.name for one in experiments}:
        chosen.append(find(BASELINE_RUN))
    if runs.suffix != ".jsonl":
        return collect(chosen, runs, epochs)
    records = read_records(runs)
    found: dict[str, list[RunResult]] = {}
    for experiment in chosen:
        place = experiment.folder(Path(), 1, epochs).parent.as_posix()
        same = [one for one in records if PurePosixPath(one.run).parent.as_posix() == place]
        if len({one.seed for one in same}) < len(same):
            raise InputError(f"{runs} has two records of {same[0].run}. Keep one of each seed.")
        for one in same:
            if one.changed:
                keys = ", ".join(one.changed)
                raise InputError(f"{runs}: {one.run} has settings that differ from the recipe's ({keys}). Leave it out.")
        found[experiment.name] = sorted(same, key=lambda one: one.seed)
    return found


def _own_length(experiments: Sequence[Experiment]) -> int | None:
    """The epochs of a study."""
    return next((one.epochs for one in experiments if one.epochs), None)


def _schedule(experiments: Sequence[Experiment], epochs: int | None) -> int | None:
    """The length of a shortened schedule; None if `epochs` is the experiments' own length."""
    whole = epochs == _own_length(experiments) or all(one.length() == epochs for one in experiments)
    return None if whole else epochs


def results_frame(
    experiments: Sequence[Experiment],
    results: Mapping[str, Sequence[RunResult]],
    *,
    runs: Path,
    epochs: int | None = None,
    page: Path | None = None,
) -> pd.DataFrame:
    """Results and published numbers as a long table.

    Args:
        experiments: those of a table.
        results: finished runs by the experiment's name.
        runs: folder or file that the results were gathered from.
        epochs: of a shortened schedule.
        page: the file that will show the table: links to run folders start there.

    Returns:
        One row for each run, and one without a seed for each experiment that has no run.

    Raises:
        InputError: if a run has another schedule than the table.
    """
    rows: list[dict[str, Any]] = []
    for experiment in experiments:
        timing, made = experiment.table == "timing", experiment.full.to_dict()["data"]
        seconds = epoch_seconds(experiment.row, experiment.column) if timing else None
        mean, std = (seconds, None) if timing else experiment.published or (None, None)
        about = {
            **dict.fromkeys((*RESULT_COLUMNS, *RUN_KEYS)),
            "experiment": experiment.name,
            **{key: getattr(experiment, key) for key in ("group", "row", "column", "note")},
            "paper_mean": mean,
            "paper_std": std,
            "protocol": made.get("protocol", ""),
            "nominal_noise": made.get("noise_rate"),
            "drawn": not timing and "partial_rate" in experiment.values["data"],
            "cost": find_method(experiment.method).cost,
        }
        found = results.get(experiment.name, ())
        for result in found:
            shortened = result.epochs != experiment.length()
            if result.epochs != experiment.length(epochs) or shortened != (epochs is not None):
                table = "the full schedule" if epochs is None else f"{epochs} epochs"
                raise InputError(f"{result.run} has {result.epochs} epochs, but the table is of {table}. They are never mixed.")
            folder = folder_of(result, runs)
            place = {"folder": folder.as_posix(), "href": link(folder, page)}
            length = {"epochs": epochs or result.epochs, "shortened": shortened}
            rows.append(about | {key: getattr(result, key) for key in RESULT_COLUMNS} | length | place)
        if not found:
            rows.append(about)
    return pd.DataFrame(rows, dtype=object)


def entries_frame(
    frame: pd.DataFrame,
    quantity: Literal["accuracy", "seconds"] = "accuracy",
    against: str | None = None,
    baseline: Sequence[RunResult] | None = None,
) -> pd.DataFrame:
    """The runs of each experiment, summarised.

    Args:
        frame: as `results_frame` makes it.
        quantity: what is summarised: the accuracy of the last epoch, or the seconds of an epoch of runs that had their device
            to themselves. Seconds depend on the machine and are not compared with published ones.
        against: a row that the others are compared with, over the seeds that both have.
        baseline: for a study, the runs on true labels, whose epochs are the unit of the others' times.

    Returns:
        One row for each experiment, with the columns that `pals table --format csv` prints.
    """
    values, effective = dict[str, dict[int, float]](), dict[str, float]()
    done = frame[frame["seed"].notna()]
    shown = done if quantity == "accuracy" else done[done["timed"].astype(bool)]
    for name, runs in shown.groupby("experiment", sort=False):
        values[name] = dict(zip(runs["seed"], runs["accuracy" if quantity == "accuracy" else "epoch_seconds"], strict=True))
    for column, measured in done.dropna(subset="effective_noise").groupby("column", sort=False)["effective_noise"]:
        effective[column] = statistics.fmean(measured)
    entries = []
    for name, runs in frame.groupby("experiment", sort=False):
        first, seeds = runs.iloc[0], values.get(name, {})
        ours = summarise(list(seeds.values()))
        published = None if first["paper_mean"] is None else (first["paper_mean"], first["paper_std"])
        judged = published if quantity == "accuracy" else None
        drawn = quantity == "accuracy" and (first["drawn"] or first["column"] in effective)
        others = frame[(frame["row"] == against) & (frame["column"] == first["column"])]["experiment"]
        compared = None
        if first["row"] != against and len(others):
            compared = paired(seeds, values.get(others.iloc[0], {}))
        entries.append(
            {
                "group": first["group"],
                "row": first["row"],
                "column": first["column"],
                "mean": ours.mean if ours else None,
                "std": ours.std if ours else None,
                "n": len(seeds),
                "paper_mean": first["paper_mean"],
                "paper_std": first["paper_std"],
                "difference": ours.mean - published[0] if ours and published else None,
                "mark": verdict(ours, judged) if judged else "" if ours else "not run",
                "against": against if compared else None,
                "against_mean": compared.mean if compared else None,
                "against_low": compared.low if compared else None,
                "against_high": compared.high if compared else None,
                "protocol": first["protocol"] if drawn else "",
                "nominal_noise": first["nominal_noise"] if drawn else None,
                "effective_noise": effective.get(first["column"]),
                **_speed(runs[runs["timed"].eq(True)], baseline),
                "note": first["note"],
                "runs": runs[runs["seed"].isin(seeds)][list(RUN_KEYS)].to_dict("records") if seeds else [],
            }
        )
    return pd.DataFrame(entries, dtype=object)


def _speed(timed: pd.DataFrame, baseline: Sequence[RunResult] | None) -> dict[str, Any]:
    """Times of an experiment's runs that had their device to themselves; runs on different machines are not compared."""
    if timed.empty:
        return dict.fromkeys(("epoch_seconds", "total_seconds", "times_supervised", "cost", "hardware"))
    epoch, hardware = statistics.median(timed["epoch_seconds"]), set(timed["hardware"])
    plain = [result.epoch_seconds for result in baseline or () if result.timed and {result.hardware} == hardware]
    return {
        "epoch_seconds": epoch,
        "total_seconds": statistics.fmean(timed["seconds"]),
        "times_supervised": epoch / statistics.median(plain) if plain else None,
        "cost": None if baseline is None else timed["cost"].iloc[0],
        "hardware": "; ".join(sorted(hardware)),
    }


def make_table(
    experiments: Sequence[Experiment],
    results: Mapping[str, Sequence[RunResult]],
    *,
    runs: Path,
    epochs: int | None = None,
    against: str | None = None,
    page: Path | None = None,
) -> ResultTable:
    """The table of some experiments.

    Args:
        experiments: of one table, in its order.
        results: finished runs by the experiment's name, from `gather`.
        runs: folder or file that they were gathered from.
        epochs: show runs shortened to this many epochs; by default those of the full schedule.
        against: a row that the others are compared with, in any case.
        page: the file that will show the table: links to run folders start there.

    Raises:
        InputError: if there is no experiment, no such row, or a run has another schedule.
    """
    if not experiments:
        raise InputError("There is nothing to show: no recipe was chosen.")
    rows = {one.row.lower(): one.row for one in experiments}
    if against is not None and against.lower() not in rows:
        raise unknown("row", against, rows.values())
    other = None if against is None else rows[against.lower()]
    name, epochs, study = experiments[0].table, _schedule(experiments, epochs), _own_length(experiments)
    quantity: Literal["accuracy", "seconds"] = "seconds" if name == "timing" else "accuracy"
    frame = results_frame(experiments, results, runs=runs, epochs=epochs, page=page)
    baseline = results.get(BASELINE_RUN, ()) if study else None
    title = experiments[0].group if name == "grid" else f"Table {name}" if name.isdigit() else TABLE_TITLES.get(name, name)
    if caption(name) and name != "timing":
        title = f"{title}: {caption(name).rstrip('.')}"
    notes = [f"The paper's: {caption('timing')}"] if name == "timing" else []
    remarks = frame[frame["seed"].notna() & (frame["note"] != "")].groupby("note", sort=False)["row"].unique()
    notes += [f"{', '.join(of)}: {note}" for note, of in remarks.items()]
    entries = entries_frame(frame, quantity, other, baseline)
    return ResultTable(name, title, entries, epochs, other, study, quantity, tuple(notes))


def folder_of(result: RunResult, runs: Path) -> Path:
    """The folder of a run, or the page that its record names.

    Args:
        result: of the run.
        runs: folder or file that it was gathered from; a record's page is named relative to the file.
    """
    if runs.suffix == ".jsonl":
        return runs.parent / result.folder if result.folder else Path(result.run)
    return Path(result.folder)


def link(folder: Path, page: Path | None) -> str:
    """The address of a folder as seen from a page; empty if the folder does not exist.

    Args:
        folder: the target.
        page: the file with the link; by default one in the working directory.
    """
    if not folder.exists():
        return ""
    start = Path() if page is None else page.parent
    return quote(Path(os.path.relpath(folder, start)).as_posix(), safe="/+")
