"""CIFAR-10, CIFAR-100 and CIFAR-10N from the user's disk.

Read are the folders that CIFAR's own archives unpack to (`cifar-10-batches-py`, `cifar-100-python`), or one file
`cifar10.npz` / `cifar100.npz` with four arrays: `x_train`, `x_test` (uint8, N x 32 x 32 x 3) and `y_train`, `y_test`
(class numbers, N or N x 1). The number of images is what the files hold; a file whose images and labels differ in
number is refused. CIFAR's files are pickles, and a pickle can run any program: a restricted reader takes only what
CIFAR's own files consist of.
"""

from __future__ import annotations

import io
import pickle
import re
import zipfile
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from pals.augment import image_views
from pals.candidates import CandidateSets, Truth
from pals.data.base import Dataset, Items
from pals.data.fetch import ARCHIVES, VARIABLE, data_folder
from pals.errors import InputError

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
CIFAR100_CLASSES = tuple(sorted(fine for group in SUPERCLASSES.values() for fine in group))  # CIFAR numbers them so


@dataclass(frozen=True)
class Layout:
    """Where one of the two sets keeps what, and how its pixels are normalised."""

    name: str  # also of the download and of the .npz file
    title: str
    train_files: tuple[str, ...]
    test_files: tuple[str, ...]
    label_key: str
    meta_file: str
    names_key: str
    class_names: tuple[str, ...]  # where there is no meta file
    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    @property
    def folder(self) -> str:
        return ARCHIVES[self.name].folder


