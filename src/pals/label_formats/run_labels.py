"""The current result of a finished run as plain data: what every export is made from."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pals.pipeline.finished_run import data_of, read_columns, separator_of
from pals.pipeline.item_answers import ItemAnswer, answers_of_rows
from pals.pipeline.item_order import column_of_numbers
from pals.util.errors import InputError
from pals.util.words import how_many, listed
from pals.vision.images.listing import unprintable

if TYPE_CHECKING:
    from pals.data.shards.random_access import ShardImages

MAX_LOOKED_FOR = 100
"""Items whose files are looked for to tell a folder of images from shards."""


class LabelledItem(NamedTuple):
    """One item of the result: `row` is its row of labels.csv, `answers` are all answers to it."""

    item: str
    label: str
    confidence: float
    row: dict[str, str]
    answers: list[ItemAnswer]


@dataclass(frozen=True)
class RunLabels:
    """The labels, answers and images of a run.

    Args:
        folder: The run's folder.
        classes: All classes, also those without an item.
        items: The items in the order of labels.csv.
        images: The folder or shards with the images; None where the run has none.
    """

    folder: Path
    classes: tuple[str, ...]
    items: tuple[LabelledItem, ...]
    images: str | None

    @classmethod
    def read(cls, folder: Path) -> RunLabels:
        """The current result of a run.

        Args:
            folder: The run's folder.

        Raises:
            InputError: The run is not finished, or a table of it is damaged.
        """
        if not (folder / "summary.json").is_file():
            raise InputError(f"{folder} is not a finished run of `pals fit`. Run `pals fit` first, or let it finish.")
        labels, votes = read_columns(folder, "labels.csv"), read_columns(folder, "votes.csv")
        answers, separator = defaultdict(list), separator_of(folder)
        for cells in zip(*votes.values(), strict=True):
            row = dict(zip(votes, cells, strict=True))
            answers[row["item"]].append(row)
        rows = (dict(zip(labels, cells, strict=True)) for cells in zip(*labels.values(), strict=True))
        items = (
            LabelledItem(row["item"], row["label"], confidence, row, answers_of_rows(answers[row["item"]], separator))
            for row, confidence in zip(rows, column_of_numbers(labels, "confidence").tolist(), strict=True)
        )
        images = data_of(folder).get("images")
        return cls(folder, tuple(read_columns(folder, "classes.csv")["class"]), tuple(items), images)

    @cached_property
    def _shards(self) -> tuple[ShardImages, dict[str, int]] | None:
        folder = Path(self.images or "")
        if any((folder / unprintable(item.item)).is_file() for item in self.items[:MAX_LOOKED_FOR]):
            return None
        from pals.pipeline.stages.images import shards_of  # loads torch, which a folder does not need

        shards = shards_of(self.images or "")
        return None if shards is None else (shards, {name: row for row, name in enumerate(shards.names)})

    def image(self, item: str) -> Path | bytes:
        """The file of an item's image, or its bytes where it lies in a shard; `refuse_missing_images` has checked that it is
        there."""
        if self._shards is not None:
            shards, row_of = self._shards
            return shards.encoded(row_of[item])
        return Path(self.images or "").resolve() / unprintable(item)

    def refuse_missing_images(self, otherwise: str) -> None:
        """Raise an InputError that names the images that are not there.

        Args:
            otherwise: What can be done without images.
        """
        if self.images is None:
            raise InputError(f"{self.folder} was fitted without images, which this format needs; {otherwise}.")
        there = set[str]() if self._shards is None else self._shards[1].keys()
        names = [item.item for item in self.items]
        if self._shards is None:
            there = {name for name in names if Path(self.image(name)).is_file()}  # type: ignore[arg-type]
        missing = [name for name in names if name not in there]
        if missing:
            count = how_many(len(missing), "image is", "images are")
            raise InputError(f"{count} not in {self.images}: {listed(missing, 3)}. Put them back, or {otherwise}.")
