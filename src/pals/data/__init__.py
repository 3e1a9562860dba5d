"""Data sets by name.

Items, truth and, where there are any, people's answers, read from files that lie on this machine; `fetch` is the only place
that goes online, and only when asked. What a set is trained with is not said here but in `runs.defaults`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pals.data.base import Dataset, Items, Loader
from pals.data.cifar import load_cifar10, load_cifar10n, load_cifar100, load_cifar100h
from pals.data.cub import load_cub200
from pals.data.dcic import CROWDS
from pals.data.digits import load_digits_data
from pals.data.weights import find_weights
from pals.util.errors import InputError, unknown

DATASETS: dict[str, Loader] = {
    "digits": load_digits_data,
    "cifar10": load_cifar10,
    "cifar100": load_cifar100,
    "cifar100h": load_cifar100h,
    "cifar10n": load_cifar10n,
    "cub200": load_cub200,
    **CROWDS,
}

OPTIONS: dict[str, tuple[str, ...]] = dict.fromkeys(CROWDS, ("slice", "answers", "annotators"))
"""What can be chosen of a data set, where something can. Those that draw answers of people take a seed as well."""


def load_dataset(name: str, *, data_dir: Path | None = None, seed: int | None = None, **options: Any) -> Dataset:
    """The data set of this name; `data_dir` is where the user keeps data, for those that do not come with a package. An option
    that the data set does not have is an error; a `seed` is for those that draw something, and changes nothing in others."""
    if name not in DATASETS:
        raise unknown("data set", name, DATASETS)
    known = OPTIONS.get(name, ())
    for option in options:
        if option not in known:
            having = sorted(other for other in OPTIONS if option in OPTIONS[other])
            whose = f"it is for {', '.join(having)}" if having else "no data set has it"
            raise InputError(f"Setting data.{option} is not an option of data set {name}: {whose}. Remove it.")
    if known and seed is not None:
        options["seed"] = seed
    return DATASETS[name](data_dir=data_dir, **options)


__all__ = ["DATASETS", "OPTIONS", "Dataset", "Items", "Loader", "find_weights", "load_dataset"]
