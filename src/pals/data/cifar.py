"""CIFAR-10, CIFAR-100 and CIFAR-10N from the user's disk.

Reads the folders that CIFAR's own archives unpack to (`cifar-10-batches-py`, `cifar-100-python`), or one file
`cifar10.npz` / `cifar100.npz` with four arrays: `x_train`, `x_test` (uint8, N x 32 x 32 x 3) and `y_train`, `y_test`
(class numbers, N or N x 1). The number of images is what the files hold; a file whose images and labels differ in
number is refused, and so are files that were evidently swapped, doubled or taken from the other set.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pals.data.cifar_files import as_text, read_arrays, read_pickle, refuse
from pals.data.dataset import Dataset, Items
from pals.data.download import ARCHIVES, VARIABLE, Archive, data_folder, fetch_command
from pals.labels.candidates import CandidateSets, Truth
from pals.labels.taxonomy import Entry, Taxonomy
from pals.util.errors import InputError
from pals.vision.augment import image_views

VOTES_FILE = "cifar_labels.npz"
VOTES_KEY = "c10n_label"

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
        *(Entry(coarse, None) for coarse in SUPERCLASSES),
        *(Entry(fine, coarse) for coarse, members in SUPERCLASSES.items() for fine in members),
    ]
)
CIFAR100_CLASSES = tuple(sorted(CIFAR100_TREE.leaves))  # CIFAR numbers them so


@dataclass(frozen=True)
class Layout:
    """Where one of the two sets keeps what, and how its pixels are normalised."""

    name: str  # also of the download and of the .npz file
    title: str
    label_key: str
    meta_file: str
    names_key: str
    class_names: tuple[str, ...]  # where there is no meta file
    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    @property
    def archive(self) -> Archive:
        return ARCHIVES[self.name]


CIFAR10 = Layout(
    name="cifar10",
    title="CIFAR-10",
    label_key="labels",
    meta_file="batches.meta",
    names_key="label_names",
    class_names=CIFAR10_CLASSES,
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2023, 0.1994, 0.2010),
)
CIFAR100 = Layout(
    name="cifar100",
    title="CIFAR-100",
    label_key="fine_labels",
    meta_file="meta",
    names_key="fine_label_names",
    class_names=CIFAR100_CLASSES,
    mean=(0.5071, 0.4867, 0.4408),
    std=(0.2675, 0.2565, 0.2761),
)

USUAL_ITEMS = 100  # per class: a training set with so many on average has some of every class

Part = tuple[np.ndarray, np.ndarray]  # uint8 images N x 3 x 32 x 32, class numbers N


def load_cifar10(data_dir: Path | None = None) -> Dataset:
    return _load(CIFAR10, data_dir)


def load_cifar100(data_dir: Path | None = None) -> Dataset:
    return _load(CIFAR100, data_dir)


def load_cifar100h(data_dir: Path | None = None) -> Dataset:
    """CIFAR-100 whose classes are confused within their super-class only."""
    dataset = _load(CIFAR100, data_dir)
    return replace(dataset, name="cifar100h", group_C=superclass_of(dataset.class_names))


def load_cifar10n(data_dir: Path | None = None) -> Dataset:
    """CIFAR-10 with what the people of CIFAR-10N answered."""
    return replace(_load(CIFAR10, data_dir), name="cifar10n", votes=cifar10n_votes(data_dir))


def cifar10n_votes(data_dir: Path | None = None) -> CandidateSets:
    """The three people's answers to each training image, from `c10n_label` (N x 3) in `cifar_labels.npz`."""
    place = _around(CIFAR10, data_place(CIFAR10, data_dir))
    path = place / VOTES_FILE
    if not path.is_file():
        raise InputError(
            f"The answers of CIFAR-10N are not in {place}: {VOTES_FILE} is missing. Put it there (array {VOTES_KEY}, "
            f"one row of answers per training image), or train on the data set cifar10 with made-up noise."
        )
    remedy = "Get the file again."
    answer_NA = read_arrays(path, (VOTES_KEY,), remedy)[0]
    if answer_NA.ndim != 2 or answer_NA.dtype.kind not in "iu" or 0 in answer_NA.shape:
        refuse(
            path,
            f"{VOTES_KEY} has shape {answer_NA.shape} and type {answer_NA.dtype}, not one row of answers per image",
            remedy,
        )
    _check_labels(path, answer_NA.ravel(), len(CIFAR10_CLASSES), remedy)
    vote_NA = torch.from_numpy(answer_NA.astype(np.int64))
    count_NC = torch.nn.functional.one_hot(vote_NA, len(CIFAR10_CLASSES)).sum(dim=1)
    return CandidateSets(count_NC > 0, _ids("train", len(count_NC)), CIFAR10_CLASSES, count_NC / vote_NA.shape[1])


