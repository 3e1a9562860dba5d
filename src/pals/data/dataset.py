"""A data set: items to learn from, items to test on, and, kept apart, the truth about both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from pals.data.row_source import Inputs
from pals.labels.candidates import CandidateSets, Truth
from pals.util.config import to_dict
from pals.util.words import in_brief
from pals.vision.augment import Views


@dataclass(frozen=True)
class Items:
    """Inputs with names: uint8 images (N x channels x height x width) or float32 vectors (N x width); a tensor, or an
    `ItemSource` where they need not fit into memory."""

    inputs: Inputs
    ids: tuple[str, ...]

    __repr__ = in_brief

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.inputs.shape[1:])


@dataclass(frozen=True)
class Dataset:
    """Training and test items with what is known about their labels. `group_C` is the super-class of each class, if there are
    any: candidates are then confused within it. Items that people labelled have no truth, or one for grading only, and often
    no test set."""

    name: str
    class_names: tuple[str, ...]
    train: Items
    truth: Truth | None  # of the training items: for making noise and for grading
    test: Items | None
    test_truth: Truth | None
    views: Views
    group_C: Tensor | None = None
    votes: CandidateSets | None = None  # what people really answered; without it candidates are made from the truth

    __repr__ = in_brief

    @property
    def view_shape(self) -> tuple[int, ...]:
        """Shape of one input as a network sees it: views may crop or resize."""
        return tuple(self.views.make("eval", self.train.inputs[:1], torch.Generator()).shape[1:])

    @property
    def graded_test(self) -> tuple[Items, Truth] | None:
        return None if self.test is None or self.test_truth is None else (self.test, self.test_truth)


class Loader:
    """A data set with options: a class with `Config` for the options, and `load`. A data set without options is simply a
    function `load(data_dir=None)` that returns a Dataset."""

    @dataclass(frozen=True)
    class Config:
        """Options; subclasses replace it. In settings they belong to the section `data`."""

    answered: ClassVar[bool] = False
    "Whether the candidates are people's answers, so that nothing is drawn at the rates q and eta."

    def __init__(self, config: Any) -> None:
        self.config = config

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.config == other.config

    def __hash__(self) -> int:
        return hash((type(self), self.config))

    def load(self, data_dir: Path | None, seed: int) -> Dataset:
        """`data_dir` is the user's data folder; `seed` (`data.seed`) is for random draws."""
        raise NotImplementedError

    @property
    def label(self) -> str:
        """The options in short, for the name of a run's folder."""
        return "-".join(f"{key}{value}" for key, value in to_dict(self.config).items())


Load = Callable[..., Dataset] | type[Loader]
