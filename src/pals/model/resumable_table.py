"""A long table that is written part by part, so that a program that was killed goes on after the last part.

Parts lie in a folder beside the table, `labels.parquet.parts`: each is a table of some rows and a record of what it holds,
which is written last and makes it count. At the end they are copied into the one file, which appears whole or not at all.
"""

from __future__ import annotations

import io
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol

import pandas as pd
from pydantic import TypeAdapter, ValidationError

from pals.data.shards import STREAM_START, StreamPosition, require_pyarrow
from pals.util.csv_text import csv_text
from pals.util.errors import InputError
from pals.util.files import is_unfinished, read_object, replacing, write_bytes, write_json
from pals.util.locks import FolderLock, is_lock
from pals.vision.images import BadImage

ROWS = 65_536  # of a part, and of a row group
CELLS = 1 << 20  # of a part: where there are many columns it has fewer rows
SECONDS = 20.0  # of work that may be lost at most, about
MANIFEST = "manifest.json"
SHOWN = 10  # left-out items that are remembered by name
OTHERS = {"model": "another classifier", "items": "other items, or some that have changed since"}


@dataclass(frozen=True)
class PartRecord:
    """What a part holds, and where in the stream it ends."""

    items: int
    abstained: int
    bad: tuple[tuple[str, str], ...]
    end: tuple[int, int]
    bytes: int


@dataclass(frozen=True)
class Tally:
    """All parts together."""

    items: int = 0
    abstained: int = 0
    bad: int = 0
    first_bad: tuple[BadImage, ...] = ()

    @property
    def seen(self) -> int:
        """Items that are done, good or bad."""
        return self.items + self.bad

    def with_part(self, record: PartRecord) -> Tally:
        room = SHOWN - len(self.first_bad)
        first_bad = (*self.first_bad, *(BadImage(*bad) for bad in record.bad[:room]))
        return Tally(self.items + record.items, self.abstained + record.abstained, self.bad + len(record.bad), first_bad)


class Format(Protocol):
    """Rows as a part, and parts as one file."""

    suffix: str

    def part(self, frame: pd.DataFrame) -> bytes: ...

    def join(self, parts: Iterable[Path], empty: pd.DataFrame, file: IO[bytes]) -> None: ...


class CsvFormat:
    """Parts without a heading, so that they only need to be strung together."""

    suffix = ".csv"

    def part(self, frame: pd.DataFrame) -> bytes:
        return csv_text(frame).partition("\n")[2].encode("utf-8")

    def join(self, parts: Iterable[Path], empty: pd.DataFrame, file: IO[bytes]) -> None:
        file.write(csv_text(empty).encode("utf-8"))
        for path in parts:
            with path.open("rb") as part:
                shutil.copyfileobj(part, file)


