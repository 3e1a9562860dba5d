from __future__ import annotations

import hashlib
import os
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from _refused import refused
from pals.data import load_dataset
from pals.data.cifar import CIFAR10_CLASSES, CIFAR100_CLASSES, PUBLISHED_MD5, SUPERCLASSES, cifar10n_votes
from pals.labels.candidates import CandidateSets

# The super-class of classes 0..99, read off the coarse and fine labels of the real CIFAR-100.
COARSE = (
    "4 1 14 8 0 6 7 7 18 3 3 14 9 18 7 11 3 9 7 11 6 11 5 10 7 "
    "6 13 15 3 15 0 11 1 10 12 14 16 9 11 5 5 19 8 8 15 13 14 17 18 10 "
    "16 4 17 4 2 0 17 4 18 17 10 3 2 12 12 16 12 1 9 19 2 10 0 1 16 "
    "12 9 13 15 13 16 19 2 4 6 19 5 5 8 19 18 1 2 15 6 0 17 8 14 13"
)
PER_FILE = 3


def python2_pickle(values: dict[str, Any]) -> bytes:
    """As Python 2 wrote CIFAR's own files: every text and the pixels as byte strings, protocol 2."""

    def string(text: bytes) -> bytes:
        return b"U" + bytes([len(text)]) + text

    def value_of(value: Any) -> bytes:
        if isinstance(value, np.ndarray):
            start = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
            kind = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNN" + 2 * b"J\xff\xff\xff\xff" + b"K\x00tb"
            shape = b"".join(b"M" + struct.pack("<H", n) for n in value.shape) + b"\x86"
            return start + b"(K\x01" + shape + kind + b"\x89T" + struct.pack("<i", value.nbytes) + value.tobytes() + b"tb"
        if isinstance(value, list):
            return b"](" + b"".join(map(value_of, value)) + b"e"
        return b"K" + bytes([value]) if isinstance(value, int) else string(value)

    return b"\x80\x02}(" + b"".join(string(k.encode()) + value_of(v) for k, v in values.items()) + b"u."


def made_up(count: int, classes: int) -> tuple[np.ndarray, list[int]]:
    rng = np.random.default_rng(count)
    return rng.integers(0, 256, (count, 3, 32, 32), dtype=np.uint8), rng.integers(0, classes, count).tolist()


BATCHES = (*(f"data_batch_{n}" for n in range(1, 6)), "test_batch")
FOLDERS = {"cifar10": "cifar-10-batches-py", "cifar100": "cifar-100-python"}


@pytest.fixture
def write_cifar(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[np.ndarray, list[int]]]:
    """Writes a small CIFAR, whose files count as the published ones."""

    def write(root: Path, name: str = "cifar10") -> tuple[np.ndarray, list[int]]:
        files = BATCHES if name == "cifar10" else ("train", "test")
        folder = root / FOLDERS[name]
        folder.mkdir(parents=True)
        images, labels = made_up(PER_FILE * len(files), len(CIFAR10_CLASSES if name == "cifar10" else CIFAR100_CLASSES))
        for i, file in enumerate(files):
            part = slice(i * PER_FILE, (i + 1) * PER_FILE)
            key = "labels" if name == "cifar10" else "fine_labels"
            content = python2_pickle({"batch_label": b"some", key: labels[part], "data": images[part].reshape(-1, 3072)})
            (folder / file).write_bytes(content)
            monkeypatch.setitem(PUBLISHED_MD5, file, hashlib.md5(content).hexdigest())
        return images, labels

    return write


def write_npz(path: Path, **changes: Any) -> tuple[np.ndarray, list[int]]:
    images, labels = made_up(7, 10)
    last = images.transpose(0, 2, 3, 1)
    arrays = {"x_train": last[:4], "y_train": np.array(labels[:4]), "x_test": last[4:], "y_test": np.array(labels[4:])}
    np.savez(path, **{key: value for key, value in (arrays | changes).items() if value is not None})
    return images, labels


def check(dataset: Any, images: np.ndarray, labels: list[int], train: int) -> None:
    for items, truth, part in (
        (dataset.train, dataset.truth, slice(0, train)),
        (dataset.test, dataset.test_truth, slice(train, None)),
    ):
        assert items.inputs.dtype == torch.uint8 and items.inputs.is_contiguous()
        np.testing.assert_array_equal(items.inputs.numpy(), images[part])
        assert truth.label_N.tolist() == labels[part] and truth.class_names == dataset.class_names
        assert len(items.ids) == len(items.inputs)


