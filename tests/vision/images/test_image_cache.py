"""Folders of images as tables: what is decoded when, and what is left on disk whatever happens."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from _kills import die, files_no_larger_than, forked
from _refused import refused
from pals.util.errors import InputError
from pals.util.locks import locked
from pals.vision.images import image_cache as cache_module
from pals.vision.images import load_folder as folder_module
from pals.vision.images.decoding import BadImageError, decode
from pals.vision.images.image_cache import BadImage, ImageTable, map_array
from pals.vision.images.listing import list_images
from pals.vision.images.load_folder import load_images

S = 8


def draw(path: Path, seed: int, width: int = S, height: int = S) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    values = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    Image.fromarray(values).save(path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(12):
        draw(tmp_path / "images" / f"{number % 3}" / f"{number:02}.png", number)
    return tmp_path / "images"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def assert_right(table: ImageTable, folder: Path, how: Any = "squash") -> None:
    """Every image is the one that its name says, decoded here once more."""
    assert table.images.dtype == torch.uint8 and len(table.images) == len(table) == len(table.size_N2)
    for name, image in zip(table.names, table.images, strict=True):
        assert (image.numpy() == decode(folder / name, table.images.shape[-1], how=how)).all(), name


def left_in(cache: Path) -> list[str]:
    """Endings of what is in the cache, without the lock."""
    return sorted(path.suffix for path in cache.iterdir() if path.suffix != ".lock")


@pytest.mark.parametrize("workers", [None, 1, 5])
def test_a_folder_becomes_a_table_once(folder: Path, cache: Path, workers: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    draw(folder / "large.bmp", 50, width=30, height=17)
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (30, 17)).save(folder / "lying.jpg", exif=exif)
    table = load_images(folder, S, cache=cache, workers=workers)
    assert table.names == tuple(list_images(folder)) and len(table) == 14
    assert table.images.shape == (14, 3, S, S) and table.bad == () and table.decoded == 14
    assert table.size_N2[-2:].tolist() == [[30, 17], [17, 30]]
    assert_right(table, folder)
    monkeypatch.setattr(folder_module, "read_image", lambda *_: pytest.fail("decoded again"))
    again = load_images(str(folder), S, cache=cache)
    assert again.decoded == 0 and again.names == table.names
    assert (again.images == table.images).all() and (again.size_N2 == table.size_N2).all()
    assert left_in(cache) == [".json", ".npy"]


def test_only_what_is_new_or_changed_is_decoded_and_what_is_gone_goes(folder: Path, cache: Path) -> None:
    before = load_images(folder, S, cache=cache)
    kept = before.images.clone()
    draw(folder / "1" / "01.png", 100)
    draw(folder / "0" / "new.png", 101)
    (folder / "2" / "05.png").unlink()
    after = load_images(folder, S, cache=cache)
    assert after.decoded == 2 and len(after) == 12 and after.names == tuple(list_images(folder))
    assert_right(after, folder)
    assert (before.images == kept).all()  # who has the old images keeps them
    shutil.rmtree(folder / "0")
    less = load_images(folder, S, cache=cache)
    assert less.decoded == 0 and len(less) == 7
    assert_right(less, folder)
    assert left_in(cache) == [".json", ".npy"] and next(cache.glob("*.npy")).stat().st_size == 128 + 7 * 3 * S * S


def test_images_that_change_places_and_names_in_any_order(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same size in bytes and the same date, as after unpacking an archive of bitmaps."""
    for name in ("a.bmp", "b.bmp"):
        draw(folder / name, ord(name[0]))
        os.utime(folder / name, ns=(10**18, 10**18))
    load_images(folder, S, cache=cache)
    (folder / "a.bmp").rename(folder / "c")
    (folder / "b.bmp").rename(folder / "a.bmp")
    (folder / "c").rename(folder / "b.bmp")
    table = load_images(folder, S, cache=cache)
    assert table.decoded == 2
    assert_right(table, folder)
    load_images(folder, S, cache=cache, names=list_images(folder)[::-1])
    monkeypatch.setattr(cache_module.CacheLoader, "_write", lambda *_: pytest.fail("copied"))
    table = load_images(folder, S, cache=cache)
    assert table.decoded == 0
    assert_right(table, folder)


