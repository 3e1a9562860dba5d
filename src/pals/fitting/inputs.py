"""What the user gave: pictures or feature vectors, and votes about them, brought together."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pals.data import Items
from pals.labels.candidates import Truth
from pals.readers import Match, Votes, read_votes
from pals.runs.settings import VotesConfig
from pals.util.errors import InputError
from pals.util.words import how_many
from pals.vision.augment import Views, image_views, vector_views
from pals.vision.images import default_cache, image_statistics, list_images, load_images

Progress = Callable[[int, int], None]
Statistics = tuple[tuple[float, ...], tuple[float, ...]]  # mean and deviation of each channel or feature


@dataclass(frozen=True)
class Answers:
    """The votes, with the user's items as their items, before any picture is opened."""

    votes: Votes
    lines: tuple[str, ...]
    "What was read, what was skipped and why, what did not match."
    warnings: tuple[str, ...] = ()
    "Those of them that a reader of the result should know, too."

    @property
    def answered_N(self) -> np.ndarray:
        """Whether anybody answered for an item, or its right label is known."""
        counted = np.bincount(self.votes.item_R, weights=self.votes.weight_R, minlength=len(self.votes.items)) > 0
        return counted | (self.votes.gold_I >= 0)


def read_answers(config: VotesConfig) -> Answers:
    """The votes of all files, matched to the pictures or to the rows of the feature table."""
    earlier = [] if config.earlier is None else [config.earlier]
    votes = read_votes(
        [*earlier, *config.votes],
        format=None if earlier else config.format,
        columns=[*({} for _ in earlier), *(config.columns for _ in config.votes)],
        class_names=config.class_names,
        separator=config.separator,
        encoding=[*(None for _ in earlier), *(config.encoding for _ in config.votes)],
    )
    names = list_images(Path(config.images)) if config.images is not None else _row_names(config, votes)
    matched, report = votes.match(names)
    _refuse_strangers(config, votes, report)
    answers = Answers(_answered_first(matched), ())
    _refuse_too_little(config, answers)
    where = how_many(len(names), *(("picture",) if config.images is not None else ("row of features", "rows of features")))
    (read, *remarks), (found, *strangers) = votes.summary.lines(), report.lines()
    return replace(answers, lines=(read, *remarks, where, found, *strangers), warnings=(*remarks, *strangers))


def _refuse_strangers(config: VotesConfig, votes: Votes, report: Match) -> None:
    if (report.file_I >= 0).any():
        return
    place = config.images or config.features
    raise InputError(
        f"No item of {', '.join(config.votes)} is in {place} (the first of {len(votes.items):,} is "
        f"{votes.items[0]!r}). Check that both belong together and which column names the item (--item-column)."
    )


def _refuse_too_little(config: VotesConfig, answers: Answers) -> None:
    """One item, or one class, is nothing to learn from."""
    files, classes = ", ".join(config.votes), answers.votes.class_names
    if len(classes) < 2:
        raise InputError(
            f"{files}: all answers are {classes[0]!r}. Give answers of at least two classes, or name all: --classes."
        )
    if answers.answered_N.sum() < 2:
        raise InputError(f"{files}: only {answers.votes.items[0]!r} has an answer. Give answers for at least two items.")


