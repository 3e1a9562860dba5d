"""Decoding: an image file of any format, colour mode, depth, orientation and size to 3 x S x S uint8.

Files come from anywhere: only formats of photographs are read, the number of pixels is limited, and every failure becomes a
`BadImageError` with a short reason.
"""

from __future__ import annotations

import functools
import io
import math
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Literal, NamedTuple, get_args

import numpy as np
from PIL import ExifTags, Image, UnidentifiedImageError

from pals.util.errors import InputError, unknown
from pals.vision.images.pillow_limits import MAX_PIXELS, MemoryBudget, larger_images, quiet

How = Literal["squash", "crop", "pad", "torchvision-squash", "torchvision-crop"]
HOWS: tuple[How, ...] = get_args(How)
PAD_COLOUR = (128, 128, 128)
MAX_SIDE = 4096

# No others: Pillow knows formats that start other programs (EPS) or hold no photographs.
PILLOW_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "DIB", "GIF", "TIFF", "PPM", "AVIF", "JPEG2000", "TGA")
DRAFT_GAP = 2  # a JPEG is decoded at 1/2, 1/4 or 1/8 as long as that leaves this many pixels for one of the result
REDUCE_GAP = 3  # the same for averaging whole blocks of pixels before the real filter: hardly visible, and far faster
BAND_PIXELS = 1_000_000  # pixels whose colours are converted at a time
DEPTHS = (1, 255, 1023, 4095, 16383, 65535)  # largest values of floats and of 8, 10, 12, 14 and 16 bits
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
NOT_IMAGES = (  # offset, first bytes, and name of other files that are often called like images
    (4, (b"ftyphei", b"ftyphev", b"ftypmif1", b"ftypmsf1"), "a HEIC image, which is not read; convert it to JPEG"),
    (0, (b"<!DOCTYPE", b"<!doctype", b"<html", b"<HTML"), "a web page, not an image"),
    (0, (b"<svg", b"<?xml"), "an SVG or XML text, not an image of pixels"),
    (0, (b"version https://git-lfs",), "only a pointer; fetch the image with git lfs pull"),
    (0, (b"%PDF",), "a PDF document, not an image"),
    (0, (b"\xff\xd8", b"\x89PNG", b"GIF8", b"RIFF", b"BM", b"II*\0", b"MM\0*"), "damaged or cut off"),
)

Stamp = tuple[int, int, int]
"""Size, mtime and ctime of a file: with the same stamp it holds the same image. The ctime changes when a file is renamed or
unpacked over another of equal size and date."""
NO_STAMP: Stamp = (0, 0, 0)


class BadImageError(InputError):
    """An image that cannot be used. `lasting`: it stays bad until the file changes."""

    def __init__(self, name: str, reason: str, lasting: bool = True) -> None:
        super().__init__(f"{name}: {reason}.")
        self.name, self.reason, self.lasting = name, reason, lasting


class DecodedImage(NamedTuple):
    """Pixels of one file and what else is known of it."""

    pixels: np.ndarray  # 3 x S x S, uint8
    width: int  # of the original, upright
    height: int
    stamp: Stamp


def decode(path: str | Path, size: int, *, how: How = "squash") -> np.ndarray:
    """Decodes a file to 3 x size x size, uint8, RGB, upright.

    "squash" changes width and height to `size` each, so that everything the annotator saw is kept; "crop" keeps the proportions
    and cuts the central square; "pad" keeps the proportions and fills with grey. An image of the right size is unchanged.
    "torchvision-squash" and "torchvision-crop" give the same pixels as torchvision's Resize((size, size)), and as Resize(size)
    and CenterCrop(size), on a Pillow image: bilinear, from the whole image, slower.

    Transparent parts become white; of an animation the first frame is taken. Grey of more than 8 bits and floats are scaled by
    the smallest depth that holds the largest value (1.0 for floats; 8, 10, 12, 14 or 16 bits), values beyond 16 bits or below 0
    by the image's own range. Colour profiles are not applied.

    Memory: 4 bytes per pixel of the file (1 if grey; JPEG files far less, since they are decoded at a reduced size; WebP,
    AVIF and JPEG 2000 up to 16). More than 500 megapixels are refused with a `BadImageError`, as are damaged files.
    """
    check(size, how)
    return read_image(Path(path), str(path), size, how, MemoryBudget()).pixels