def test_each_size_way_and_folder_has_its_own_images(folder: Path, cache: Path, tmp_path: Path) -> None:
    draw(folder / "wide.png", 5, width=40, height=20)
    for size, how in ((S, "squash"), (4, "squash"), (S, "crop"), (S, "pad")):
        assert_right(load_images(folder, size, cache=cache, how=how), folder, how)
    other = tmp_path / "elsewhere" / "images"
    shutil.copytree(folder, other)
    draw(other / "1" / "01.png", 100)
    assert_right(load_images(other, S, cache=cache), other)
    assert_right(load_images(folder, S, cache=cache), folder)
    assert [load_images(*of, cache=cache).decoded for of in ((folder, S), (folder, 4), (other, S))] == [0, 0, 0]


def test_named_images_in_their_order(folder: Path, cache: Path) -> None:
    names = list_images(folder)
    some = [names[i] for i in (7, 2, 9)]
    table = load_images(folder, S, cache=cache, names=some)
    assert table.names == tuple(some) and table.decoded == 3
    assert_right(table, folder)
    assert load_images(folder, S, cache=cache, names=some).decoded == 0
    rest = load_images(folder, S, cache=cache, names=names[:4])
    assert rest.decoded == 3  # one is there already
    assert_right(rest, folder)
    assert load_images(folder, S, cache=cache, names=some).decoded == 0  # nor has the other call undone it
    whole = load_images(folder, S, cache=cache)
    assert whole.decoded == 12 - 6
    assert_right(whole, folder)
    for part in (some, names[3:6], names[::-1], [names[5]]):
        table = load_images(folder, S, cache=cache, names=part)
        assert table.names == tuple(part) and table.decoded == 0
        assert_right(table, folder)
    assert left_in(cache) == [".json", ".npy"]


