from __future__ import annotations

import os
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pals.data import load_dataset
from pals.data.cifar import CIFAR10_CLASSES, CIFAR100_CLASSES, SUPERCLASSES, cifar10n_votes, superclass_of
from pals.labels.candidates import CandidateSets
from pals.util.errors import InputError

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


def python3_pickle(values: dict[str, Any]) -> bytes:
    return pickle.dumps({key.encode(): value for key, value in values.items()}, protocol=2)


def made_up(count: int, classes: int) -> tuple[np.ndarray, list[int]]:
    rng = np.random.default_rng(count)
    return rng.integers(0, 256, (count, 3, 32, 32), dtype=np.uint8), rng.integers(0, classes, count).tolist()


def write_cifar10(root: Path, dump: Callable[[dict[str, Any]], bytes] = python2_pickle) -> tuple[np.ndarray, list[int]]:
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    images, labels = made_up(6 * PER_FILE, 10)
    for i, file in enumerate([*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]):
        part = slice(i * PER_FILE, (i + 1) * PER_FILE)
        title = b"testing batch 1 of 1" if file == "test_batch" else f"training batch {i + 1} of 5".encode()
        content = {"batch_label": title, "labels": labels[part], "data": images[part].reshape(-1, 3072)}
        (folder / file).write_bytes(dump(content))
    return images, labels


def write_cifar100(root: Path, dump: Callable[[dict[str, Any]], bytes] = python2_pickle) -> tuple[np.ndarray, list[int]]:
    folder = root / "cifar-100-python"
    folder.mkdir(parents=True)
    images, labels = made_up(5, 100)
    for file, part in (("train", slice(0, 3)), ("test", slice(3, 5))):
        coarse = [int(COARSE.split()[label]) for label in labels[part]]
        content = {"fine_labels": labels[part], "coarse_labels": coarse, "data": images[part].reshape(-1, 3072)}
        (folder / file).write_bytes(dump({"batch_label": f"{file}ing batch 1 of 1".encode(), **content}))
    return images, labels


def write_npz(path: Path, **changes: Any) -> tuple[np.ndarray, list[int]]:
    images, labels = made_up(7, 10)
    last = images.transpose(0, 2, 3, 1)
    arrays = {
        "x_train": last[:4],
        "y_train": np.array(labels[:4]),
        "x_test": last[4:],
        "y_test": np.array(labels[4:]),
    } | changes
    np.savez(path, **{key: value for key, value in arrays.items() if value is not None})
    return images, labels


def check(dataset: Any, images: np.ndarray, labels: list[int], train: int) -> None:
    for items, truth, part in (
        (dataset.train, dataset.truth, slice(0, train)),
        (dataset.test, dataset.test_truth, slice(train, None)),
    ):
        assert items.inputs.dtype == torch.uint8
        assert items.inputs.is_contiguous()
        np.testing.assert_array_equal(items.inputs.numpy(), images[part])
        assert truth.label_N.tolist() == labels[part]
        assert truth.class_names == dataset.class_names
        assert len(items.ids) == len(items.inputs)


@pytest.mark.parametrize("dump", [python2_pickle, python3_pickle])
def test_cifar10_in_its_own_layout(tmp_path, dump):
    images, labels = write_cifar10(tmp_path, dump)
    dataset = load_dataset("cifar10", data_dir=tmp_path)
    check(dataset, images, labels, 5 * PER_FILE)
    assert dataset.class_names == CIFAR10_CLASSES
    assert dataset.train.ids[:2] == ("train-00000", "train-00001")
    assert dataset.test.ids[-1] == "test-00002"
    assert dataset.group_C is None


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
def test_files_that_python_3_wrote(tmp_path, protocol):
    write_cifar10(tmp_path)
    pixels, labels = np.asfortranarray(made_up(PER_FILE, 10)[0].reshape(-1, 3072)), np.array([1, 2, 3], ">i4")
    content = pickle.dumps({"data": pixels, "labels": labels}, protocol=protocol)
    (tmp_path / "cifar-10-batches-py" / "test_batch").write_bytes(content)
    dataset = load_dataset("cifar10", data_dir=tmp_path)
    np.testing.assert_array_equal(dataset.test.inputs.reshape(-1, 3072).numpy(), pixels)
    assert dataset.test_truth.label_N.tolist() == [1, 2, 3]


