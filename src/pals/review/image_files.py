"""The pictures of a run, and small copies of them that are made once. Only the file that an item names is ever opened."""

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
from pals.vision.images.decoding import BadImageError, read_header, read_picture
from pals.vision.images.pillow_limits import Budget

FOLDER = "review-thumbnails"
THUMBNAIL = 256  # pixels a side, at most
LARGEST_SHOWN = 2048  # pixels a side of a picture that the browser cannot read itself
LARGEST_SENT = 32 << 20  # bytes of a file that is sent as it is
LOSSLESS = 64  # pixels a side up to which nothing is lost
AT_ONCE = 4  # pictures that are read at a time
SHOWN_BY_BROWSERS = {  # how a file begins, and what it is then
    b"\xff\xd8\xff": "image/jpeg",
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
    b"BM": "image/bmp",
}


class NoPictureError(InputError):
    """There is none to show, and why."""


class Sent(NamedTuple):
    """A picture on its way to the browser."""

    data: bytes
    media_type: str


class Pictures:
    """Those in one folder. `keep` is where small copies stay."""

    def __init__(self, folder: Path, keep: Path, *, follow_links: bool = False) -> None:
        self.folder, self.keep, self.follow_links = folder, keep / FOLDER, follow_links
        self._root = Path(os.path.realpath(folder))
        self._turn = threading.BoundedSemaphore(AT_ONCE)
        self._budget = Budget()

    @property
    def there(self) -> bool:
        """Whether there is anything to show."""
        return self.folder.is_dir()

    def check(self, item: str) -> None:
        """Raises `NoPictureError` if there is none."""
        self.path_of(item)

    def path_of(self, item: str) -> Path:
        """The real file of an item. It lies in the folder, however the item is written and whatever links there are."""
        parts = PurePosixPath(item).parts
        if not parts or ".." in parts or PurePosixPath(item).is_absolute() or "\0" in item:
            raise NoPictureError(f"{item} is not the path of a picture.")
        path = Path(os.path.realpath(self._root.joinpath(*parts)))
        if not self.follow_links and not path.is_relative_to(self._root):
            raise NoPictureError(f"{item} is a link out of the picture folder; it is shown with --follow-links.")
        if not path.is_file():
            raise NoPictureError(f"{item} is no longer in {self.folder}; put the pictures back to see it.")
        return path

    def full(self, item: str) -> Sent:
        """The picture as it is, or as JPEG where browsers do not read its format."""
        path = self.path_of(item)
        with self._turn:
            data = _read(path, item)
            kind = kind_of(data[:16]) if data is not None else None
            return Sent(data, kind) if data is not None and kind else self._converted(path, item, LARGEST_SHOWN)

    def thumbnail(self, item: str) -> Sent:
        """A small copy, read from the run's folder where it has been made before."""
        path = self.path_of(item)
        found = path.stat()
        mark = hashlib.blake2b(repr((item, found.st_size, found.st_mtime_ns)).encode("utf-8", "surrogatepass"), digest_size=16)

        def make() -> Sent:
            with self._turn:
                return self._converted(path, item, THUMBNAIL)

        return kept_copy(self.keep, mark.hexdigest(), make)

    def _converted(self, path: Path, item: str, largest: int) -> Sent:
        """Upright, in RGB, with its proportions, and never enlarged."""
        try:
            longest = max((read_header(path) or (largest, largest))[:2])
            side = min(largest, longest)
            picture = read_picture(path, item, side, "pad", self._budget)
        except BadImageError as error:
            raise NoPictureError(str(error)) from None
        width, height = (max(1, round(side * length / longest)) for length in (picture.width, picture.height))
        left, top = (side - width) // 2, (side - height) // 2
        return packed(picture.pixels[:, top : top + height, left : left + width])


def packed(pixels_3HW: np.ndarray) -> Sent:
    """As PNG where it is tiny, else as JPEG."""
    buffer = io.BytesIO()
    image = Image.fromarray(pixels_3HW.transpose(1, 2, 0).copy())
    if max(image.size) <= LOSSLESS:
        image.save(buffer, "PNG", optimize=True)
        return Sent(buffer.getvalue(), "image/png")
    image.save(buffer, "JPEG", quality=85)
    return Sent(buffer.getvalue(), "image/jpeg")


def kept_copy(keep: Path, mark: str, make: Callable[[], Sent]) -> Sent:
    """A small copy that was made before, or one that is made now and kept."""
    kept = keep / mark[:2] / f"{mark}.img"
    with suppress(OSError):
        data = kept.read_bytes()
        return Sent(data, kind_of(data) or "image/jpeg")
    made = make()
    with suppress(InputError):  # no room: it is made again next time
        write_bytes(kept, made.data)
    return made


def _read(path: Path, item: str) -> bytes | None:
    """The file's bytes; None where they are too many. Nothing but a plain file is read, and no link that has come since."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(handle, "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise NoPictureError(f"{item} is not a file.")
            return file.read() if found.st_size <= LARGEST_SENT else None
    except OSError as error:
        raise NoPictureError(f"{item} cannot be read ({error.strerror or error}).") from None


def kind_of(start: bytes) -> str | None:
    if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for begins, kind in SHOWN_BY_BROWSERS.items() if start.startswith(begins)), None)
