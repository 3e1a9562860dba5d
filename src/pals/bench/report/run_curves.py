"""Curves of a run for figure 2: from its folder, or from a table of its curves (.csv) that outlives the folder."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pals.bench.jobs import changes
from pals.bench.paper.experiments import Experiment, select
from pals.bench.paper.published import selected_pairs
from pals.bench.report.plots import Curve, Marks
from pals.bench.report.results_frame import folder_of
from pals.bench.run_records import read_records
from pals.runs.run_folder import load_run_config
from pals.training.run_log import read_epochs
from pals.util.errors import InputError

CURVE_COLUMNS = ("epoch", "test_accuracy", "selected", "correct", "quota", "loss", "lr", "seconds")
RECORDS_BESIDE = "runs.jsonl"
"""Records beside tables of curves: each names a page, and the table of its run has the same name."""


def read_curves(runs: Sequence[Path]) -> list[Curve]:
    """Curves of several runs, each named by the shortest end of its path that is unique: a bench has many folders seed-1.

    Args:
        runs: run folders, or tables of curves (.csv).
    """
    parts = [run.with_suffix("").parts if run.suffix == ".csv" else run.parts for run in runs]
    for count in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-count:]) for part in parts]
        if len(set(names)) == len(names):
            break
    return [replace(read_curve(run), name=name) for run, name in zip(runs, names, strict=True)]


def read_curve(run: Path) -> Curve:
    """The selection of a run by epoch.

    Args:
        run: its folder, or a table as `to_csv` writes it.

    Raises:
        InputError: if it is neither, or its method selects no items.
    """
    records = _read_table(run) if run.suffix == ".csv" else _read_folder(run)
    return Curve(
        name=run.stem if run.suffix == ".csv" else run.name,
        epochs=[int(record["total_epoch"] if "total_epoch" in record else record["epoch"]) for record in records],
        selected=[float(record["selected"]) for record in records],
        correct=[float(record["correct"]) for record in records],
        accuracy=[100 * float(record["test_accuracy"]) for record in records if record.get("test_accuracy")],
    )


def to_csv(run: Path) -> str:
    """The curves of a run as a small CSV table.

    Args:
        run: its folder.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CURVE_COLUMNS)
    writer.writerows([[record.get(column, "") for column in CURVE_COLUMNS] for record in _read_folder(run)])
    return out.getvalue()


def _read_folder(run: Path) -> Sequence[Mapping[str, Any]]:
    if not (run / "log.jsonl").exists():
        raise InputError(f"{run} is not a run folder: it has no log.jsonl. Give the folder that `pals train --out` wrote.")
    return _checked(run, read_epochs(run))


def _read_table(path: Path) -> Sequence[Mapping[str, Any]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return _checked(path, list(csv.DictReader(file)))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"Cannot read {path}: {error}.") from None


def _checked(where: Path, records: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    if not records:
        raise InputError(f"{where} holds no finished epoch yet.")
    if not {"epoch", "selected", "correct"} <= set(records[0]):
        raise InputError(f"{where} does not record selected pairs: its method selects none, or the truth is not known.")
    return records


def paper_points(runs: Sequence[Path], mark: bool | None) -> Marks | None:
    """The paper's numbers for all of some runs: the points of figure 2, and the accuracy of the first table that has one.

    Args:
        runs: run folders, or tables of curves.
        mark: False for no numbers; None for those of the runs whose experiment is known; with True a run of no known
            experiment is taken to be of the same one as the others, or else of figure 2.

    Raises:
        InputError: if `mark` is True and the paper has no number for these runs, or different ones.
    """
    if mark is False:
        return None
    (figure2,) = select("figure2")
    known = [_experiments_of(run) for run in runs]
    if mark:
        known = [found for found in known if found] or [[figure2]]
    shared = [experiment for experiment in known[0] if all(experiment in found for found in known)]
    accuracy = next((experiment.published for experiment in shared if experiment.published), None)
    if mark and figure2 not in shared and accuracy is None:
        raise InputError("The paper has no numbers for these runs, or different ones. Leave out --paper.")
    first, last = selected_pairs()["first epoch"], selected_pairs()["last epoch"]
    pairs = {1: (first["selected"], first["right"]), -1: (last["selected"], last["right"])} if figure2 in shared else {}
    return Marks(pairs, accuracy)


def _experiments_of(run: Path) -> list[Experiment]:
    """The experiments that a run belongs to, in the order of the paper: by the settings in its folder, or for a table of curves
    by the records beside it."""
    if run.suffix == ".csv":
        records = run.with_name(RECORDS_BESIDE)
        kept = read_records(records) if records.exists() else []
        made = [one for one in kept if folder_of(one, records).with_suffix(".csv") == run and not one.changed]
        return [one for one in select() if any(one.folder(Path(), result.seed).as_posix() == result.run for result in made)]
    if not (run / "config.yaml").exists():
        return []
    config = load_run_config(run)
    near = [one for one in select() if (one.method, one.values["data"]["name"]) == (config.method_name, config.data.name)]
    return [one for one in near if not changes(one.config(config.seed), config)]