def test_cifar100_with_and_without_its_class_names(tmp_path):
    images, labels = write_cifar100(tmp_path)
    dataset = load_dataset("cifar100", data_dir=tmp_path)
    check(dataset, images, labels, 3)
    assert dataset.class_names == CIFAR100_CLASSES
    names = [f"class {i}".encode() for i in range(100)]
    (tmp_path / "cifar-100-python" / "meta").write_bytes(python2_pickle({"fine_label_names": names}))
    assert load_dataset("cifar100", data_dir=tmp_path).class_names[42] == "class 42"
    with pytest.raises(InputError, match="'class 0' has no super-class"):
        load_dataset("cifar100h", data_dir=tmp_path)


def test_the_hierarchy_is_that_of_the_real_coarse_labels(tmp_path):
    write_cifar100(tmp_path)
    dataset = load_dataset("cifar100h", data_dir=tmp_path)
    assert dataset.name == "cifar100h"
    assert dataset.group_C.tolist() == [int(c) for c in COARSE.split()]
    assert torch.bincount(dataset.group_C).tolist() == [5] * 20
    assert list(SUPERCLASSES) == sorted(SUPERCLASSES)
    backwards = superclass_of(CIFAR100_CLASSES[::-1])
    assert backwards.tolist() == dataset.group_C.tolist()[::-1]


def test_npz(tmp_path):
    images, labels = write_npz(tmp_path / "cifar10.npz")
    check(load_dataset("cifar10", data_dir=tmp_path), images, labels, 4)
    column = np.array(labels[:4], np.uint8)[:, None]
    write_npz(tmp_path / "mine.npz", y_train=column)
    check(load_dataset("cifar10", data_dir=tmp_path / "mine.npz"), images, labels, 4)
    write_npz(tmp_path / "cifar100.npz")
    assert load_dataset("cifar100h", data_dir=tmp_path).class_names == CIFAR100_CLASSES


def test_where_it_looks(tmp_path, monkeypatch):
    monkeypatch.delenv("PALS_DATA", raising=False)
    with pytest.raises(InputError, match=r"PALS_DATA is not set.*pals data fetch cifar100 --data-dir FOLDER`, or name"):
        load_dataset("cifar100h")
    images, labels = write_cifar10(tmp_path / "a")
    monkeypatch.setenv("PALS_DATA", str(tmp_path / "a"))
    check(load_dataset("cifar10"), images, labels, 5 * PER_FILE)
    check(load_dataset("cifar10", data_dir=tmp_path / "a" / "cifar-10-batches-py"), images, labels, 5 * PER_FILE)
    nowhere = tmp_path / "nowhere"
    for place, npz in ((nowhere, "cifar10"), (nowhere / "cifar-10-batches-py", "cifar10"), (nowhere / "mine.npz", "mine")):
        found = rf"No CIFAR-10 in {place}: neither cifar-10-batches-py/ nor {npz}.npz is there\."
        with pytest.raises(InputError, match=rf"{found} Get it with `pals data fetch cifar10 --data-dir {nowhere}`, or name"):
            load_dataset("cifar10", data_dir=place)
    with pytest.raises(InputError, match="No CIFAR-100 in"):
        load_dataset("cifar100")


def test_views_normalise_as_published(tmp_path):
    write_cifar10(tmp_path)
    write_cifar100(tmp_path)
    pixels = torch.tensor([0, 255], dtype=torch.uint8).expand(1, 3, 2).unsqueeze(2)  # one black and one white pixel
    for name, black, white in (
        ("cifar10", (-2.42907, -2.41825, -2.22139), (2.51409, 2.59679, 2.75373)),
        ("cifar100", (-1.89570, -1.89747, -1.59652), (1.84262, 2.00117, 2.02535)),
    ):
        views = load_dataset(name, data_dir=tmp_path).views
        assert {"weak", "strong", "eval"} <= set(views.names)
        seen = views.make("eval", pixels, torch.Generator())
        torch.testing.assert_close(seen[0, :, 0, 0], torch.tensor(black), atol=1e-5, rtol=0)
        torch.testing.assert_close(seen[0, :, 0, 1], torch.tensor(white), atol=1e-5, rtol=0)


def test_a_missing_file_is_named(tmp_path):
    write_cifar10(tmp_path)
    folder = tmp_path / "cifar-10-batches-py"
    (folder / "data_batch_4").unlink()
    for place in (tmp_path, folder):
        with pytest.raises(
            InputError, match=rf"{folder} lacks data_batch_4\. Run `pals data fetch cifar10 --data-dir {tmp_path}`"
        ):
            load_dataset("cifar10", data_dir=place)


