"""Three data sets of the DCIC collection, images with the answers of many annotators, from the user's disk.

Reads a folder with `annotations.json` and the images. Only the first set of annotations in the file counts: a label for each
answer, or null if the annotator did not know. The second part of an image's path is the fold (`Benthic/fold1/...`); the file is
at this path without its first part.

Reference: Schmarje et al. 2022, "Is one annotation enough?", arXiv:2207.06214.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from pydantic.dataclasses import dataclass as settings

from pals.data.dataset import Dataset, Items, Loader
from pals.data.download import VARIABLE
from pals.data.photo_sets import PHOTO_SIDE, find_root, load_parts, photo_views, within
from pals.data.row_source import Inputs
from pals.labels.candidates import CandidateSets, Truth
from pals.labels.noise import draw_annotators
from pals.util.config import STRICT
from pals.util.errors import InputError
from pals.vision.augment import Views, image_views
from pals.vision.augment.pixel_ops import gray
from pals.vision.images.decoding import How

FILE = "annotations.json"
SLICES: Mapping[int, tuple[tuple[int, ...], int]] = MappingProxyType({1: ((1, 4, 5), 3), 2: ((1, 2, 5), 4), 3: ((1, 2, 3), 5)})
"""Folds to train on, and the fold to test on; the collection's validation fold is not used."""

Annotators = Literal["resampled", "real"]
GREY_BATCH = 512  # images converted at a time


@dataclass(frozen=True)
class Crowd:
    """One of the sets. Without `photos`, images are squashed to `size` and not cropped."""

    name: str
    title: str
    folder: str
    class_names: tuple[str, ...]
    size: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    photos: bool = False
    grey: bool = False

    @property
    def how(self) -> How:
        return "torchvision-crop" if self.photos else "torchvision-squash"

    @property
    def views(self) -> Views:
        if self.photos:
            return photo_views(self.mean, self.std)
        return image_views(self.mean, self.std, pad=0, flip=True, strong="imagenet")

    @property
    def hint(self) -> str:
        return (
            f"Get {self.folder} of the DCIC collection (github.com/Emprime/dcic says where), unpack it and name the folder "
            f"that holds {self.folder}/ with --data-dir or the variable {VARIABLE}."
        )


TREEVERSITY = Crowd(
    name="treeversity",
    title="Treeversity#6",
    folder="Treeversity#6",
    class_names=("bark", "bud", "flower", "fruit", "leaf", "whole_plant"),
    size=PHOTO_SIDE,
    mean=(0.44396, 0.45093, 0.36912),
    std=(0.23408, 0.22764, 0.26008),
    photos=True,
)
BENTHIC = Crowd(
    name="benthic",
    title="Benthic",
    folder="Benthic",
    class_names=("coral", "crustacean", "cucumber", "encrusting", "other_fauna", "sponge", "star", "worm"),
    size=112,
    mean=(0.34729, 0.40014, 0.41105),
    std=(0.12869, 0.13645, 0.14259),
)
PLANKTON = Crowd(
    name="plankton",
    title="Plankton",
    folder="Plankton",
    class_names=(
        "bubbles", "collodaria_black", "collodaria_globule", "cop", "det", "no_fit", "phyto_puff", "phyto_tuft",
        "pro_rhizaria_phaeodaria", "shrimp",
    ),
    size=96,
    mean=(0.96634,) * 3,
    std=(0.10070,) * 3,
    grey=True,
)  # fmt: skip


class CrowdLoader(Loader):
    """The options of these sets; each set is a subclass."""

    @settings(frozen=True, config=STRICT)
    class Config:
        slice: int = Field(default=1, ge=1, le=3)
        "Which folds are trained and tested on (docs/datasets.md)."
        answers: int = Field(default=10, ge=1)
        "Labels per image."
        annotators: Annotators = "resampled"
        "Labels drawn with replacement from all answers for an image, as the authors do, or (real) some of the answers."

    answered: ClassVar[bool] = True
    crowd: ClassVar[Crowd]
    config: Config

    @property
    def label(self) -> str:
        real = "-real" if self.config.annotators == "real" else ""
        return f"slice{self.config.slice}-answers{self.config.answers}{real}"

    def load(self, data_dir: Path | None, seed: int) -> Dataset:
        return load_crowd(self.crowd, self.config, data_dir, seed)


