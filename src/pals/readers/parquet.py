"""A Parquet file by columns. Its claimed size is checked before anything is unpacked; a text that is stored once takes memory
once, however many rows repeat it."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pals.readers.limits import Limits
from pals.util.errors import InputError
from pals.util.words import pip_install, quoted

INDEX_PREFIX = "__index_level_"
"""Beginning of the name that pandas gives to a nameless index stored as a column."""


class Parquet:
    """The columns of one file. Those that hold pandas' index come first, as in the frame that was written.

    Args:
        path: The file, for messages.
        data: Content of the file.
        limits: How much the file may claim to hold.

    Raises:
        InputError: The file is damaged, claims too much, or pyarrow is missing.
    """

    def __init__(self, path: Path, data: bytes, limits: Limits) -> None:
        self.path, self.data, self.limits = path, data, limits
        with self._refusing_damage():
            import pyarrow.parquet as pq

            self.file = pq.ParquetFile(io.BytesIO(data))
            # The metadata of single columns is not read: where it is damaged, pyarrow aborts the whole program.
            groups = [self.file.metadata.row_group(number) for number in range(self.file.num_row_groups)]
            self.rows: int = max(self.file.metadata.num_rows, sum(group.num_rows for group in groups), 0)
            self.group_bytes: int = max((group.total_byte_size for group in groups), default=0)
            schema = self.file.schema_arrow
            index = [name for name in (schema.pandas_metadata or {}).get("index_columns", []) if isinstance(name, str)]
        self.raw = [*(name for name in index if name in schema.names), *(name for name in schema.names if name not in index)]
        self._refuse_if(limits.too_many_cells(self.rows * len(self.raw), len(data)))

    @cached_property
    def names(self) -> list[str]:
        """The names of the columns as users know them."""
        return ["index" if name.startswith(INDEX_PREFIX) else name.strip() for name in self.raw]

    @cached_property
    def raw_names(self) -> dict[str, str]:
        """The name in the file of each of `names`."""
        return dict(zip(self.names, self.raw, strict=True))

    def columns(self, names: Sequence[str]) -> list[tuple[np.ndarray, list[Any]]]:
        """(code_R, values) of each column: the number of every row's value among the different values, -1 for none."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        raw = [self.raw_names[name] for name in names]
        with self._refusing_damage():
            for name in raw:
                if pa.types.is_nested(self.file.schema_arrow.field(name).type):
                    self._refuse_if(f"the column {quoted(name)} holds lists or objects. A name is a text or a number.")
            table = pq.ParquetFile(io.BytesIO(self.data), read_dictionary=raw).read(columns=raw)
            table.validate(full=True)  # text that is not UTF-8, offsets outside the file
            if table.num_rows != self.rows:
                self._refuse_if(f"there are {table.num_rows:,} rows where {self.rows:,} are claimed. Write it again.")
            return [_coded(table.column(name)) for name in raw]

    def records(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """These columns row by row, as JSON would have them."""
        raw = {self.raw_names[name]: name for name in names}
        rows: list[dict[str, Any]] = []
        unpacked = 0
        # Even if every cell were as large as its whole row group, one batch stays below the limit.
        batch_size = int(min(max(self.limits.bytes // max(self.group_bytes, 1), 1), 65_536))
        with self._refusing_damage():
            for batch in self.file.iter_batches(batch_size=batch_size, columns=list(raw)):
                batch.validate(full=True)
                unpacked += batch.nbytes
                self._refuse_if(self.limits.too_many_bytes(unpacked, "the table, once it is unpacked,"))
                rows += [{raw[key]: _as_json(value) for key, value in row.items()} for row in batch.to_pylist()]
        return rows

    def _refuse_if(self, reason: str | None) -> None:
        if reason:
            raise InputError(f"{self.path}: {reason}")

    @contextmanager
    def _refusing_damage(self) -> Iterator[None]:
        """Any error of pyarrow as an `InputError`: a damaged file can raise every type."""
        try:
            yield
        except (InputError, MemoryError):
            raise
        except ImportError:
            hint = f"Run {pip_install('parquet')}, or export the file as CSV."
            raise InputError(f"{self.path}: reading Parquet needs the package pyarrow. {hint}") from None
        except Exception as error:
            reason = str(error).strip().partition("\n")[0].rstrip(".")[:120]
            if isinstance(error, UnicodeDecodeError) or "UTF8" in reason:
                reason = "it holds text that is not UTF-8. Write it again, with text columns as UTF-8."
            else:
                reason = f"the Parquet file is truncated or damaged ({reason}). Write it again."
            raise InputError(f"{self.path}: {reason}") from None


def _coded(cells: Any) -> tuple[np.ndarray, list[Any]]:
    """A column as numbers of its different values; a text that is stored once is not repeated for every row."""
    import pyarrow as pa

    if not pa.types.is_dictionary(cells.type):
        cells = cells.dictionary_encode()
    chunks = cells.unify_dictionaries().chunks
    if not chunks:
        return np.empty(0, dtype=np.int64), []
    codes = [chunk.indices.fill_null(-1).to_numpy(zero_copy_only=False) for chunk in chunks]
    return np.concatenate(codes).astype(np.int64), [_decoded(value) for value in chunks[0].dictionary.to_pylist()]


def _decoded(value: Any) -> Any:
    return value.decode("utf-8") if isinstance(value, bytes) else value


def _as_json(value: Any) -> Any:
    """A cell as JSON would have it; pyarrow returns maps as lists of pairs, which no reader takes for votes."""
    if isinstance(value, list):
        return [_as_json(entry) for entry in value]
    if isinstance(value, dict):
        return {key: _as_json(entry) for key, entry in value.items()}
    return None if value is pd.NaT else _decoded(value)
