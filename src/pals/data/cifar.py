"""CIFAR-10, CIFAR-100 and CIFAR-10N from the user's disk.

Reads the folders that CIFAR's own archives unpack to (`cifar-10-batches-py`, `cifar-100-python`), or one file
`cifar10.npz` / `cifar100.npz` with four arrays: `x_train`, `x_test` (uint8, N x 32 x 32 x 3) and `y_train`, `y_test`
(class numbers, N or N x 1). A pickle can run any program, so only the published files, known by their MD5, are unpickled.
An .npz file may hold any number of images; one that was evidently made from the other set is refused.

References: Krizhevsky 2009, "Learning multiple layers of features from tiny images"; Wei et al. 2022 (CIFAR-10N),
arXiv:2110.12088.
"""

from __future__ import annotations

import hashlib
import pickle
import zipfile
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

import numpy as np
import torch

from pals.data.dataset import Dataset, Items
from pals.data.download import ARCHIVES, VARIABLE, Archive, fetch_command, needed_folder
from pals.labels.candidates import CandidateSets, Truth
from pals.labels.taxonomy import Taxonomy, TaxonomyNode
from pals.util.errors import InputError
from pals.vision.augment import image_views

# Of the files in cifar-10-python.tar.gz and cifar-100-python.tar.gz, as in torchvision/datasets/cifar.py.
PUBLISHED_MD5 = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
    "train": "16019d7e3df5f24257cddd939b257f8d",
    "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
}
VOTES_FILE = "cifar_labels.npz"
VOTES_KEY = "c10n_label"
NPZ_KEYS = ("x_train", "y_train", "x_test", "y_test")

SUPERCLASSES: dict[str, tuple[str, ...]] = {
    "aquatic_mammals": ("beaver", "dolphin", "otter", "seal", "whale"),
    "fish": ("aquarium_fish", "flatfish", "ray", "shark", "trout"),
    "flowers": ("orchid", "poppy", "rose", "sunflower", "tulip"),
    "food_containers": ("bottle", "bowl", "can", "cup", "plate"),
    "fruit_and_vegetables": ("apple", "mushroom", "orange", "pear", "sweet_pepper"),
    "household_electrical_devices": ("clock", "keyboard", "lamp", "telephone", "television"),
    "household_furniture": ("bed", "chair", "couch", "table", "wardrobe"),
    "insects": ("bee", "beetle", "butterfly", "caterpillar", "cockroach"),
    "large_carnivores": ("bear", "leopard", "lion", "tiger", "wolf"),
    "large_man-made_outdoor_things": ("bridge", "castle", "house", "road", "skyscraper"),
    "large_natural_outdoor_scenes": ("cloud", "forest", "mountain", "plain", "sea"),
    "large_omnivores_and_herbivores": ("camel", "cattle", "chimpanzee", "elephant", "kangaroo"),
    "medium_mammals": ("fox", "porcupine", "possum", "raccoon", "skunk"),
    "non-insect_invertebrates": ("crab", "lobster", "snail", "spider", "worm"),
    "people": ("baby", "boy", "girl", "man", "woman"),
    "reptiles": ("crocodile", "dinosaur", "lizard", "snake", "turtle"),
    "small_mammals": ("hamster", "mouse", "rabbit", "shrew", "squirrel"),
    "trees": ("maple_tree", "oak_tree", "palm_tree", "pine_tree", "willow_tree"),
    "vehicles_1": ("bicycle", "bus", "motorcycle", "pickup_truck", "train"),
    "vehicles_2": ("lawn_mower", "rocket", "streetcar", "tank", "tractor"),
}
"""CIFAR-100's own grouping, in the order of its coarse labels."""

CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR100_TREE = Taxonomy.of(
    [
        *(TaxonomyNode(coarse, None) for coarse in SUPERCLASSES),
        *(TaxonomyNode(fine, coarse) for coarse, members in SUPERCLASSES.items() for fine in members),
    ]
)
CIFAR100_CLASSES = tuple(sorted(CIFAR100_TREE.leaves))  # CIFAR numbers them so


@dataclass(frozen=True)
class Layout:
    """Names in the files of one of the two sets, and how its pixels are normalised."""

    name: str  # also of the download and of the .npz file
    title: str
    label_key: bytes
    class_names: tuple[str, ...]
    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    @property
    def archive(self) -> Archive:
        return ARCHIVES[self.name]


