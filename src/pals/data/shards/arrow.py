"""Parquet files (pyarrow) and data sets saved by Hugging Face `datasets`, with the bytes of an image in each row.

The classes of `pyarrow.dataset` are not used: they hold a whole row group in memory at a time, and read the images to list the
names that `datasets` stores beside them (measured with pyarrow 26). `ParquetFile` reads single pages of single columns.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

from pals.data.shards.shard import CHUNK_BYTES, NO_IMAGE, BadShardError, PackedShard, ShardItem, stamp_of
from pals.readers.limits import CELLS_PER_BYTE, Limits
from pals.util.errors import InputError
from pals.util.words import in_short, listed, pip_install
from pals.vision.images.decoding import BadImageError
from pals.vision.images.listing import printable

NAME_COLUMNS = ("item", "path", "id", "__key__")
"""Columns that may name the items, the best first."""
BYTES_FIELD, PATH_FIELD = "bytes", "path"
"""Fields of an image as `datasets` writes it."""
NAMES_AT_ONCE = 8192
"""Rows whose names are read at a time."""
SAVED_ROWS_AT_ONCE = 64
"""Rows of a saved data set that are read at a time."""
SAVED_STATE, SAVED_SPLITS = "state.json", "dataset_dict.json"
"""Files that `save_to_disk` writes beside the data, of one data set and of several splits."""


class ArrowShard(PackedShard):
    """Rows of Arrow tables. Subclasses give the schema, the number of rows, and columns of consecutive rows."""

    @property
    @abstractmethod
    def schema(self) -> Any: ...

    @property
    @abstractmethod
    def num_rows(self) -> int: ...

    @abstractmethod
    def tables(self, columns: list[str], rows: range, *, images: bool) -> Iterator[tuple[int, Any]]:
        """These columns of these rows, part by part, each with the number of its first row. `images`: read the bytes too."""

    @contextmanager
    def damage(self) -> Iterator[None]:
        """Any error of a library in this block means a damaged shard: which one depends on the damage and on the versions."""
        try:
            yield
        except (InputError, MemoryError):
            raise
        except Exception as error:
            there = self.path.exists()
            reason = f"it is incomplete or damaged ({in_short(error)})" if there else "the file does not exist"
            raise BadShardError(str(self.path), reason) from None

    def count(self) -> int:
        try:
            return self.num_rows
        except BadShardError:
            return 0

    @cached_property
    def image_column(self) -> str:
        """`image`, or the only column that holds bytes."""
        import pyarrow as pa

        def holds_bytes(kind: Any) -> bool:
            if pa.types.is_struct(kind):
                return any(field.name == BYTES_FIELD and holds_bytes(field.type) for field in kind)
            return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))

        found = [field.name for field in self.schema if holds_bytes(field.type)]
        if "image" in found or len(found) == 1:
            return "image" if "image" in found else found[0]
        what = f"several columns with bytes ({listed(found)})" if found else "no column with the bytes of images"
        raise BadShardError(str(self.path), f"it has {what}; name the one of images image (found: {listed(self.schema.names)})")

    @cached_property
    def name_columns(self) -> list[str]:
        """The column that names the items, if there is one."""
        return [name for name in NAME_COLUMNS if name in self.schema.names and name != self.image_column][:1]

    def items(self, start: int, stop: int | None) -> Iterator[ShardItem]:
        rows = range(start, self.num_rows if stop is None else min(stop, self.num_rows))
        for first, table in self.tables([*self.name_columns, self.image_column], rows, images=True):
            names = table[self.name_columns[0]].to_pylist() if self.name_columns else [None] * len(table)
            for row, (name, image) in enumerate(zip(names, table[self.image_column], strict=True), start=first):
                cell = image.as_py()
                data, path = (cell.get(BYTES_FIELD), cell.get(PATH_FIELD)) if isinstance(cell, dict) else (cell, None)
                bad = BadImageError(f"{self.path}, row {row} (from 0)", NO_IMAGE)
                yield ShardItem(self._name(row, name, path), data or bad)

    def names(self) -> list[str]:
        import pyarrow as pa
        import pyarrow.compute as pc

        kind = self.schema.field(self.image_column).type
        with_path = pa.types.is_struct(kind) and any(field.name == PATH_FIELD for field in kind)
        columns = [*self.name_columns, *([self.image_column] if with_path else [])]
        if not columns:
            return [self._name(row) for row in range(self.num_rows)]
        found = list[str]()
        for first, table in self.tables(columns, range(self.num_rows), images=False):
            cells = [table[name].to_pylist() for name in self.name_columns]
            if with_path:
                cells.append(pc.struct_field(table[self.image_column], PATH_FIELD).to_pylist())
            found += [self._name(row, *names) for row, names in enumerate(zip(*cells, strict=True), start=first)]
        return found

    def _name(self, row: int, *names: object) -> str:
        """The first name that is not empty, else the number of the row."""
        for name in names:
            text = name.decode("utf-8", "replace") if isinstance(name, bytes) else "" if name is None else str(name)
            if text:
                return printable(text)
        return f"{self.path.name}:{row}"


@dataclass(frozen=True)
class ParquetShard(ArrowShard):
    """A Parquet file, of which a few pages are read at a time, never a whole row group."""

    @cached_property
    def schema(self) -> Any:
        with self._open() as file:
            return file.schema_arrow

    @property
    def num_rows(self) -> int:
        return self._groups[-1].stop if self._groups else 0

    @cached_property
    def _groups(self) -> list[range]:
        """The rows of each row group. A file that unpacks to too much is refused here, before it is unpacked."""
        with self._open() as file:
            about = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
            bytes_, size = max((group.total_byte_size for group in about), default=0), self.path.stat().st_size
            limits, values = Limits.from_environment(), file.metadata.num_rows * file.metadata.num_columns
        unpacked = bytes_ if bytes_ > CELLS_PER_BYTE * size else 0  # images hardly shrink when they are packed
        reason = limits.too_many_cells(values, size) or limits.too_many_bytes(unpacked, "a row group, once unpacked,")
        if reason:
            raise BadShardError(str(self.path), reason.rstrip("."))
        ends = list(accumulate(group.num_rows for group in about))
        return [range(end - group.num_rows, end) for group, end in zip(about, ends, strict=True)]

    def rows_with(self, row: int) -> range:
        return self._groups[bisect_right([rows.stop for rows in self._groups], row)]

    def tables(self, columns: list[str], rows: range, *, images: bool) -> Iterator[tuple[int, Any]]:
        leaves = columns if images else [f"{name}.{PATH_FIELD}" if name == self.image_column else name for name in columns]
        with self._open() as file:
            for number, group in enumerate(self._groups):
                first, stop = max(group.start, rows.start), min(group.stop, rows.stop)
                if first >= stop:
                    continue
                mean = file.metadata.row_group(number).total_byte_size / len(group)
                size = int(min(max(CHUNK_BYTES / 4 / max(mean, 1), 1), 1024)) if images else NAMES_AT_ONCE
                at = group.start
                for batch in file.iter_batches(batch_size=size, row_groups=[number], columns=leaves):
                    here = batch.slice(max(first - at, 0), stop - max(first, at)) if at < stop else batch.slice(0, 0)
                    here.validate(full=True)
                    if len(here):
                        yield max(first, at), here
                    at += len(batch)
                    if at >= stop:
                        break
                if at < stop:
                    raise BadShardError(str(self.path), f"rows {at:,} to {stop:,} are missing")

    @contextmanager
    def _open(self) -> Iterator[Any]:
        require_pyarrow("Reading Parquet")
        import pyarrow.parquet as pq

        with self.damage(), pq.ParquetFile(self.path, buffer_size=1 << 20, pre_buffer=False) as file:
            yield file


@dataclass(frozen=True)
class SavedShard(ArrowShard):
    """A folder written by `Dataset.save_to_disk` of Hugging Face `datasets`, mapped by that library."""

    @property
    def schema(self) -> Any:
        return self._dataset.features.arrow_schema

    @property
    def num_rows(self) -> int:
        return len(self._dataset)

    def stamps(self) -> Iterator[tuple[object, ...]]:
        return map(stamp_of, sorted(self.path.glob("*")))

    @cached_property
    def _dataset(self) -> Any:
        """Its slices are Arrow tables, in which images are not decoded."""
        try:
            import datasets
        except ImportError:
            raise InputError(f"{self.path} needs Hugging Face datasets: {pip_install('datasets')}.") from None
        with self.damage():
            found = datasets.load_from_disk(str(self.path))
        if isinstance(found, datasets.DatasetDict):
            splits = " or ".join(str(self.path / name) for name in found)
            raise InputError(f"{self.path} holds several splits. Name one of them: {splits}.")
        return found.with_format("arrow")

    def tables(self, columns: list[str], rows: range, *, images: bool) -> Iterator[tuple[int, Any]]:
        for first in range(rows.start, rows.stop, SAVED_ROWS_AT_ONCE):
            with self.damage():
                table = self._dataset[first : min(first + SAVED_ROWS_AT_ONCE, rows.stop)].select(columns)
                table.validate(full=images)
            yield first, table


def is_saved(folder: Path) -> bool:
    """Whether `datasets` has saved a data set, or the splits of one, into this folder."""
    try:
        return (folder / SAVED_SPLITS).is_file() or ((folder / SAVED_STATE).is_file() and any(folder.glob("*.arrow")))
    except PermissionError:
        return False  # reading the folder gives the error


def require_pyarrow(what: str) -> None:
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise InputError(f"{what} needs the package pyarrow: {pip_install('parquet')}.") from None