@pytest.mark.parametrize("dump", [python2_pickle, python3_pickle])
def test_a_truncated_file_is_named_wherever_it_ends(tmp_path, dump):
    write_cifar100(tmp_path, dump)
    path = tmp_path / "cifar-100-python" / "test"
    whole = path.read_bytes()
    ends = [*range(0, 400, 7), *range(len(whole) - 60, len(whole)), *range(400, len(whole), 997)]
    for end in ends:
        path.write_bytes(whole[:end])
        with pytest.raises(
            InputError, match=r"cifar-100-python/test is truncated or corrupted \(.*pals data fetch cifar100 --data-dir"
        ):
            load_dataset("cifar100", data_dir=tmp_path)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"not a pickle at all", "test_batch is truncated or corrupted"),
        (pickle.dumps([1, 2]), "it holds list"),
        (python2_pickle({"labels": [1]}), "it holds no 'data'"),
        (python2_pickle({"data": made_up(1, 10)[0].reshape(1, 3072)}), "it holds no 'labels'"),
        (python2_pickle({"data": made_up(2, 10)[0].reshape(2, 3072), "labels": [1]}), "2 images and 1 labels"),
        (
            python2_pickle({"data": made_up(1, 10)[0].reshape(1, 3072), "labels": [10]}),
            "label 10, but the 10 classes are 0 to 9",
        ),
        (
            python2_pickle({"data": made_up(1, 10)[0].reshape(1, 3072), "labels": [[1], [2, 3]]}),
            "not one whole number per image",
        ),
        (python2_pickle({"data": made_up(1, 10)[0].reshape(2, 1536), "labels": [1, 2]}), r"uint8 of shape \(2, 1536\)"),
        (python2_pickle({"data": b"pixels", "labels": [1]}), "its images are bytes"),
    ],
)
def test_a_corrupted_file_is_named(tmp_path, content, found):
    write_cifar10(tmp_path)
    path = tmp_path / "cifar-10-batches-py" / "test_batch"
    path.write_bytes(content)
    with pytest.raises(InputError, match=found) as raised:
        load_dataset("cifar10", data_dir=tmp_path)
    assert str(path) in str(raised.value)


class Calls:
    """Pickled, it asks the reader to call a function."""

    def __init__(self, function: Callable[..., Any], *values: Any) -> None:
        self.call = function, values

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self.call


