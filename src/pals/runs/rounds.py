"""The rounds of a run: the first fit, each update of it, and which of them is current.

RUN/rounds/0 holds the files of the first fit and RUN/rounds/N those of update N. After the first update every file in RUN is a
link into RUN/rounds/current, which is a link to the current round: replacing that one link switches all files at once, so that
a killed process leaves one round or the other. On a file system without links the files are copied, `round.json` last.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

from pals.runs.run_json import refuse_strange
from pals.util.errors import InputError
from pals.util.files import read_object, write_json
from pals.util.locks import FolderLock, is_lock

ROUNDS = "rounds"
SHOWN = f"{ROUNDS}/current"
"""The link to the current round."""
RECORD = "round.json"
"""Written last: a round that has it is complete."""
GIVEN = "given.csv"
"""The answers of a round without those of `pals review`, where they are not all of votes.csv."""
FIT_FILES = frozenset(
    ("config.yaml", "run.json", "log.jsonl", "checkpoint.pt", "model.safetensors", "features.safetensors", "report.html",
     "report.json", "summary.json", "second-look.npz", "standing.npz", "labels.csv", "doubtful.csv", "annotators.csv",
     "workers.csv", "classes.csv", "confusion.csv", "agreement.csv", "guideline.csv", "probabilities.csv", "next.csv",
     "votes.csv", "taxonomy.csv", "none_of_these", "folds")
)  # fmt: skip
"""What a fit writes (`workers.csv` by version 0.2). Other files in RUN are the user's."""
KEPT_WHOLE = 10  # newest rounds that are kept with classifier and features
KEPT_FILES = (RECORD, "labels.csv", "changes.csv", "report.html", "summary.json")


@dataclass(frozen=True)
class Round:
    """One state of a run.

    Args:
        number: 0 for the first fit, then 1, 2, ...
        base: The round whose given answers it begins with: the last before it that brought files, a class or settings, or
            itself if it did.
        before: The round that was current before.
        upto: The last row of review.sqlite that it uses.
        news: What was new, in words.
        changed: Number of labels that differ from those before.
        seconds: How long it took.
    """

    number: int = 0
    base: int = 0
    before: int = 0
    upto: int = 0
    news: str = ""
    changed: int = 0
    seconds: float = 0.0

    @classmethod
    def read(cls, path: Path) -> Round:
        """From a `round.json`."""
        found = read_object(path)
        values = {name: found.get(name, default) for name, default in asdict(cls()).items()}
        if any(type(value) is not type(asdict(cls())[name]) for name, value in values.items()):
            raise InputError(f"{path} is damaged. Restore it from a copy, or delete it and update the run again.")
        return cls(**values)


def current_round(run: Path) -> Round:
    """The round that the run shows."""
    path = run / RECORD
    return Round.read(path) if path.exists() else Round()


def complete_rounds(run: Path) -> list[Round]:
    """All rounds of a run, oldest first; the first fit alone without an update."""
    found = [Round.read(path) for path in (run / ROUNDS).glob(f"[0-9]*/{RECORD}")]
    return sorted(found, key=lambda one: one.number) or [Round()]


def round_folder(run: Path, number: int) -> Path:
    """The folder of a round; the run itself before its first update."""
    place = run / ROUNDS / str(number)
    return place if place.is_dir() else run


def run_of(folder: Path) -> Path | None:
    """The run of which this folder is a round, or None."""
    place = folder.resolve()
    if place.parent.name != ROUNDS or not (place.parent / "0" / RECORD).exists():
        return None
    return folder.parent.parent if folder.name == place.name else place.parent.parent


def name_of(folder: Path) -> str:
    """The run in words: "ponds", or "ponds, round 2"."""
    run = run_of(folder)
    return folder.resolve().name if run is None else f"{run.resolve().name}, round {folder.resolve().name}"


def given_answers(folder: Path) -> Path:
    """The table with the answers of a round, without those of `pals review`."""
    path = folder / GIVEN if (folder / GIVEN).exists() else folder / "votes.csv"
    return path.resolve()


def rounds_lock(run: Path) -> FolderLock:
    """The lock of the process that adds a round, or changes the current one."""
    return FolderLock(run / ROUNDS)