def _answered_first(votes: Votes) -> Votes:
    """The same votes with the items that have answers in front, so that what is trained on is one stretch of memory."""
    has_N = np.bincount(votes.item_R, minlength=len(votes.items)) > 0
    order = np.argsort(~(has_N | (votes.gold_I >= 0)), kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    items = tuple(votes.items[i] for i in order.tolist())
    return replace(votes, items=items, item_R=place[votes.item_R], gold_I=votes.gold_I[order])


@dataclass(frozen=True)
class Inputs:
    """Everything that a run on one's own items starts from; items with answers come first."""

    items: Items
    votes: Votes
    views: Views
    mean: tuple[float, ...]
    std: tuple[float, ...]
    bad: tuple[str, ...] = ()
    "Pictures that could not be read, and why."


def load_inputs(
    config: VotesConfig,
    answers: Answers,
    *,
    statistics: Statistics | None = None,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> Inputs:
    """Decode the pictures (once; the cache remembers them), or read the feature table. `statistics` are those by which
    pictures are standardised, if not by their own."""
    if config.images is None:
        return _load_features(config, answers)
    table = load_images(
        Path(config.images),
        config.size,
        cache=cache or default_cache(),
        names=answers.votes.items,
        skip_bad=config.skip_bad,
        how=config.resize,
        progress=progress,
    )
    bad = tuple(f"{image.name}: {image.reason}" for image in table.bad)
    if bad:
        answers = replace(answers, votes=_answered_first(answers.votes.match(table.names)[0]))
    mean, std = statistics or image_statistics(table.images)
    views = picture_views(config, mean, std)
    images = table.images if table.names == answers.votes.items else table.images[_rows(table.names, answers.votes.items)]
    return Inputs(Items(images, answers.votes.items), answers.votes, views, mean, std, bad)


def picture_views(config: VotesConfig, mean: tuple[float, ...], std: tuple[float, ...]) -> Views:
    """How pictures of this size are varied in training."""
    strong: Literal["cifar", "imagenet"] = "cifar" if config.size <= 64 else "imagenet"
    return image_views(mean, std, pad=max(1, config.size // 8), flip=True, strong=strong, cutout=config.size // 2)


def _rows(names: Sequence[str], wanted: Sequence[str]) -> Tensor:
    place = {name: row for row, name in enumerate(names)}
    return torch.tensor([place[name] for name in wanted])


def fingerprint(votes: Votes) -> str:
    """A short name for these items and answers."""
    digest = hashlib.sha256("\0".join((*votes.items, "", *votes.workers, "", *votes.class_names)).encode())
    for column in (votes.item_R, votes.worker_R, votes.label_R, votes.answer_R, votes.weight_R, votes.gold_I):
        digest.update(np.ascontiguousarray(column).tobytes())
    return digest.hexdigest()[:16]


# ---- feature vectors


def _row_names(config: VotesConfig, votes: Votes) -> list[str]:
    rows = len(read_matrix(config))
    if config.names is not None:
        names = _read_names(Path(config.names))
        if len(names) != rows:
            raise InputError(f"{config.names} names {len(names):,} items, but {config.features} has {rows:,} rows.")
        return names
    numbers = [str(row) for row in range(rows)]
    if set(votes.items) <= set(numbers):
        return numbers
    raise InputError(
        f"Which row of {config.features} is {votes.items[0]!r}? Give --names, a text file with one item per line in the order "
        f"of the rows; or let the votes call the items by row number, from 0."
    )


def _read_names(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"--names: cannot read {path} ({error}). Give a readable text file in UTF-8, one item per line."
        ) from None
    return [line.strip() for line in text.splitlines() if line.strip()]


def read_matrix(config: VotesConfig) -> np.ndarray:
    """The feature vectors, one row per item, as they lie in the file."""
    path = Path(config.features or "")
    try:
        matrix = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist. Name the .npy file with the feature vectors.") from None
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{path} is not a readable .npy file of numbers ({error}). Write it with numpy.save.") from None
    if not isinstance(matrix, np.ndarray) or matrix.ndim != 2 or matrix.dtype.kind not in "fiu" or not matrix.size:
        found = f"shape {matrix.shape}, {matrix.dtype}" if isinstance(matrix, np.ndarray) else "several arrays"
        raise InputError(f"{path} holds {found}; expected one row of numbers per item.")
    return matrix


def _load_features(config: VotesConfig, answers: Answers) -> Inputs:
    names = _row_names(config, answers.votes)
    matrix = torch.from_numpy(np.asarray(read_matrix(config), dtype=np.float32)[_rows(names, answers.votes.items).numpy()])
    mean_D, std_D = matrix.mean(dim=0), matrix.std(dim=0).clamp_min(1e-6)
    views = vector_views(mean_D, std_D)
    mean, std = tuple(mean_D.tolist()), tuple(std_D.tolist())
    return Inputs(Items(matrix, answers.votes.items), answers.votes, views, mean, std)


# ---- the truth, where somebody has it


class Graded(NamedTuple):
    """The items whose truth is known, and their true labels."""

    row_G: np.ndarray
    truth: Truth
    whole: bool
    "Whether that is every item with answers."


def read_truth(path: Path, votes: Votes) -> Graded:
    """The true labels of items that have answers, of all or of some, for grading alone: a table with an item and a label
    column."""
    found = read_votes(path, format="long", class_names=votes.class_names)
    matched, _ = found.match(votes.items)
    label_N = np.full(len(votes.items), -1)
    label_N[matched.item_R] = matched.label_R
    label_N = np.where(matched.gold_I >= 0, matched.gold_I, label_N)
    answered_N = Answers(votes, ()).answered_N
    row_G = ((label_N >= 0) & answered_N).nonzero()[0]
    if not len(row_G):
        raise InputError(f"{path} has no label for any item with answers (the first of those is {votes.items[0]!r}).")
    return Graded(row_G, Truth.of(label_N[row_G], votes.class_names), len(row_G) == int(answered_N.sum()))
