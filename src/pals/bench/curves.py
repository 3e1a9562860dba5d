"""Curves of a run for figure 2: from its folder, or from the table of numbers that is kept when the folder is not."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pals.errors import InputError
from pals.paper.numbers import selected_pairs
from pals.paper.recipes import select
from pals.report.curves import read_epochs
from pals.report.figures import Curve
from pals.runs import load_run_config

COLUMNS = ("epoch", "test_accuracy", "selected", "correct", "quota", "loss", "lr", "seconds")


def read_curves(runs: Sequence[Path]) -> list[Curve]:
    """Of several runs, named by as much of their paths as tells them apart: in a bench all folders are called seed-1."""
    parts = [run.with_suffix("").parts if run.suffix == ".csv" else run.parts for run in runs]
    for count in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-count:]) for part in parts]
        if len(set(names)) == len(names):
            break
    return [replace(read_curve(run), name=name) for run, name in zip(runs, names, strict=True)]


def read_curve(run: Path) -> Curve:
    """What a run selected by epoch, from its folder or from a table as `to_csv` writes it."""
    records = _read_table(run) if run.suffix == ".csv" else _read_folder(run)
    return Curve(
        name=run.stem if run.suffix == ".csv" else run.name,
        epochs=[int(record["total_epoch"] if "total_epoch" in record else record["epoch"]) for record in records],
        selected=[float(record["selected"]) for record in records],
        correct=[float(record["correct"]) for record in records],
        accuracy=[100 * float(record["test_accuracy"]) for record in records if record.get("test_accuracy")],
    )


def to_csv(run: Path) -> str:
    """The curve of a run as a small table, to be kept."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([[record.get(column, "") for column in COLUMNS] for record in _read_folder(run)])
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
        raise InputError(f"{where} says nothing of selected pairs: its method selects none, or the truth is not known.")
    return records


def paper_points(runs: Sequence[Path], wanted: bool | None) -> dict[int, tuple[float, float]] | None:
    """The points of figure 2; without a wish, where every run has the data and the method of that figure."""
    if wanted is False or (wanted is None and not all(_is_figure2(run) for run in runs)):
        return None
    first, last = selected_pairs()["first epoch"], selected_pairs()["last epoch"]
    return {1: (first["selected"], first["right"]), -1: (last["selected"], last["right"])}


def _is_figure2(run: Path) -> bool:
    if not (run / "config.yaml").exists():
        return False
    (recipe,) = select("figure2")
    mine, theirs = load_run_config(run), recipe.config(1)
    return (mine.data, mine.method_name, mine.train.epochs) == (theirs.data, theirs.method_name, theirs.train.epochs)
