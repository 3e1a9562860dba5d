"""Pictures of tar and Parquet files in any order."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from _refused import refused
from _shards import png, sample, write_parquet, write_pictures, write_samples, write_tar
from pals.data.row_source import FileImages
from pals.data.shards.arrow import ParquetShard
from pals.data.shards.random_access import ShardImages
from pals.vision.images.decoding import decode_bytes

NUMBERS = range(23)


@pytest.fixture
def tars(tmp_path: Path) -> list[Path]:
    return [write_samples(tmp_path / "a-0.tar", NUMBERS[:9]), write_samples(tmp_path / "a-1.tar", NUMBERS[9:])]


@pytest.fixture
def parquet(tmp_path: Path) -> list[Path]:
    pytest.importorskip("pyarrow")
    made = [(tmp_path / "b-0.parquet", NUMBERS[:14]), (tmp_path / "b-1.parquet", NUMBERS[14:])]
    return [write_pictures(path, numbers, rows=5) for path, numbers in made]


@pytest.mark.parametrize("kind", ["tars", "parquet"])
def test_any_row_in_any_order(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    shards: list[Path] = request.getfixturevalue(kind)
    expected = torch.stack([torch.from_numpy(decode_bytes(png(number), "", 8)) for number in NUMBERS])
    for given in (shards, str(shards[0]).replace("-0.", "-{0..1}.")):
        source = ShardImages(given, 8, threads=3)
        assert source.names == tuple(f"{number:04}.png" for number in NUMBERS) and source.shape == (23, 3, 8, 8)
    row_M = torch.randperm(23, generator=torch.Generator().manual_seed(0))
    assert torch.equal(source[row_M], expected[row_M]) and torch.equal(source[7:16], expected[7:16])
    assert torch.equal(torch.cat(list(source.batches(6))), expected)


@pytest.mark.parametrize("kind", ["tars", "parquet"])
def test_shards_are_decoded_once_into_the_cache(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    shards: list[Path] = request.getfixturevalue(kind)
    source, cache = ShardImages(shards, 8), tmp_path / "cache"
    table = source.cached(cache)
    assert table.names == source.names and table.decoded == 23 and table.size_N2[0].tolist() == [11, 9]
    assert torch.equal(table.images, source[:])
    some = ShardImages(shards, 8).cached(cache, ["0020.png", "0003.png"])
    assert some.decoded == 0 and torch.equal(some.images, source[[20, 3]])
    os.utime(shards[1], ns=(1, 1))
    assert ShardImages(shards, 8).cached(cache).decoded == 23
    refused("nothing", source.cached, cache, ["nothing"])


def test_bad_images_of_shards_are_skipped_or_named(tmp_path: Path) -> None:
    source = ShardImages(write_tar(tmp_path / "x.tar", [*sample(1), ("2.txt", b""), ("3.png", b"damaged")]), 8)
    table = source.cached(None, skip_bad=True)
    assert table.names == ("0001.png",) and [bad.name for bad in table.bad] == ["2", "3.png"]
    refused("2 of 3", source.cached, None)
    refused("same name", ShardImages([tmp_path / "x.tar", tmp_path / "x.tar"], 8).cached, None)
    assert source.names == ("0001.png", "2", "3.png")
    refused(r"x\.tar: 2: there is no image in it\. Fix", source.__getitem__, 1)
    refused(r"x\.tar: 3\.png: not an image of a known format\. Fix", source.__getitem__, 2)


def test_shards_hold_the_pictures_of_files_until_they_go_bad(tars: list[Path], tmp_path: Path) -> None:
    for number in NUMBERS:
        (tmp_path / f"{number}.png").write_bytes(png(number))
    files = FileImages([tmp_path / f"{number}.png" for number in NUMBERS], 8, "crop")
    assert torch.equal(ShardImages(tars, 8, "crop")[:], files[:])
    source = ShardImages(tars, 8)
    whole = tars[1].read_bytes()
    tars[1].write_bytes(whole[:5000])
    assert len(source[:9]) == 9
    refused(r"a-1\.tar: the tar file is cut off within 00\d\d\.png\. Fetch or write", source.__getitem__, slice(9, None))
    refused(r"a-1\.tar: the tar file is cut off", ShardImages, tars, 8)
    tars[1].unlink()
    refused(r"a-1\.tar: the file does not exist\. Fetch", source.__getitem__, torch.tensor([0, 22]))
    refused(r"a-1\.tar: the file does not exist\. Fetch", ShardImages, tars, 8)
    np.save(tmp_path / "rows.npy", np.zeros((2, 3)))
    refused(r"rows\.npy is not a shard", ShardImages, tmp_path / "rows.npy", 8)


def test_a_row_group_is_read_once_for_all_that_is_asked_for(parquet: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    read, groups = ParquetShard.read, Counter[tuple[str, range]]()

    def spy(shard: ParquetShard, rows: range) -> object:
        groups[shard.path.name, rows] += 1
        return read(shard, rows)

    monkeypatch.setattr(ParquetShard, "read", spy)
    source = ShardImages(parquet, 8, threads=3)
    groups.clear()
    source[torch.randperm(23, generator=torch.Generator().manual_seed(1))]
    assert len(groups) == 5 and set(groups.values()) == {1}


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="only Linux counts the bytes that a process reads")
def test_parquet_files_are_opened_without_reading_their_pictures(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (50, 100_000), dtype=np.uint8)
    cells = [{"bytes": row.tobytes(), "path": f"{number}.png"} for number, row in enumerate(noise)]
    path = write_parquet(tmp_path / "x.parquet", {"image": cells}, rows=10)

    def bytes_read() -> int:
        return int(Path("/proc/self/io").read_text().split()[1])

    before = bytes_read()
    assert ShardImages(path, 8).names == tuple(f"{number}.png" for number in range(50))
    assert bytes_read() - before < path.stat().st_size / 10