def keep_first(run: Path) -> None:
    """Keep the files of a finished fit as round 0, and finish a switch that was interrupted. RUN looks as before.

    Raises:
        InputError: The run is not finished.
    """
    first = run / ROUNDS / "0"
    if not (first / RECORD).exists():
        if not all((run / name).exists() for name in ("config.yaml", "votes.csv", "summary.json")):
            raise InputError(f"{run} is not a finished run of `pals fit`. Run `pals fit` first, or let it finish.")
        refuse_strange(run)
        part = run / ROUNDS / "0.part"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        for path in run.iterdir():
            if path.name in FIT_FILES:
                _copy(path, part / path.name)
        write_json(part / RECORD, asdict(Round()))
        part.replace(first)
        show_round(run, 0)
    show_round(run, current_round(run).number)


def next_place(run: Path) -> Path:
    """The folder of the next round. A killed update may have left files there."""
    return run / ROUNDS / str(complete_rounds(run)[-1].number + 1)


def add_round(run: Path, record: Round) -> None:
    """Complete a round whose files are written, make it current, and reduce old rounds to tables and report."""
    write_json(run / ROUNDS / str(record.number) / RECORD, asdict(record))
    show_round(run, record.number)
    rounds = complete_rounds(run)
    for old in rounds[1:-KEPT_WHOLE]:
        if old.number not in {one.base for one in rounds[-KEPT_WHOLE:]} | {current_round(run).number}:
            for path in (run / ROUNDS / str(old.number)).iterdir():
                if path.is_dir():
                    shutil.rmtree(path)
                elif path.name not in KEPT_FILES:
                    path.unlink()


def use_round(run: Path, number: int) -> Round:
    """Make an earlier round current again.

    Raises:
        InputError: There is no such round, or its classifier and tables were removed.
    """
    with rounds_lock(run):
        keep_first(run)
        found = next((one for one in complete_rounds(run) if one.number == number), None)
        if found is None:
            have = ", ".join(str(one.number) for one in complete_rounds(run))
            raise InputError(f"{run} has no round {number}. Choose one of {have}.")
        if not (round_folder(run, number) / "config.yaml").exists():
            raise InputError(
                f"Of round {number} only labels, changes and report are kept ({round_folder(run, number)}). Choose a later one."
            )
        show_round(run, number)
        return found


def show_round(run: Path, number: int) -> None:
    """Let the files in RUN be those of a complete round."""
    folder = run / ROUNDS / str(number)
    names = sorted((path.name for path in folder.iterdir() if not is_lock(path)), key=lambda name: name == RECORD)
    if not (run / SHOWN).is_symlink():
        _link(run / SHOWN, str(number), run)  # first, so that no link leads nowhere
    if all(_link(run / name, f"{SHOWN}/{name}", run) for name in names):
        _link(run / SHOWN, str(number), run)
        for path in run.iterdir():  # of the round before, but not of this one
            if path.is_symlink() and path.readlink().parts[:2] == Path(SHOWN).parts and not path.exists():
                path.unlink()
        return
    for name in names:
        copy = run / ROUNDS / ".copy.part"
        _copy(folder / name, copy)
        _replace(run / name, copy, run)


def _link(path: Path, target: str, run: Path) -> bool:
    """Replace `path` by a link; False if the file system has none."""
    if not (path.is_symlink() and path.readlink() == Path(target)):
        link = run / ROUNDS / ".link.part"
        link.unlink(missing_ok=True)
        try:
            link.symlink_to(target)
        except OSError:
            return False
        _replace(path, link, run)
    return True


def _replace(path: Path, new: Path, run: Path) -> None:
    """Rename `new` to `path`: in one step, unless a folder is there, which is moved away first."""
    old = run / ROUNDS / ".old.part"
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(old, ignore_errors=True)
        path.rename(old)
    new.replace(path)
    new.unlink(missing_ok=True)  # which is still there if both were links to one file
    shutil.rmtree(old, ignore_errors=True)


def _copy(source: str | Path, target: str | Path) -> None:
    """Copy a file or a folder, by hard links where there are any: files of a run are replaced, never changed."""
    source, target = Path(source), Path(target)
    if source.is_dir():
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target, copy_function=_copy)
        return
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
