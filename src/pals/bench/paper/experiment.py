"""What a recipe is: one cell of one table, as the settings of its runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pals.bench.paper.published import Published
from pals.runs.run_config import RunConfig, checked_seed, shortened
from pals.util.config import merge


@dataclass(frozen=True)
class Recipe:
    """One number of one table. Recipes that are the same run share its folder, whatever tables they are in."""

    name: str
    "Unique, what people type: table1/cifar10-q0.1-eta0.1/pals."
    table: str
    '"1" to "7", "figure2", "timing", or a study of ours.'
    row: str
    "As printed: PALS, ALIM-Scale; in table 7 K = 10."
    column: str
    "As printed: CIFAR-10, q=0.1, eta=0.1."
    group: str
    "The heading above columns (CIFAR-10) or, in table 7, above rows (K)."
    cell: str
    "The data, as the name of a folder: cifar10-q0.1-eta0.1-g1."
    variant: str
    "The method and what differs from its published settings, as the name of a folder: pals-K10."
    values: Mapping[str, Any] = field(hash=False)
    "Settings that the defaults of the data set and the method do not already have."
    published: Published | None = None
    "None: nothing is published."
    epochs: int | None = None
    "Of a study with a schedule of its own; None: the method's full one."
    parts: int = 1
    "Equally long phases into which the epochs of a study are divided: a warm-up counts too."
    slices: int = 0
    "Where the data have several splits: how many. Seed 1 takes the first, and so on, round and round."
    note: str = ""
    "What a reader should know of the settings."

    @property
    def method(self) -> str:
        """Its name in the registry."""
        return str(self.values["method"]["name"])

    @cached_property
    def _configs(self) -> dict[tuple[int, int | None], RunConfig]:
        """Checked settings by slice and length, with any seed: to check them takes milliseconds, and many places need them."""
        return {}

    @property
    def full_epochs(self) -> int:
        """The length of the method's full schedule."""
        return self._full(1 if self.slices else 0).train.epochs

    def _full(self, part: int) -> RunConfig:
        if (part, None) not in self._configs:
            values = merge(self.values, {"data": {"slice": part}}) if part else self.values
            self._configs[part, None] = RunConfig.of(values)
        return self._configs[part, None]

    def length(self, epochs: int | None = None) -> int:
        """`train.epochs` of a run for which so many are asked; None: as many as the recipe says."""
        asked = epochs if epochs is not None else self.epochs
        return self.full_epochs if asked is None else -(-asked // self.parts)

    def config(self, seed: int, epochs: int | None = None, extra: Mapping[str, Any] | None = None) -> RunConfig:
        """The settings of the run of this seed. Fewer epochs than the full schedule has make all of it shorter, and `extra`
        wins over everything."""
        part = (seed - 1) % self.slices + 1 if self.slices else 0
        config, length = self._full(part), self.length(epochs)
        if length != self.full_epochs:
            if (part, length) not in self._configs:
                self._configs[part, length] = RunConfig.of(shortened(config.to_dict(), length))
            config = self._configs[part, length]
        config = replace(config, seed=checked_seed(seed))
        return RunConfig.of(merge(config.to_dict(), extra)) if extra else config

    def folder(self, base: Path, seed: int, epochs: int | None = None) -> Path:
        """Where the run of this seed lies: full and shortened schedules apart."""
        length = self.length(epochs)
        schedule = "full" if length == self.full_epochs else f"epochs-{length}"
        return base / self.cell / self.variant / schedule / f"seed-{seed}"
