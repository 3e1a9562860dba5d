"""Decoded pictures on disk: a file of rows, and a list of files that says which row is which picture.

    NAME.jsonl          the list: settings first, then a line per picture; it names its file of rows
    NAME.TOKEN.rows     3 x S x S bytes per picture that could be decoded, in the order of the list
    NAME.TOKEN.part     the list of a store in the making
    NAME.lock           held by whoever is at work

The list never runs ahead of the rows, so what a killed run has left can be used as far as its list goes. A store is finished
by giving the list its final name. Finished stores are never changed, only replaced: who has one mapped keeps the old one.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import re
import secrets
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
import PIL
import torch
from torch import Tensor

from pals.vision.images.decoding import How, Stamp

VERSION = 1  # to be raised when the same file would be decoded to other pixels
SECONDS_BETWEEN_COMMITS = 2.0


def default_cache() -> Path:
    """Where decoded pictures are kept between runs: $PALS_CACHE, or the place that the system has for such things."""
    home = os.environ.get("PALS_CACHE")
    if home:
        return Path(home)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pals"


@dataclass(frozen=True)
class Settings:
    """What all pictures of a store have in common."""

    folder: str
    size: int
    how: How
    version: int = VERSION

    @property
    def row_bytes(self) -> int:
        return 3 * self.size * self.size

    @property
    def name(self) -> str:
        """Different for different settings; its beginning is for people."""
        digest = hashlib.sha256(json.dumps(asdict(self)).encode("utf-8", "surrogatepass")).hexdigest()
        folder = re.sub(r"[^A-Za-z0-9_-]+", "_", Path(self.folder).name)[:40]
        return f"{folder}-{self.size}-{self.how}-{digest[:12]}"


class Entry(NamedTuple):
    """A line of the list. A picture with a reason is bad and has no row."""

    name: str
    stamp: Stamp
    width: int
    height: int
    reason: str | None

    def line(self) -> str:
        return json.dumps([self.name, *self.stamp, self.width, self.height, self.reason])


class Store:
    """A store to read from, finished or left behind."""

    def __init__(self, rows: Path, settings: Settings, entries: Sequence[Entry] = ()) -> None:
        self.rows, self.settings = rows, settings
        self.entries = {entry.name: entry for entry in entries}
        good = [entry.name for entry in entries if entry.reason is None]
        self.row_of = {name: row for row, name in enumerate(good)}

    @classmethod
    def read(cls, path: Path, settings: Settings) -> Store:
        """Empty if there is no such list, or if it belongs to something else. Of a damaged one what is whole."""
        try:
            lines = path.read_text(encoding="utf-8").split("\n")
            header = json.loads(lines[0])
            rows = path.parent / Path(header["rows"]).name
            if header["settings"] != asdict(settings):
                return cls(path, settings)
            there = rows.stat().st_size // settings.row_bytes
        except (OSError, ValueError, KeyError, TypeError):
            return cls(path, settings)
        entries = []
        for entry in _entries(lines[1:-1]):  # after the last line break: nothing, or a line that was cut off
            there -= entry.reason is None
            if there < 0:
                break
            entries.append(entry)
        store = cls(rows, settings, entries)
        if header.get("pillow") != PIL.__version__:  # another version may be able to read what this one could not
            store.entries = {name: entry for name, entry in store.entries.items() if entry.reason is None}
        return store

    def has(self, name: str, stamp: Stamp) -> bool:
        entry = self.entries.get(name)
        return entry is not None and entry.stamp == stamp

    def pixels(self) -> np.ndarray:
        """All rows, N x 3·S·S, read-only: for copying."""
        shape = (len(self.row_of), self.settings.row_bytes)
        return np.memmap(self.rows, np.uint8, "r", shape=shape) if shape[0] else np.empty(shape, np.uint8)


def _entries(lines: list[str]) -> Iterator[Entry]:
    """As far as the lines are whole."""
    try:
        values = iter(json.loads(f"[{','.join(lines)}]"))  # far faster than line by line
    except ValueError:
        values = map(json.loads, lines)
    with suppress(ValueError, TypeError):
        for name, size, changed, renamed, width, height, reason in values:
            yield Entry(name, (size, changed, renamed), width, height, reason)


class Writer:
    """A store in the making: to be published, left for the next run to go on with, or discarded."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.folder, self.settings = folder, settings
        token = secrets.token_hex(4)
        self.rows_path = folder / f"{settings.name}.{token}.rows"
        self.list_path = folder / f"{settings.name}.{token}.part"
        self.entries: list[Entry] = []
        self.committed = 0
        self.last_commit = time.monotonic()
        self.rows = self.rows_path.open("xb", buffering=1 << 20)
        try:
            self.list = self.list_path.open("x", encoding="utf-8", newline="\n")
        except OSError:
            self.rows.close()
            self.rows_path.unlink()
            raise
        header = {"rows": self.rows_path.name, "settings": asdict(settings), "pillow": PIL.__version__}
        self.list.write(json.dumps(header) + "\n")

    def add(self, entry: Entry, pixels: np.ndarray | None) -> None:
        if pixels is not None:
            self.rows.write(pixels.data)
        self.entries.append(entry)
        if time.monotonic() - self.last_commit > SECONDS_BETWEEN_COMMITS:
            self._commit()

    def publish(self) -> Store:
        self._commit()
        self._close()
        self.list_path.replace(list_of(self.folder, self.settings))
        return Store(self.rows_path, self.settings, self.entries)

    def leave(self) -> None:
        try:
            self._commit()
            self._close()
        except OSError:
            self.discard()

    def discard(self) -> None:
        with suppress(OSError):  # what is still in the buffers may not fit on the disk
            self._close()
        for path in (self.rows_path, self.list_path):
            path.unlink(missing_ok=True)

    def _commit(self) -> None:
        """First the rows, then the lines about them."""
        self.rows.flush()
        os.fsync(self.rows.fileno())
        self.list.writelines(entry.line() + "\n" for entry in self.entries[self.committed :])
        self.list.flush()
        os.fsync(self.list.fileno())
        self.committed = len(self.entries)
        self.last_commit = time.monotonic()

    def _close(self) -> None:
        with self.rows, self.list:
            pass