CIFAR10 = Layout(
    name="cifar10",
    title="CIFAR-10",
    label_key=b"labels",
    class_names=CIFAR10_CLASSES,
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2023, 0.1994, 0.2010),
)
CIFAR100 = Layout(
    name="cifar100",
    title="CIFAR-100",
    label_key=b"fine_labels",
    class_names=CIFAR100_CLASSES,
    mean=(0.5071, 0.4867, 0.4408),
    std=(0.2675, 0.2565, 0.2761),
)

MIN_ITEMS_PER_CLASS = 100  # on average; a training set of this size has items of every class

Part = tuple[np.ndarray, np.ndarray]  # uint8 images N x 3 x 32 x 32, class numbers N


def load_cifar10(data_dir: Path | None = None) -> Dataset:
    """CIFAR-10: 50,000 training and 10,000 test images of 32 x 32 pixels in 10 classes."""
    return _load(CIFAR10, data_dir)


def load_cifar100(data_dir: Path | None = None) -> Dataset:
    """CIFAR-100: as CIFAR-10, with 100 classes (the fine labels)."""
    return _load(CIFAR100, data_dir)


def load_cifar100h(data_dir: Path | None = None) -> Dataset:
    """CIFAR-100 whose classes are confused within their super-class only."""
    group_C = torch.from_numpy(CIFAR100_TREE.branch_of(CIFAR100_CLASSES))
    return replace(_load(CIFAR100, data_dir), name="cifar100h", group_C=group_C)


def load_cifar10n(data_dir: Path | None = None) -> Dataset:
    """CIFAR-10 with the annotators' answers of CIFAR-10N."""
    return replace(_load(CIFAR10, data_dir), name="cifar10n", votes=cifar10n_votes(data_dir))


def cifar10n_votes(data_dir: Path | None = None) -> CandidateSets:
    """The three answers to each training image, from `c10n_label` (N x 3) in `cifar_labels.npz`."""
    place = _around(CIFAR10, needed_folder(CIFAR10.title, data_dir, _hint(CIFAR10, None)))
    path = place / VOTES_FILE
    if not path.is_file():
        raise InputError(
            f"The answers of CIFAR-10N are not in {place}: {VOTES_FILE} is missing. Put it there (array {VOTES_KEY}, "
            f"one row of answers per training image), or train on the data set cifar10 with made-up noise."
        )
    hint = "Get the file again."
    answer_NA = _read_arrays(path, (VOTES_KEY,), hint)[0]
    if answer_NA.ndim != 2 or answer_NA.dtype.kind not in "iu" or 0 in answer_NA.shape:
        found = f"{VOTES_KEY} has shape {answer_NA.shape} and type {answer_NA.dtype}, not one row of answers per image"
        _refuse(path, found, hint)
    _check_labels(path, answer_NA.ravel(), len(CIFAR10_CLASSES), hint)
    vote_NA = torch.from_numpy(answer_NA.astype(np.int64))
    count_NC = torch.nn.functional.one_hot(vote_NA, len(CIFAR10_CLASSES)).sum(dim=1)
    return CandidateSets(count_NC > 0, _ids("train", len(count_NC)), CIFAR10_CLASSES, count_NC / vote_NA.shape[1])


def _around(layout: Layout, place: Path) -> Path:
    """The data folder, where the path is that of a set or a file in it."""
    return place.parent if place.suffix == ".npz" or place.name == layout.archive.folder else place


def _load(layout: Layout, data_dir: Path | None) -> Dataset:
    place = needed_folder(layout.title, data_dir, _hint(layout, None))
    folder = place if place.name == layout.archive.folder else place / layout.archive.folder
    npz = place if place.suffix == ".npz" else place / f"{layout.name}.npz"
    if folder.is_dir():
        train, test = _read_folder(layout, folder)
    elif npz.is_file():
        train, test = _read_npz(layout, npz)
    else:
        hint = _hint(layout, _around(layout, place))
        raise InputError(f"No {layout.title} in {place}: neither {folder.name}/ nor {npz.name} is there. {hint}")
    return Dataset(
        name=layout.name,
        class_names=layout.class_names,
        train=Items(torch.from_numpy(train[0]), _ids("train", len(train[0]))),
        truth=Truth.of(train[1], layout.class_names),
        test=Items(torch.from_numpy(test[0]), _ids("test", len(test[0]))),
        test_truth=Truth.of(test[1], layout.class_names),
        views=image_views(layout.mean, layout.std, pad=4, flip=True, strong="cifar", cutout=16),
    )


def _ids(part: str, count: int) -> tuple[str, ...]:
    return tuple(f"{part}-{i:05d}" for i in range(count))


