"""CUB-200-2011, photographs of birds, from the user's disk.

Reads the folder that its archive unpacks to, `CUB_200_2011`, with `images.txt`, `image_class_labels.txt`,
`train_test_split.txt`, `classes.txt` and `images/`; or class folders below `train/` and `test/`.

Reference: Wah et al. 2011, Caltech-UCSD Birds-200-2011, technical report CNS-TR-2011-001.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

from pals.data.dataset import Dataset, Items
from pals.data.download import VARIABLE
from pals.data.photo_sets import PHOTO_SIDE, find_root, load_parts, photo_views, within
from pals.labels.candidates import Truth
from pals.util.errors import InputError
from pals.vision.images.listing import list_images
from pals.vision.networks.resnets import IMAGENET

FOLDERS = ("CUB_200_2011", "cub200")
IMAGES, LABELS, SPLIT, CLASSES = "images.txt", "image_class_labels.txt", "train_test_split.txt", "classes.txt"
CUB_HINT = (
    f"Get CUB_200_2011.tgz from www.vision.caltech.edu/datasets/cub_200_2011, unpack it and name the folder that holds "
    f"CUB_200_2011/ with --data-dir or the variable {VARIABLE}; class folders below train/ and test/ can be read as well."
)
CUB_UNPACK_HINT = "Unpack CUB_200_2011.tgz again."


class ImageSplit(NamedTuple):
    """Training or test images in their order."""

    names: list[str]  # below the root
    labels: list[int]


def load_cub200(data_dir: Path | None = None) -> Dataset:
    """CUB-200-2011: photographs of 200 species of birds."""
    root = find_root("CUB-200-2011", FOLDERS, (IMAGES, "train"), data_dir, CUB_HINT)
    class_names, train, test = _published(root) if (root / IMAGES).exists() else _folders(root)
    for part, word in ((train, "train"), (test, "test")):
        if not part.names:
            raise InputError(f"{root} holds no image to {word} on. {CUB_UNPACK_HINT}")
    train_images, test_images = load_parts(root, (train.names, test.names), size=PHOTO_SIDE, how="torchvision-crop")
    return Dataset(
        name="cub200",
        class_names=class_names,
        train=Items(train_images, tuple(train.names)),
        truth=Truth.of(train.labels, class_names),
        test=Items(test_images, tuple(test.names)),
        test_truth=Truth.of(test.labels, class_names),
        views=photo_views(*IMAGENET),
    )


# ---- the archive's own files


def _published(root: Path) -> tuple[tuple[str, ...], ImageSplit, ImageSplit]:
    """Images in the order of `images.txt`, on which the authors' candidate sets depend; classes in the order of numbers."""
    names = _read(root / CLASSES)
    class_of = {number: place for place, number in enumerate(sorted(names))}
    label_of, role_of = (_numbers(root / file) for file in (LABELS, SPLIT))
    parts = {1: ImageSplit([], []), 0: ImageSplit([], [])}
    for number, name in _read(root / IMAGES).items():
        if not within(name):
            _refuse(root / IMAGES, f"image {number} is {name!r}, which is not a path within images/")
        for file, values, known in ((LABELS, label_of, set(class_of)), (SPLIT, role_of, set(parts))):
            if values.get(number) not in known:
                found = f"has {values[number]} for it" if number in values else "does not name it"
                _refuse(root / file, f"image {number} ({name}) is in {IMAGES}, but this file {found}")
        part = parts[role_of[number]]
        part.names.append(f"images/{name}")
        part.labels.append(class_of[label_of[number]])
    return tuple(names[number] for number in sorted(names)), parts[1], parts[0]


def _numbers(path: Path) -> dict[int, int]:
    texts = _read(path)
    for number, text in texts.items():
        if not text.isdecimal():
            _refuse(path, f"image {number} has {text!r} where a number belongs")
    return {number: int(text) for number, text in texts.items()}


def _read(path: Path) -> dict[int, str]:
    """Lines of a number and a text."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise InputError(f"{path} is missing. {CUB_UNPACK_HINT}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"Cannot read {path}: {error}. {CUB_UNPACK_HINT}") from None
    found: dict[int, str] = {}
    for row, line in enumerate(lines, start=1):
        number, _, text = line.strip().partition(" ")
        if not line.strip():
            continue
        if not number.isdecimal() or not text.strip():
            _refuse(path, f"line {row} is {line.strip()[:80]!r}, not a number and what belongs to it")
        if int(number) in found:
            _refuse(path, f"line {row} names number {number} for the second time")
        found[int(number)] = text.strip()
    if not found:
        _refuse(path, "it is empty")
    return found


def _refuse(path: Path, found: str) -> NoReturn:
    raise InputError(f"{path} does not hold what it should: {found}. {CUB_UNPACK_HINT}")


# ---- class folders


def _folders(root: Path) -> tuple[tuple[str, ...], ImageSplit, ImageSplit]:
    """Classes and images sorted by name."""
    train, test = (list_images(root / part) for part in ("train", "test"))
    class_names = tuple(sorted(set(_classes(root / "train", train))))
    place = {name: number for number, name in enumerate(class_names)}
    strange = sorted(set(_classes(root / "test", test)) - set(place))
    if strange:
        raise InputError(f"{root / 'test' / strange[0]} is no class of {root / 'train'}. Give both the same class folders.")
    return (
        class_names,
        ImageSplit([f"train/{name}" for name in train], [place[name] for name in _classes(root / "train", train)]),
        ImageSplit([f"test/{name}" for name in test], [place[name] for name in _classes(root / "test", test)]),
    )


def _classes(folder: Path, names: Sequence[str]) -> list[str]:
    """The class folder of each image."""
    loose = next((name for name in names if "/" not in name), None)
    if loose is not None:
        raise InputError(f"{folder / loose} is in no class folder. Put each image into the folder of its class.")
    return [name.partition("/")[0] for name in names]
