"""The experiments of the paper and of our studies: one for each number of a table, with the settings of its runs.

They are data, in `experiments.yaml` beside this file, read when first asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache, cached_property
from importlib.resources import files
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import yaml

from pals.bench.paper.published import Published, published
from pals.data.crowd_sets import SLICES
from pals.runs.published_settings import settings_by_rates
from pals.runs.run_config import RunConfig, checked_seed, shortened
from pals.util.config import merge
from pals.util.errors import InputError, unknown


@dataclass(frozen=True)
class Experiment:
    """One number of one table. Experiments with the same settings share their runs, whatever tables they are in.

    >>> experiment = find("table1/cifar10-q0.1-eta0.1/pals")
    >>> experiment.row, experiment.column, str(experiment.published)
    ('PALS', 'CIFAR-10, q=0.1, eta=0.1', '96.28 ± 0.05')
    >>> experiment.folder(Path("runs"), seed=1, epochs=50).as_posix()
    'runs/cifar10-q0.1-eta0.1-g1/pals/epochs-50/seed-1'
    """

    name: str
    "Unique, as given to `pals bench`: table1/cifar10-q0.1-eta0.1/pals."
    table: str
    '"1" to "7", "figure2", "timing", a study of ours, or "grid".'
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
    phases: int = 1
    "Equally long phases into which the epochs of a study are divided: a warm-up counts too."
    slices: int = 0
    "Number of splits of the data, 0 for one. Seed 1 takes the first split, and so on, cyclically."
    note: str = ""
    "A remark on the settings, for readers of a table."

    @property
    def method(self) -> str:
        """Its registered name."""
        return str(self.values["method"]["name"])

    @cached_property
    def full(self) -> RunConfig:
        """The settings with the method's full schedule and seed 1."""
        return RunConfig.of(self.values)

    @cached_property
    def _checked(self) -> dict[tuple[int, int], RunConfig]:
        """Settings by split and length, with any seed: checking them takes milliseconds, and many places need them."""
        return {(0, self.full.train.epochs): self.full}

    def length(self, epochs: int | None = None) -> int:
        """`train.epochs` of a run.

        Args:
            epochs: of a shortened schedule, all phases together; by default the experiment's own.
        """
        epochs = self.epochs if epochs is None else epochs
        return self.full.train.epochs if epochs is None else -(-epochs // self.phases)

    def config(self, seed: int, epochs: int | None = None, extra: Mapping[str, Any] | None = None) -> RunConfig:
        """The settings of one run.

        Args:
            seed: of the run; with several splits of the data it also chooses the split.
            epochs: as for `length`; a shorter schedule is shortened in all its parts.
            extra: settings that win over all others.

        Raises:
            InputError: if `extra` has an unknown setting or a wrong value.
        """
        part, length = (seed - 1) % self.slices + 1 if self.slices else 0, self.length(epochs)
        if (part, length) not in self._checked:
            values = merge(self.full.to_dict(), {"data": {"slice": part}} if part else {})
            shorter = values if length == self.full.train.epochs else shortened(values, length)
            self._checked[part, length] = RunConfig.of(shorter)
        config = replace(self._checked[part, length], seed=checked_seed(seed))
        return RunConfig.of(merge(config.to_dict(), extra)) if extra else config

    def folder(self, base: Path, seed: int, epochs: int | None = None) -> Path:
        """The folder of one run below `base`; full and shortened schedules have folders of their own."""
        length = self.length(epochs)
        schedule = "full" if length == self.full.train.epochs else f"epochs-{length}"
        return base / self.cell / self.variant / schedule / f"seed-{seed}"


class _Cell(NamedTuple):
    """The data of a column."""

    group: str
    column: str
    name: str
    folder: str
    settings: dict[str, Any]
    rates: tuple[float, float] | None
    "Partial and noise rate of made candidate sets; None: they are people's answers."


@cache
def _content() -> Mapping[str, Any]:
    text = files("pals.bench.paper").joinpath("experiments.yaml").read_text(encoding="utf-8")
    content: Mapping[str, Any] = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return content


@cache
def experiments() -> Mapping[str, Experiment]:
    """All experiments by name, in the order of the paper."""
    found: dict[str, Experiment] = {}
    for table, blocks in _content()["tables"].items():
        for block in blocks:
            for row in block["rows"]:
                for cell in _cells(block["cells"]):
                    experiment = _experiment(table, block, {"method": row} if isinstance(row, str) else row, cell)
                    assert experiment.name not in found, experiment.name
                    found[experiment.name] = experiment
    return MappingProxyType(found)


def table_names() -> tuple[str, ...]:
    """The tables in their order: "1" to "7", "figure2", "timing", "partial-check", "noisy-comparison"."""
    return tuple(_content()["tables"])


def _cells(listed: Iterable[Mapping[str, Any]]) -> Iterator[_Cell]:
    for given in listed:
        data, printed = given["data"], _content()["data_sets"][given["data"]]
        if "annotators" in given:
            count = given["annotators"]
            name, group = f"{data}-{count}annotators", _content()["crowds"][count]
            yield _Cell(group, f"{printed}, {count} annotators", name, name, {"name": data, "answers": count}, None)
            continue
        for q, eta in product(given["q"], given["eta"]):
            name = f"{data}-q{q:g}-eta{eta:g}"
            # The sets that the authors' generator draws: all methods and seeds share them.
            settings = {"name": data, "partial_rate": q, "noise_rate": eta, "protocol": "g1", "draws": "official"}
            yield _Cell(printed, f"{printed}, q={q:g}, eta={eta:g}", name, f"{name}-g1", settings, (q, eta))


def _experiment(table: str, block: Mapping[str, Any], row: Mapping[str, Any], cell: _Cell) -> Experiment:
    method = row["method"]
    printed = row.get("row") or _content()["methods"][method]
    group, column = row.get("group", cell.group), row.get("column", cell.column)
    by_rates = settings_by_rates(method, cell.settings["name"], *cell.rates).settings if cell.rates else {}
    name = f"{f'table{table}' if table.isdigit() else table}/{cell.name}/{row.get('last', method)}"
    return Experiment(
        name=row.get("name", name),
        table=table,
        row=printed,
        column=column,
        group=group,
        cell=cell.folder,
        variant=row.get("variant", method + row.get("suffix", "")),
        values=merge(
            {"data": cell.settings, "method": {"name": method}},
            by_rates,
            block.get("settings", {}),
            row.get("settings", {}),
            row.get("in", {}).get(cell.name, {}),
        ),
        published=published(table, group, printed, column),
        epochs=block.get("epochs"),
        phases=row.get("phases", 1),
        slices=0 if cell.rates else len(SLICES),
        note=row["note"] if "note" in row else _note(method, cell),
    )


def _note(method: str, cell: _Cell) -> str:
    """The remark on a method's settings in a cell; empty where there is none."""
    data, notes = cell.settings["name"], _content()["notes"].get(method, {})
    if data in notes or cell.rates is None:
        return str(notes.get(data, ""))
    rates = settings_by_rates(method, data, *cell.rates).rates
    if method == "fredis" and rates is not None and rates != cell.rates:
        return f"Its authors give no settings for these rates; these are for q={rates[0]:g}, eta={rates[1]:g}."
    return str(notes.get("made", ""))


def find(name: str) -> Experiment:
    """An experiment by its name.

    Args:
        name: for example "table1/cifar10-q0.1-eta0.1/pals".

    Raises:
        InputError: if there is none; it names the nearest one.
    """
    if name not in experiments():
        raise no_experiment(name, experiments())
    return experiments()[name]


def no_experiment(name: str, known: Iterable[str]) -> InputError:
    """The error for an unknown name; there are too many names to list them all."""
    near = get_close_matches(name, list(known), n=1, cutoff=0.5)
    hint = f": did you mean {near[0]!r}?" if near else "."
    return InputError(f"No recipe is called {name!r}{hint} See `pals recipes`; `pals bench` takes patterns, such as '*/pals'.")


def select(
    table: str | int | None = None, methods: Sequence[str] | None = None, cells: Sequence[str] | None = None
) -> list[Experiment]:
    """The experiments of a table, in the order of the paper.

    Args:
        table: one of `table_names()`; by default all.
        methods: as for `narrowed`.
        cells: as for `narrowed`.

    Raises:
        InputError: if there is no such table, method or cell.

    >>> [experiment.row for experiment in select(2, cells=["*-q0.1-*"])]
    ['RC', 'LWS', 'PiCO', 'CRDPLL', 'PiCO+', 'PALS']
    """
    if table is not None and str(table) not in table_names():
        raise unknown("table", table, table_names())
    return narrowed([one for one in experiments().values() if table is None or one.table == str(table)], methods, cells)


def narrowed(
    listed: Iterable[Experiment], methods: Sequence[str] | None = None, cells: Sequence[str] | None = None
) -> list[Experiment]:
    """Those of the experiments that are of some methods and cells.

    Args:
        listed: experiments to choose from.
        methods: names as printed ("PALS") or as registered ("alim-scale"), in any case; by default all.
        cells: patterns ("cifar10-*") for the folder or the printed column, in any case; by default all.

    Raises:
        InputError: if a method or pattern fits none.
    """
    found = list(listed)
    for method in methods or ():
        if method.lower() not in {name for one in found for name in _names(one)}:
            raise unknown("method", method, {one.row for one in found} | {one.method for one in found})
    if methods:
        wanted = {method.lower() for method in methods}
        found = [one for one in found if wanted & _names(one)]
    for pattern in cells or ():
        if not any(_is_of(one, pattern) for one in found):
            known = ", ".join(dict.fromkeys(one.cell for one in found))
            raise InputError(f"No cell is called {pattern!r}. These are there: {known}.")
    return [one for one in found if not cells or any(_is_of(one, pattern) for pattern in cells)]


def _names(experiment: Experiment) -> set[str]:
    return {experiment.row.lower(), experiment.method}


def _is_of(experiment: Experiment, pattern: str) -> bool:
    return any(fnmatchcase(name.lower(), pattern.lower()) for name in (experiment.cell, experiment.column))
