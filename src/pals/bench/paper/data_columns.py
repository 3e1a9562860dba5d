"""The data of a column: which set, how ambiguous, how noisy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pals.data.crowd_sets import SLICES

DATA_NAMES = {
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "cifar100h": "CIFAR-100H",
    "cub200": "CUB-200",
    "treeversity": "Treeversity",
    "benthic": "Benthic",
    "plankton": "Plankton",
}
"""Data sets as the paper prints them."""

CROWD = ("treeversity", "benthic", "plankton")


@dataclass(frozen=True)
class Cell:
    """A data set whose candidate sets are made with the rates q and eta."""

    data: str
    q: float
    eta: float

    @property
    def group(self) -> str:
        return DATA_NAMES[self.data]

    @property
    def column(self) -> str:
        return f"{DATA_NAMES[self.data]}, q={self.q:g}, eta={self.eta:g}"

    @property
    def slug(self) -> str:
        return f"{self.data}-q{self.q:g}-eta{self.eta:g}"

    @property
    def folder(self) -> str:
        return f"{self.slug}-g1"

    @property
    def slices(self) -> int:
        return 0

    def values(self) -> dict[str, Any]:
        """The very sets that the authors' generator draws; all methods and seeds share them."""
        return {"name": self.data, "partial_rate": self.q, "noise_rate": self.eta, "protocol": "g1", "draws": "official"}


@dataclass(frozen=True)
class CrowdCell:
    """A data set with the answers of so many people per picture, in three splits."""

    data: str
    annotators: int

    @property
    def group(self) -> str:
        return {10: "Ten human annotators", 3: "Three human annotators"}[self.annotators]

    @property
    def column(self) -> str:
        return f"{DATA_NAMES[self.data]}, {self.annotators} annotators"

    @property
    def slug(self) -> str:
        return f"{self.data}-{self.annotators}annotators"

    @property
    def folder(self) -> str:
        return self.slug

    @property
    def slices(self) -> int:
        return len(SLICES)

    def values(self) -> dict[str, Any]:
        return {"name": self.data, "answers": self.annotators}