def decode_bytes(data: bytes, name: str, size: int, *, how: How = "squash") -> np.ndarray:
    """`decode` for the bytes of a file; errors call it `name`."""
    check(size, how)
    return read_image_bytes(data, name, NO_STAMP, size, how, MemoryBudget()).pixels


def check(size: int, how: str) -> None:
    if how not in HOWS:
        raise unknown("way of resizing", how, HOWS)
    if not 1 <= size <= MAX_SIDE:
        raise InputError(f"Images cannot be made {size} pixels wide; choose 1 to {MAX_SIDE}.")


def read_image(path: Path, name: str, size: int, how: How, budget: MemoryBudget) -> DecodedImage:
    """`decode`, with the original size and the stamp of the file. Errors call it `name`."""
    with _called(name), quiet, open(path, "rb", opener=_without_waiting) as file:
        stamp = stamp_of(os.fstat(file.fileno()))
        pixels, upright = _read_of_any_size(file, size, how, budget)
        if stamp_of(os.fstat(file.fileno())) != stamp:
            raise BadImageError(name, "the file changed while it was read", lasting=False)
        return DecodedImage(pixels, *upright, stamp)


def read_image_bytes(data: bytes, name: str, stamp: Stamp, size: int, how: How, budget: MemoryBudget) -> DecodedImage:
    """`read_image` for the bytes of a file."""
    with _called(name), quiet:
        pixels, upright = _read_of_any_size(io.BytesIO(data), size, how, budget)
        return DecodedImage(pixels, *upright, stamp)


@contextmanager
def _called(name: str) -> Iterator[None]:
    """Any error in this block becomes a `BadImageError` of this name."""
    try:
        yield
    except BadImageError as error:
        raise BadImageError(name, error.reason, error.lasting) from None
    except Exception as error:  # files come from anywhere, and decoders fail on broken ones with errors of any kind
        raise BadImageError(name, *_reason(error)) from None


def read_header(image: Path | bytes) -> tuple[int, int] | None:
    """Width and height of a file, or of its bytes, without decoding; None if it cannot be read (decoding gives the reason)."""
    try:
        with quiet:
            if isinstance(image, bytes):
                return _size(io.BytesIO(image))
            with open(image, "rb", opener=_without_waiting) as file:
                stamp_of(os.fstat(file.fileno()))  # raises for a pipe or a device
                return _size(file)
    except Exception:  # as above
        return None


def _size(file: IO[bytes]) -> tuple[int, int]:
    try:
        return Image.open(file, formats=_formats()).size
    except Image.DecompressionBombError:
        with larger_images:
            return Image.open(file, formats=_formats()).size


def stamp_of(found: os.stat_result) -> Stamp:
    if not stat.S_ISREG(found.st_mode):
        raise BadImageError("", "a folder or device, not a file", lasting=False)
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _without_waiting(path: str, flags: int) -> int:
    """Opener that does not block on a pipe without a writer."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


@functools.cache
def _formats() -> tuple[str, ...]:
    Image.init()
    return tuple(name for name in PILLOW_FORMATS if name in Image.OPEN)


def _read_of_any_size(file: IO[bytes], size: int, how: How, budget: MemoryBudget) -> tuple[np.ndarray, tuple[int, int]]:
    """Pillow's limit on pixels is lifted only for images that exceed it; ours stays."""
    try:
        return _read(file, size, how, budget)
    except Image.DecompressionBombError:
        with larger_images:
            return _read(file, size, how, budget)


