"""Every file of a run folder damaged in every way, and every command that reads it: a result or one sentence, no traceback.
Most of it is `slow`; a part of each kind is not."""

from __future__ import annotations

import itertools
import json
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from _pictures import make_pictures
from _toy import TINY, Answer

Pals = Callable[..., Answer]
Damage = Callable[[Path], None]
LONGEST = 500  # characters of a sentence


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def noise(path: Path) -> None:
    path.write_bytes(random.Random(0).randbytes(max(200, path.stat().st_size)))


def other_json(path: Path) -> None:
    """What can be read, and is something else."""
    path.write_text("[1]\n[2]\n" if path.suffix == ".jsonl" else "[1, 2]\n")


def delete(path: Path) -> None:
    path.unlink()


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES = (truncate, empty, noise, other_json, delete, folder)
TRAIN = ("train", "toy", *TINY, "--epochs", "2", "--out", "run")
TRAINED = {"resume": TRAIN, "evaluate": ("evaluate", "run", "--device", "cpu")}
FIT = ("fit", "votes.csv", "--features", "vectors.npy", "--names", "names.txt", "--epochs", "2", "--device", "cpu")
FIT += ("--folds", "2", "--set", "data.fold_epochs=1", "--set", "method.neighbors=5", "--out", "run")
PICTURES = ("fit", "data/images", "data/votes.csv", "--item-column", "picture", "--annotator-column", "who")
PICTURES += ("--label-column", "class", "--epochs", "2", "--device", "cpu", "--cache", "cache")
PICTURES += ("--set", "method.neighbors=5", "--out", "run")
AFTERWARDS = {
    "predict": ("predict", "run", "vectors.npy", "--out", "p.csv", "--device", "cpu"),
    "report": ("report", "run"),
    "relabel": ("relabel", "run", "--out", "queue.csv"),
    "update": ("update", "run", "more.csv", "--out", "next", "--epochs", "1", "--device", "cpu"),
    "evaluate": ("evaluate", "run"),
}
FITTED = {"resume": FIT, **AFTERWARDS}
LONG = ("resume", "update")  # commands that take seconds: they see a third of the damages of each file
WRITTEN_TABLES = ("doubtful.csv", "confusion.csv", "classes.csv", "agreement.csv", "guideline.csv", "next.csv")
ONLY_WRITTEN = ("report.html", "report.json", *WRITTEN_TABLES)
"""Nothing reads them but people, the report's page and `relabel`."""


def files_of(run: Path) -> list[str]:
    return sorted(str(path.relative_to(run)) for path in run.rglob("*") if path.is_file())


def outcomes(
    pals: Pals,
    commands: dict[str, tuple[str, ...]],
    damages: tuple[Damage, ...],
    keep: Path,
    files: Sequence[str] | None = None,
    every: int = 1,
) -> Iterator[str]:
    """What went wrong: with each command, each file (or those named) and each damage, on a copy of the folder; or with every
    second, third, ... damage of a file, another one of the next."""
    cases = itertools.product(enumerate(files or files_of(keep)), enumerate(damages), commands)
    for (row, file), (column, damage), name in cases:
        if (row + column) % every:
            continue
        for made in ("run", "next"):
            shutil.rmtree(made, ignore_errors=True)
        shutil.copytree(keep, "run")
        damage(Path("run") / file)
        where = f"{name} after {damage.__name__} of {file}"
        try:
            answer = pals(*commands[name])
        except Exception as error:  # which a user would see as a traceback
            yield f"{where}: {type(error).__name__}: {error}"
            continue
        said = answer.err.strip()
        sentence = said.startswith("Error: ") and "\n" not in said and len(said) <= LONGEST
        if answer.code != 0 and not (answer.code == 2 and sentence):
            yield f"{where}: code {answer.code}: {said}"


