"""A Parquet file, column by column. Its size is looked at before anything is unpacked, and text that stands in the file once
is held in memory once, however many rows repeat it."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from pals.readers.limits import Limits
from pals.readers.parquet_footer import claimed
from pals.util.words import pip_install, quoted

INDEX = "__index_level_"
"""How pandas calls a nameless index that it stores as a column."""


class ParquetError(Exception):
    """What is wrong with the file, and what to do: "found. remedy"."""


class Parquet:
    """The columns of one file. Those that stand for pandas' index come first, as in the frame that was written."""

    def __init__(self, data: bytes, limits: Limits) -> None:
        self.data, self.limits = data, limits
        with damage():
            import pyarrow.parquet as pq

            self.claim = claimed(data)
            self.file = pq.ParquetFile(io.BytesIO(data))
            self.raw = self._in_order()
        self.rows = self.claim.rows
        reason = limits.too_many_cells(max(self.claim.values, self.rows * len(self.raw)), len(data))
        if reason:
            raise ParquetError(reason)

    def _in_order(self) -> list[str]:
        """The names of the columns as the file has them."""
        schema = self.file.schema_arrow
        index = [name for name in (schema.pandas_metadata or {}).get("index_columns", []) if isinstance(name, str)]
        return [*(name for name in index if name in schema.names), *(name for name in schema.names if name not in index)]

    @cached_property
    def names(self) -> list[str]:
        """The names of the columns for people."""
        return ["index" if name.startswith(INDEX) else name.strip() for name in self.raw]

    @cached_property
    def place(self) -> dict[str, str]:
        """What the file calls the column that people know by this name."""
        return dict(zip(self.names, self.raw, strict=True))

    def columns(self, names: Sequence[str]) -> list[tuple[np.ndarray, list[Any]]]:
        """(code_R, values) of each column: every row's number among the different values, -1 where there is none."""
        import pyarrow.parquet as pq

        raw = [self.place[name] for name in names]
        with damage():
            for name in raw:
                if _is_nested(self.file.schema_arrow.field(name).type):
                    raise ParquetError(f"the column {quoted(name)} holds lists or objects. A name is a text or a number.")
            table = pq.ParquetFile(io.BytesIO(self.data), read_dictionary=raw).read(columns=raw)
            table.validate(full=True)  # text that is not UTF-8, numbers that lead out of the file
            if table.num_rows != self.rows:
                raise ParquetError(f"there are {table.num_rows:,} rows where {self.rows:,} are claimed. Write it again.")
            return [_coded(table.column(name)) for name in raw]

    def records(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """These columns row by row, as JSON would have them."""
        raw = {self.place[name]: name for name in names}
        rows: list[dict[str, Any]] = []
        held = 0
        with damage():
            for batch in self.file.iter_batches(batch_size=self._rows_at_once(), columns=list(raw)):
                batch.validate(full=True)
                held += batch.nbytes
                reason = self.limits.too_many_bytes(held, "the table, once it is unpacked,")
                if reason:
                    raise ParquetError(reason)
                rows += [{raw[key]: _plain(value) for key, value in row.items()} for row in batch.to_pylist()]
        return rows

    def _rows_at_once(self) -> int:
        """So few that even if every cell were as large as its whole column, they could be held."""
        return int(min(max(self.limits.bytes // max(self.claim.largest, 1), 1), 65_536))


@contextmanager
def damage() -> Iterator[None]:
    """A damaged file can raise anything."""
    try:
        yield
    except (ParquetError, MemoryError):
        raise
    except ImportError:
        raise ParquetError(
            f"reading Parquet needs the package pyarrow. Run {pip_install('parquet')}, or export the file as CSV."
        ) from None
    except UnicodeDecodeError:
        raise ParquetError("it holds text that is not UTF-8. Write it again, with text columns as UTF-8.") from None
    except Exception as error:
        reason = str(error).strip().partition("\n")[0].rstrip(".")[:120]
        if "UTF8" in reason:
            raise ParquetError("it holds text that is not UTF-8. Write it again, with text columns as UTF-8.") from None
        raise ParquetError(f"the Parquet file is truncated or damaged ({reason}). Write it again.") from None


def _coded(cells: Any) -> tuple[np.ndarray, list[Any]]:
    """A column as numbers and their different values; text that stands in the file once is not written out for every row."""
    import pyarrow as pa

    if not pa.types.is_dictionary(cells.type):
        cells = cells.dictionary_encode()
    chunks = cells.unify_dictionaries().chunks
    if not chunks:
        return np.empty(0, dtype=np.int64), []
    codes = [chunk.indices.fill_null(-1).to_numpy(zero_copy_only=False) for chunk in chunks]
    return np.concatenate(codes).astype(np.int64), [_text(value) for value in chunks[0].dictionary.to_pylist()]


def _is_nested(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_nested(kind))


def _text(value: Any) -> Any:
    """Bytes as the text they hold."""
    return value.decode("utf-8") if isinstance(value, bytes) else value


def _plain(value: Any) -> Any:
    """A cell as JSON would have it; pyarrow gives maps as lists of pairs, which no reader takes for votes."""
    if isinstance(value, list):
        return [_plain(entry) for entry in value]
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    return None if value is pd.NaT else _text(value)