def test_names_that_cannot_be_meant_and_no_cache(
    folder: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for options, complaint in (
        ({"names": ["0/00.png", "0/00.png"]}, "named twice"),
        *(({"names": [name]}, "not a path within") for name in ("../x.png", "/etc/x.png", "a\0b.png")),
        ({"names": []}, "No image is named"),
        ({"workers": 0}, "0 workers"),
    ):
        refused(complaint, load_images, folder, S, cache=cache, **options)
    refused("does not exist", load_images, folder / "none", S, cache=cache, names=["a.png"])
    assert not cache.exists()
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    table = load_images(folder, S, cache=None)
    assert not list((tmp_path / "temporary").iterdir())
    assert_right(table, folder)


def test_progress_and_the_images_that_are_decoded_now(folder: Path, cache: Path) -> None:
    load_images(folder, S, cache=cache, names=list_images(folder)[:3])
    calls: list[tuple[int, int]] = []
    seen: list[np.ndarray] = []
    table = load_images(folder, S, cache=cache, watch=seen.append, progress=lambda *done: calls.append(done))
    assert np.array_equal(np.stack(seen), table.images[3:].numpy())
    assert calls[-1] == (12, 12) and calls == sorted(calls) and len(calls) < 5  # not for every image
    calls.clear()
    table = load_images(folder, S, cache=cache, progress=lambda *done: calls.append(done))
    assert not calls
    table.images.zero_()  # may be changed
    again = load_images(folder, S, cache=cache)
    shutil.rmtree(cache)
    assert_right(again, folder)  # and outlives the cache


def test_more_images_than_memory(tmp_path: Path) -> None:
    """A file with a hole, larger than memory and swap together: mapping it for writing would be refused."""
    memory = sum(
        int(line.split()[1]) * 1024 for line in Path("/proc/meminfo").read_text().splitlines() if "Total:" in line[:10]
    )
    shape = (2 * memory // (3 * 256 * 256), 3, 256, 256)
    with (tmp_path / "x.npy").open("w+b") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
        try:
            file.truncate(file.tell() + int(np.prod(shape)))
        except OSError:
            pytest.skip("the disk cannot hold such a file")
        file.seek(-1, os.SEEK_END)
        file.write(b"\x07")
    images = map_array(tmp_path / "x.npy")
    assert images.shape == shape and images[-1, -1, -1, -1] == 7 and images[len(images) // 2].sum() == 0


def spoil(folder: Path, count: int = 2) -> list[str]:
    names = [f"{number}/bad.png" for number in range(count)]
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"")
    return names


def test_bad_images_are_named_skipped_and_remembered(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = spoil(folder, 7)
    message = refused(".", load_images, folder, S, cache=cache)
    text = message
    assert text.startswith(f"7 of 19 images in {folder} cannot be read ('0/bad.png': the file is empty; '1/bad.png'")
    assert "'4/bad.png'" in text and "'5/bad.png'" not in text and "and 2 more" in text and "--skip-bad" in text
    monkeypatch.setattr(folder_module, "read_image", lambda *_: pytest.fail("decoded again"))
    table = load_images(folder, S, cache=cache, skip_bad=True)
    assert table.bad == tuple(BadImage(name, "the file is empty") for name in names)
    assert len(table) == 12 and table.decoded == 0
    assert_right(table, folder)
    refused("7 of 19", load_images, folder, S, cache=cache)
    assert load_images(folder, S, cache=cache, names=["0/00.png"]).bad == ()
    monkeypatch.undo()
    draw(folder / names[0], 77)
    table = load_images(folder, S, cache=cache, skip_bad=True)
    assert table.decoded == 1 and [bad.name for bad in table.bad] == names[1:]
    assert_right(table, folder)


def test_bad_images_with_another_pillow_and_alone(
    folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    spoil(folder)
    load_images(folder, S, cache=cache, skip_bad=True)
    monkeypatch.setattr("PIL.__version__", "99.0")
    assert load_images(folder, S, cache=cache, skip_bad=True).decoded == 2
    assert load_images(folder, S, cache=cache, skip_bad=True).decoded == 0
    spoil(tmp_path / "bad")
    for skip_bad in (False, True, True):
        refused("can be read, of 2 .*the file is empty", load_images, tmp_path / "bad", S, cache=cache, skip_bad=skip_bad)


def test_a_passing_failure_is_not_remembered(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = folder_module.read_image

    def fail(path: Path, name: str, *rest: Any) -> object:
        if name == "0/03.png":
            raise BadImageError(name, "there is not enough memory for it", lasting=False)
        return read(path, name, *rest)

    monkeypatch.setattr(folder_module, "read_image", fail)
    table = load_images(folder, S, cache=cache, skip_bad=True)
    assert table.bad == (BadImage("0/03.png", "there is not enough memory for it"),) and len(table) == 11
    monkeypatch.undo()
    table = load_images(folder, S, cache=cache)
    assert table.decoded == 1
    assert_right(table, folder)


def test_files_that_are_not_there(folder: Path, cache: Path) -> None:
    (folder / "loop.png").symlink_to(folder / "loop.png")
    loop = load_images(folder, S, cache=cache, skip_bad=True)
    assert [bad.name for bad in loop.bad] == ["loop.png"] and len(loop) == 12
    (folder / "loop.png").unlink()
    (folder / "broken.png").symlink_to(folder / "nowhere")
    (folder / "a folder.png").mkdir()
    odd = os.fsdecode(os.fsencode(folder) + b"/caf\xe9.png")
    draw(folder / "x.png", 1)
    (folder / "x.png").rename(odd)
    names = [*list_images(folder), "none.png", "a folder.png"]
    table = load_images(folder, S, cache=cache, names=names, skip_bad=True)
    assert dict(table.bad) == {
        "broken.png": "the link leads nowhere",
        "caf\\udce9.png": "its name is not valid UTF-8; rename the file",
        "none.png": "the file does not exist",
        "a folder.png": "a folder or device, not a file",
    }
    assert_right(table, folder)
    assert load_images(folder, S, cache=cache, names=names, skip_bad=True).decoded == 0
    message = refused("UTF-8", load_images, folder, S, cache=cache)
    message.encode("utf-8")


@pytest.fixture
def report_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "SECONDS_BETWEEN_CALLS", -1.0)


def at(number: int, act: Callable[[], object]) -> Callable[[int, int], None]:
    """A progress function that acts when so many images are done."""
    return lambda done, total: done == number and act()  # type: ignore[return-value]


def stop() -> None:
    raise KeyboardInterrupt


@pytest.mark.usefixtures("report_always")
def test_an_interrupted_or_killed_call_costs_only_its_own_work(folder: Path, cache: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        load_images(folder, S, cache=cache, progress=at(5, stop))
    assert left_in(cache) == []
    load_images(folder, S, cache=cache, names=list_images(folder)[:4])
    with pytest.raises(KeyboardInterrupt):
        load_images(folder, S, cache=cache, progress=at(9, stop))
    assert left_in(cache) == [".json", ".npy"] and load_images(folder, S, cache=cache).decoded == 12 - 4
    cache = cache.parent / "other"
    load_images(folder, S, cache=cache, names=list_images(folder)[:4])
    child = forked(lambda: load_images(folder, S, cache=cache, progress=at(9, die)))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert left_in(cache) == [".json", ".npy", ".npy"]
    table = load_images(folder, S, cache=cache)
    assert table.decoded == 12 - 4
    assert_right(table, folder)
    assert left_in(cache) == [".json", ".npy"]


@pytest.mark.usefixtures("report_always")
def test_processes_at_once_one_of_them_killed(folder: Path, cache: Path) -> None:
    def work() -> None:
        assert_right(load_images(folder, S, cache=cache), folder)

    unlucky = forked(lambda: load_images(folder, S, cache=cache, progress=at(7, die)))
    while not list(cache.glob("*.npy")):
        time.sleep(0.001)
    children = [forked(work) for _ in range(3)]
    work()
    assert os.waitstatus_to_exitcode(os.waitpid(unlucky, 0)[1]) == -signal.SIGKILL
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0, 0]
    assert left_in(cache) == [".json", ".npy"] and load_images(folder, S, cache=cache).decoded == 0


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"array": 3}', b"\xff\xfe", b"half"])
@pytest.mark.parametrize("ending", ["json", "npy"])
def test_a_damaged_cache_is_made_again(folder: Path, cache: Path, ending: str, damage: bytes) -> None:
    load_images(folder, S, cache=cache)
    (path,) = cache.glob(f"*.{ending}")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2] if damage == b"half" else damage)
    table = load_images(folder, S, cache=cache)
    assert table.decoded == 12
    assert_right(table, folder)
    path.unlink(missing_ok=True)
    assert_right(load_images(folder, S, cache=cache), folder)
    assert left_in(cache) == [".json", ".npy"]


def test_many_at_once_do_the_work_once_also_while_images_change(folder: Path, cache: Path) -> None:
    with ThreadPoolExecutor(6) as pool:
        tables = list(pool.map(lambda _: load_images(folder, S, cache=cache), range(6)))
    assert sorted(table.decoded for table in tables) == [0, 0, 0, 0, 0, 12]
    for table in tables:
        assert_right(table, folder)

    def change(seed: int) -> None:
        draw(folder / f"{seed % 3}" / f"new{seed}.png", seed)
        table = load_images(folder, S, cache=cache, names=[f"{seed % 3}/new{seed}.png", "1/04.png", "0/00.png"])
        assert_right(table, folder)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(change, range(12)))
    assert_right(load_images(folder, S, cache=cache), folder)
    assert left_in(cache) == [".json", ".npy"]