def test_a_pickle_that_runs_programs_is_refused(tmp_path):
    write_cifar10(tmp_path)
    path = tmp_path / "cifar-10-batches-py" / "data_batch_1"
    trace = tmp_path / "trace"
    hostile = [
        Calls(os.mkdir, str(trace)),
        Calls(eval, f"__import__('os').mkdir({str(trace)!r})"),
        Calls(getattr, "", "join"),
        Calls(np.load, str(path)),
        np.array([Calls(os.mkdir, str(trace))], dtype=object),
        np.array([(1, 2)], dtype=[("a", "O"), ("b", "i4")]),
    ]
    for value in hostile:
        path.write_bytes(pickle.dumps({"data": value, "labels": [1]}, protocol=2))
        with pytest.raises(
            InputError, match=r"data_batch_1 is not one of CIFAR's own files: it tries to use .* It was not run"
        ):
            load_dataset("cifar10", data_dir=tmp_path)
        assert not trace.exists()
    # The one codec that CIFAR's files use is the one that is allowed.
    path.write_bytes(b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x05\x00\x00\x00rot13\x86R.")
    with pytest.raises(InputError, match="the encoding rot13"):
        load_dataset("cifar10", data_dir=tmp_path)


@pytest.mark.parametrize(
    "name", [b"numpy\ndtype\n", b"_codecs\nencode\n", b"numpy\nndarray\n", b"numpy.core.multiarray\n_reconstruct\n"]
)
def test_a_pickle_cannot_change_the_reader(tmp_path, name):
    images, labels = write_cifar10(tmp_path)
    path = tmp_path / "cifar-10-batches-py" / "data_batch_1"
    whole = path.read_bytes()
    for state in (b"}(X\x08\x00\x00\x00__init__K\x01u", b"N}(X\x08\x00\x00\x00__init__K\x01u\x86"):
        path.write_bytes(b"\x80\x02c" + name + state + b"b.")
        with pytest.raises(InputError, match="data_batch_1 is truncated or corrupted"):
            load_dataset("cifar10", data_dir=tmp_path)
    path.write_bytes(whole)
    check(load_dataset("cifar10", data_dir=tmp_path), images, labels, 5 * PER_FILE)


def test_bad_class_names(tmp_path):
    write_cifar10(tmp_path)
    (tmp_path / "cifar-10-batches-py" / "batches.meta").write_bytes(python2_pickle({"label_names": [b"cat"]}))
    with pytest.raises(InputError, match=r"batches.meta does not hold what it should: 'label_names' is not a list of 10 names"):
        load_dataset("cifar10", data_dir=tmp_path)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"x_test": None}, "it holds no 'x_test' but x_train, y_train, y_test"),
        (
            {"x_train": np.zeros((4, 3, 32, 32), np.uint8)},
            r"uint8 of shape \(4, 3, 32, 32\), not uint8 of shape N x 32 x 32 x 3",
        ),
        ({"x_train": np.zeros((4, 32, 32, 3))}, "its images are float64"),
        ({"y_train": np.zeros(3, np.int64)}, "4 images and 3 labels"),
        ({"y_train": np.zeros(4)}, "not one whole number per image"),
        ({"y_train": np.full(4, 11)}, "label 11"),
        ({"y_train": np.full(4, -1)}, "label -1"),
        ({"y_train": np.array([1, 2, 3, None])}, "allow_pickle=False"),
    ],
)
def test_a_bad_npz_is_named(tmp_path, changes, found):
    write_npz(tmp_path / "cifar10.npz", **changes)
    with pytest.raises(InputError, match=rf"cifar10.npz .*{found}.*pals data fetch cifar10 --data-dir {tmp_path}`"):
        load_dataset("cifar10", data_dir=tmp_path)


def test_a_truncated_or_changed_npz_is_named(tmp_path):
    path = tmp_path / "cifar10.npz"
    write_npz(path)
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[2000] ^= 1  # one bit of one pixel
    np.save(tmp_path / "one.npy", np.zeros(3))
    for content in (b"", b"PK", (tmp_path / "one.npy").read_bytes(), whole[:1000], whole[:-30], bytes(flipped)):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"cifar10.npz is truncated or corrupted"):
            load_dataset("cifar10", data_dir=tmp_path)


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
    assert votes.ids == slow.ids
    assert votes.class_names == slow.class_names
    assert torch.equal(votes.allowed_NC, slow.allowed_NC)
    torch.testing.assert_close(votes.frequency_NC, slow.frequency_NC)
    assert votes.allowed_NC[0].nonzero().flatten().tolist() == [3]
    assert votes.frequency_NC[1, [3, 5]].tolist() == pytest.approx([2 / 3, 1 / 3])


def test_votes_belong_to_the_training_images(tmp_path):
    images, labels = write_cifar10(tmp_path)
    count = 5 * PER_FILE
    np.savez(tmp_path / "cifar_labels.npz", c10n_label=np.array(labels[:count])[:, None].repeat(3, axis=1))
    for place in (tmp_path, tmp_path / "cifar-10-batches-py"):
        dataset = load_dataset("cifar10n", data_dir=place)
        check(dataset, images, labels, count)
        votes = cifar10n_votes(place)
        assert dataset.name == "cifar10n"
        assert votes.ids == dataset.train.ids
        assert votes.statistics(dataset.truth).coverage == 1


@pytest.mark.parametrize(
    ("arrays", "found"),
    [
        ({"c10n_label": np.full((3, 3), 10)}, "label 10"),
        ({"c10n_label": np.zeros(3, np.int64)}, "one row of answers per image"),
        ({"c10n_label": np.zeros((3, 3))}, "type float64"),
        ({"other": np.zeros(3)}, "it holds no 'c10n_label' but other"),
    ],
)
def test_bad_votes_are_named(tmp_path, arrays, found):
    with pytest.raises(InputError, match=r"cifar_labels.npz is missing\. Put it there"):
        cifar10n_votes(tmp_path)
    np.savez(tmp_path / "cifar_labels.npz", **arrays)
    with pytest.raises(InputError, match=rf"cifar_labels.npz does not hold what it should: .*{found}"):
        cifar10n_votes(tmp_path)
