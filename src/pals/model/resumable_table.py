"""A long table written part by part, so that a killed program resumes after the last part.

Parts lie in a folder beside the table, `labels.parquet.parts`: each is a table of some rows and a record of what it contains,
which is written last and makes the part count. At the end they are joined into one file, which appears complete or not at all.
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
from typing import IO, Any

import pandas as pd
from pydantic import TypeAdapter, ValidationError

from pals.data.shards.arrow import require_pyarrow
from pals.data.shards.stream import STREAM_START, StreamPosition
from pals.util.csv_text import csv_text
from pals.util.errors import InputError
from pals.util.files import is_unfinished, read_object, replacing, write_bytes, write_json
from pals.util.locks import FolderLock, is_lock
from pals.vision.images.image_cache import BadImage

MAX_PART_ROWS = 65_536
"""Rows of a part, and of a row group."""
MAX_PART_CELLS = 1 << 20
"""Cells of a part; tables with many columns have fewer rows per part."""
MAX_PART_SECONDS = 20.0
"""About as much work is lost by a kill."""
MANIFEST = "manifest.json"
MAX_NAMED_BAD = 10
"""Unreadable items whose names are counted in `RowCounts.first_bad`."""
CHANGED_INPUT = {"model": "another classifier", "items": "other items, or some that have changed since"}


@dataclass(frozen=True)
class PartRecord:
    """What a part contains, and the stream position after it."""

    items: int
    abstained: int
    bad: tuple[tuple[str, str], ...]
    end: tuple[int, int]
    bytes: int


@dataclass(frozen=True)
class RowCounts:
    """The sums over all parts."""

    items: int = 0
    abstained: int = 0
    bad: int = 0
    first_bad: tuple[BadImage, ...] = ()

    def with_part(self, record: PartRecord) -> RowCounts:
        more_bad = map(BadImage._make, record.bad[: MAX_NAMED_BAD - len(self.first_bad)])
        abstained, bad = self.abstained + record.abstained, self.bad + len(record.bad)
        return RowCounts(self.items + record.items, abstained, bad, (*self.first_bad, *more_bad))


def csv_rows(frame: pd.DataFrame) -> bytes:
    """CSV without the heading, so that parts can be concatenated."""
    return csv_text(frame).partition("\n")[2].encode("utf-8")


def parquet_rows(frame: pd.DataFrame) -> bytes:
    import pyarrow.parquet as pq

    file = io.BytesIO()
    pq.write_table(_arrow(frame), file)
    return file.getvalue()


def join_csv(parts: Iterable[Path], empty: pd.DataFrame, file: IO[bytes]) -> None:
    file.write(csv_text(empty).encode("utf-8"))
    for path in parts:
        with path.open("rb") as part:
            shutil.copyfileobj(part, file)


def join_parquet(parts: Iterable[Path], empty: pd.DataFrame, file: IO[bytes]) -> None:
    """Write row groups of equal size, wherever the parts ended."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    waiting, size = _arrow(empty), rows_of_part(empty)
    with pq.ParquetWriter(file, waiting.schema) as writer:
        for path in parts:
            waiting = pa.concat_tables([waiting, pq.read_table(path)])
            whole = len(waiting) // size * size
            for start in range(0, whole, size):
                writer.write_table(waiting.slice(start, size).combine_chunks())
            waiting = waiting.slice(whole)
        if len(waiting):
            writer.write_table(waiting.combine_chunks())


def _arrow(frame: pd.DataFrame) -> Any:
    """The rows with types that follow from the names of the columns, so that they are the same for every part."""
    import pyarrow as pa

    numbers = {name: pa.float64() for name in frame.columns if name.startswith("p_")}
    types = {"abstained": pa.bool_(), "confidence": pa.float64(), "rolled_up_probability": pa.float64(), **numbers}
    schema = pa.schema([(name, types.get(name, pa.string())) for name in frame.columns])
    return pa.Table.from_pandas(frame, schema=schema, preserve_index=False).replace_schema_metadata(None)


