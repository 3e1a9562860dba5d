"""Pictures in folders that Hugging Face datasets saved."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from _refused import refused
from _shards import png
from pals.data.shards.arrow import SavedShard, is_saved
from pals.data.shards.random_access import ShardImages
from pals.data.shards.stream import Stream
from pals.pipeline.stages.images import names_in, shards_of
from pals.vision.images.decoding import decode_bytes

NUMBERS = range(70)  # more than are looked at together


def as_saved(folder: Path) -> Path:
    """What it is known by."""
    folder.mkdir()
    (folder / "state.json").write_text("{}")
    (folder / "data-00000-of-00001.arrow").write_bytes(b"")
    return folder


def test_the_extra_is_named_where_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    folder = as_saved(tmp_path / "ponds")
    assert is_saved(folder) and not is_saved(tmp_path)
    refused(r"ponds needs Hugging Face datasets.*pip install 'pals-learn\[datasets\]'", ShardImages, folder, 8)


@pytest.fixture(scope="module")
def hf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HOME", str(tmp_path_factory.mktemp("hf")))
        patch.setenv("HF_DATASETS_OFFLINE", "1")
        datasets = pytest.importorskip("datasets")
        datasets.disable_progress_bars()
        yield datasets


@pytest.fixture(scope="module")
def ponds(hf: Any) -> Any:
    columns = {"image": [{"bytes": png(n), "path": f"{n:04}.png"} for n in NUMBERS], "label": [n % 3 for n in NUMBERS]}
    kinds = hf.Features({"image": hf.Image(), "label": hf.ClassLabel(names=["frog", "newt", "toad"])})
    return hf.Dataset.from_dict(columns, features=kinds)


@pytest.fixture(scope="module")
def saved(ponds: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "ponds"
    ponds.save_to_disk(str(folder), num_shards=3)
    return folder


def pixels(numbers: Iterator[int] | range) -> torch.Tensor:
    return torch.stack([torch.from_numpy(decode_bytes(png(number), "", 8)) for number in numbers])


def test_any_row_of_a_saved_data_set_which_streams_and_is_shared_out(saved: Path) -> None:
    source = ShardImages(saved, 8, threads=3)
    assert source.names == tuple(f"{number:04}.png" for number in NUMBERS)
    row_M = torch.randperm(len(NUMBERS), generator=torch.Generator().manual_seed(0))
    assert torch.equal(source[row_M], pixels(NUMBERS)[row_M]) and tuple(names_in(str(saved))) == source.names
    assert shards_of(str(saved.parent / "nothing")) is None
    stream = Stream.of(saved)
    assert stream.known_count == len(NUMBERS) and stream.packed
    whole = [name for stretch in stream.parts(9) for name in stretch.chunk.names]
    shares = [n for i in (1, 2) for stretch in stream.share(i, 2).parts(9) for n in stretch.chunk.names]
    assert whole == shares == [f"{number:04}.png" for number in NUMBERS]
    assert stream.fingerprint() == Stream.of(saved).fingerprint()
    refused("a saved Hugging Face data set", Stream.of, saved.parent / "nothing")


def test_rows_with_and_without_names(ponds: Any, tmp_path: Path, hf: Any) -> None:
    named = ponds.select([5, 3, 60]).add_column("id", ["e", "c", ""])
    named.save_to_disk(str(tmp_path / "some"))
    source = ShardImages(tmp_path / "some", 8)
    assert source.names == ("e", "c", "0060.png") and torch.equal(source[:], pixels(iter([5, 3, 60])))
    hf.Dataset.from_dict({"photo": [png(1), None]}).save_to_disk(str(tmp_path / "raw"))
    source = ShardImages(tmp_path / "raw", 8)
    assert source.names == ("raw:0", "raw:1") and torch.equal(source[:1], pixels(iter([1])))
    refused(r"raw, row 1 \(from 0\): there is no image in it", source.__getitem__, 1)


def test_saved_data_sets_that_cannot_be_read(hf: Any, ponds: Any, tmp_path: Path) -> None:
    hf.DatasetDict(train=ponds.select([0]), test=ponds.select([1])).save_to_disk(str(tmp_path / "splits"))
    refused(r"holds several splits\. Name one of them: .*train or .*test\.", ShardImages, tmp_path / "splits", 8)
    assert ShardImages(tmp_path / "splits" / "test", 8).names == ("0001.png",)
    hf.Dataset.from_dict({"label": [1]}).save_to_disk(str(tmp_path / "no pictures"))
    refused(r"it has no column with the bytes of images", ShardImages, tmp_path / "no pictures", 8)
    cut = tmp_path / "splits" / "train"
    (file,) = cut.glob("*.arrow")
    file.write_bytes(file.read_bytes()[:300])
    refused(r"train: it is incomplete or damaged \(.*Fetch or write", ShardImages, cut, 8)
    assert SavedShard(cut).count() == 0
    (stretch,) = Stream.of(cut).parts(9, skip_bad=True)
    assert stretch.bad[0].name == str(cut)