CIFAR10 = Layout(
    name="cifar10",
    title="CIFAR-10",
    train_files=tuple(f"data_batch_{i}" for i in range(1, 6)),
    test_files=("test_batch",),
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
    train_files=("train",),
    test_files=("test",),
    label_key="fine_labels",
    meta_file="meta",
    names_key="fine_label_names",
    class_names=CIFAR100_CLASSES,
    mean=(0.5071, 0.4867, 0.4408),
    std=(0.2675, 0.2565, 0.2761),
)

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
    place = data_place(CIFAR10, data_dir)
    if place.suffix == ".npz" or place.name == CIFAR10.folder:
        place = place.parent
    path = place / VOTES_FILE
    if not path.is_file():
        raise InputError(
            f"The answers of CIFAR-10N are not in {place}: {VOTES_FILE} is missing. Put it there (array {VOTES_KEY}, "
            f"one row of answers per training image), or train on the data set cifar10 with made-up noise."
        )
    remedy = "Get the file again."
    answer_NA = _arrays(path, (VOTES_KEY,), remedy)[0]
    if answer_NA.ndim != 2 or answer_NA.dtype.kind not in "iu" or 0 in answer_NA.shape:
        _refuse(
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
    group = {fine: number for number, members in enumerate(SUPERCLASSES.values()) for fine in members}
    strange = [name for name in class_names if name not in group]
    if strange:
        raise InputError(
            f"The class {strange[0]!r} has no super-class: these are not CIFAR-100's classes. Use the data set cifar100."
        )
    return torch.tensor([group[name] for name in class_names])


def data_place(layout: Layout, data_dir: Path | None) -> Path:
    """What the user named: the folder that holds the set, the set's own folder, or an .npz file."""
    place = data_folder(data_dir)
    if place is None:
        raise InputError(
            f"No folder to look for {layout.title} in: {VARIABLE} is not set and no --data-dir is given. {_advice(layout)}"
        )
    return place


def _load(layout: Layout, data_dir: Path | None) -> Dataset:
    place = data_place(layout, data_dir)
    folder = place if place.name == layout.folder else place / layout.folder
    npz = place if place.suffix == ".npz" else place / f"{layout.name}.npz"
    class_names = layout.class_names
    if folder.is_dir():
        class_names = _names(layout, folder)
        train, test = (_read_files(layout, folder, files) for files in (layout.train_files, layout.test_files))
    elif npz.is_file():
        train, test = _read_npz(layout, npz)
    else:
        raise InputError(f"No {layout.title} in {place}: neither {folder.name}/ nor {npz.name} is there. {_advice(layout)}")
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


def _advice(layout: Layout) -> str:
    return (
        f"Get it with `pals data fetch {layout.name}`, or name the folder that holds {layout.folder}/ or {layout.name}.npz "
        f"with --data-dir or the variable {VARIABLE}."
    )


# ---- CIFAR's own files


def _read_files(layout: Layout, folder: Path, files: tuple[str, ...]) -> Part:
    parts = [_read_batch(layout, folder / file) for file in files]
    return np.concatenate([image for image, _ in parts]), np.concatenate([label for _, label in parts])


def _read_batch(layout: Layout, path: Path) -> Part:
    remedy = _again(layout, path)
    values = read_pickle(path, remedy)
    for key in ("data", layout.label_key):
        if key not in values:
            _refuse(path, f"it holds no {key!r}", remedy)
    pixel, label = values["data"], _whole_numbers(path, values[layout.label_key], remedy)
    if not isinstance(pixel, np.ndarray) or pixel.dtype != np.uint8 or pixel.ndim != 2 or pixel.shape[1] != 3072:
        found = f"{pixel.dtype} of shape {pixel.shape}" if isinstance(pixel, np.ndarray) else type(pixel).__name__
        _refuse(path, f"its images are {found}, not uint8 of shape N x 3072", remedy)
    _check_part(path, len(pixel), label, len(layout.class_names), remedy)
    return pixel.reshape(-1, 3, 32, 32), label


def _names(layout: Layout, folder: Path) -> tuple[str, ...]:
    path = folder / layout.meta_file
    if not path.exists():
        return layout.class_names
    remedy = _again(layout, path)
    names = read_pickle(path, remedy).get(layout.names_key)
    if (
        not isinstance(names, list)
        or len(names) != len(layout.class_names)
        or not all(isinstance(n, (bytes, str)) for n in names)
    ):
        _refuse(path, f"{layout.names_key!r} is not a list of {len(layout.class_names)} names", remedy)
    return tuple(_text(name) for name in names)


def _again(layout: Layout, path: Path) -> str:
    return f"Delete the folder {path.parent} and run `pals data fetch {layout.name}` to get it anew."


def read_pickle(path: Path, remedy: str) -> dict[str, Any]:
    """The dictionary in one of CIFAR's files, without running anything that the file asks for."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path} is missing. {remedy}") from None
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error}.") from None
    try:
        found = _Reader(io.BytesIO(content), encoding="bytes").load()
    except _ForbiddenError as error:
        raise InputError(f"{path} is not one of CIFAR's own files: it wants to use {error}. It was not run. {remedy}") from None
    except Exception as error:  # a damaged pickle can raise anything
        _damaged(path, error, remedy)
    if not isinstance(found, dict):
        _refuse(path, f"it holds {type(found).__name__}, not a dictionary", remedy)
    return {_text(key): value.value if isinstance(value, _Array) else value for key, value in found.items()}


class _ForbiddenError(Exception):
    """The file names something that CIFAR's files have no need of."""


class _Reader(pickle.Unpickler):
    """Never imports: the few names that CIFAR's files contain stand for the harmless classes below."""

    def find_class(self, module: str, name: str, /) -> Any:
        if (module, name) not in _STAND_INS:
            raise _ForbiddenError(f"{module}.{name}")
        return _STAND_INS[module, name]


class _Bytes(bytes):
    """For `_codecs.encode(text, "latin1")`: how Python 3 writes bytes for Python 2."""

    def __new__(cls, text: str, encoding: bytes | str) -> _Bytes:
        if _text(encoding) != "latin1":
            raise _ForbiddenError(f"the encoding {_text(encoding)}")
        return super().__new__(cls, text.encode("latin1"))

    def __setstate__(self, state: object) -> None:
        raise pickle.UnpicklingError("bytes have no state")


class _Dtype:
    """For `numpy.dtype(code, align, copy)`: whole numbers only."""

    def __init__(self, code: bytes | str, *_: object) -> None:
        self.code = _text(code)
        if not re.fullmatch(r"[iu][1248]", self.code):
            raise _ForbiddenError(f"numbers of type {self.code}")
        self.value = np.dtype(self.code)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.value = np.dtype(_text(state[1]) + self.code)


class _Array:
    """For `numpy.core.multiarray._reconstruct(...)`: an empty array, filled by its state."""

    value: np.ndarray

    def __init__(self, *_: object) -> None:
        self.value = np.empty(0, np.uint8)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, fortran, content = state
        self.value = np.frombuffer(content, dtype.value).reshape(shape, order="F" if fortran else "C")


_STAND_INS: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): "ndarray",  # only ever handed to _reconstruct
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _Bytes,
}


