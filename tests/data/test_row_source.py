"""Items that need not fit into memory: the same rows, whatever they lie in."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from _refused import refused
from pals.data.row_source import FileImages, ItemSource, TensorRows, in_batches, in_blocks, open_array, subset, within_memory
from pals.util.threads import read_ahead


@pytest.fixture
def rows_NCHW() -> Tensor:
    return torch.randint(0, 256, (13, 3, 8, 8), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)


@pytest.fixture
def files(tmp_path: Path, rows_NCHW: Tensor) -> list[Path]:
    paths = [tmp_path / f"{number:02}.png" for number in range(len(rows_NCHW))]
    for path, image in zip(paths, rows_NCHW, strict=True):
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(path)
    return paths


@pytest.fixture(params=["array", "images", "subset"])
def source(request: pytest.FixtureRequest, tmp_path: Path, rows_NCHW: Tensor, files: list[Path]) -> ItemSource:
    np.save(tmp_path / "rows.npy", rows_NCHW.numpy())
    if request.param == "images":
        return FileImages(files, 8, threads=3)
    if request.param == "array":
        return open_array(tmp_path / "rows.npy")
    backwards = TensorRows(rows_NCHW.flip(0))
    made = subset(backwards, torch.arange(12, -1, -1))
    assert isinstance(made, ItemSource)
    return made


def test_a_source_answers_as_a_tensor_does(source: ItemSource, rows_NCHW: Tensor) -> None:
    assert (len(source), tuple(source.shape), source.dtype, source.ndim) == (13, (13, 3, 8, 8), torch.uint8, 4)
    assert source.nbytes == rows_NCHW.nbytes
    row_M = torch.tensor([12, 0, 7, 7, 3])
    for which in (slice(2, 5), slice(None), slice(9, 99), slice(4, 4), row_M, row_M[:0], [5, 1], 6):
        torch.testing.assert_close(source[which], rows_NCHW[which], rtol=0, atol=0)
    assert [len(part) for part in in_batches(source, 5)] == [5, 5, 3]
    for inputs in (source, rows_NCHW):
        assert torch.equal(torch.cat(list(in_batches(inputs, 5))), rows_NCHW)
        assert torch.equal(torch.cat(list(in_blocks(inputs))), rows_NCHW)
    assert torch.equal(subset(source, row_M)[:], rows_NCHW[row_M])
    for inputs in (subset(source, row_M[:0]), rows_NCHW[:0]):
        assert list(in_batches(inputs, 5)) == list(in_blocks(inputs)) == []


def test_only_what_takes_much_of_the_memory_is_read_row_by_row(monkeypatch: pytest.MonkeyPatch, rows_NCHW: Tensor) -> None:
    for free, kind in ((2.0 * rows_NCHW.nbytes, Tensor), (2.0 * rows_NCHW.nbytes - 1, TensorRows)):
        monkeypatch.setattr("pals.data.row_source.available_memory", lambda free=free: free)
        assert isinstance(within_memory(rows_NCHW), kind)


def test_reading_is_bounded_and_ends_with_its_reader() -> None:
    begun: list[int] = []
    ready = threading.Event()

    def read(number: int) -> int:
        begun.append(number)
        if number == 2:
            ready.set()
        return number

    def threads() -> set[str]:
        return {thread.name for thread in threading.enumerate() if thread.name.startswith("pals-read")}

    parts: Iterator[int] = read_ahead(read, range(100), ahead=2)
    assert next(parts) == 0
    assert ready.wait(10) and begun == [0, 1, 2]  # one in use, two ahead
    assert threads()
    parts.close()  # type: ignore[attr-defined]
    assert not threads() and len(begun) == 3


def test_errors_come_where_the_rows_would() -> None:
    def read(number: int) -> int:
        return 1 // (2 - number)

    parts = read_ahead(read, range(9))
    assert [next(parts), next(parts)] == [0, 1]
    with pytest.raises(ZeroDivisionError):
        next(parts)


def test_a_picture_that_vanishes_is_named(files: list[Path]) -> None:
    source = FileImages(files, 8)
    files[4].unlink()
    assert len(source[:4]) == 4
    refused(r"04\.png: the file does not exist\. Fix this image", source.__getitem__, torch.tensor([1, 4]))
    files[7].write_bytes(files[7].read_bytes()[:60])
    refused(r"07\.png: .*(cut off|damaged)", source.__getitem__, slice(5, 9))


def test_an_array_that_is_cut_off_or_cannot_be_read_row_by_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.npy"
    np.save(path, np.zeros((100, 50), dtype=np.float32))
    whole = path.read_bytes()
    source = open_array(path)
    with path.open("r+b") as file:
        file.truncate(9000)
    for which in (slice(0, 2), torch.tensor([99])):
        refused(r"rows\.npy was cut off while in use: 9,000 of 20,128 bytes are left", source.__getitem__, which)
    refused(r"rows\.npy is cut off, or not an \.npy file", open_array, path)
    path.unlink()
    path.write_bytes(whole)
    source = open_array(path)
    path.unlink()  # whoever has it open keeps it
    assert source[98:].shape == (2, 50)
    refused("does not exist", open_array, path)
    path.write_text("no array")  # numpy would advise to unpickle it
    refused(r"no numbers, but perhaps Python objects, which are never loaded", open_array, path)
    for array in (np.zeros(3), np.zeros((3, 2), dtype=np.int64), np.asfortranarray(np.zeros((3, 2)))):
        np.save(path, array)
        refused(r"rows\.npy holds .*; rows of uint8 or floats", open_array, path)
