"""The images of a run and their cached thumbnails. Only the file that an item names is opened."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np
from PIL import Image

from pals.util.errors import InputError
from pals.util.files import write_bytes
from pals.vision.images.decoding import BadImageError, read_header, read_image
from pals.vision.images.pillow_limits import MemoryBudget

THUMBNAIL_FOLDER = "review-thumbnails"
MAX_THUMBNAIL_SIDE = 256  # pixels a side, at most
MAX_SHOWN_SIDE = 2048  # pixels a side of an image that is converted
MAX_SENT_BYTES = 32 << 20  # bytes of a file that is sent as it is
MAX_PNG_SIDE = 64  # pixels a side up to which nothing is lost
MAX_DECODERS = 4  # images that are decoded at a time
BROWSER_FORMATS = {  # how a file begins, and what it is then
    b"\xff\xd8\xff": "image/jpeg",
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
    b"BM": "image/bmp",
}


class NoImageError(InputError):
    """There is no image to show; with the reason as message."""


class ImageBytes(NamedTuple):
    """An encoded image for the browser."""

    data: bytes
    media_type: str


class ImageFiles:
    """The images in a folder. `keep`: the folder of the thumbnail cache."""

    def __init__(self, folder: Path, keep: Path, *, follow_links: bool = False) -> None:
        self.folder, self.keep, self.follow_links = folder, keep / THUMBNAIL_FOLDER, follow_links
        self._root = Path(os.path.realpath(folder))
        self._turn = threading.BoundedSemaphore(MAX_DECODERS)
        self._budget = MemoryBudget()

    @property
    def there(self) -> bool:
        """Whether the folder exists."""
        return self.folder.is_dir()

    def check(self, item: str) -> None:
        """Raises `NoImageError` if the item has no image."""
        self.path_of(item)

    def path_of(self, item: str) -> Path:
        """The real path of an item, which lies in the folder whatever the item's name and its links are."""
        parts = PurePosixPath(item).parts
        if not parts or ".." in parts or PurePosixPath(item).is_absolute() or "\0" in item:
            raise NoImageError(f"{item} is not the path of an image.")
        path = Path(os.path.realpath(self._root.joinpath(*parts)))
        if not self.follow_links and not path.is_relative_to(self._root):
            raise NoImageError(f"{item} is a link out of the image folder; it is shown with --follow-links.")
        if not path.is_file():
            raise NoImageError(f"{item} is no longer in {self.folder}; put the images back to see it.")
        return path

    def full(self, item: str) -> ImageBytes:
        """The file as it is, or converted to JPEG where browsers cannot show its format."""
        path = self.path_of(item)
        with self._turn:
            data = _read(path, item)
            kind = kind_of(data[:16]) if data is not None else None
            return ImageBytes(data, kind) if data is not None and kind else self._converted(path, item, MAX_SHOWN_SIDE)

    def thumbnail(self, item: str) -> ImageBytes:
        """A small copy, cached in the run folder."""
        path = self.path_of(item)
        found = path.stat()
        mark = hashlib.blake2b(repr((item, found.st_size, found.st_mtime_ns)).encode("utf-8", "surrogatepass"), digest_size=16)

        def make() -> ImageBytes:
            with self._turn:
                return self._converted(path, item, MAX_THUMBNAIL_SIDE)

        return kept_copy(self.keep, mark.hexdigest(), make)

    def _converted(self, path: Path, item: str, largest: int) -> ImageBytes:
        """Upright, RGB, with its proportions, never enlarged."""
        try:
            longest = max(read_header(path) or (largest, largest))
            side = min(largest, longest)
            image = read_image(path, item, side, "pad", self._budget)
        except BadImageError as error:
            raise NoImageError(str(error)) from None
        width, height = (max(1, round(side * length / longest)) for length in (image.width, image.height))
        left, top = (side - width) // 2, (side - height) // 2
        return packed(image.pixels[:, top : top + height, left : left + width])


def packed(pixels_3HW: np.ndarray) -> ImageBytes:
    """As PNG if it is tiny, else as JPEG."""
    buffer = io.BytesIO()
    image = Image.fromarray(pixels_3HW.transpose(1, 2, 0).copy())
    if max(image.size) <= MAX_PNG_SIDE:
        image.save(buffer, "PNG", optimize=True)
        return ImageBytes(buffer.getvalue(), "image/png")
    image.save(buffer, "JPEG", quality=85)
    return ImageBytes(buffer.getvalue(), "image/jpeg")


def kept_copy(keep: Path, mark: str, make: Callable[[], ImageBytes]) -> ImageBytes:
    """The cached copy, or a new one, which is cached."""
    kept = keep / mark[:2] / f"{mark}.img"
    with suppress(OSError):
        data = kept.read_bytes()
        return ImageBytes(data, kind_of(data) or "image/jpeg")
    made = make()
    with suppress(InputError):  # no room: it is made again next time
        write_bytes(kept, made.data)
    return made


def _read(path: Path, item: str) -> bytes | None:
    """The bytes of a regular file; None if it is too large. Links are not followed."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(handle, "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise NoImageError(f"{item} is not a file.")
            return file.read() if found.st_size <= MAX_SENT_BYTES else None
    except OSError as error:
        raise NoImageError(f"{item} cannot be read ({error.strerror or error}).") from None


def kind_of(start: bytes) -> str | None:
    if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for begins, kind in BROWSER_FORMATS.items() if start.startswith(begins)), None)
