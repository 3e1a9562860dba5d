"""Data sets that Hugging Face `datasets` has saved into a folder (`save_to_disk`), mapped from there by that library."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pals.data.shards.arrow_columns import PATH, ArrowShard, holds_paths, image_column, item_name, items_of, name_column
from pals.data.shards.shard import BadShardError, Item, stamp_of
from pals.util.errors import InputError
from pals.util.words import pip_install

STATE, SPLITS = "state.json", "dataset_dict.json"
"""What `save_to_disk` writes beside the data, of one data set and of several splits."""
ROWS = 64
"""Rows that are looked at together."""


def is_saved(folder: Path) -> bool:
    """Whether it holds a saved data set, or the splits of one. A folder that cannot be read does not."""
    try:
        return (folder / SPLITS).is_file() or ((folder / STATE).is_file() and any(folder.glob("*.arrow")))
    except PermissionError:
        return False  # whoever reads it says why it cannot be


@dataclass(frozen=True)
class SavedDataset(ArrowShard):
    """The folder of a data set with a column of pictures; any row of it is one read away."""

    @property
    def rows(self) -> int:
        return len(self._rows)

    def names(self) -> list[str]:
        """Of all items; their pictures are not read."""
        import pyarrow.compute as pc

        found = list[str]()
        with self._damage():
            for rows in self._steps(0, len(self._rows)):
                table = self._rows[rows.start : rows.stop]
                named = [] if self._name is None else [table[self._name].to_pylist()]
                if holds_paths(table[self._image].type):
                    named.append(pc.struct_field(table[self._image], PATH).to_pylist())
                found += [item_name(self.path, row, names) for row, *names in zip(rows, *named, strict=True)]
        return found

    def read(self, row: int) -> Item:
        return next(self._items(row, row + 1))

    def stamps(self) -> Iterator[tuple[object, ...]]:
        for path in sorted(self.path.glob("*")):
            yield stamp_of(path)

    @cached_property
    def _rows(self) -> Any:
        """Slices of it are Arrow tables, in which pictures are not decoded."""
        try:
            import datasets
        except ImportError:
            raise InputError(
                f"{self.path} was saved by Hugging Face datasets, which is not installed: {pip_install('datasets')}."
            ) from None
        with self._damage():
            found = datasets.load_from_disk(str(self.path))
        if isinstance(found, datasets.DatasetDict):
            splits = " or ".join(str(self.path / name) for name in found)
            raise InputError(f"{self.path} holds several splits. Name one of them: {splits}.")
        return found.with_format("arrow")

    @cached_property
    def _image(self) -> str:
        return image_column(self._rows.features.arrow_schema, self.path)

    @cached_property
    def _name(self) -> str | None:
        return name_column(self._rows.features.arrow_schema, self._image)

    def _items(self, start: int, stop: int) -> Iterator[Item]:
        for rows in self._steps(start, stop):
            with self._damage():
                table = self._rows[rows.start : rows.stop]
                table.validate(full=True)
            yield from items_of(self.path, rows, table[self._image], None if self._name is None else table[self._name])

    def _steps(self, start: int, stop: int) -> Iterator[range]:
        for first in range(start, stop, ROWS):
            yield range(first, min(first + ROWS, stop))

    @contextmanager
    def _damage(self) -> Iterator[None]:
        """Which errors there are depends on what is damaged, and on the versions of two libraries."""
        try:
            yield
        except InputError:
            raise
        except Exception as error:
            reason = " ".join(str(error).split())[:120].rstrip(".") or type(error).__name__
            raise BadShardError(str(self.path), f"the saved data set is incomplete or damaged ({reason})") from None