def superclass_of(class_names: tuple[str, ...]) -> Tensor:
    """The number of each class's super-class, 0 to 19."""
    strange = [name for name in class_names if name not in CIFAR100_TREE.leaves]
    if strange:
        raise InputError(
            f"The class {strange[0]!r} has no super-class: these are not CIFAR-100's classes. Use the data set cifar100."
        )
    return torch.from_numpy(CIFAR100_TREE.branch_of(class_names))


def data_place(layout: Layout, data_dir: Path | None) -> Path:
    """What the user named: the folder that holds the set, the set's own folder, or an .npz file."""
    place = data_folder(data_dir)
    if place is None:
        raise InputError(
            f"No folder to look for {layout.title} in: {VARIABLE} is not set and no --data-dir is given. "
            f"{_advice(layout, None)}"
        )
    return place


def _around(layout: Layout, place: Path) -> Path:
    """The data folder, where the user named what lies in it."""
    return place.parent if place.suffix == ".npz" or place.name == layout.archive.folder else place


def _load(layout: Layout, data_dir: Path | None) -> Dataset:
    place = data_place(layout, data_dir)
    folder = place if place.name == layout.archive.folder else place / layout.archive.folder
    npz = place if place.suffix == ".npz" else place / f"{layout.name}.npz"
    class_names = layout.class_names
    if folder.is_dir():
        class_names = _names(layout, folder)
        train, test = _read_folder(layout, folder)
    elif npz.is_file():
        train, test = _read_npz(layout, npz)
    else:
        advice = _advice(layout, _around(layout, place))
        raise InputError(f"No {layout.title} in {place}: neither {folder.name}/ nor {npz.name} is there. {advice}")
    return Dataset(
        name=layout.name,
        class_names=class_names,
        train=Items(torch.from_numpy(train[0]), _ids("train", len(train[0]))),
        truth=Truth.of(train[1], class_names),
        test=Items(torch.from_numpy(test[0]), _ids("test", len(test[0]))),
        test_truth=Truth.of(test[1], class_names),
        views=image_views(layout.mean, layout.std, pad=4, flip=True, strong="cifar", cutout=16),
    )


def _ids(part: str, count: int) -> tuple[str, ...]:
    return tuple(f"{part}-{i:05d}" for i in range(count))


def _advice(layout: Layout, data_dir: Path | None) -> str:
    return (
        f"Get it with {fetch_command(layout.name, data_dir)}, or name the folder that holds {layout.archive.folder}/ "
        f"or {layout.name}.npz with --data-dir or the variable {VARIABLE}."
    )


# ---- CIFAR's own files


def _read_folder(layout: Layout, folder: Path) -> tuple[Part, Part]:
    missing = layout.archive.missing(folder)
    if missing:
        raise InputError(
            f"{folder} lacks {', '.join(missing)}. Run {fetch_command(layout.name, folder.parent)} to get it again."
        )
    seen: dict[bytes, str] = {}
    train = _read_files(layout, folder, layout.archive.train_files, "training", seen)
    test = _read_files(layout, folder, layout.archive.test_files, "testing", seen)
    _check_classes(layout, folder, train[1], _again(layout, folder))
    return train, test


def _read_files(layout: Layout, folder: Path, files: tuple[str, ...], kind: str, seen: dict[bytes, str]) -> Part:
    """All files of one part. `seen` are the files read so far by what their pixels hash to."""
    parts = []
    for number, file in enumerate(files, 1):
        image, label = _read_batch(layout, folder / file, f"{kind} batch {number} of {len(files)}")
        other = seen.setdefault(hashlib.sha256(np.ascontiguousarray(image).data).digest(), file)
        if other != file:
            refuse(folder / file, f"its images are those of {other}", _again(layout, folder))
        parts.append((image, label))
    return np.concatenate([image for image, _ in parts]), np.concatenate([label for _, label in parts])