def test_cifar10_in_its_own_layout_and_as_npz(tmp_path, write_cifar):
    images, labels = write_cifar(tmp_path)
    dataset = load_dataset("cifar10", data_dir=tmp_path)
    check(dataset, images, labels, 5 * PER_FILE)
    assert dataset.class_names == CIFAR10_CLASSES and dataset.train.ids[:2] == ("train-00000", "train-00001")
    assert dataset.test.ids[-1] == "test-00002" and dataset.group_C is None
    (tmp_path / "npz").mkdir()
    images, labels = write_npz(tmp_path / "npz" / "cifar10.npz")
    check(load_dataset("cifar10", data_dir=tmp_path / "npz"), images, labels, 4)
    write_npz(tmp_path / "mine.npz", y_train=np.array(labels[:4], np.uint8)[:, None])
    check(load_dataset("cifar10", data_dir=tmp_path / "mine.npz"), images, labels, 4)
    write_npz(tmp_path / "npz" / "cifar100.npz")
    assert load_dataset("cifar100h", data_dir=tmp_path / "npz").class_names == CIFAR100_CLASSES


def test_cifar100_and_its_super_classes(tmp_path, write_cifar):
    images, labels = write_cifar(tmp_path, "cifar100")
    dataset = load_dataset("cifar100", data_dir=tmp_path)
    check(dataset, images, labels, PER_FILE)
    assert dataset.class_names == CIFAR100_CLASSES
    grouped = load_dataset("cifar100h", data_dir=tmp_path)
    assert grouped.name == "cifar100h" and grouped.group_C.tolist() == [int(c) for c in COARSE.split()]
    assert list(SUPERCLASSES) == sorted(SUPERCLASSES)


def test_where_it_looks(tmp_path, monkeypatch, write_cifar):
    monkeypatch.delenv("PALS_DATA", raising=False)
    refused(r"PALS_DATA is not set.*pals data fetch cifar100 --data-dir FOLDER`, or name", load_dataset, "cifar100h")
    images, labels = write_cifar(tmp_path / "a")
    monkeypatch.setenv("PALS_DATA", str(tmp_path / "a"))
    check(load_dataset("cifar10"), images, labels, 5 * PER_FILE)
    check(load_dataset("cifar10", data_dir=tmp_path / "a" / "cifar-10-batches-py"), images, labels, 5 * PER_FILE)
    nowhere = tmp_path / "nowhere"
    for place, npz in ((nowhere, "cifar10"), (nowhere / "cifar-10-batches-py", "cifar10"), (nowhere / "mine.npz", "mine")):
        found = rf"No CIFAR-10 in {place}: .* {npz}.npz .* fetch cifar10 --data-dir {nowhere}`"
        refused(found, load_dataset, "cifar10", data_dir=place)
    refused("No CIFAR-100 in", load_dataset, "cifar100")


@pytest.mark.parametrize(
    ("name", "black", "white"),
    [
        ("cifar10", (-2.42907, -2.41825, -2.22139), (2.51409, 2.59679, 2.75373)),
        ("cifar100", (-1.89570, -1.89747, -1.59652), (1.84262, 2.00117, 2.02535)),
    ],
)
def test_views_normalise_as_published(tmp_path, write_cifar, name, black, white):
    write_cifar(tmp_path, name)
    pixels = torch.tensor([0, 255], dtype=torch.uint8).expand(1, 3, 2).unsqueeze(2)  # one black and one white pixel
    views = load_dataset(name, data_dir=tmp_path).views
    assert {"weak", "strong", "eval"} <= set(views.names)
    seen = views.make("eval", pixels, torch.Generator())
    torch.testing.assert_close(seen[0, :, 0, 0], torch.tensor(black), atol=1e-5, rtol=0)
    torch.testing.assert_close(seen[0, :, 0, 1], torch.tensor(white), atol=1e-5, rtol=0)


def test_a_missing_file_is_named(tmp_path, write_cifar):
    write_cifar(tmp_path)
    folder = tmp_path / "cifar-10-batches-py"
    (folder / "data_batch_4").unlink()
    found = rf"{folder} lacks data_batch_4\..*fetch cifar10 --data-dir {tmp_path}`"
    for place in (tmp_path, folder):
        refused(found, load_dataset, "cifar10", data_dir=place)


class Calls:
    """Pickled, it asks the reader to call a function."""

    def __init__(self, function: Callable[..., Any], *values: Any) -> None:
        self.call = function, values

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self.call


def test_only_the_published_files_are_unpickled(tmp_path, write_cifar):
    """Not another pickle, not a file that is cut off, and not another of the published ones."""
    images, labels = write_cifar(tmp_path)
    folder, trace = tmp_path / "cifar-10-batches-py", tmp_path / "trace"
    path = folder / "data_batch_3"
    whole = path.read_bytes()
    mine = {b"data": images[:3].reshape(-1, 3072), b"labels": [1, 2, 3]}
    pickles = [pickle.dumps(value, protocol=2) for value in (mine, Calls(os.mkdir, str(trace)))]
    others = [(folder / name).read_bytes() for name in ("data_batch_2", "test_batch")]
    for content in (b"", whole[:-1], whole + b"\0", *pickles, *others):
        path.write_bytes(content)
        refused(rf"{path} is not the published file.*fetch cifar10 .*cifar10.npz", load_dataset, "cifar10", data_dir=tmp_path)
    assert not trace.exists()
    path.write_bytes(whole)
    check(load_dataset("cifar10", data_dir=tmp_path), images, labels, 5 * PER_FILE)


