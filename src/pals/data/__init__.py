"""Data sets by name, read from local files: items, truth and perhaps annotators' answers.

Only `download` goes online, and only for `pals data fetch`. Training settings are in `runs.published_settings`; items that do
not fit in memory are in `shards`.

Shape letters: N items, C classes, H height, W width, A answers per image, M some of the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from pals.data.cifar import load_cifar10, load_cifar10n, load_cifar100, load_cifar100h
from pals.data.crowd_sets import CROWDS
from pals.data.cub import load_cub200
from pals.data.dataset import Dataset, Load, Loader
from pals.data.digits import load_digits_data
from pals.util.config import build
from pals.util.errors import InputError, unknown
from pals.util.registry import Registry

__all__ = ["DATASETS", "SHARED", "dataset_loader", "load_dataset"]

DRAWS_SEED = 42
SHARED = ("name", "partial_rate", "noise_rate", "protocol", "draws", "seed", "supervision", "votes")
"""Settings of the section `data` that all data sets have."""


def _check(name: str, load: Any) -> None:
    if not callable(load) or (isinstance(load, type) and not issubclass(load, Loader)):
        raise InputError(f"The data set {name!r} is {load!r}, neither load(data_dir=None) nor a subclass of pals.Loader.")
    taken = [option for option in _options(load) if option in SHARED]
    if taken:
        raise InputError(f"The data set {name!r} has an option {taken[0]!r}, which all data sets have. Rename it.")


def _options(load: Load) -> tuple[str, ...]:
    return tuple(field.name for field in fields(load.Config)) if isinstance(load, type) and issubclass(load, Loader) else ()


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
"""Data sets by name; a plug-in adds its own."""


def dataset_loader(name: str, options: Mapping[str, Any]) -> Loader | None:
    """The loader of a data set with its options.

    Args:
        name: A key of `DATASETS`; an unknown name without options gives None.
        options: The data set's own options.

    Returns:
        The loader, or None for a data set without options.

    Raises:
        InputError: An unknown data set or option, or a bad value.
    """
    if name not in DATASETS and not options:
        return None
    load = DATASETS.find(name)
    for option in options:
        if option in _options(load):
            continue
        having = sorted(other for other in DATASETS if option in _options(DATASETS[other]))
        if having:
            others = ", ".join(having)
            raise InputError(f"Setting data.{option} is not an option of the data set {name}, but of {others}. Remove it.")
        raise unknown("setting", f"data.{option}", [f"data.{known}" for known in (*SHARED[:-1], *_options(load))])
    if not (isinstance(load, type) and issubclass(load, Loader)):
        return None
    return load(build(load.Config, options, "data"))


def load_dataset(name: str, *, data_dir: Path | None = None, seed: int = DRAWS_SEED, **options: Any) -> Dataset:
    """Loads a data set by name.

    Args:
        name: A key of `DATASETS`.
        data_dir: Data folder, for sets that are read from files; default that of the environment variable PALS_DATA.
        seed: For sets that draw at random, without effect on others; default 42.
        options: The data set's own options; see docs/datasets.md.

    Returns:
        The data set.

    Raises:
        InputError: An unknown name or option, or files that are missing or damaged.

    >>> from pals import load_dataset
    >>> digits = load_dataset("digits")
    >>> len(digits.train), digits.train.shape, digits.class_names[:3]
    (1437, (1, 8, 8), ('0', '1', '2'))
    """
    load: Any = DATASETS.find(name)
    loader = dataset_loader(name, options)
    dataset: Dataset = load(data_dir=data_dir) if loader is None else loader.load(data_dir, seed)
    return dataset
