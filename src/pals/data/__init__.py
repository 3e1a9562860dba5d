"""Data sets by name."""

from __future__ import annotations

from pathlib import Path

from pals.data.base import Dataset, Items, Loader
from pals.data.cifar import load_cifar10, load_cifar10n, load_cifar100, load_cifar100h
from pals.data.digits import load_digits_data
from pals.errors import unknown

DATASETS: dict[str, Loader] = {
    "digits": load_digits_data,
    "cifar10": load_cifar10,
    "cifar100": load_cifar100,
    "cifar100h": load_cifar100h,
    "cifar10n": load_cifar10n,
}


def load_dataset(name: str, *, data_dir: Path | None = None) -> Dataset:
    """The data set of this name; `data_dir` is where the user keeps data, for those that do not come with a package."""
    if name not in DATASETS:
        raise unknown("data set", name, DATASETS)
    return DATASETS[name](data_dir=data_dir)


__all__ = ["DATASETS", "Dataset", "Items", "Loader", "load_dataset"]
