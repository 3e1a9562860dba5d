"""Which pictures a folder holds, and one picture at a time: every kind of file, good and bad, made on the fly."""

from __future__ import annotations

import os
import struct
import threading
import warnings
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from _refused import refused
from _slow import rest_slow
from pals.util.even_sample import evenly_spaced
from pals.vision.images import decoding as decoding_module
from pals.vision.images.decoding import HOWS, BadImageError, How, decode
from pals.vision.images.listing import list_images
from pals.vision.images.pillow_limits import MemoryBudget, larger_images, quiet
from pals.vision.images.pixel_statistics import image_statistics, median_side


def touch(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")


def random_image(width: int, height: int, seed: int = 0) -> Image.Image:
    values = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(values)


def smooth_image(width: int, height: int) -> Image.Image:
    """Different in every corner and along every direction, without fine detail."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    x, y = x / width, y / height
    channels = [200 * x + 20, 180 * y + 30 * x, 128 + 100 * np.sin(3 * x + 5 * y)]
    return Image.fromarray(np.stack(channels, axis=2).astype(np.uint8))


def detailed_image(width: int, height: int) -> Image.Image:
    """Patches of all sizes with sharp edges: as hard for a filter as photographs get."""
    rng = np.random.default_rng(1)
    values = np.asarray(smooth_image(width, height)) * 0.5 + 40
    for patch in (3, 11, 37):
        noise = rng.normal(0, 25, (height // patch + 1, width // patch + 1, 3))
        values += noise.repeat(patch, axis=0).repeat(patch, axis=1)[:height, :width]
    return Image.fromarray(values.clip(0, 255).astype(np.uint8))


def pixels(image: Image.Image) -> np.ndarray:
    return np.asarray(image.convert("RGB")).transpose(2, 0, 1)


def reason_of(path: Path, size: int = 8) -> str:
    with pytest.raises(BadImageError) as caught:
        decode(path, size)
    assert caught.value.name == str(path)
    return caught.value.reason


def test_names_are_sorted_links_followed_and_no_folder_read_twice(tmp_path: Path) -> None:
    names = ("b/z.JPG", "b/a/x.Png", "a.tiff", "c d/é ü.webp", "B.gif", "notes.txt", "png", "x.png.zip")
    hidden = (".b.png", ".git/c.png", "__MACOSX/a.png", "x/._a.png", "@eaDir/a.png")  # and copies by other systems
    touch(*(tmp_path / name for name in (*names, *hidden)))
    assert list_images(tmp_path) == ["B.gif", "a.tiff", "b/a/x.Png", "b/z.JPG", "c d/é ü.webp"]
    assert list_images(str(tmp_path)) == list_images(tmp_path)
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    touch(inside / "real" / "a.png", outside / "b.png", outside / "deep" / "c.png")
    for number in range(8):  # whatever order the system lists them in, the real path is the one that counts
        (inside / f"link{number}").symlink_to(inside / "real")
    (inside / "circle").symlink_to(inside)
    (inside / "real" / "up").symlink_to("..")
    (inside / "single.png").symlink_to(outside / "b.png")
    (inside / "whole").symlink_to(outside)
    (inside / "broken.png").symlink_to(tmp_path / "nowhere")
    assert list_images(inside) == ["broken.png", "real/a.png", "single.png", "whole/b.png", "whole/deep/c.png"]


def test_pipes_are_not_pictures_and_a_link_to_itself_is_a_bad_one(tmp_path: Path) -> None:
    touch(tmp_path / "a.png")
    (tmp_path / "loop.png").symlink_to(tmp_path / "loop.png")
    (tmp_path / "there").symlink_to(tmp_path / "back")
    (tmp_path / "back").symlink_to(tmp_path / "there")
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "waits.png").symlink_to(tmp_path / "pipe.png")
    assert list_images(tmp_path) == ["a.png", "loop.png"] and "not a file" in reason_of(tmp_path / "pipe.png")
    assert reason_of(tmp_path / "loop.png")


def test_folders_without_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path / "file.png", tmp_path / "heic" / "1.heic", tmp_path / "heic" / "2.HEIC", tmp_path / "heic" / "readme")
    (tmp_path / "empty").mkdir()
    for name, words in {
        "none": "does not exist",
        "file.png": "is a file, not a folder",
        "empty": r"it is empty.*Extensions that are read: .*jpg",
        "heic": r"found: 2 x \.heic, 1 x no ending",
    }.items():
        refused(words, list_images, tmp_path / name)

    def refuse(path: Path) -> object:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "scandir", refuse)
    refused("Permission denied", list_images, tmp_path)


def filled(mode: str, colour: object, **info: object) -> Callable[[Path], None]:
    return lambda path: Image.new(mode, (6, 4), colour).save(path, **info)  # type: ignore[arg-type]


def palette(transparency: object) -> Callable[[Path], None]:
    def save(path: Path) -> None:
        image = Image.new("P", (6, 4), 1)
        image.putpalette([0, 0, 0, 200, 100, 50])
        image.save(path, transparency=transparency) if transparency is not None else image.save(path)

    return save


def frames(path: Path) -> None:
    first, second = Image.new("RGB", (6, 4), (200, 100, 50)), Image.new("RGB", (6, 4), (0, 0, 255))
    first.save(path, save_all=True, append_images=[second], lossless=True)


def sixteen_bit_rgb(path: Path) -> None:
    rows = b"".join(b"\0" + struct.pack(">3H", 200 * 257, 100 * 257, 50 * 257) * 6 for _ in range(4))
    path.write_bytes(png(6, 4, 16, 2, zlib.compress(rows)))


def png(width: int, height: int, depth: int, kind: int, data: bytes) -> bytes:
    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = struct.pack(">2I5B", width, height, depth, kind, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


KINDS: dict[str, tuple[str, Callable[[Path], None], tuple[int, int, int], int]] = {
    "rgb": ("png", filled("RGB", (200, 100, 50)), (200, 100, 50), 0),
    "grey": ("png", filled("L", 77), (77, 77, 77), 0), "one bit": ("png", filled("1", 1), (255, 255, 255), 0),
    "grey, transparent": ("png", filled("LA", (77, 0)), (255, 255, 255), 0),
    "alpha": ("png", filled("RGBA", (200, 100, 50, 255)), (200, 100, 50), 0),
    "transparent": ("png", filled("RGBA", (200, 100, 50, 0)), (255, 255, 255), 0),
    "half transparent": ("png", filled("RGBA", (0, 100, 255, 51)), (204, 224, 255), 0),
    "alpha in tiff": ("tif", filled("RGBA", (200, 100, 50, 0)), (255, 255, 255), 0),
    "a colour is transparent": ("png", filled("RGB", (200, 100, 50), transparency=(200, 100, 50)), (255, 255, 255), 0),
    "a grey is transparent": ("png", filled("L", 77, transparency=77), (255, 255, 255), 0),
    "palette": ("png", palette(None), (200, 100, 50), 0),
    "palette, transparent": ("gif", palette(1), (255, 255, 255), 0),
    "palette, other transparent": ("gif", palette(0), (200, 100, 50), 0),
    "palette with alphas": ("png", palette(bytes([255, 0])), (255, 255, 255), 0),
    "16 bits per colour": ("png", sixteen_bit_rgb, (200, 100, 50), 0),
    "cmyk jpeg": ("jpg", filled("CMYK", (0, 255, 255, 0), quality=95), (255, 0, 0), 6),
    "cmyk tiff": ("tif", filled("CMYK", (255, 0, 255, 0)), (0, 255, 0), 0),
    "lab tiff": ("tif", filled("LAB", (255, 128, 128)), (255, 255, 255), 3),
    "ycbcr tiff": ("tif", filled("YCbCr", (77, 128, 128), compression="raw"), (77, 77, 77), 1),
    "jpeg": ("jpg", filled("RGB", (200, 100, 50), quality=95), (200, 100, 50), 3),
    "progressive jpeg": ("jpeg", filled("RGB", (200, 100, 50), quality=95, progressive=True), (200, 100, 50), 3),
    "grey jpeg": ("jpg", filled("L", 77), (77, 77, 77), 2),
    "webp": ("webp", filled("RGB", (200, 100, 50), lossless=True), (200, 100, 50), 0),
    "jpeg 2000": ("jp2", filled("RGB", (200, 100, 50)), (200, 100, 50), 0),
    "bmp": ("bmp", filled("RGB", (200, 100, 50)), (200, 100, 50), 0),
    "ppm": ("ppm", filled("RGB", (200, 100, 50)), (200, 100, 50), 0),
    "tga": ("tga", filled("RGB", (200, 100, 50)), (200, 100, 50), 0),
    "lzw tiff": ("tiff", filled("RGB", (200, 100, 50), compression="tiff_lzw"), (200, 100, 50), 0),
    "animated gif": ("gif", frames, (200, 100, 50), 0), "animated png": ("png", frames, (200, 100, 50), 0),
    "animated webp": ("webp", frames, (200, 100, 50), 0),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [2, 9])
def test_every_kind_of_picture(kind: str, size: int, tmp_path: Path) -> None:
    ending, save, expected, tolerance = KINDS[kind]
    save(tmp_path / f"a.{ending}")
    found = decode(tmp_path / f"a.{ending}", size)
    assert found.shape == (3, size, size) and found.dtype == np.uint8 and found.flags.c_contiguous
    assert np.abs(found.astype(int) - np.array(expected)[:, None, None]).max() <= tolerance


def test_ycck_jpeg_and_damaged_metadata(tmp_path: Path) -> None:
    smooth_image(8, 8).save(tmp_path / "a.png", exif=b"Exif\0\0II*\0\xff\xff\xff\x7f")
    assert (decode(tmp_path / "a.png", 8) == pixels(smooth_image(8, 8))).all()
    filled("CMYK", (0, 0, 0, 0), quality=95)(tmp_path / "a.jpg")
    data = bytearray((tmp_path / "a.jpg").read_bytes())
    marker = data.index(b"Adobe")
    data[marker + 11] = 2  # the transform: YCCK
    (tmp_path / "a.jpg").write_bytes(data)
    assert decode(tmp_path / "a.jpg", 4).shape == (3, 4, 4)


DEEP = [  # ending, type, values, grey
    *((ending, "uint16", np.array([0, 1, 100, 254, 255]) * 257, [0, 1, 100, 254, 255]) for ending in ("png", "tif", "pgm")),
    # the depth is the least that holds the largest value; a half of it is not stretched to white
    *(("png", "uint16", [0, m // 5, m], [0, round(m // 5 / m * 255), 255]) for m in (2**bits - 1 for bits in (8, 10, 12, 14))),
    *(("png", "uint16", [0, 2 ** (bits - 1)], [0, 128]) for bits in (8, 10, 12, 14)),
    ("tif", "int32", [-1000, 0, 1000], [0, 128, 255]),  # numbers without a depth are scaled by their range
    ("tif", "int32", [0, 10**6, 2 * 10**6], [0, 128, 255]),
    ("tif", "int32", [-5, -5], [0, 0]),
    ("tif", "float32", [0, 0.2, 0.5], [0, 51, 128]),
    ("tif", "float32", [0, 51, 255], [0, 51, 255]),
    ("tif", "float32", [-1, 0, 1], [0, 128, 255]),
    ("tif", "float32", [np.nan, -np.inf, 0, 0.2, np.inf], [0, 0, 0, 51, 255]),
    ("tif", "float32", [np.nan, np.nan], [0, 0]),
]


@pytest.mark.parametrize(("ending", "kind", "values", "grey"), DEEP)
def test_more_than_8_bits_are_scaled(ending: str, kind: str, values: list[float], grey: list[int], tmp_path: Path) -> None:
    """One row of greys, decoded at its own size."""
    Image.fromarray(np.tile(np.array(values, dtype=kind), (len(values), 1))).save(tmp_path / f"a.{ending}")
    assert (decode(tmp_path / f"a.{ending}", len(values)) == np.array(grey)).all()


TURNED = {
    1: None,
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,  # the file's picture has to be turned the other way to be upright
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}


@pytest.mark.parametrize("orientation", TURNED)
@pytest.mark.parametrize("ending", ["png", "jpg", "tif", "webp"])
def test_orientation(orientation: int, ending: str, tmp_path: Path) -> None:
    upright = smooth_image(64, 48)
    turn = TURNED[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    (upright if turn is None else upright.transpose(turn)).save(tmp_path / f"a.{ending}", exif=exif, quality=95, lossless=True)
    upright.save(tmp_path / "upright.png")
    for how in HOWS:
        found, expected = (decode(tmp_path / name, 16, how=how).astype(int) for name in (f"a.{ending}", "upright.png"))
        assert np.abs(found - expected).max() <= (6 if ending == "jpg" else 2)


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("ending", ["png", "bmp", "tif", "jpg"])
def test_the_right_size_is_left_untouched_or_only_cut(how: How, ending: str, tmp_path: Path) -> None:
    image = random_image(32, 32)
    image.save(tmp_path / f"a.{ending}")
    expected = Image.open(tmp_path / "a.jpg") if ending == "jpg" else image
    assert (decode(tmp_path / f"a.{ending}", 32, how=how) == pixels(expected)).all()
    for width, height, left, top in ((40, 32, 4, 0), (41, 32, 4, 0), (32, 50, 0, 9)):
        image = random_image(width, height)
        image.save(tmp_path / "b.png")
        assert (decode(tmp_path / "b.png", 32, how="crop") == pixels(image)[:, top : top + 32, left : left + 32]).all()


def test_three_ways_to_make_a_square_and_no_stripes(tmp_path: Path) -> None:
    """A red, a green and a blue square side by side."""
    image = Image.new("RGB", (120, 40), (0, 255, 0))
    image.paste((255, 0, 0), (0, 0, 40, 40))
    image.paste((0, 0, 255), (80, 0, 120, 40))
    image.save(tmp_path / "a.png")
    squash, crop, pad = (decode(tmp_path / "a.png", 12, how=how) for how in ("squash", "crop", "pad"))
    row = [(255, 0, 0), (0, 255, 0), (0, 0, 255)]
    for found in (squash, pad[:, 4:8]):
        assert [tuple(found[:, 2, column].tolist()) for column in (1, 6, 10)] == row
    assert (crop == np.array([0, 255, 0])[:, None, None]).all()
    assert (pad[:, :4] == 128).all() and (pad[:, 8:] == 128).all()
    assert decode(tmp_path / "a.png", 12).tolist() == squash.tolist()
    stripes = np.tile(np.array([255, 0], dtype=np.uint8), (400, 200))
    Image.fromarray(stripes).save(tmp_path / "a.png")
    assert np.abs(decode(tmp_path / "a.png", 16).astype(int) - 127.5).max() <= 1


@pytest.mark.parametrize("how", ["squash", "crop", "pad"])
@pytest.mark.parametrize("shape", [(803, 601), (601, 803), (700, 350), (900, 90)])
@pytest.mark.parametrize("ending", rest_slow(1, ["jpg", "png"]))
def test_shortcuts_are_hardly_visible(how: How, shape: tuple[int, int], ending: str, tmp_path: Path) -> None:
    """Against the plain way: decode all, cut or not, one careful filter."""
    detailed_image(*shape).save(tmp_path / f"a.{ending}", quality=95)
    with Image.open(tmp_path / f"a.{ending}") as file:
        image = file.convert("RGB")
    width, height = shape
    side = min(shape)
    left, top = (width - side) // 2, (height - side) // 2
    if how == "crop":
        expected = image.resize((64, 64), Image.Resampling.BICUBIC, box=(left, top, left + side, top + side))
    elif how == "squash":
        expected = image.resize((64, 64), Image.Resampling.BICUBIC)
    else:
        inner = max(1, round(width * 64 / max(shape))), max(1, round(height * 64 / max(shape)))
        expected = Image.new("RGB", (64, 64), (128, 128, 128))
        expected.paste(image.resize(inner, Image.Resampling.BICUBIC), ((64 - inner[0]) // 2, (64 - inner[1]) // 2))
    error = np.abs(decode(tmp_path / f"a.{ending}", 64, how=how).astype(int) - pixels(expected))
    assert error.mean() < 1 and error.max() <= 12


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "P", "L", "I;16"])
@pytest.mark.parametrize("how", HOWS)
def test_bands_change_nothing(mode: str, how: How, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = smooth_image(211, 157)
    if mode == "RGBA":
        image.putalpha(Image.linear_gradient("L").resize(image.size))
    elif mode == "I;16":
        image = Image.fromarray(np.asarray(image.convert("L")).astype(np.uint16) * 200)
    else:
        image = image.convert(mode)
    image.save(tmp_path / "a.png")
    whole = [decode(tmp_path / "a.png", size, how=how) for size in (10, 60, 200)]
    monkeypatch.setattr(decoding_module, "BAND_PIXELS", 1000)
    bands = [decode(tmp_path / "a.png", size, how=how) for size in (10, 60, 200)]
    assert all((a == b).all() for a, b in zip(whole, bands, strict=True))


@given(st.integers(1, 70), st.integers(1, 70), st.integers(1, 40), st.sampled_from(HOWS), st.integers(0, 255))
def test_one_colour_stays_one_colour(
    tmp_path_factory: pytest.TempPathFactory, width: int, height: int, size: int, how: How, grey: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "one_colour.png"
    Image.new("L", (width, height), grey).save(path)
    found = decode(path, size, how=how)
    assert found.shape == (3, size, size) and set(np.unique(found)) <= ({grey, 128} if how == "pad" else {grey})


def test_impossible_sizes_and_files_that_are_no_pictures(tmp_path: Path) -> None:
    for size, how, complaint in ((0, "crop", "0 pixels"), (5000, "pad", "5000"), (8, "cut", "Unknown way")):
        refused(complaint, decode, tmp_path / "a.png", size, how=how)
    for content, reason in {
        png(30_000, 20_000, 8, 2, b""): "more than the 500 megapixels",  # before it is decoded
        png(100_000, 100_000, 8, 2, b""): "more than the 500 megapixels",
        b"": "the file is empty",
        b"\x89PNG\r\n\x1a\n\0\0": "damaged or cut off",
        b"hello, I am a text\n": "not an image of a known format",
        b"<!DOCTYPE html><html>404</html>": "a web page, not an image",
        b"\0\0\0\x18ftypheic\0\0\0\0": "a HEIC image, which is not read",
        b"version https://git-lfs.github.com/spec/v1\noid": "git lfs pull",
        bytes(1000): "only zeros",
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n": "not an image of a known format",
    }.items():
        (tmp_path / "a.png").write_bytes(content)
        assert reason in reason_of(tmp_path / "a.png")


def test_a_hundred_megapixels(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    data = zlib.compressobj(1)
    row = b"\0" + b"\xf0" * 1250
    rows = b"".join(data.compress(row * 100) for _ in range(100)) + data.flush()
    (tmp_path / "a.png").write_bytes(png(10_000, 10_000, 1, 0, rows))
    warnings.simplefilter("error")
    limit = Image.MAX_IMAGE_PIXELS
    assert np.abs(decode(tmp_path / "a.png", 8).astype(int) - 127.5).max() <= 1
    assert limit == Image.MAX_IMAGE_PIXELS and not recwarn.list


@pytest.mark.parametrize("ending", ["png", "tif", "gif", "webp", "jpg"])
def test_pillows_limit_is_raised_only_for_the_moment(ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / f"a.{ending}"
    Image.new("RGB", (30, 30), (9, 9, 9)).save(path)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)  # so that this is what 180 megapixels are otherwise
    with pytest.raises(Image.DecompressionBombError):
        Image.open(path).load()
    assert np.abs(decode(path, 4).astype(int) - 9).max() <= 3 and median_side(tmp_path, [path.name]) == 30
    assert Image.MAX_IMAGE_PIXELS == 10
    with larger_images:
        Image.MAX_IMAGE_PIXELS = 2000  # by other code
    assert Image.MAX_IMAGE_PIXELS == 2000


def test_changes_of_pillow_are_shared_by_threads_and_taken_back() -> None:
    before, filters = Image.MAX_IMAGE_PIXELS, list(warnings.filters)
    inside, leave = threading.Barrier(3), threading.Event()

    def use() -> None:
        with quiet, larger_images:
            inside.wait(5)
            leave.wait(5)

    threads = [threading.Thread(target=use) for _ in range(2)]
    for thread in threads:
        thread.start()
    with quiet, larger_images:
        inside.wait(5)
        assert Image.MAX_IMAGE_PIXELS == 500_000_000 and warnings.filters != filters
    assert Image.MAX_IMAGE_PIXELS == 500_000_000
    leave.set()
    for thread in threads:
        thread.join(5)
    assert before == Image.MAX_IMAGE_PIXELS and list(warnings.filters) == filters


def test_the_budget_bounds_what_is_decoded_at_once() -> None:
    budget, most, lock, running = MemoryBudget(10, small=0), 0, threading.Lock(), [0]

    def work(cost: int) -> None:
        nonlocal most
        for _ in range(50):
            with budget.acquire(cost):
                with lock:
                    running[0] += cost
                    most = max(most, running[0])
                    assert running[0] <= 10 or running[0] == cost
                with lock:
                    running[0] -= cost

    threads = [threading.Thread(target=work, args=(cost,)) for cost in (3, 3, 4, 6, 25)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert most == 25 and budget.used == 0  # too large for the budget, but alone


@pytest.mark.parametrize("ending", ["jpg", "png", "gif", "tif", "webp", "bmp", "ppm", "jp2"])
def test_files_that_are_cut_off(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{ending}"
    random_image(90, 70).save(path)
    data = path.read_bytes()
    for share in (0.1, 0.5, 0.9):
        path.write_bytes(data[: int(len(data) * share)])
        if ending != "jp2":  # its first part is a coarse but whole picture: the decoder may make do with it
            assert len(reason_of(path)) < 160 and reason_of(path, 90) == reason_of(path)
        if ending in ("jpg", "png", "bmp", "ppm") and share > 0.4:
            assert reason_of(path) == "the file is cut off"


def test_broken_bytes_give_a_picture_or_a_reason(tmp_path: Path) -> None:
    """Whatever a decoder does with broken files, the caller sees a picture or a `BadImageError`."""
    rng = np.random.default_rng(3)
    for ending in ("jpg", "png", "gif", "tif", "webp", "bmp", "ppm", "tga"):
        path = tmp_path / f"a.{ending}"
        smooth_image(20, 20).save(path)
        data = np.frombuffer(path.read_bytes(), np.uint8)
        for _ in range(25):
            broken = data.copy()
            broken[rng.integers(0, min(len(data), 200), 6)] = rng.integers(0, 256, 6)
            path.write_bytes(broken.tobytes())
            with suppress(BadImageError):
                assert decode(path, 8).shape == (3, 8, 8)


def test_a_wrong_ending_does_not_matter_a_missing_file_does(tmp_path: Path) -> None:
    random_image(8, 8).save(tmp_path / "a.jpg", format="png")
    assert (decode(tmp_path / "a.jpg", 8) == pixels(random_image(8, 8))).all()
    assert "cannot be opened" in reason_of(tmp_path) or "not a file" in reason_of(tmp_path)
    refused(r"a\.png: the file does not exist\.", decode, tmp_path / "a.png", 8)


def test_a_file_that_changes_meanwhile_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.png"
    random_image(8, 8).save(path)
    resized = decoding_module._resized

    def change(*arguments: object) -> Image.Image:
        path.write_bytes(path.read_bytes() + b"x")
        return resized(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(decoding_module, "_resized", change)
    with pytest.raises(BadImageError, match="changed while it was read") as caught:
        decode(path, 8)
    assert not caught.value.lasting


def test_median_side_and_image_statistics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, (width, height) in enumerate([(10, 20), (30, 15), (40, 40), (25, 100)]):
        Image.new("L", (width, height)).save(tmp_path / f"{number}.png")
    (tmp_path / "4.png").write_bytes(b"")
    assert median_side(tmp_path, list_images(tmp_path)) == 20
    assert median_side(tmp_path, list_images(tmp_path), sample=3) == 25  # the first, the third and the last, which is damaged
    refused(r"No image in .* of 1 sampled; the first is '4.png'", median_side, tmp_path, ["4.png"])
    refused("0 names", median_side, tmp_path, [])
    images = torch.randint(0, 256, (50, 3, 6, 6), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    images[:, 2] = 128
    mean, std = image_statistics(images)
    values = images.double() / 255
    assert mean == pytest.approx(values.mean(dim=(0, 2, 3)).tolist(), abs=1e-12)
    assert std[:2] == pytest.approx(values.std(dim=(0, 2, 3), correction=0).tolist()[:2], abs=1e-12)
    assert std[2] == 1 / 255
    monkeypatch.setattr("pals.vision.images.pixel_statistics.COUNTED_VALUES", 200)
    assert image_statistics(images) == (mean, std)
    monkeypatch.setattr("pals.vision.images.pixel_statistics.SAMPLED_PIXELS", 10 * 36)
    monkeypatch.setattr("pals.vision.images.pixel_statistics.MIN_SAMPLED_IMAGES", 1)
    part, _ = image_statistics(images)
    assert part == pytest.approx(values[evenly_spaced(50, 10)].mean(dim=(0, 2, 3)).tolist(), abs=1e-12)
    refused("N x 3 x S x S", image_statistics, images[0])
