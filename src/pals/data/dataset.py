"""A data set: items to train on, items to test on and, in separate fields, the truth about both."""

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
    """Inputs with names.

    Args:
        inputs: uint8 images (N x channels x height x width) or float32 vectors (N x width); a tensor, or an `ItemSource` of
            rows that need not fit into memory.
        ids: Names of the items.

    >>> import torch
    >>> from pals import Items
    >>> items = Items(torch.zeros(2, 3, 8, 8, dtype=torch.uint8), ("a.png", "b.png"))
    >>> len(items), items.shape
    (2, (3, 8, 8))
    """

    inputs: Inputs
    ids: tuple[str, ...]

    __repr__ = in_brief

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return tuple(self.inputs.shape[1:])


@dataclass(frozen=True)
class Dataset:
    """Training and test items with their labels.

    Args:
        name: Name of the data set.
        class_names: Names of the classes.
        train: Items to train on.
        truth: True labels of the training items, for making noise and for grading; None if unknown.
        test: Items to test on, or None.
        test_truth: True labels of the test items, or None.
        views: Augmentations of the inputs.
        group_C: Super-class of each class, within which candidates are confused; default None.
        votes: Annotators' answers to the training items; default None: candidates are made from the truth.

    >>> import torch
    >>> from pals import Dataset, Items, Truth, vector_views
    >>> x = torch.tensor([[0.0, 1.0], [2.0, 3.0]])
    >>> items, truth = Items(x, ("a", "b")), Truth.of([0, 1], ["cat", "dog"])
    >>> Dataset("toy", truth.class_names, items, truth, None, None, vector_views(x.mean(0), x.std(0))).view_shape
    (2,)
    """

    name: str
    class_names: tuple[str, ...]
    train: Items
    truth: Truth | None
    test: Items | None
    test_truth: Truth | None
    views: Views
    group_C: Tensor | None = None
    votes: CandidateSets | None = None

    __repr__ = in_brief

    @property
    def view_shape(self) -> tuple[int, ...]:
        """Shape of one input of a network: views may crop or resize."""
        return tuple(self.views.make("eval", self.train.inputs[:1], torch.Generator()).shape[1:])

    @property
    def graded_test(self) -> tuple[Items, Truth] | None:
        return None if self.test is None or self.test_truth is None else (self.test, self.test_truth)


class Loader:
    """A data set with options: subclasses define `Config` and `load`. One without is a function `load(data_dir=None)`.

    Args:
        config: An instance of `Config`.

    >>> from dataclasses import dataclass, replace
    >>> from pals import DATASETS, Items, Loader, load_dataset
    >>> class FewDigits(Loader):
    ...     @dataclass(frozen=True)
    ...     class Config:
    ...         items: int = 10
    ...
    ...     def load(self, data_dir, seed):
    ...         digits, count = load_dataset("digits"), self.config.items
    ...         return replace(digits, train=Items(digits.train.inputs[:count], digits.train.ids[:count]))
    >>> DATASETS["few-digits"] = FewDigits
    >>> len(load_dataset("few-digits", items=3).train)
    3
    """

    @dataclass(frozen=True)
    class Config:
        """Options, in the section `data` of the settings; subclasses replace it."""

    answered: ClassVar[bool] = False
    "Whether the candidates are annotators' answers, not drawn at the rates q and eta."

    def __init__(self, config: Any) -> None:
        self.config = config

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.config == other.config

    def __hash__(self) -> int:
        return hash((type(self), self.config))

    def load(self, data_dir: Path | None, seed: int) -> Dataset:
        """Loads the data set from the data folder; `seed` (`data.seed`) is for random draws."""
        raise NotImplementedError

    @property
    def label(self) -> str:
        """Short form of the options, for the name of a run's folder."""
        return "-".join(f"{key}{value}" for key, value in to_dict(self.config).items())


Load = Callable[..., Dataset] | type[Loader]
