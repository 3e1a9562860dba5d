"""Parquet files with the bytes of pictures, read a few pages at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

from pals.data.shards.arrow_columns import PATH, ArrowShard, holds_paths, image_column, item_name, items_of, name_column
from pals.data.shards.shard import CHUNK_BYTES, BadShardError, Item, stamp_of
from pals.readers.limits import CELLS_PER_BYTE, Limits
from pals.readers.parquet import ParquetError, damage
from pals.readers.parquet_footer import Claim, claimed_by
from pals.util.errors import InputError
from pals.util.words import pip_install

NAMES_AT_ONCE = 8192
"""Rows whose names are read at a time."""


@dataclass(frozen=True)
class ParquetShard(ArrowShard):
    """A Parquet file with the bytes of a picture in each row, as they are or as Hugging Face datasets writes them."""

    @property
    def rows(self) -> int:
        return self._claim.rows

    @cached_property
    def _claim(self) -> Claim:
        """Looked at before anything is unpacked."""
        with self._damage():
            claim, size, limits = claimed_by(self.path), self.path.stat().st_size, Limits.from_environment()
        unpacked = claim.largest if claim.largest > CELLS_PER_BYTE * size else 0  # pictures hardly shrink when they are packed
        reason = limits.too_many_cells(claim.values, size) or limits.too_many_bytes(unpacked, "a column, once unpacked,")
        if reason:
            raise BadShardError(str(self.path), reason.rstrip("."))
        return claim

    @contextmanager
    def _damage(self) -> Iterator[None]:
        try:
            with damage():
                yield
        except ParquetError as error:
            absent = not self.path.exists()
            raise BadShardError(str(self.path), "the file does not exist" if absent else str(error).rstrip(".")) from None

    def groups(self) -> list[range]:
        """The rows of each row group, which is the least that can be read at a time."""
        ends = list(accumulate(self._claim.groups))
        return [range(end - rows, end) for rows, end in zip(self._claim.groups, ends, strict=True)]

    def read(self, rows: range) -> list[Item]:
        """The items of these rows."""
        return list(self._items(rows.start, rows.stop))

    def names(self) -> list[str]:
        """Of all items; the bytes of their pictures are not read."""
        found, first = list[str](), 0
        with self._open() as file:
            image = image_column(file.schema_arrow, self.path)
            name, has_path = name_column(file.schema_arrow, image), holds_paths(file.schema_arrow.field(image).type)
            columns = [*([] if name is None else [name]), *([f"{image}.{PATH}"] if has_path else [])]
            for group, rows in enumerate(self._claim.groups):
                for at, batch in self._batches(file, group, range(first, first + rows), columns, NAMES_AT_ONCE):
                    with self._damage():
                        batch.validate(full=True)
                        cells = [column.to_pylist() for column in batch.columns]
                    if has_path:
                        cells[-1] = [None if cell is None else cell[PATH] for cell in cells[-1]]
                    here = range(at, at + len(batch))
                    found += [item_name(self.path, row, names) for row, *names in zip(here, *cells, strict=True)]
                first += rows
        return found

    def stamps(self) -> Iterator[tuple[object, ...]]:
        yield stamp_of(self.path)

    def _items(self, start: int, stop: int) -> Iterator[Item]:
        with self._open() as file:
            column = image_column(file.schema_arrow, self.path)
            first = 0
            for group, rows in enumerate(self._claim.groups):
                if first < stop and start < first + rows:
                    yield from self._group(file, group, column, range(first, first + rows), range(start, stop))
                first += rows

    def _group(self, file: Any, group: int, column: str, rows: range, wanted: range) -> Iterator[Item]:
        name = name_column(file.schema_arrow, column)
        columns = [column] if name is None else [column, name]
        mean = self._claim.largest / max(self._claim.groups)
        batch_size = int(min(max(CHUNK_BYTES / 4 / max(mean, 1), 1), 1024))
        for at, batch in self._batches(file, group, rows, columns, batch_size):
            here = range(max(at, wanted.start), min(at + len(batch), wanted.stop))
            if here:
                with self._damage():
                    batch.validate(full=True)
                part = batch.slice(here.start - at, len(here))
                yield from items_of(self.path, here, part.column(0), None if name is None else part.column(1))
            if at + len(batch) >= wanted.stop:
                return

    @contextmanager
    def _open(self) -> Iterator[Any]:
        """The file, of which a few pages of a row group are read at a time, never a whole one."""
        require_pyarrow("Reading Parquet")
        import pyarrow.parquet as pq

        self._claim  # noqa: B018 (refuses what must not be opened)
        with self._damage():
            file = pq.ParquetFile(self.path, buffer_size=1 << 20, pre_buffer=False)
        with file:
            yield file

    def _batches(self, file: Any, group: int, rows: range, columns: list[str], size: int) -> Iterator[tuple[int, Any]]:
        """These columns of a row group in batches, each with the number of its first row. Raises if rows are missing."""
        at = rows.start
        with self._damage():
            for batch in file.iter_batches(batch_size=size, row_groups=[group], columns=columns):
                yield at, batch
                at += len(batch)
            if at != rows.stop:
                raise ParquetError(f"there are {at - rows.start:,} rows where {len(rows):,} are claimed. Write it again.")


def require_pyarrow(what: str) -> None:
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise InputError(f"{what} needs the package pyarrow: {pip_install('parquet')}.") from None
