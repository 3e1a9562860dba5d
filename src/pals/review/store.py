"""All answers of a review, in one SQLite file in the run folder. Rows are only added: a second answer follows the first, and an
undo is a row of its own. An answer is on disk before the page confirms it."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pals.review.answer_log import ANSWER_KINDS, UNDO, AnswerKind, AnswerLog, ReviewAnswer
from pals.util.errors import InputError

STORE_FILE = "review.sqlite"
STORE_FORMAT = 2
CLAIM_SECONDS = 15 * 60.0
"""Seconds for which an item is kept for the annotator to whom it is shown."""
WRITE_WAIT = 10.0  # seconds to wait while another process writes
CLAIM_WRITE_WAIT = 0.2  # for a claim, which is no loss

LOCKED_MESSAGE = "{path} is in use by another program, so nothing can be saved in it. Wait until that has ended."

STORE_SCHEMA = """
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
    settles INTEGER NOT NULL DEFAULT 0,  -- settles a disagreement: earlier answers to the item no longer count
    audit INTEGER NOT NULL DEFAULT 0,    -- the item was drawn at random to be checked
    UNIQUE (batch, item)
);
CREATE TABLE IF NOT EXISTS claims (item TEXT PRIMARY KEY, person TEXT NOT NULL, until REAL NOT NULL);
CREATE TABLE IF NOT EXISTS rounds (
    number INTEGER PRIMARY KEY, folder TEXT NOT NULL, upto INTEGER NOT NULL, at REAL NOT NULL, seconds REAL NOT NULL,
    share REAL NOT NULL, low REAL NOT NULL, high REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS classes (name TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS trusted (person TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS choices (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
"""


class LockedError(InputError):
    """Another process holds the write lock for longer than the waiting time; trying again may help."""


def has_answers(run: Path) -> bool:
    """Whether the run has a file of review answers."""
    return (run / STORE_FILE).is_file()


@dataclass(frozen=True)
class NewAnswer:
    """An answer that is not saved yet."""

    item: str
    kind: AnswerKind
    labels: tuple[str, ...] = ()
    sure: bool = True
    settles: bool = False
    audit: bool = False


class AnswerStore:
    """The file. Threads share one store, processes have one each. Readers never wait for a writer."""

    def __init__(self, run: Path, wait: float = WRITE_WAIT) -> None:
        """Args:
        run: The run folder.
        wait: Seconds to wait while another process writes."""
        self.path, self.wait = run / STORE_FILE, wait
        self._writing_lock, self._reading_lock = threading.Lock(), threading.Lock()
        try:
            self._answers = self._connect("FULL")
            with self._answers:
                self._answers.executescript(STORE_SCHEMA)
            self._add_columns()
            self._claims = self._connect("NORMAL", CLAIM_WRITE_WAIT)  # a reservation may be lost in a power cut
            self._reader = self._connect("NORMAL")
        except sqlite3.Error as error:
            raise _unusable(self.path, error) from None
        self._refuse_newer()
        self._mark = _mark(self.path)
        self._log = AnswerLog()

    def close(self) -> None:
        with self._writing_lock, self._reading_lock:
            for connection in (self._answers, self._claims, self._reader):
                connection.close()

    # ---- answers

    def add(self, annotator: str, said: Sequence[NewAnswer], key: str) -> list[int]:
        """Save these answers, all or none; returns their row numbers once they are on disk. A `key` that was used before by
        this annotator saves nothing again."""
        batch = f"{annotator}/{key}"
        with self._writing(self._answers) as write:
            known = [row.id for row in _batch(write, batch)]
            if known:
                return known
            now = time.time()
            rows = [
                (one.item, annotator, one.kind, json.dumps(one.labels), one.sure, now, batch, None, one.settles, one.audit)
                for one in said
            ]
            ids = [_insert(write, row) for row in rows]
            write.executemany("DELETE FROM claims WHERE item = ? AND person = ?", [(one.item, annotator) for one in said])
        return ids

    def undo(self, annotator: str, key: str, items: Collection[str] = ()) -> list[ReviewAnswer]:
        """Take back the last answer of this annotator, with all that was saved together with it, or, where items are given,
        the annotator's answers to them; returns what was taken back."""
        batch = f"{annotator}/{key}"
        with self._writing(self._answers) as write:
            known = [row.undoes for row in _batch(write, batch)]
            if known:
                return [answer for number in known for answer in _select(write, "id = ?", number)]
            with self._reading_lock:
                log = self._refreshed(write)
                last, same_batch = log.last(annotator), "batch = (SELECT batch FROM answers WHERE id = ?)"
                if items:
                    together = [answer for item in items for answer in log.of(item) if answer.annotator == annotator]
                elif last is None:
                    together = []
                else:
                    together = [answer for answer in _select(write, same_batch, last.id) if log.stands(answer)]
            for answer in together:
                _insert(write, (answer.item, annotator, UNDO, "[]", True, time.time(), batch, answer.id, False, False))
        return together

    def current(self) -> list[ReviewAnswer]:
        """The standing answers, oldest first."""
        return self.snapshot()[1]

    def by_item(self) -> list[list[ReviewAnswer]]:
        """The standing answers of each item, also those to which a disagreement was settled otherwise."""
        with self._reading():
            return self._refreshed(self._reader).by_item()

    def snapshot(self, upto: int | None = None) -> tuple[int, list[ReviewAnswer]]:
        """The last row (up to row `upto`) and the answers that stood then."""
        with self._reading():
            if upto is None:
                log = self._refreshed(self._reader)
            else:
                log = AnswerLog()
                for answer in _select(self._reader, "id <= ?", upto):
                    log.take(answer)
            return log.last_id, log.current()

    def changes(self, after: int) -> tuple[int, dict[str, list[ReviewAnswer]]]:
        """The last row, and the standing answers of each item that has rows after row `after`."""
        with self._reading():
            log = self._refreshed(self._reader)
            found = self._reader.execute("SELECT DISTINCT item FROM answers WHERE id > ? AND id <= ?", (after, log.last_id))
            return log.last_id, {item: log.of(item) for (item,) in found}

    def of(self, item: str) -> list[ReviewAnswer]:
        """The standing answers to an item."""
        with self._reading():
            return self._refreshed(self._reader).of(item)

    def history(self, item: str) -> list[ReviewAnswer]:
        """All answers to an item, oldest first, including those replaced or taken back."""
        with self._reading():
            return _select(self._reader, "item = ?", item)

    def _refreshed(self, connection: sqlite3.Connection) -> AnswerLog:
        """The log with the rows that were added since."""
        for answer in _select(connection, "id > ?", self._log.last_id):
            self._log.take(answer)
        return self._log

    # ---- reservations

    def claim(self, items: Iterable[str], annotator: str) -> list[str]:
        """Reserve these items for an annotator, except those reserved for others; returns the items reserved. While another
        process writes nothing can be reserved, and all items are returned."""
        now, got, asked = time.time(), [], list(items)
        try:
            with self._writing(self._claims, CLAIM_WRITE_WAIT) as write:
                for item in asked:
                    found = write.execute(
                        "INSERT INTO claims VALUES (?, ?, ?) ON CONFLICT (item) DO UPDATE SET person = excluded.person, "
                        "until = excluded.until WHERE person = excluded.person OR until < ?",
                        (item, annotator, now + CLAIM_SECONDS, now),
                    )
                    if found.rowcount:
                        got.append(item)
        except LockedError:
            return asked
        return got

    def claimed(self, but: str) -> dict[str, str]:
        """The items that are reserved for other annotators, and for whom."""
        with self._reading():
            found = self._reader.execute("SELECT item, person FROM claims WHERE person != ? AND until >= ?", (but, time.time()))
            return dict(found.fetchall())

    # ---- rounds of version 0.2, and trusted annotators

    def old_rounds(self) -> list[tuple[int, str, int, float]]:
        """The updates of version 0.2: number, name of the folder, last row of the answers used, and seconds."""
        with self._reading():
            return self._reader.execute("SELECT number, folder, upto, seconds FROM rounds ORDER BY number").fetchall()

    def trust(self, people: Sequence[str]) -> None:
        if not people:
            return
        with self._writing(self._answers) as write:
            write.executemany("INSERT OR IGNORE INTO trusted VALUES (?)", [(name,) for name in people])

    def trusted(self) -> tuple[str, ...]:
        with self._reading():
            return tuple(row[0] for row in self._reader.execute("SELECT person FROM trusted ORDER BY person"))

    def add_class(self, name: str) -> None:
        """A class that the run does not have, for all who answer."""
        with self._writing(self._answers) as write:
            write.execute("INSERT OR IGNORE INTO classes VALUES (?)", (name,))

    def new_classes(self) -> tuple[str, ...]:
        with self._reading():
            return tuple(row[0] for row in self._reader.execute("SELECT name FROM classes ORDER BY rowid"))

    def trust_answers(self, trusted: bool) -> None:
        """Choose whether the answers of this review are trusted, for all updates to come."""
        with self._writing(self._answers) as write:
            write.execute("INSERT OR REPLACE INTO choices VALUES ('trusted', ?)", (trusted,))

    def trusts_answers(self) -> bool:
        """Whether the answers of this review are trusted: yes, unless chosen otherwise."""
        with self._reading():
            found = self._reader.execute("SELECT value FROM choices WHERE name = 'trusted'").fetchone()
            return found is None or bool(found[0])

    # ---- the file

    def _add_columns(self) -> None:
        """Add the columns that a file of format 1 lacks."""
        there = [row[1] for row in self._answers.execute("PRAGMA table_info(answers)")]
        for name in ("settles", "audit"):
            try:
                if name not in there:
                    self._answers.execute(f"ALTER TABLE answers ADD COLUMN {name} INTEGER NOT NULL DEFAULT 0")
            except sqlite3.OperationalError as error:
                if "duplicate column" not in str(error):  # which another process has just added
                    raise

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
        ):  # another thread waits for another process
            raise LockedError(LOCKED_MESSAGE.format(path=self.path))
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
        if found > STORE_FORMAT:
            raise InputError(
                f"{self.path} was written by a newer PALS (format {found}). Install that: pip install -U pals-learn."
            )
        if found < STORE_FORMAT:
            self._answers.execute(f"PRAGMA user_version = {STORE_FORMAT}")


def _insert(write: sqlite3.Connection, row: tuple[Any, ...]) -> int:
    columns = "item, person, kind, labels, sure, at, batch, undoes, settles, audit"
    return int(write.execute(f"INSERT INTO answers ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row).lastrowid or 0)


def _select(connection: sqlite3.Connection, where: str, value: object) -> list[ReviewAnswer]:
    columns = "id, item, person, kind, labels, sure, at, undoes, settles, audit"
    return [_answer(row) for row in connection.execute(f"SELECT {columns} FROM answers WHERE {where} ORDER BY id", (value,))]


def _answer(row: tuple[Any, ...]) -> ReviewAnswer:
    """SQLite accepts any value in any column: rows changed by another program are checked."""
    number, item, annotator, kind, text, sure, at, undoes, settles, audit = row
    try:
        labels = json.loads(text)
        datetime.fromtimestamp(at, UTC)
        good = all(isinstance(part, str) for part in (item, annotator, *labels)) and kind in (*ANSWER_KINDS, UNDO)
        if good and isinstance(labels, list) and isinstance(undoes, int | None):
            return ReviewAnswer(
                number, item, annotator, kind, tuple(labels), bool(sure), at, undoes, bool(settles), bool(audit)
            )
    except (TypeError, ValueError, OverflowError, OSError):
        pass
    raise sqlite3.DatabaseError(f"row {number} of its answers is malformed")


def _batch(connection: sqlite3.Connection, batch: str) -> list[ReviewAnswer]:
    return _select(connection, "batch = ?", batch)


def _mark(path: Path) -> tuple[int, int] | None:
    """Device and inode of a file; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _unusable(path: Path, error: sqlite3.Error) -> InputError:
    reason = str(error)
    if "locked" in reason:
        return LockedError(LOCKED_MESSAGE.format(path=path))
    if "readonly" in reason or "unable to open" in reason:
        return InputError(f"Cannot write {path}: answers are saved there. Make the folder writable, or copy the run elsewhere.")
    if "not a database" in reason or "malformed" in reason:
        return InputError(f"{path} is damaged ({reason}). Restore it from a copy, or move it away to start over.")
    return InputError(f"Cannot use {path} ({reason}). Make room, or wait until no other program has it open.")