def _read(file: IO[bytes], size: int, how: How, budget: MemoryBudget) -> tuple[np.ndarray, tuple[int, int]]:
    try:
        image = Image.open(file, formats=_formats())
    except UnidentifiedImageError:
        file.seek(0)
        raise BadImageError("", _kind_of_file(file.read(64))) from None
    width, height = image.size
    if width * height > MAX_PIXELS:
        raise BadImageError("", f"{width} x {height} pixels are more than the {MAX_PIXELS // 10**6} megapixels that are read")
    coefficients = 2 * 3 * width * height if image.info.get("progressive") else 0  # libjpeg keeps all at full size
    exact = how in ("torchvision-squash", "torchvision-crop")
    drafted = None if exact else image.draft(None, (DRAFT_GAP * size, DRAFT_GAP * size))
    copies = 8 if exact else 0  # of every pixel, in RGB and turned
    with budget.acquire(coefficients + (_bytes_per_pixel(image) + copies) * image.width * image.height):
        image.load()
        turn = TURNS.get(_orientation(image))
        full, shrunk = ((width, height), round(width / drafted[1][2])) if drafted is not None else (image.size, 1)
        if exact:
            small = _as_torchvision(image, turn, size, how)
        else:
            small = _resized(image, full, shrunk, size, how)  # and then turned, which is quicker
            small = small if turn is None else small.transpose(turn)
        del image
    if turn in (TURNS[5], TURNS[6], TURNS[7], TURNS[8]):
        width, height = height, width
    if small.size != (size, size):
        canvas = Image.new("RGB", (size, size), PAD_COLOUR)
        canvas.paste(small, ((size - small.width) // 2, (size - small.height) // 2))
        small = canvas
    return np.ascontiguousarray(np.asarray(small).transpose(2, 0, 1)), (width, height)


def _bytes_per_pixel(image: Image.Image) -> int:
    if image.format in ("WEBP", "AVIF", "JPEG2000"):
        return 16  # their decoders keep copies, or wider numbers, of the whole image
    return 1 if image.mode in ("1", "L", "P") else 2 if image.mode.startswith("I;16") else 4


def _orientation(image: Image.Image) -> int:
    if not image.info.keys() & {"exif", "xmp", "XML:com.adobe.xmp", "Raw profile type exif"}:
        return 1  # Pillow itself turns TIFF files
    try:
        return int(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # damaged metadata does not make an image bad
        return 1


def _resized(image: Image.Image, full: tuple[int, int], shrunk: int, size: int, how: How) -> Image.Image:
    """RGB, size x size, or smaller on one side if it is to be padded. `full` is the size of the image, of which `image` has
    one pixel for `shrunk` in each direction and may end within the last one."""
    width, height = full
    left = top = 0
    target = size, size
    if how == "crop":
        side = min(full)
        left, top = (width - side) // 2, (height - side) // 2  # whole pixels: what only needs cutting is not blurred
        width = height = side
    elif how == "pad":
        scale = size / max(full)
        target = max(1, round(width * scale)), max(1, round(height * scale))
    x0, y0, x1, y1 = (side / shrunk for side in (left, top, left + width, top + height))
    area = int(x0), int(y0), min(image.width, math.ceil(x1)), min(image.height, math.ceil(y1))
    factor = fx, fy = _factor(x1 - x0, target[0]), _factor(y1 - y0, target[1])
    reduced = _reduced_rgb(image, area, factor)
    if reduced.size == target:
        return reduced
    right, bottom = min(reduced.width, (x1 - area[0]) / fx), min(reduced.height, (y1 - area[1]) / fy)
    return reduced.resize(target, Image.Resampling.BICUBIC, box=((x0 - area[0]) / fx, (y0 - area[1]) / fy, right, bottom))


def _as_torchvision(image: Image.Image, turn: Image.Transpose | None, size: int, how: How) -> Image.Image:
    """With torchvision's roundings: of the longer side down, of the middle to the even number."""
    whole = _to_rgb(image, _limits(image) if _is_deep(image) else None)
    whole = whole if turn is None else whole.transpose(turn)
    if how == "torchvision-squash":
        return whole.resize((size, size), Image.Resampling.BILINEAR)
    width, height = (int(size * side / min(whole.size)) for side in whole.size)
    if width * height > MAX_PIXELS:
        raise BadImageError("", f"{whole.width} x {whole.height} pixels are too long and narrow to be cropped")
    left, top = round((width - size) / 2), round((height - size) / 2)
    return whole.resize((width, height), Image.Resampling.BILINEAR).crop((left, top, left + size, top + size))


def _factor(side: float, target: int) -> int:
    """Pixels averaged per block. The result keeps about 100 pixels a side: with fewer the last block, which may be incomplete,
    would be visible, and means over larger blocks are too dark."""
    return max(1, int(side / (REDUCE_GAP * max(32, target))))


def _reduced_rgb(image: Image.Image, area: tuple[int, int, int, int], factor: tuple[int, int]) -> Image.Image:
    """The area in RGB with blocks of pixels averaged. Band by band, so that only the result exists in a second copy."""
    left, top, right, bottom = area
    limits = _limits(image) if _is_deep(image) else None
    rows = max(1, BAND_PIXELS // max(1, right - left) // factor[1]) * factor[1]
    if rows >= bottom - top:
        whole = image if area == (0, 0, *image.size) else image.crop(area)
        return _block_means(_to_rgb(whole, limits), factor)
    size = math.ceil((right - left) / factor[0]), math.ceil((bottom - top) / factor[1])
    result = Image.new("RGB", size)
    for start in range(top, bottom, rows):
        band = image.crop((left, start, right, min(bottom, start + rows)))
        result.paste(_block_means(_to_rgb(band, limits), factor), (0, (start - top) // factor[1]))
    return result


def _block_means(image: Image.Image, factor: tuple[int, int]) -> Image.Image:
    return image.reduce(factor) if factor != (1, 1) else image


def _to_rgb(image: Image.Image, limits: tuple[float, float] | None) -> Image.Image:
    if limits is not None:
        low, high = limits
        values = (np.nan_to_num(np.asarray(image).astype(np.float64), nan=low, posinf=high, neginf=low) - low) * (
            255 / (high - low)
        )
        return Image.fromarray(np.rint(values).astype(np.uint8)).convert("RGB")
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    if image.has_transparency_data:
        image = image.convert("RGBA")
        white = Image.new("RGB", image.size, (255, 255, 255))
        white.paste(image, mask=image.getchannel("A"))
        return white
    return image.convert("RGB")


def _is_deep(image: Image.Image) -> bool:
    return image.mode in ("I", "F") or image.mode.startswith("I;16")


def _limits(image: Image.Image) -> tuple[float, float]:
    """The values that become 0 and 255."""
    low, high = math.inf, -math.inf
    rows = max(1, BAND_PIXELS // image.width)
    for start in range(0, image.height, rows):
        band = image.crop((0, start, image.width, min(image.height, start + rows)))
        values = np.asarray(band).astype(np.float64)
        finite = np.isfinite(values)
        low = min(low, float(values.min(where=finite, initial=math.inf)))
        high = max(high, float(values.max(where=finite, initial=-math.inf)))
    depths = [depth for depth in DEPTHS[0 if image.mode == "F" else 1 :] if low >= 0 and high <= depth]
    if depths:
        return 0.0, float(depths[0])
    return (low, high) if high > low else (low, low + 1)


def _kind_of_file(start: bytes) -> str:
    if not start:
        return "the file is empty"
    for offset, marks, what in NOT_IMAGES:
        if start[offset:].startswith(marks):
            return what
    return "only zeros: the file was not written completely" if not any(start) else "not an image of a known format"


def _reason(error: Exception) -> tuple[str, bool]:
    """The reason in a few words, and whether decoding will fail again."""
    if isinstance(error, FileNotFoundError):
        return "the file does not exist", False
    if isinstance(error, OSError) and error.errno is not None:  # of the system; Pillow's own have no number
        return f"it cannot be opened ({error.strerror or error})", False
    if isinstance(error, MemoryError):
        return "there is not enough memory for it", False
    if isinstance(error, Image.DecompressionBombError):
        return f"more than the {MAX_PIXELS // 10**6} megapixels that are read", True
    reason = " ".join(str(error).split())[:120]
    if isinstance(error, EOFError) or "truncated" in reason.lower():
        return "the file is cut off", True
    return f"it cannot be decoded ({reason or type(error).__name__})", True