def _text(value: object) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else str(value)


# ---- .npz files


def _read_npz(layout: Layout, path: Path) -> tuple[Part, Part]:
    remedy = f"Make the file again, or use CIFAR's own files: `pals data fetch {layout.name}`."
    x_train, y_train, x_test, y_test = _arrays(path, ("x_train", "y_train", "x_test", "y_test"), remedy)
    return _npz_part(layout, path, x_train, y_train, remedy), _npz_part(layout, path, x_test, y_test, remedy)


def _npz_part(layout: Layout, path: Path, image: np.ndarray, label: np.ndarray, remedy: str) -> Part:
    if image.dtype != np.uint8 or image.ndim != 4 or image.shape[1:] != (32, 32, 3):
        _refuse(path, f"its images are {image.dtype} of shape {image.shape}, not uint8 of shape N x 32 x 32 x 3", remedy)
    label_N = _whole_numbers(path, label[:, 0] if label.ndim == 2 and label.shape[1] == 1 else label, remedy)
    _check_part(path, len(image), label_N, len(layout.class_names), remedy)
    return np.ascontiguousarray(image.transpose(0, 3, 1, 2)), label_N


def _arrays(path: Path, keys: tuple[str, ...], remedy: str) -> list[np.ndarray]:
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            missing = [key for key in keys if key not in file.files]
            if not missing:
                return [file[key] for key in keys]
            held = ", ".join(file.files)
    except (OSError, ValueError, EOFError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        _damaged(path, error, remedy)
    return _refuse(path, f"it holds no {missing[0]!r} but {held or 'nothing'}", remedy)


# ---- checks that both kinds of file share


def _whole_numbers(path: Path, values: object, remedy: str) -> np.ndarray:
    try:
        label_N = np.asarray(values)
    except ValueError:  # rows of unequal length
        label_N = np.empty(0, object)
    if label_N.ndim != 1 or label_N.dtype.kind not in "iu":
        _refuse(path, "its labels are not one whole number per image", remedy)
    return label_N.astype(np.int64)


def _check_part(path: Path, images: int, label_N: np.ndarray, classes: int, remedy: str) -> None:
    if images != len(label_N) or not images:
        _refuse(path, f"it holds {images} images and {len(label_N)} labels", remedy)
    _check_labels(path, label_N, classes, remedy)


def _check_labels(path: Path, label: np.ndarray, classes: int, remedy: str) -> None:
    bad = label[(label < 0) | (label >= classes)]
    if len(bad):
        _refuse(path, f"it holds the label {bad[0]}, but the {classes} classes are 0 to {classes - 1}", remedy)


def _refuse(path: Path, found: str, remedy: str) -> NoReturn:
    raise InputError(f"{path} does not hold what it should: {found}. {remedy}")


def _damaged(path: Path, error: Exception, remedy: str) -> NoReturn:
    reason = str(error).rstrip(".") or type(error).__name__
    raise InputError(f"{path} is truncated or corrupted ({reason}). {remedy}") from None
