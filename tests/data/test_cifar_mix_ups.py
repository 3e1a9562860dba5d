"""Files of CIFAR that are whole, each for itself, but not the ones that belong there."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pals.data import load_dataset
from pals.data.cifar import CIFAR10_CLASSES
from pals.util.errors import InputError

BATCHES = [f"data_batch_{i}" for i in range(1, 6)]
TITLES = {
    "cifar10": {
        "data_batch_1": "training batch 1 of 5",
        "data_batch_2": "training batch 2 of 5",
        "data_batch_3": "training batch 3 of 5",
        "data_batch_4": "training batch 4 of 5",
        "data_batch_5": "training batch 5 of 5",
        "test_batch": "testing batch 1 of 1",
    },
    "cifar100": {"train": "training batch 1 of 1", "test": "testing batch 1 of 1"},
}
FOLDERS = {"cifar10": "cifar-10-batches-py", "cifar100": "cifar-100-python"}


def write(path: Path, **values: Any) -> None:
    path.write_bytes(pickle.dumps({key.encode(): value for key, value in values.items()}, protocol=2))


def write_set(root: Path, name: str, titled: type[bytes] | type[str] | None = bytes) -> Path:
    """A little CIFAR. Its files say what they are in bytes, in text, or not at all."""
    folder = root / FOLDERS[name]
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for file, title in TITLES[name].items():
        pixels = rng.integers(0, 256, (2, 3072), dtype=np.uint8)
        labels = {"labels" if name == "cifar10" else "fine_labels": [1, 2]}
        said = {} if titled is None else {"batch_label": title.encode() if titled is bytes else title}
        write(folder / file, data=pixels, **labels, **said)
    return folder


def swap(one: Path, other: Path) -> None:
    kept = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(kept)


def refused(name: str, place: Path) -> str:
    with pytest.raises(InputError) as raised:
        load_dataset(name, data_dir=place)
    return str(raised.value)


def anew(name: str, folder: Path) -> str:
    return f"Delete the folder {folder} and run `pals data fetch {name} --data-dir {folder.parent}` to get it again."


@pytest.mark.parametrize("titled", [bytes, str, None])
@pytest.mark.parametrize("name", TITLES)
def test_files_in_their_places(tmp_path, name, titled):
    write_set(tmp_path, name, titled)
    dataset = load_dataset(name, data_dir=tmp_path)
    assert (len(dataset.train), len(dataset.test)) == (2 * len(TITLES[name]) - 2, 2)


@pytest.mark.parametrize("titled", [bytes, str])
@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        ("cifar100", "train", "test"),
        ("cifar10", "data_batch_3", "test_batch"),
        ("cifar10", "data_batch_1", "data_batch_5"),
    ],
)
def test_swapped_files(tmp_path, name, one, other, titled):
    folder = write_set(tmp_path, name, titled)
    swap(folder / one, folder / other)
    said, right = TITLES[name][other], TITLES[name][one]
    assert refused(name, tmp_path) == (
        f"{folder / one} does not hold what it should: it says that it is {said!r}, not {right!r}. {anew(name, folder)}"
    )


@pytest.mark.parametrize(
    ("title", "other"),
    [(b"training batch 3 of 6", True), ("testing batch 3 of 5", True), (b"some batch", False), ("", False), (7, False)],
)
def test_any_other_title(tmp_path, title, other):
    """What is not in the form of CIFAR's makers is somebody's own."""
    folder = write_set(tmp_path, "cifar10")
    values = pickle.loads((folder / "data_batch_3").read_bytes())
    (folder / "data_batch_3").write_bytes(pickle.dumps(values | {b"batch_label": title}, protocol=2))
    if other:
        assert "data_batch_3 does not hold what it should: it says that it is" in refused("cifar10", tmp_path)
    else:
        assert load_dataset("cifar10", data_dir=tmp_path).name == "cifar10"


@pytest.mark.parametrize(
    ("name", "copied", "over"),
    [
        ("cifar10", "data_batch_2", "data_batch_3"),
        ("cifar10", "data_batch_1", "data_batch_5"),
        ("cifar10", "data_batch_4", "test_batch"),
        ("cifar100", "train", "test"),
    ],
)
def test_the_same_batch_twice(tmp_path, name, copied, over):
    folder = write_set(tmp_path, name, titled=None)
    shutil.copy(folder / copied, folder / over)
    found = f"{folder / over} does not hold what it should: its images are those of {copied}. {anew(name, folder)}"
    assert refused(name, tmp_path) == found
    # However the pixels lie in the file, and whatever the labels and the name inside.
    pixels = np.asfortranarray(pickle.loads((folder / copied).read_bytes())[b"data"])
    write(folder / over, data=pixels, labels=[3, 4], fine_labels=[3, 4], batch_label=TITLES[name][over].encode())
    assert refused(name, tmp_path) == found


def test_one_pixel_makes_another_batch(tmp_path):
    folder = write_set(tmp_path, "cifar10", titled=None)
    pixels = pickle.loads((folder / "data_batch_2").read_bytes())[b"data"]
    pixels[-1, -1] ^= 1
    write(folder / "data_batch_3", data=pixels, labels=[1, 2])
    assert len(load_dataset("cifar10", data_dir=tmp_path).train) == 10


def test_class_names_are_distinct(tmp_path):
    folder = write_set(tmp_path, "cifar10")
    meta = folder / "batches.meta"
    for names, twice in (
        ([b"cat"] * 10, "cat"),
        ([*(name.encode() for name in CIFAR10_CLASSES[:9]), b"dog"], "dog"),
        ([*CIFAR10_CLASSES[:9], b"ship"], "ship"),  # once as text, once as bytes
    ):
        write(meta, label_names=names)
        assert refused("cifar10", tmp_path) == (
            f"{meta} does not hold what it should: two of its classes are called {twice!r}. {anew('cifar10', folder)}"
        )
    write(meta, label_names=[name.encode() for name in CIFAR10_CLASSES])
    assert load_dataset("cifar10", data_dir=tmp_path).class_names == CIFAR10_CLASSES


def write_npz(path: Path, label: np.ndarray) -> None:
    images = np.zeros((len(label), 32, 32, 3), np.uint8)
    np.savez(path, x_train=images, y_train=label, x_test=images[:1], y_test=label[:1])


def test_an_npz_of_the_other_cifar(tmp_path):
    path = tmp_path / "cifar10.npz"
    write_npz(path, np.arange(10_000) % 10)
    assert refused("cifar100", path) == (
        f"{path} does not hold what it should: 90 of the 100 classes have none of its 10000 training images, the first is 10; "
        "it is probably not CIFAR-100. Make the file again, or use CIFAR's own files: "
        f"`pals data fetch cifar100 --data-dir {tmp_path}`."
    )
    assert len(load_dataset("cifar10", data_dir=path).train) == 10_000


@pytest.mark.parametrize(("count", "classes", "fine"), [(1000, 10, True), (1000, 9, False), (999, 9, True), (999, 1, True)])
def test_few_images_need_not_show_every_class(tmp_path, count, classes, fine):
    write_npz(tmp_path / "cifar10.npz", np.arange(count) % classes)
    if fine:
        assert len(load_dataset("cifar10", data_dir=tmp_path).train) == count
    else:
        assert "1 of the 10 classes have none of its 1000 training images, the first is 9" in refused("cifar10", tmp_path)


def test_a_class_that_no_batch_shows(tmp_path):
    folder = write_set(tmp_path, "cifar10")
    rng = np.random.default_rng(1)
    label = [c for c in range(10) if c != 4] * 23  # 207 in each of five files: over 100 per class
    for file in BATCHES:
        write(folder / file, data=rng.integers(0, 256, (len(label), 3072), dtype=np.uint8), labels=label)
    assert refused("cifar10", tmp_path) == (
        f"{folder} does not hold what it should: 1 of the 10 classes have none of its 1035 training images, the first is 4; "
        f"it is probably not CIFAR-10. {anew('cifar10', folder)}"
    )
    write(folder / "data_batch_5", data=rng.integers(0, 256, (1, 3072), dtype=np.uint8), labels=[4])
    assert len(load_dataset("cifar10", data_dir=tmp_path).train) == 4 * len(label) + 1