def _hint(layout: Layout, data_dir: Path | None) -> str:
    return (
        f"Get it with {fetch_command(layout.name, data_dir)}, or name the folder that holds {layout.archive.folder}/ "
        f"or {layout.name}.npz with --data-dir or the variable {VARIABLE}."
    )


# ---- CIFAR's own files


def _read_folder(layout: Layout, folder: Path) -> tuple[Part, Part]:
    missing = layout.archive.missing(folder)
    if missing:
        raise InputError(f"{folder} lacks {', '.join(missing)}. Run {fetch_command(layout.name, folder.parent)} again.")
    train = [_read_batch(layout, folder / file) for file in layout.archive.train_files]
    images, labels = zip(*train, strict=True)
    return (np.concatenate(images), np.concatenate(labels)), _read_batch(layout, folder / layout.archive.test_files[0])


def _read_batch(layout: Layout, path: Path) -> Part:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error}.") from None
    # The makers publish no other sum. To pass with other content, a file would have to be a second preimage, which cannot be
    # computed for MD5; only collisions, two files made for each other, are easy.
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != PUBLISHED_MD5[path.name]:
        raise InputError(
            f"{path} is not the published file and was not loaded: its MD5 is {found}, not {PUBLISHED_MD5[path.name]}. Move "
            f"the folder {path.parent} away and run {fetch_command(layout.name, path.parent.parent)}, or, for images of "
            f"another source, save them as {layout.name}.npz (arrays {', '.join(NPZ_KEYS)}) in its place."
        )
    values = pickle.loads(content, encoding="bytes")
    return values[b"data"].reshape(-1, 3, 32, 32), np.array(values[layout.label_key], np.int64)


# ---- .npz files


def _read_npz(layout: Layout, path: Path) -> tuple[Part, Part]:
    hint = f"Make the file again, or use CIFAR's own files: {fetch_command(layout.name, path.parent)}."
    x_train, y_train, x_test, y_test = _read_arrays(path, NPZ_KEYS, hint)
    train, test = (_npz_part(layout, path, x, y, hint) for x, y in ((x_train, y_train), (x_test, y_test)))
    count_C = np.bincount(train[1], minlength=len(layout.class_names))
    if len(train[1]) >= MIN_ITEMS_PER_CLASS * len(count_C) and not count_C.all():
        found = f"{np.sum(count_C == 0)} of the {len(count_C)} classes have none of its {len(train[1])} training images"
        _refuse(path, f"{found}, the first is {count_C.argmin()}; it is probably not {layout.title}", hint)
    return train, test


def _npz_part(layout: Layout, path: Path, image: np.ndarray, label: np.ndarray, hint: str) -> Part:
    if image.dtype != np.uint8 or image.ndim != 4 or image.shape[1:] != (32, 32, 3):
        _refuse(path, f"its images are {image.dtype} of shape {image.shape}, not uint8 of shape N x 32 x 32 x 3", hint)
    label_N = label[:, 0] if label.ndim == 2 and label.shape[1] == 1 else label
    if label_N.ndim != 1 or label_N.dtype.kind not in "iu":
        _refuse(path, "its labels are not one whole number per image", hint)
    if len(image) != len(label_N) or not len(image):
        _refuse(path, f"it holds {len(image)} images and {len(label_N)} labels", hint)
    _check_labels(path, label_N, len(layout.class_names), hint)
    return np.ascontiguousarray(image.transpose(0, 3, 1, 2)), label_N.astype(np.int64)


def _read_arrays(path: Path, keys: tuple[str, ...], hint: str) -> list[np.ndarray]:
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            missing = [key for key in keys if key not in file.files]
            if not missing:
                return [file[key] for key in keys]
            found = ", ".join(file.files) or "nothing"
    except (OSError, ValueError, EOFError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        reason = str(error).rstrip(".") or type(error).__name__
        raise InputError(f"{path} is truncated or corrupted ({reason}). {hint}") from None
    return _refuse(path, f"it holds no {missing[0]!r} but {found}", hint)


def _check_labels(path: Path, label: np.ndarray, classes: int, hint: str) -> None:
    bad = label[(label < 0) | (label >= classes)]
    if len(bad):
        _refuse(path, f"it holds the label {bad[0]}, but the {classes} classes are 0 to {classes - 1}", hint)


def _refuse(path: Path, found: str, hint: str) -> NoReturn:
    raise InputError(f"{path} does not hold what it should: {found}. {hint}")
