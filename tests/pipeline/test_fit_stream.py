"""Fits on more pictures than memory or the disk has room for: the same results, and never all pictures at once."""

from __future__ import annotations

import shutil
import weakref
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from torch import Tensor

from _pictures import make_pictures
from _refused import refused
from _shards import write_tar
from _slow import rest_slow
from _toy import assert_same
from pals import fit
from pals.data.row_source import FileImages
from pals.data.shards.random_access import ShardImages
from pals.pipeline import Findings
from pals.training.engine import Engine
from pals.util.config import merge

TRAINED: dict[str, Any] = {
    "method": "pals",
    "settings": {
        "data": {"folds": 2, "fold_epochs": 1}, "network": {"name": "small-cnn"}, "method": {"neighbors": 5},
        "train": {"epochs": 2, "batch_size": 8, "feature_batch": 8},
    },
}  # fmt: skip
SOLVED: dict[str, Any] = {"encoder": "patches"}
WAYS = {"trained": TRAINED, "solved": SOLVED}


ITEMS, BATCH = 60, 8


@pytest.fixture(autouse=True, scope="module")
def small_blocks() -> Iterator[None]:
    """As small beside these few pictures as they are beside many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pals.vision.images.pixel_statistics.COUNTED_VALUES", BATCH * 3 * 32 * 32)
        patch.setattr("pals.data.row_source.BLOCK_BYTES", (BATCH - 1) * 3 * 32 * 32)
        patch.setattr("pals.training.extract.CPU_BATCH_PIXELS", BATCH * 32 * 32)
        patch.setattr("pals.runs.extractor.PATCH_IMAGES", 2 * BATCH)
        patch.setattr("pals.pipeline.stages.networks.FOLD_TRAINING", {"batch_size": BATCH, "lr": 0.1})
        patch.setattr(Engine, "chunk", BATCH)
        yield


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_pictures(tmp_path_factory.mktemp("data"), items=ITEMS)


def fitted(
    data: Path,
    out: Path,
    said: list[str] | None = None,
    images: Path | None = None,
    stream: bool | None = None,
    skip_bad: bool = False,
    **options: Any,
) -> Findings:
    columns = {"item": "picture", "annotator": "who", "label": "class"}
    given = {
        "data": {"columns": columns, "skip_bad": skip_bad},
        "engine": {"device": "cpu"},
        "files": {"cache": out.parent / "cache", "stream": stream},
    }
    settings, progress = merge(given, options.pop("settings", {})), None if said is None else said.append
    return fit(images or data / "images", data / "votes.csv", out=out, settings=settings, progress=progress, **options)


def assert_alike(one: Path, other: Path) -> None:
    assert (one / "labels.csv").read_bytes() == (other / "labels.csv").read_bytes()
    assert_same(load_file(one / "model.safetensors"), load_file(other / "model.safetensors"))


@pytest.fixture(scope="module")
def stored(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What comes of it where there is room for everything."""
    folder = tmp_path_factory.mktemp("stored")
    for name, options in WAYS.items():
        fitted(data, folder / name, **options)
    return folder


class Held:
    """How many pictures of a stream are in memory, now and at most."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now, self.most, take = 0, 0, FileImages.take

        def spy(source: FileImages, row_M: Tensor) -> Tensor:
            taken = take(source, row_M)
            weakref.finalize(taken, self.add, -len(taken))
            self.add(len(taken))
            return taken

        patch.setattr(FileImages, "take", spy)

    def add(self, count: int) -> None:
        self.now += count
        self.most = max(self.most, self.now)


@pytest.mark.parametrize("way", rest_slow(0, WAYS))
def test_a_stream_gives_the_same_results_and_never_holds_all_pictures(
    way: str, stored: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch)
    fitted(data, tmp_path / way, stream=True, **WAYS[way])
    assert_alike(stored / way, tmp_path / way)
    assert 0 < held.most <= 5 * BATCH < ITEMS  # one in use, two that wait, one in the making, one just given up


def test_the_same_results_from_a_cache_larger_than_memory(
    stored: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr("pals.data.row_source.available_memory", lambda: 1e5)
    fitted(data, tmp_path / "mapped", said, **WAYS["trained"])
    assert_alike(stored / "trained", tmp_path / "mapped")
    assert any("more than half of the free memory: they are read from disk as needed" in line for line in said)


@pytest.mark.parametrize("shards", [False, True])
def test_without_room_on_the_disk_pictures_are_streamed(
    shards: bool, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, said = packed(data, tmp_path / "shards") if shards else None, list[str]()
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr("pals.vision.images.image_cache.shutil.disk_usage", lambda _: usage)
    fitted(data, tmp_path / "run", said, images=images, **SOLVED)
    (line,) = [line for line in said if line.startswith(f"{ITEMS} images need ")]
    assert line.endswith(": each image is decoded every time it is needed.")
    other = tmp_path / "other"
    refused(rf"cannot be kept in .*{ITEMS} images need", fitted, data, other, images=images, stream=False, **SOLVED)


def test_bad_pictures_of_a_stream(data: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(data, copy)
    (copy / "images" / "007.png").write_bytes(b"")
    refused(r"007\.png: the file is empty\. Fix this image,", fitted, copy, tmp_path / "run", stream=True, **SOLVED)
    found = fitted(copy, tmp_path / "run", stream=True, skip_bad=True, **SOLVED)
    assert len(found.labels) == ITEMS - 1
    for path in (copy / "images").rglob("*.png"):
        path.write_bytes(b"")
    refused(r"No image .* can be read", fitted, copy, tmp_path / "none", stream=True, skip_bad=True, **SOLVED)


def packed(data: Path, folder: Path) -> Path:
    """The pictures of the folder in two tar files."""
    folder.mkdir()
    paths = sorted((data / "images").rglob("*.png"))
    for number, part in enumerate((paths[:25], paths[25:])):
        members = [(path.relative_to(data / "images").as_posix(), path.read_bytes()) for path in part]
        write_tar(folder / f"part-{number}.tar", members)
    return folder


def test_shards_instead_of_a_folder(stored: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shards = packed(data, tmp_path / "shards")
    decoded, once = Counter[tuple[int, int]](), ShardImages.encoded

    def spy(source: ShardImages, row: int) -> bytes:
        decoded[row, source.size] += source.size > 1  # with 1 the headers are read
        return once(source, row)

    monkeypatch.setattr(ShardImages, "encoded", spy)
    fitted(data, tmp_path / "run", images=shards, **SOLVED)
    assert_alike(stored / "solved", tmp_path / "run")
    assert set(decoded.values()) - {0} == {1}
    fitted(data, tmp_path / "again", images=shards, **SOLVED)
    assert set(decoded.values()) - {0} == {1}  # now from the cache
    fitted(data, tmp_path / "stream", images=shards, stream=True, **SOLVED)
    assert_alike(stored / "solved", tmp_path / "stream")
    assert max(decoded.values()) > 1
    monkeypatch.undo()
    (shards / "part-1.tar").write_bytes((shards / "part-1.tar").read_bytes()[:9000])
    refused(r"part-1\.tar: the tar file is cut off.*Fetch", fitted, data, tmp_path / "other", images=shards, **SOLVED)
    write_tar(shards / "part-1.tar", [("001.png", b"another")])
    refused(r"shards: 2 images are called '001\.png'", fitted, data, tmp_path / "other", images=shards, **SOLVED)