class ParquetFormat:
    """Row groups of the same size, wherever the parts ended."""

    suffix = ".parquet"

    def part(self, frame: pd.DataFrame) -> bytes:
        import pyarrow.parquet as pq

        file = io.BytesIO()
        pq.write_table(_arrow(frame), file)
        return file.getvalue()

    def join(self, parts: Iterable[Path], empty: pd.DataFrame, file: IO[bytes]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        held, rows = _arrow(empty), rows_of_part(empty)
        with pq.ParquetWriter(file, held.schema) as writer:
            for path in parts:
                held = pa.concat_tables([held, pq.read_table(path)])
                whole = len(held) // rows * rows
                for start in range(0, whole, rows):
                    writer.write_table(held.slice(start, rows).combine_chunks())
                held = held.slice(whole)
            if len(held):
                writer.write_table(held.combine_chunks())


def _arrow(frame: pd.DataFrame) -> Any:
    """With types that follow from the names of the columns: the same for every part."""
    import pyarrow as pa

    def kind(name: str) -> Any:
        if name == "abstained":
            return pa.bool_()
        return pa.float64() if name in ("confidence", "rolled_up_probability") or name.startswith("p_") else pa.string()

    schema = pa.schema([(name, kind(name)) for name in frame.columns])
    return pa.Table.from_pandas(frame, schema=schema, preserve_index=False).replace_schema_metadata(None)


def rows_of_part(frame: pd.DataFrame) -> int:
    return max(1, min(ROWS, CELLS // len(frame.columns)))


def format_of(out: Path) -> Format:
    if out.suffix != ParquetFormat.suffix:
        return CsvFormat()
    require_pyarrow(f"Writing {out}")
    return ParquetFormat()


class Parts:
    """The parts of one table, held by one process at a time.

    about: what decides which rows there will be. Parts that were begun with something else are refused."""

    def __init__(self, out: Path, about: Mapping[str, Any], empty: pd.DataFrame) -> None:
        self.out, self.about, self.empty = out, dict(about), empty
        self.format = format_of(out)
        self.folder = out.with_name(f"{out.name}.parts")
        self.bad_file = out.with_name(f"{out.name}.bad.csv")
        self.lock = FolderLock(self.folder)
        self.tally, self.end, self.count = Tally(), STREAM_START, 0
        self._frames, self._bad = list[pd.DataFrame](), list[BadImage]()
        self._since = time.monotonic()

    def __enter__(self) -> Parts:
        self.lock.acquire()
        try:
            self._resume()
        except BaseException:
            self.lock.release()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if not self.count:
            self._remove()
        self.lock.release()

    def add(self, frame: pd.DataFrame, bad: Iterable[BadImage], end: StreamPosition) -> None:
        """Further rows, and where in the stream they end."""
        if len(frame):
            self._frames.append(frame)
        self._bad += bad
        self.end = end
        rows = sum(map(len, self._frames)) + len(self._bad)
        if rows >= rows_of_part(self.empty) or time.monotonic() - self._since >= SECONDS:
            self._write()

    @property
    def seen(self) -> int:
        """Items that are done, written or not."""
        return self.tally.seen + sum(map(len, self._frames)) + len(self._bad)

    def flush(self) -> Tally:
        """What there is once all rows are written."""
        if self._frames or self._bad:
            self._write()
        return self.tally

    def finish(self) -> None:
        """The one file from all parts, which are not needed any more."""
        self.flush()
        with replacing(self.out, within=self.folder) as file:
            self._join(file)
        self._write_bad()
        self.forget()

    def forget(self) -> None:
        """Nobody will go on from these parts: their folder is removed in the end."""
        self.count = 0

    def _write(self) -> None:
        frame = pd.concat(self._frames, ignore_index=True) if self._frames else self.empty
        data = self.format.part(frame)
        record = PartRecord(len(frame), int(frame["abstained"].sum()), tuple(self._bad), self.end, len(data))
        write_bytes(self._path(self.count), data)
        write_json(self._record(self.count), asdict(record))  # from here on the part counts
        self.count += 1
        self.tally = self.tally.with_part(record)
        self._frames, self._bad = [], []
        self._since = time.monotonic()

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:05d}{self.format.suffix}"

    def _record(self, number: int) -> Path:
        return self.folder / f"{number:05d}.json"

    def _resume(self) -> None:
        manifest = self.folder / MANIFEST
        if not manifest.exists():
            strange = [path.name for path in self.folder.glob("*") if not is_lock(path) and not is_unfinished(path)]
            if strange:
                raise InputError(f"{self.folder} holds {strange[0]}, which is not a part. Move it, or give another --out.")
            write_json(manifest, self.about)
            return
        self._refuse_others(read_object(manifest))
        for number, record in self._records():
            self.count = number + 1
            self.tally = self.tally.with_part(record)
            self.end = StreamPosition(*record.end)

    def _refuse_others(self, begun: Mapping[str, Any]) -> None:
        changed = [key for key in {**self.about, **begun} if self.about.get(key) != begun.get(key)]
        if changed:
            words = ", ".join(OTHERS.get(key) or f"{key} = {begun.get(key)} (now {self.about.get(key)})" for key in changed)
            raise InputError(
                f"{self.folder} holds the parts of a table that was started with {words}. Give another --out, or delete that "
                f"folder to start again."
            )

    def _records(self) -> Iterator[tuple[int, PartRecord]]:
        number = 0
        while (path := self._record(number)).exists():
            try:
                record = TypeAdapter(PartRecord).validate_python(read_object(path))
                whole = self._path(number).stat().st_size == record.bytes
            except (ValidationError, OSError):
                whole = False
            if not whole:
                raise InputError(f"{path} and its table were changed or damaged. Delete {self.folder} to start again.")
            yield number, record
            number += 1

    def _join(self, file: IO[bytes]) -> None:
        try:
            self.format.join(map(self._path, range(self.count)), self.empty, file)
        except ValueError as error:  # pyarrow's own errors are such
            reason = str(error).partition("\n")[0][:120]
            raise InputError(f"A part in {self.folder} is damaged ({reason}). Delete that folder to start again.") from None

    def _write_bad(self) -> None:
        """All items that were left out, beside the table; a list of an earlier table goes."""
        if not self.tally.bad:
            self.bad_file.unlink(missing_ok=True)
            return
        with replacing(self.bad_file, within=self.folder) as file:
            file.write(csv_text(pd.DataFrame(columns=BadImage._fields)).encode("utf-8"))
            for _, record in self._records():
                file.write(CsvFormat().part(pd.DataFrame(record.bad, columns=BadImage._fields)))

    def _remove(self) -> None:
        """Only what was put there."""
        with suppress(OSError):
            for path in sorted(self.folder.iterdir(), key=is_lock):
                ours = path.stem.isdigit() and path.suffix in (self.format.suffix, ".json")
                if ours or path.name == MANIFEST or is_unfinished(path) or is_lock(path):
                    path.unlink()
            self.folder.rmdir()
