"""Every answer that is given on the page, in one file of the run's folder (SQLite). Nothing is ever changed or deleted: a
second answer follows the first, and an undo is a row of its own. An answer is on disk before anybody is told so."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from pals.util.errors import InputError

FILE_NAME = "review.sqlite"
FORMAT = 1
CLAIM = 15 * 60.0
"""Seconds for which an item is kept for the person to whom it was shown."""
WAIT = 10.0  # seconds to wait while another process writes
CLAIM_WAIT = 0.2  # for a claim, which is no loss

LOCKED = "{path} is in use by another program, so nothing can be saved in it. Wait until that has ended."

Kind = Literal["label", "dont-know", "none-of-these", "skip"]
KINDS: tuple[Kind, ...] = get_args(Kind)
UNDO = "undo"

SCHEMA = """
CREATE TABLE IF NOT EXISTS answers (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    item TEXT NOT NULL,
    person TEXT NOT NULL,
    kind TEXT NOT NULL,          -- label, dont-know, none-of-these, skip, undo
    labels TEXT NOT NULL,        -- JSON: one class, or several candidates
    sure INTEGER NOT NULL,
    at REAL NOT NULL,            -- seconds since 1970
    batch TEXT NOT NULL,         -- what was sent together; if it comes again, it is known by this
    undoes INTEGER,              -- for an undo: which answer it takes back
    UNIQUE (batch, item)
);
CREATE TABLE IF NOT EXISTS claims (item TEXT PRIMARY KEY, person TEXT NOT NULL, until REAL NOT NULL);
CREATE TABLE IF NOT EXISTS rounds (
    number INTEGER PRIMARY KEY, folder TEXT NOT NULL, upto INTEGER NOT NULL, at REAL NOT NULL, seconds REAL NOT NULL,
    share REAL NOT NULL, low REAL NOT NULL, high REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS trusted (person TEXT PRIMARY KEY);
"""


class Answer(NamedTuple):
    """What one person said of one item."""

    id: int
    item: str
    person: str
    kind: str
    labels: tuple[str, ...]
    sure: bool
    at: float
    undoes: int | None = None


class Round(NamedTuple):
    """An update that has been made: the run that came of it, the last row that it took in, and the share of labels that is then
    right by the run's own estimate, with its interval."""

    number: int
    folder: str
    upto: int
    at: float
    seconds: float
    share: float
    low: float
    high: float


class LockedError(InputError):
    """Another process is writing, and goes on for longer than one waits here. Trying again may help."""


@dataclass(frozen=True)
class Said:
    """An answer on its way into the store."""

    item: str
    kind: Kind
    labels: tuple[str, ...] = ()
    sure: bool = True


class Store:
    """The file. Threads may share one; processes have one each. Who reads never waits for whoever writes."""

    def __init__(self, run: Path, wait: float = WAIT) -> None:
        """`wait`: seconds, before it is said that another process is writing."""
        self.path, self.wait = run / FILE_NAME, wait
        self._writing_lock, self._reading_lock = threading.Lock(), threading.Lock()
        try:
            self._answers = self._connect("FULL")
            with self._answers:
                self._answers.executescript(SCHEMA)
            self._claims = self._connect("NORMAL", CLAIM_WAIT)  # a claim that is lost with the power hurts nobody
            self._reader = self._connect("NORMAL")
        except sqlite3.Error as error:
            raise _unusable(self.path, error) from None
        self._refuse_newer()
        self._mark = _mark(self.path)
        self._log = Log()

    def close(self) -> None:
        with self._writing_lock, self._reading_lock:
            for connection in (self._answers, self._claims, self._reader):
                connection.close()

    # ---- answers

    def add(self, person: str, said: Sequence[Said], key: str) -> list[int]:
        """Write these answers, all or none; gives their numbers once they are on disk. What came before under the same key is
        not written again."""
        batch = f"{person}/{key}"
        with self._writing(self._answers) as write:
            known = [row.id for row in _batch(write, batch)]
            if known:
                return known
            now = time.time()
            rows = [(one.item, person, one.kind, json.dumps(one.labels), one.sure, now, batch, None) for one in said]
            ids = [_insert(write, row) for row in rows]
            write.executemany("DELETE FROM claims WHERE item = ? AND person = ?", [(one.item, person) for one in said])
        return ids

    def undo(self, person: str, key: str) -> list[Answer]:
        """Take back what the person said last, all that was sent together; gives it, or nothing where nothing is left."""
        batch = f"{person}/{key}"
        with self._writing(self._answers) as write:
            known = [row.undoes for row in _batch(write, batch)]
            if known:
                return [answer for number in known for answer in _select(write, "id = ?", number)]
            with self._reading_lock:
                log = self._refreshed(write)
                last = log.last(person)
                together = [] if last is None else [answer for answer in _together(write, last) if log.stands(answer)]
            for answer in together:
                _insert(write, (answer.item, person, UNDO, "[]", True, time.time(), batch, answer.id))
        return together

    def current(self) -> list[Answer]:
        """What stands, in the order in which it was said."""
        return self.snapshot()[1]

    def snapshot(self, upto: int | None = None) -> tuple[int, list[Answer]]:
        """The number of the last row (of those up to `upto`), and what stands then."""
        with self._reading():
            if upto is None:
                log = self._refreshed(self._reader)
            else:
                log = Log()
                for answer in _select(self._reader, "id <= ?", upto):
                    log.take(answer)
            return log.last_id, log.current()

    def changes(self, after: int) -> tuple[int, dict[str, list[Answer]]]:
        """The number of the last row, and what stands of each item about which anything was written after row `after`."""
        with self._reading():
            log = self._refreshed(self._reader)
            found = self._reader.execute("SELECT DISTINCT item FROM answers WHERE id > ? AND id <= ?", (after, log.last_id))
            return log.last_id, {item: log.of(item) for (item,) in found}

    def of(self, item: str) -> list[Answer]:
        """What stands of one item."""
        with self._reading():
            return self._refreshed(self._reader).of(item)

    def history(self, item: str) -> list[Answer]:
        """All answers to one item in the order in which they were given, with those that were replaced or taken back."""
        with self._reading():
            return _select(self._reader, "item = ?", item)

    def _refreshed(self, connection: sqlite3.Connection) -> Log:
        """Rows are only ever added, so that what is known needs no second look."""
        for answer in _select(connection, "id > ?", self._log.last_id):
            self._log.take(answer)
        return self._log

    # ---- who looks at what

    def claim(self, items: Iterable[str], person: str) -> list[str]:
        """Keep these items for a person, except those that are kept for somebody else; gives the others. While another process
        writes none can be kept, and all are shown."""
        now, got, asked = time.time(), [], list(items)
        try:
            with self._writing(self._claims, CLAIM_WAIT) as write:
                for item in asked:
                    found = write.execute(
                        "INSERT INTO claims VALUES (?, ?, ?) ON CONFLICT (item) DO UPDATE SET person = excluded.person, "
                        "until = excluded.until WHERE person = excluded.person OR until < ?",
                        (item, person, now + CLAIM, now),
                    )
                    if found.rowcount:
                        got.append(item)
        except LockedError:
            return asked
        return got

    def claimed(self, but: str) -> dict[str, str]:
        """The items that are kept for others, and for whom."""
        with self._reading():
            found = self._reader.execute("SELECT item, person FROM claims WHERE person != ? AND until >= ?", (but, time.time()))
            return dict(found.fetchall())

    # ---- rounds, and people who are not overruled

    def add_round(self, folder: str, upto: int, seconds: float, right: tuple[float, float, float]) -> Round:
        with self._writing(self._answers) as write:
            number = write.execute("SELECT coalesce(max(number), 0) + 1 FROM rounds").fetchone()[0]
            done = Round(number, folder, upto, time.time(), seconds, *right)
            write.execute("INSERT INTO rounds VALUES (?, ?, ?, ?, ?, ?, ?, ?)", done)
        return done

    def rounds(self) -> list[Round]:
        with self._reading():
            return [_round(row) for row in self._reader.execute("SELECT * FROM rounds ORDER BY number")]

    def trust(self, people: Sequence[str]) -> None:
        if not people:
            return
        with self._writing(self._answers) as write:
            write.executemany("INSERT OR IGNORE INTO trusted VALUES (?)", [(person,) for person in people])

    def trusted(self) -> tuple[str, ...]:
        with self._reading():
            return tuple(row[0] for row in self._reader.execute("SELECT person FROM trusted ORDER BY person"))

    # ---- the file

    def _connect(self, synchronous: str, wait: float | None = None) -> sqlite3.Connection:
        found = sqlite3.connect(
            self.path, timeout=self.wait if wait is None else wait, isolation_level=None, check_same_thread=False
        )
        found.execute("PRAGMA journal_mode = WAL")
        found.execute(f"PRAGMA synchronous = {synchronous}")
        return found

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with self._reading_lock:
            try:
                yield
            except sqlite3.Error as error:
                raise _unusable(self.path, error) from None

    @contextmanager
    def _writing(self, connection: sqlite3.Connection, wait: float | None = None) -> Iterator[sqlite3.Connection]:
        """One transaction: all of it is on disk afterwards, or nothing."""
        if not self._writing_lock.acquire(
            timeout=self.wait if wait is None else wait
        ):  # behind somebody who waits for another process
            raise LockedError(LOCKED.format(path=self.path))
        try:
            if _mark(self.path) != self._mark:  # SQLite would go on writing to a file that has no name any more
                raise InputError(
                    f"{self.path} was moved, replaced or deleted since `pals review` was started, so nothing can be saved. Put "
                    "it back, or start `pals review` again."
                )
            try:
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield connection
                except BaseException:
                    connection.execute("ROLLBACK")
                    raise
                connection.execute("COMMIT")
            except sqlite3.Error as error:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise _unusable(self.path, error) from None
        finally:
            self._writing_lock.release()

    def _refuse_newer(self) -> None:
        found = self._answers.execute("PRAGMA user_version").fetchone()[0]
        if found > FORMAT:
            raise InputError(
                f"{self.path} was written by a newer PALS (format {found}). Install that: pip install -U pals-learn."
            )
        if found < FORMAT:
            self._answers.execute(f"PRAGMA user_version = {FORMAT}")


class Log:
    """What the rows come to: of each item and person the last answer that was not taken back."""

    def __init__(self) -> None:
        self.last_id = 0
        self._given: dict[str, dict[str, list[Answer]]] = {}
        self._of_person: dict[str, dict[int, Answer]] = {}

    def take(self, answer: Answer) -> None:
        self.last_id = answer.id
        of_person = self._of_person.setdefault(answer.person, {})
        given = self._given.setdefault(answer.item, {}).setdefault(answer.person, [])
        if answer.kind == UNDO:
            of_person.pop(answer.undoes or 0, None)
            given[:] = [one for one in given if one.id != answer.undoes]
        else:
            of_person[answer.id] = answer
            given.append(answer)

    def last(self, person: str) -> Answer | None:
        """The person's last answer that stands; numbers are in the order of time."""
        of_person = self._of_person.get(person)
        return of_person[next(reversed(of_person))] if of_person else None

    def stands(self, answer: Answer) -> bool:
        """Whether it was not taken back; it may have been replaced."""
        return answer.id in self._of_person.get(answer.person, {})

    def of(self, item: str) -> list[Answer]:
        return [given[-1] for given in self._given.get(item, {}).values() if given]

    def current(self) -> list[Answer]:
        standing = (given[-1] for people in self._given.values() for given in people.values() if given)
        return sorted(standing, key=lambda answer: answer.id)


def _insert(write: sqlite3.Connection, row: tuple[Any, ...]) -> int:
    columns = "item, person, kind, labels, sure, at, batch, undoes"
    return int(write.execute(f"INSERT INTO answers ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row).lastrowid or 0)


def _select(connection: sqlite3.Connection, where: str, value: object) -> list[Answer]:
    columns = "id, item, person, kind, labels, sure, at, undoes"
    return [_answer(row) for row in connection.execute(f"SELECT {columns} FROM answers WHERE {where} ORDER BY id", (value,))]


def _answer(row: tuple[Any, ...]) -> Answer:
    """SQLite keeps whatever is put into a column: a row that another program has changed may hold anything."""
    number, item, person, kind, text, sure, at, undoes = row
    try:
        labels = json.loads(text)
        datetime.fromtimestamp(at, UTC)
        good = all(isinstance(part, str) for part in (item, person, *labels)) and kind in (*KINDS, UNDO)
        if good and isinstance(labels, list) and isinstance(undoes, int | None):
            return Answer(number, item, person, kind, tuple(labels), bool(sure), at, undoes)
    except (TypeError, ValueError, OverflowError, OSError):
        pass
    raise sqlite3.DatabaseError(f"row {number} of its answers is malformed")


def _round(row: tuple[Any, ...]) -> Round:
    number, folder, *numbers = row
    if not isinstance(folder, str) or not all(isinstance(value, int | float) for value in numbers):
        raise sqlite3.DatabaseError(f"row {number} of its rounds is malformed")
    return Round(*row)


def _batch(connection: sqlite3.Connection, batch: str) -> list[Answer]:
    return _select(connection, "batch = ?", batch)


def _together(connection: sqlite3.Connection, answer: Answer) -> list[Answer]:
    """What was sent with this answer, and it itself."""
    return _select(connection, "batch = (SELECT batch FROM answers WHERE id = ?)", answer.id)


def _mark(path: Path) -> tuple[int, int] | None:
    """By which a file is known, whatever its name; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _unusable(path: Path, error: sqlite3.Error) -> InputError:
    reason = str(error)
    if "locked" in reason:
        return LockedError(LOCKED.format(path=path))
    if "readonly" in reason or "unable to open" in reason:
        return InputError(f"Cannot write {path}: answers are saved there. Make the folder writable, or copy the run elsewhere.")
    if "not a database" in reason or "malformed" in reason:
        return InputError(f"{path} is damaged ({reason}). Restore it from a copy, or move it away to start over.")
    return InputError(f"Cannot use {path} ({reason}). Make room, or wait until no other program has it open.")