def list_of(folder: Path, settings: Settings) -> Path:
    return folder / f"{settings.name}.jsonl"


def lock_of(folder: Path, settings: Settings) -> Path:
    return folder / f"{settings.name}.lock"


def left_behind(folder: Path, settings: Settings) -> list[Store]:
    """What killed runs have left. Only for who holds the lock: else they may be alive."""
    return [Store.read(path, settings) for path in sorted(folder.glob(f"{settings.name}.*.part"))]


def remove_others(folder: Path, settings: Settings, kept: Store) -> None:
    """Only for who holds the lock. Where a mapped file cannot be removed (Windows), a later run will."""
    for path in folder.glob(f"{settings.name}.*.*"):
        if path != kept.rows:
            with suppress(OSError):
                path.unlink()


def mapped(file: IO[bytes], first: int, count: int, size: int) -> Tensor:
    """Rows of a file as a tensor that lives on the disk: pages come when they are touched. Nothing that is done to the tensor
    reaches the file. Stays valid when the file is closed or replaced.

    The tensor may be written to (the changed pages are then held in memory), except where the whole file is larger than the
    memory: Linux refuses to promise so much, and the pages are read-only.
    """
    length = (first + count) * 3 * size * size
    try:
        buffer = mmap.mmap(file.fileno(), length, access=mmap.ACCESS_COPY)
    except OSError:
        buffer = mmap.mmap(file.fileno(), length, access=mmap.ACCESS_READ)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*not writable.*")
        rows = torch.frombuffer(buffer, dtype=torch.uint8)
    return rows.view(first + count, 3, size, size)[first:]