def rows_of_part(frame: pd.DataFrame) -> int:
    return max(1, min(MAX_PART_ROWS, MAX_PART_CELLS // len(frame.columns)))


class ResumableTable:
    """A table that one process at a time writes, as CSV or, by its name, Parquet.

    Args:
        out: the file; parts lie in OUT.parts, and the unreadable items in OUT.bad.csv.
        about: what determines the rows; parts that were begun with other values are refused.
        empty: the table without rows.
    """

    def __init__(self, out: Path, about: Mapping[str, Any], empty: pd.DataFrame) -> None:
        self.out, self.about, self.empty = out, dict(about), empty
        self.parquet = out.suffix == ".parquet"
        if self.parquet:
            require_pyarrow(f"Writing {out}")
        self.folder = out.with_name(f"{out.name}.parts")
        self.bad_file = out.with_name(f"{out.name}.bad.csv")
        self.lock = FolderLock(self.folder)
        self.counts, self.end, self.parts = RowCounts(), STREAM_START, 0
        self._frames, self._bad = list[pd.DataFrame](), list[BadImage]()
        self._written_at = time.monotonic()

    def __enter__(self) -> ResumableTable:
        self.lock.acquire()
        try:
            self._resume()
        except BaseException:
            self.lock.release()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if not self.parts:
            self._remove_folder()
        self.lock.release()

    @property
    def num_rows(self) -> int:
        """Items that are done, written or not, readable or not."""
        return self.counts.items + self.counts.bad + sum(map(len, self._frames)) + len(self._bad)

    def add(self, frame: pd.DataFrame, bad: Iterable[BadImage], end: StreamPosition) -> None:
        """Add rows and unreadable items; `end` is the stream position after them."""
        if len(frame):
            self._frames.append(frame)
        self._bad += bad
        self.end = end
        rows = sum(map(len, self._frames)) + len(self._bad)
        if rows >= rows_of_part(self.empty) or time.monotonic() - self._written_at >= MAX_PART_SECONDS:
            self.flush()

    def flush(self) -> RowCounts:
        """Write the rows that are not in a part yet."""
        if not self._frames and not self._bad:
            return self.counts
        frame = pd.concat(self._frames, ignore_index=True) if self._frames else self.empty
        data = parquet_rows(frame) if self.parquet else csv_rows(frame)
        record = PartRecord(len(frame), int(frame["abstained"].sum()), tuple(self._bad), self.end, len(data))
        table, description = self._files(self.parts)
        write_bytes(table, data)
        write_json(description, asdict(record))  # from here on the part counts
        self.parts += 1
        self.counts = self.counts.with_part(record)
        self._frames, self._bad, self._written_at = [], [], time.monotonic()
        return self.counts

    def finish(self) -> None:
        """Join all parts into the file, write OUT.bad.csv, and remove the parts."""
        self.flush()
        with replacing(self.out, within=self.folder) as file:
            try:
                join = join_parquet if self.parquet else join_csv
                join((self._files(number)[0] for number in range(self.parts)), self.empty, file)
            except ValueError as error:  # the base class of pyarrow's errors
                reason = str(error).partition("\n")[0][:120]
                raise InputError(f"A part in {self.folder} is damaged ({reason}). Delete that folder to start again.") from None
        if self.counts.bad:
            with replacing(self.bad_file, within=self.folder) as file:
                file.write(csv_text(pd.DataFrame(columns=BadImage._fields)).encode("utf-8"))
                for _, record in self._records():
                    file.write(csv_rows(pd.DataFrame(record.bad, columns=BadImage._fields)))
        else:
            self.bad_file.unlink(missing_ok=True)  # of an earlier table
        self.discard()

    def discard(self) -> None:
        """Remove the parts at the end."""
        self.parts = 0

    def _files(self, number: int) -> tuple[Path, Path]:
        """The table and the record of a part."""
        return self.folder / f"{number:05d}{'.parquet' if self.parquet else '.csv'}", self.folder / f"{number:05d}.json"

    def _resume(self) -> None:
        manifest = self.folder / MANIFEST
        if not manifest.exists():
            foreign = [path.name for path in self.folder.glob("*") if not is_lock(path) and not is_unfinished(path)]
            if foreign:
                raise InputError(f"{self.folder} holds {foreign[0]}, which is not a part. Move it, or give another --out.")
            write_json(manifest, self.about)
            return
        begun = read_object(manifest)
        changed = [key for key in {**self.about, **begun} if self.about.get(key) != begun.get(key)]
        if changed:
            words = [CHANGED_INPUT.get(key) or f"{key} = {begun.get(key)} (now {self.about.get(key)})" for key in changed]
            raise InputError(
                f"{self.folder} holds the parts of a table that was started with {', '.join(words)}. Give another --out, or "
                f"delete that folder to start again."
            )
        for number, record in self._records():
            self.parts = number + 1
            self.counts = self.counts.with_part(record)
            self.end = StreamPosition(*record.end)

    def _records(self) -> Iterator[tuple[int, PartRecord]]:
        number = 0
        while (path := self._files(number)[1]).exists():
            try:
                record = TypeAdapter(PartRecord).validate_python(read_object(path))
                complete = self._files(number)[0].stat().st_size == record.bytes
            except (ValidationError, OSError):
                complete = False
            if not complete:
                raise InputError(f"{path} and its table were changed or damaged. Delete {self.folder} to start again.")
            yield number, record
            number += 1

    def _remove_folder(self) -> None:
        """Remove the folder, unless it contains files that are not of this table."""
        with suppress(OSError):
            for path in sorted(self.folder.iterdir(), key=is_lock):
                of_part = path.stem.isdigit() and path.suffix in (".parquet" if self.parquet else ".csv", ".json")
                if of_part or path.name == MANIFEST or is_unfinished(path) or is_lock(path):
                    path.unlink()
            self.folder.rmdir()