def load_crowd(crowd: Crowd, config: CrowdLoader.Config, data_dir: Path | None, seed: int) -> Dataset:
    """One slice, with `answers` labels per image as its votes. The truth is the majority of all answers (of ties the first)."""
    root = find_root(crowd.title, (crowd.folder, crowd.name), (FILE,), data_dir, crowd.hint)
    names, count_NC = read_counts(crowd, root / FILE)
    votes = draw_votes(names, count_NC, crowd.class_names, config.answers, config.annotators, seed)
    label_N = count_NC.argmax(axis=1)  # of equal counts the first
    fold_N = np.array([_fold(root / FILE, name) for name in names])
    train_folds, test_fold = SLICES[config.slice]
    train, test = np.isin(fold_N, train_folds), fold_N == test_fold
    for part, folds in ((train, train_folds), (test, (test_fold,))):
        if not part.any():
            wanted = ", ".join(map(str, folds))
            found = f"{root / FILE} names no image in fold {wanted}, which slice {config.slice} needs"
            raise InputError(f"{found}. {crowd.hint}")
    files = np.array([name.partition("/")[2] for name in names])
    images = load_parts(
        root, (list(files[train]), list(files[test])), unused=list(files[~train & ~test]), size=crowd.size, how=crowd.how
    )
    ids = np.array(names)
    return Dataset(
        name=crowd.name,
        class_names=crowd.class_names,
        train=Items(_finished(images[0], crowd), tuple(ids[train].tolist())),
        truth=Truth.of(label_N[train], crowd.class_names),
        test=Items(_finished(images[1], crowd), tuple(ids[test].tolist())),
        test_truth=Truth.of(label_N[test], crowd.class_names),
        views=crowd.views,
        votes=votes.take(torch.from_numpy(train)),
    )


CROWDS: dict[str, type[Loader]] = {
    crowd.name: type(crowd.name.capitalize(), (CrowdLoader,), {"crowd": crowd}) for crowd in (TREEVERSITY, BENTHIC, PLANKTON)
}


def read_counts(crowd: Crowd, path: Path) -> tuple[list[str], np.ndarray]:
    """Paths of all labelled images, sorted, and the counts of their labels."""
    from pals.readers.formats.dcic import answers_in, sets_in  # with pandas, which only these sets need
    from pals.readers.source import Source

    source = Source(path)
    sets = sets_in(source)
    if not sets:
        source.refuse("the file holds no annotations", crowd.hint)
    answers: list[tuple[str, str]] = []
    for place, name, label in answers_in(source, 1, sets[0]):
        if label is None:
            continue
        if not name or not within(name) or name.count("/") < 2:
            source.refuse(f"set {place} names the image {name!r}, not a path FOLDER/FOLD/FILE within the data", crowd.hint)
        answers.append((name, label))
    names = sorted({name for name, _ in answers})
    found = tuple(sorted({label for _, label in answers}))
    if found != crowd.class_names:
        source.refuse(
            f"its {len(found)} classes ({', '.join(found) or 'none'}) are not the {len(crowd.class_names)} of {crowd.title} "
            f"({', '.join(crowd.class_names)})",
            crowd.hint,
        )
    folders = sorted({name.partition("/")[0] for name in names})
    if len(folders) > 1:
        source.refuse(f"its images lie in several folders ({', '.join(folders[:4])})", crowd.hint)
    row, column = ({name: number for number, name in enumerate(order)} for order in (names, found))
    count_NC = np.zeros((len(names), len(found)), np.int64)
    np.add.at(count_NC, ([row[name] for name, _ in answers], [column[label] for _, label in answers]), 1)
    return names, count_NC


def draw_votes(
    names: list[str], count_NC: np.ndarray, class_names: tuple[str, ...], answers: int, annotators: Annotators, seed: int
) -> CandidateSets:
    """Labels of each image, as votes.

    Args:
        names: Names of the images.
        count_NC: Counts of all answers.
        class_names: Names of the classes.
        answers: Labels per image; of "real" answers fewer, if an image has fewer.
        annotators: "resampled" (drawn with replacement by the shares of all answers, as the authors do) or "real" (a random
            subset of the answers).
        seed: Of the draws.
    """
    if annotators == "resampled":
        drawn_NC = draw_annotators(count_NC / count_NC.sum(axis=1, keepdims=True), answers, seed)
    else:
        rng = np.random.default_rng(seed)
        rows = [rng.multivariate_hypergeometric(count_C, min(answers, int(count_C.sum()))) for count_C in count_NC]
        drawn_NC = torch.from_numpy(np.stack(rows))
    return CandidateSets(drawn_NC > 0, tuple(names), class_names, drawn_NC / drawn_NC.sum(dim=1, keepdim=True))


def _fold(path: Path, name: str) -> int:
    found = re.fullmatch(r"(?:fold)?([1-5])", name.split("/")[1])
    if found is None:
        raise InputError(f"{path}: the second part of {name!r} is not a fold, fold1 to fold5. Get the data set again.")
    return int(found[1])


def _finished(images: Inputs, crowd: Crowd) -> Inputs:
    """The images; those of a grey set as Pillow's grey in three equal channels."""
    if not crowd.grey:
        return images
    out = torch.empty(images.shape, dtype=images.dtype)
    for start in range(0, len(images), GREY_BATCH):
        out[start : start + GREY_BATCH] = gray(images[start : start + GREY_BATCH])
    return out
