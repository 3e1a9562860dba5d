"""Names of the images in a folder; no file is opened."""

from __future__ import annotations

import os
import re
import stat
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from pals.util.errors import InputError

IMAGE_ENDINGS = frozenset(
    {".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".apng", ".bmp", ".dib", ".gif", ".tif", ".tiff", ".webp", ".avif"}
    | {".jp2", ".j2k", ".ppm", ".pgm", ".pbm", ".pnm", ".pfm", ".tga"}
)
SKIPPED_FOLDERS = {"__MACOSX", "@eaDir", "$RECYCLE.BIN"}  # of operating systems, often with small copies of the images


def list_images(folder: str | Path) -> list[str]:
    """Paths of all images in a folder and its subfolders.

    An image is a file with one of `IMAGE_ENDINGS`, in upper or lower case. Hidden files and folders are skipped. Links are
    followed, since many collections are folders of links; each real folder is read once, so repeated and circular links add
    nothing. A broken link is listed, so that loading can report it. A name that is not valid text is listed with its invalid
    bytes escaped; `load_images` counts it as bad.

    Args:
        folder: The folder.

    Returns:
        Paths relative to the folder, with forward slashes, sorted.

    Raises:
        InputError: The folder does not exist, cannot be read, or has no image.

    >>> from pathlib import Path
    >>> from pals import list_images
    >>> Path("photos/pond").mkdir(parents=True)
    >>> for name in ("newt.png", "pond/frog.JPG", "notes.txt"):
    ...     _ = Path("photos", name).write_bytes(b"")
    >>> list_images("photos")
    ['newt.png', 'pond/frog.JPG']
    """
    folder = existing_folder(folder)
    names: list[str] = []
    others: Counter[str] = Counter()
    for path in _files(folder):
        ending = os.path.splitext(path)[1].lower()  # noqa: PTH122 (a million times)
        if ending in IMAGE_ENDINGS:
            names.append(printable(path))
        else:
            others[ending or "no ending"] += 1
    if not names:
        found = ", ".join(f"{count:,} x {printable(ending)}" for ending, count in others.most_common(3))
        raise InputError(
            f"The folder {folder} holds no image that can be read{f' (found: {found}). ' if found else '; it is empty. '}"
            f"Extensions that are read: {' '.join(sorted(IMAGE_ENDINGS))}. Name another folder or convert the files."
        )
    return sorted(set(names))


def existing_folder(folder: str | Path) -> Path:
    folder = Path(folder)
    if not folder.exists():
        raise InputError(f"The image folder {folder} does not exist. Check the path.")
    if not folder.is_dir():
        raise InputError(f"{folder} is a file, not a folder. Name the folder that holds the images.")
    return folder


def printable(name: str) -> str:
    """The name as valid text: bytes that are not are escaped, as in "caf\\udce9.png"."""
    return name if name.isascii() else name.encode("utf-8", "backslashreplace").decode("utf-8")


def unprintable(name: str) -> str:
    """The inverse of `printable`."""
    return re.sub(r"\\u(d[89a-f][0-9a-f]{2})", lambda code: chr(int(code[1], 16)), name)


def _files(folder: Path) -> Iterator[str]:
    """Relative paths of the files. Links to folders are followed after all real folders, so that real paths take precedence."""
    waiting, links, seen = [""], list[str](), set[tuple[int, int]]()
    while waiting or links:
        inside = waiting.pop() if waiting else links.pop(0)
        path = folder / inside
        try:
            found = path.stat()
            if (found.st_dev, found.st_ino) in seen:
                continue
            seen.add((found.st_dev, found.st_ino))
            with os.scandir(path) as entries:
                for entry in entries:
                    name = f"{inside}/{entry.name}" if inside else entry.name
                    if entry.name.startswith(".") or entry.name in SKIPPED_FOLDERS:
                        continue
                    if _is_folder(entry):
                        (links if entry.is_symlink() else waiting).append(name)
                    elif entry.is_file(follow_symlinks=False) or (entry.is_symlink() and not _may_block(entry)):
                        yield name
        except OSError as error:
            raise InputError(f"Cannot read folder {printable(str(path))}: {error.strerror or error}. Fix its rights.") from None
        links.sort()


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """False for a link to itself: that image is bad, not the whole folder."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def _may_block(link: os.DirEntry[str]) -> bool:
    """Whether a link leads to a pipe or a device, from which reading may block."""
    try:
        return not stat.S_ISREG(link.stat().st_mode)
    except OSError:
        return False  # a broken link