def make_vectors(folder: Path) -> None:
    """36 points in three clouds and two answers to each."""
    rng = np.random.default_rng(0)
    np.save(folder / "vectors.npy", (np.eye(3).repeat(12, axis=0) * 4 + rng.normal(size=(36, 3))).astype(np.float32))
    rows = [f"{item},{person},{'abc'[item // 12]}" for item in range(36) for person in ("ann", "bob")]
    (folder / "votes.csv").write_text("\n".join(["item,annotator,label", *rows]) + "\n")
    (folder / "names.txt").write_text("\n".join(map(str, range(36))) + "\n")


@pytest.fixture
def vectors(tmp_path: Path) -> None:
    """These, and one more answer."""
    make_vectors(tmp_path)
    (tmp_path / "more.csv").write_text("item,annotator,label\n0,cho,a\n20,cho,b\n")


def kept(pals: Pals, *command: str) -> Path:
    pals(*command).ok()
    return Path("run").rename("kept")


@pytest.mark.slow
def test_a_run_that_was_stopped(pals: Pals) -> None:
    assert list(outcomes(pals, TRAINED, (truncate, other_json, folder), kept(pals, *TRAIN, "--stop-after", "1"))) == []


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("--stop-after", "1")], ids=["finished", "stopped"])
def test_a_run_whatever_the_damage(more: tuple[str, ...], pals: Pals) -> None:
    assert list(outcomes(pals, TRAINED, DAMAGES, kept(pals, *TRAIN, *more))) == []


@pytest.mark.usefixtures("vectors")
@pytest.mark.slow
def test_a_finished_fit(pals: Pals) -> None:
    quick = {name: FITTED[name] for name in ("predict", "report", "relabel")}
    files = ("config.yaml", "labels.csv", "model.safetensors", "report.json", "votes.csv")
    assert list(outcomes(pals, quick, (truncate, noise), kept(pals, *FIT), files)) == []


@pytest.mark.slow
@pytest.mark.usefixtures("vectors")
@pytest.mark.parametrize("command", FITTED)
def test_a_finished_fit_whatever_comes_after(command: str, pals: Pals) -> None:
    keep, long = kept(pals, *FIT), command in LONG
    files = [file for file in files_of(keep) if not (long and file in ONLY_WRITTEN)]
    assert list(outcomes(pals, {command: FITTED[command]}, DAMAGES, keep, files, every=3 if long else 1)) == []


@pytest.mark.slow
def test_a_fit_on_pictures_with_features_that_were_kept(pals: Pals, tmp_path: Path) -> None:
    make_pictures(tmp_path / "data", items=30)
    shutil.copy(tmp_path / "data" / "votes.csv", tmp_path / "more.csv")
    predict = ("predict", "run", "data/images", "--out", "p.csv", "--device", "cpu")
    keep = kept(pals, *PICTURES)
    files = [file for file in files_of(keep) if file not in ONLY_WRITTEN]
    assert list(outcomes(pals, {"resume": PICTURES, "predict": predict}, DAMAGES, keep, files, every=3)) == []


def changed(record: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The same with each key gone, or with another kind of value."""
    for key in record:
        yield f"no {key}", {name: value for name, value in record.items() if name != key}
        for value in (None, 5, "x", [], {}):
            yield f"{key} = {value!r}", {**record, key: value}


@pytest.mark.slow
@pytest.mark.parametrize("file", ["run.json", "log.jsonl"])
def test_a_value_of_another_kind(file: str, pals: Pals) -> None:
    """Changed by hand, in what can still be read."""
    keep, found = kept(pals, *TRAIN, "--stop-after", "1"), list[str]()
    start, *rest = (keep / file).read_text().splitlines() if file == "log.jsonl" else [(keep / file).read_text()]
    before = "".join(f"{line}\n" for line in (start,) * bool(rest))
    for what, record in changed(json.loads(rest[0] if rest else start)):

        def change(path: Path, text: str = f"{before}{json.dumps(record)}\n") -> None:
            path.write_text(text)

        found += [f"{what}: {wrong}" for wrong in outcomes(pals, {"resume": TRAIN}, (change,), keep, [file])]
    assert found == []
