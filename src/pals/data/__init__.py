"""Data sets by name, read from local files.

Items, truth and, if there are any, people's answers. `download` is the only place that goes online, and only when asked.
Training settings are in `runs.published_settings`; items that do not fit in memory are in `shards`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from pals.data.cifar import load_cifar10, load_cifar10n, load_cifar100, load_cifar100h
from pals.data.crowd_sets import CROWDS
from pals.data.cub import load_cub200
from pals.data.dataset import Dataset, Items, Load, Loader
from pals.data.digits import load_digits_data
from pals.data.row_source import FileImages, Inputs, ItemSource, open_array
from pals.data.weights_file import find_weights
from pals.util.config import build
from pals.util.errors import InputError, unknown
from pals.util.registry import Registry

__all__ = [
    "DATASETS",
    "SHARED",
    "Dataset",
    "FileImages",
    "Inputs",
    "ItemSource",
    "Items",
    "Load",
    "Loader",
    "dataset_loader",
    "dataset_options",
    "find_weights",
    "load_dataset",
    "open_array",
]

SEED = 42
SHARED = ("name", "partial_rate", "noise_rate", "protocol", "draws", "seed", "supervision", "votes")
"""Settings of the section `data` that are not a data set's own."""


def _check(name: str, load: Any) -> None:
    if not callable(load) or (isinstance(load, type) and not issubclass(load, Loader)):
        raise InputError(
            f"The data set {name!r} is {load!r}, neither a function load(data_dir=None) nor a subclass of pals.Loader."
        )
    taken = [option for option in _options(load) if option in SHARED]
    if taken:
        raise InputError(f"The data set {name!r} has an option {taken[0]!r}, which all data sets have. Rename it.")


def _class(load: Any) -> type[Loader] | None:
    return load if isinstance(load, type) and issubclass(load, Loader) else None


def _options(load: Load) -> tuple[str, ...]:
    made_by = _class(load)
    return () if made_by is None else tuple(field.name for field in fields(made_by.Config))


_BUILT_IN: dict[str, Load] = {
    "digits": load_digits_data,
    "cifar10": load_cifar10,
    "cifar100": load_cifar100,
    "cifar100h": load_cifar100h,
    "cifar10n": load_cifar10n,
    "cub200": load_cub200,
    **CROWDS,
}
DATASETS: Registry[Load] = Registry("data set", "pals.datasets", _BUILT_IN, _check)


def dataset_options(name: str) -> tuple[str, ...]:
    """Names of the options that this data set has of its own."""
    return _options(DATASETS[name]) if name in DATASETS else ()


def dataset_loader(name: str, options: Mapping[str, Any]) -> Loader | None:
    """The loader of this data set with its options checked, or None: one without options, or of which nothing is known here."""
    if name not in DATASETS and not options:
        return None
    load = DATASETS.find(name)
    _refuse_unknown(name, load, options)
    made_by = _class(load)
    return None if made_by is None else made_by(build(made_by.Config, options, "data"))


def _refuse_unknown(name: str, load: Load, options: Mapping[str, Any]) -> None:
    """An option that another data set has is worth a word."""
    for option in options:
        if option in _options(load):
            continue
        having = sorted(other for other in DATASETS if option in _options(DATASETS[other]))
        if having:
            whose = ", ".join(having)
            raise InputError(f"Setting data.{option} is not an option of the data set {name}, but of {whose}. Remove it.")
        raise unknown("setting", f"data.{option}", [f"data.{known}" for known in (*SHARED[:-1], *_options(load))])


def load_dataset(name: str, *, data_dir: Path | None = None, seed: int = SEED, **options: Any) -> Dataset:
    """The data set with this name. `data_dir` is the user's data folder, for sets that do not come with a package. An option
    that the set does not have is an error; `seed` is for sets that draw something, and has no effect on others."""
    load: Any = DATASETS.find(name)
    loader = dataset_loader(name, options)
    made: Dataset = load(data_dir=data_dir) if loader is None else loader.load(data_dir, seed)
    return made