def test_a_bad_npz_is_named(tmp_path):
    path = tmp_path / "cifar10.npz"
    for changes, found in (
        ({"x_test": None}, "it holds no 'x_test' but x_train, y_train, y_test"),
        ({"x_train": np.zeros((4, 3, 32, 32), np.uint8)}, r"uint8 of shape \(4, 3, 32, 32\), not uint8 of shape N x 32"),
        ({"x_train": np.zeros((4, 32, 32, 3))}, "its images are float64"),
        ({"y_train": np.zeros(3, np.int64)}, "4 images and 3 labels"),
        ({"y_train": np.zeros(4)}, "not one whole number per image"),
        ({"y_train": np.full(4, 11)}, "label 11"),
        ({"y_train": np.full(4, -1)}, "label -1"),
        ({"y_train": np.array([1, 2, 3, None])}, "allow_pickle=False"),
    ):
        write_npz(path, **changes)
        refused(rf"cifar10.npz .*{found}.*fetch cifar10 --data-dir {tmp_path}`", load_dataset, "cifar10", data_dir=tmp_path)
    write_npz(path)
    whole = path.read_bytes()
    flipped = whole[:2000] + bytes([whole[2000] ^ 1]) + whole[2001:]  # one bit of one pixel
    np.save(tmp_path / "one.npy", np.zeros(3))
    for content in (b"", b"PK", (tmp_path / "one.npy").read_bytes(), whole[:1000], whole[:-30], flipped):
        path.write_bytes(content)
        refused(r"cifar10.npz is truncated or corrupted", load_dataset, "cifar10", data_dir=tmp_path)


def test_an_npz_of_the_other_cifar(tmp_path):
    for name, count, classes, found in (
        ("cifar10", 1000, 10, None),
        ("cifar10", 1000, 9, "1 of the 10 classes have none of its 1000 training images, the first is 9"),
        ("cifar10", 999, 1, None),  # few images need not have all classes
        ("cifar100", 10_000, 10, "90 of the 100 classes have none .* probably not CIFAR-100"),
    ):
        path, images, labels = tmp_path / "mine.npz", np.zeros((count, 32, 32, 3), np.uint8), np.arange(count) % classes
        np.savez(path, x_train=images, y_train=labels, x_test=images[:1], y_test=labels[:1])
        if found is None:
            assert len(load_dataset(name, data_dir=path).train) == count
        else:
            refused(found, load_dataset, name, data_dir=path)


def test_votes_agree_with_a_slow_count(tmp_path):
    answer = np.random.default_rng(0).integers(0, 10, (40, 3)).astype(np.uint8)
    answer[0] = (3, 3, 3)
    answer[1] = (3, 5, 3)
    np.savez(tmp_path / "cifar_labels.npz", c10n_label=answer, other=np.zeros(2))
    votes = cifar10n_votes(tmp_path)
    ids = [f"train-{i:05d}" for i in range(40)]
    slow = CandidateSets.from_votes(
        [(ids[i], CIFAR10_CLASSES[c]) for i in range(40) for c in answer[i]], class_names=CIFAR10_CLASSES, ids=ids
    )
    assert (votes.ids, votes.class_names) == (slow.ids, slow.class_names)
    assert torch.equal(votes.allowed_NC, slow.allowed_NC)
    torch.testing.assert_close(votes.frequency_NC, slow.frequency_NC)
    assert votes.allowed_NC[0].nonzero().flatten().tolist() == [3]
    assert votes.frequency_NC[1, [3, 5]].tolist() == pytest.approx([2 / 3, 1 / 3])


def test_votes_belong_to_the_training_images(tmp_path, write_cifar):
    images, labels = write_cifar(tmp_path)
    count = 5 * PER_FILE
    np.savez(tmp_path / "cifar_labels.npz", c10n_label=np.array(labels[:count])[:, None].repeat(3, axis=1))
    for place in (tmp_path, tmp_path / "cifar-10-batches-py"):
        dataset = load_dataset("cifar10n", data_dir=place)
        check(dataset, images, labels, count)
        votes = cifar10n_votes(place)
        assert dataset.name == "cifar10n" and votes.ids == dataset.train.ids
        assert votes.statistics(dataset.truth).coverage == 1


def test_bad_votes_are_named(tmp_path):
    refused(r"cifar_labels.npz is missing\. Put it there", cifar10n_votes, tmp_path)
    for arrays, found in (
        ({"c10n_label": np.full((3, 3), 10)}, "label 10"),
        ({"c10n_label": np.zeros(3, np.int64)}, "one row of answers per image"),
        ({"c10n_label": np.zeros((3, 3))}, "type float64"),
        ({"other": np.zeros(3)}, "it holds no 'c10n_label' but other"),
    ):
        np.savez(tmp_path / "cifar_labels.npz", **arrays)
        refused(rf"cifar_labels.npz does not hold what it should: .*{found}", cifar10n_votes, tmp_path)