@pytest.mark.usefixtures("report_always")
def test_without_locks_no_file_of_others_is_deleted(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def no_lock(path: Path) -> Iterator[bool]:
        yield False

    with locked(folder / "0" / "00.png" / "lock") as alone:  # no folder to lock in
        assert not alone
    load_images(folder, S, cache=cache)
    monkeypatch.setattr(cache_module, "locked", no_lock)
    draw(folder / "new.png", 5)
    table = load_images(folder, S, cache=cache)
    assert table.decoded == 1
    assert_right(table, folder)
    assert left_in(cache) == [".json", ".npy", ".npy"] and load_images(folder, S, cache=cache).decoded == 0


def test_too_little_memory_is_not_blamed_on_the_disk(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr("pals.vision.images.image_cache.CacheLoader._load", refuse)
    refused(r"too little memory to read the images of .* Close other programs", load_images, folder, S, cache=cache)


def test_a_full_disk_and_too_little_room(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with files_no_larger_than(1000), pytest.raises(InputError, match=r"cannot be kept in .*cache: File too large\. Make room"):
        load_images(folder, S, cache=cache)
    assert left_in(cache) == []
    load_images(folder, S, cache=cache)
    draw(folder / "new.png", 5)
    with files_no_larger_than(1000), pytest.raises(InputError, match="choose another cache folder"):
        load_images(folder, S, cache=cache)
    assert left_in(cache) == [".json", ".npy"]  # what was there before is intact
    names = list_images(folder)[:12]
    assert load_images(folder, S, cache=cache, names=names).decoded == 0
    with files_no_larger_than(1000), pytest.raises(InputError, match="File too large"):
        load_images(folder, S, cache=cache, names=names[::-1])
    usage = shutil.disk_usage(folder)._replace(free=13 * 3 * S * S - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    monkeypatch.setattr(folder_module, "read_image", lambda *_: pytest.fail("decoded"))
    refused(r"13 images need [0-9.]+ MB and [0-9.]+ MB are free", load_images, folder, S, cache=cache)
    refused("give a cache folder on a larger disk", load_images, folder, S, cache=None)
    (cache.parent / "file").write_text("x")
    refused(r"cannot be kept in .*file", load_images, folder, S, cache=cache.parent / "file")