def _read_batch(layout: Layout, path: Path, title: str) -> Part:
    remedy = _again(layout, path.parent)
    values = read_pickle(path, remedy)
    said = as_text(values.get("batch_label", ""))  # people who pack these files anew leave it out, or write something else
    if re.fullmatch(r"(training|testing) batch \d+ of \d+", said) and said != title:
        refuse(path, f"it says that it is {said!r}, not {title!r}", remedy)
    for key in ("data", layout.label_key):
        if key not in values:
            refuse(path, f"it holds no {key!r}", remedy)
    pixel, label = values["data"], _whole_numbers(path, values[layout.label_key], remedy)
    if not isinstance(pixel, np.ndarray) or pixel.dtype != np.uint8 or pixel.ndim != 2 or pixel.shape[1] != 3072:
        found = f"{pixel.dtype} of shape {pixel.shape}" if isinstance(pixel, np.ndarray) else type(pixel).__name__
        refuse(path, f"its images are {found}, not uint8 of shape N x 3072", remedy)
    _check_part(path, len(pixel), label, len(layout.class_names), remedy)
    return pixel.reshape(-1, 3, 32, 32), label


def _names(layout: Layout, folder: Path) -> tuple[str, ...]:
    path = folder / layout.meta_file
    if not path.exists():
        return layout.class_names
    remedy = _again(layout, folder)
    names = read_pickle(path, remedy).get(layout.names_key)
    if (
        not isinstance(names, list)
        or len(names) != len(layout.class_names)
        or not all(isinstance(n, (bytes, str)) for n in names)
    ):
        refuse(path, f"{layout.names_key!r} is not a list of {len(layout.class_names)} names", remedy)
    class_names = tuple(as_text(name) for name in names)
    twice = [name for i, name in enumerate(class_names) if name in class_names[:i]]
    if twice:
        refuse(path, f"two of its classes are called {twice[0]!r}", remedy)
    return class_names


def _again(layout: Layout, folder: Path) -> str:
    return f"Delete the folder {folder} and run {fetch_command(layout.name, folder.parent)} to get it again."


# ---- .npz files


def _read_npz(layout: Layout, path: Path) -> tuple[Part, Part]:
    remedy = f"Make the file again, or use CIFAR's own files: {fetch_command(layout.name, path.parent)}."
    x_train, y_train, x_test, y_test = read_arrays(path, ("x_train", "y_train", "x_test", "y_test"), remedy)
    train, test = (_npz_part(layout, path, x, y, remedy) for x, y in ((x_train, y_train), (x_test, y_test)))
    _check_classes(layout, path, train[1], remedy)
    return train, test


def _npz_part(layout: Layout, path: Path, image: np.ndarray, label: np.ndarray, remedy: str) -> Part:
    if image.dtype != np.uint8 or image.ndim != 4 or image.shape[1:] != (32, 32, 3):
        refuse(path, f"its images are {image.dtype} of shape {image.shape}, not uint8 of shape N x 32 x 32 x 3", remedy)
    label_N = _whole_numbers(path, label[:, 0] if label.ndim == 2 and label.shape[1] == 1 else label, remedy)
    _check_part(path, len(image), label_N, len(layout.class_names), remedy)
    return np.ascontiguousarray(image.transpose(0, 3, 1, 2)), label_N


# ---- checks that both kinds of file share


def _whole_numbers(path: Path, values: object, remedy: str) -> np.ndarray:
    try:
        label_N = np.asarray(values)
    except ValueError:  # rows of unequal length
        label_N = np.empty(0, object)
    if label_N.ndim != 1 or label_N.dtype.kind not in "iu":
        refuse(path, "its labels are not one whole number per image", remedy)
    return label_N.astype(np.int64)


def _check_part(path: Path, images: int, label_N: np.ndarray, classes: int, remedy: str) -> None:
    if images != len(label_N) or not images:
        refuse(path, f"it holds {images} images and {len(label_N)} labels", remedy)
    _check_labels(path, label_N, classes, remedy)


def _check_labels(path: Path, label: np.ndarray, classes: int, remedy: str) -> None:
    bad = label[(label < 0) | (label >= classes)]
    if len(bad):
        refuse(path, f"it holds the label {bad[0]}, but the {classes} classes are 0 to {classes - 1}", remedy)


def _check_classes(layout: Layout, path: Path, label_N: np.ndarray, remedy: str) -> None:
    count_C = np.bincount(label_N, minlength=len(layout.class_names))
    if len(label_N) >= USUAL_ITEMS * len(count_C) and not count_C.all():
        found = f"{np.sum(count_C == 0)} of the {len(count_C)} classes have none of its {len(label_N)} training images"
        refuse(path, f"{found}, the first is {count_C.argmin()}; it is probably not {layout.title}", remedy)
