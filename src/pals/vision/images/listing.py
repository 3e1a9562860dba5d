"""Which pictures a folder holds: names only, nothing is opened."""

from __future__ import annotations

import os
import re
import stat
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from pals.util.errors import InputError

ENDINGS = frozenset(
    {".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".apng", ".bmp", ".dib", ".gif", ".tif", ".tiff", ".webp", ".avif"}
    | {".jp2", ".j2k", ".ppm", ".pgm", ".pbm", ".pnm", ".pfm", ".tga"}
)
NOT_PICTURES = {"__MACOSX", "@eaDir", "$RECYCLE.BIN"}  # what systems put beside the pictures, often small copies of them


def list_images(folder: str | Path) -> list[str]:
    """Paths of all pictures in the folder and its subfolders, relative, with forward slashes, sorted.

    A picture is a file with one of `ENDINGS`, in upper or lower case. Hidden files and folders are skipped. Links are
    followed wherever they lead, since many collections are folders of links; each real folder is read once, so repeated and
    circular links add nothing. A broken link is listed, so that loading can report it. A name that is not valid text is
    listed with its invalid bytes escaped; `load_images` counts it as bad.
    """
    folder = existing_folder(folder)
    names: list[str] = []
    others: Counter[str] = Counter()
    for path in _files(folder):
        ending = os.path.splitext(path)[1].lower()  # noqa: PTH122 (a million times)
        if ending in ENDINGS:
            names.append(printable(path))
        else:
            others[ending or "no ending"] += 1
    if not names:
        raise InputError(_no_image(folder, others))
    return sorted(set(names))


def existing_folder(folder: str | Path) -> Path:
    folder = Path(folder)
    if not folder.exists():
        raise InputError(f"The image folder {folder} does not exist. Check the path.")
    if not folder.is_dir():
        raise InputError(f"{folder} is a file, not a folder. Name the folder that holds the pictures.")
    return folder


def printable(name: str) -> str:
    """The name as text that can be written to any file. Bytes that are no text are spelled out: "caf\\udce9.png"."""
    return name if name.isascii() else name.encode("utf-8", "backslashreplace").decode("utf-8")


def unprintable(name: str) -> str:
    """What `printable` made its name from, if it had to change anything."""
    return re.sub(r"\\u(d[89a-f][0-9a-f]{2})", lambda code: chr(int(code[1], 16)), name)


def _files(folder: Path) -> Iterator[str]:
    """Relative paths of the files. Links to folders wait until all real folders are read: real paths win."""
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
                    if entry.name.startswith(".") or entry.name in NOT_PICTURES:
                        continue
                    if _is_folder(entry):
                        (links if entry.is_symlink() else waiting).append(name)
                    elif entry.is_file(follow_symlinks=False) or (entry.is_symlink() and not _waits(entry)):
                        yield name
        except OSError as error:
            raise InputError(
                f"Cannot read the folder {printable(str(path))}: {error.strerror or error}. Make it readable or move it away."
            ) from None
        links.sort()


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Not so a link that leads to itself, at which the system gives up: one such picture is bad, not the whole folder."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def _waits(link: os.DirEntry[str]) -> bool:
    """Whether a link leads to what could keep a reader waiting for ever: a pipe, a device."""
    try:
        return not stat.S_ISREG(link.stat().st_mode)
    except OSError:
        return False  # it leads nowhere


def _no_image(folder: Path, others: Counter[str]) -> str:
    found = ", ".join(f"{count:,} x {printable(ending)}" for ending, count in others.most_common(3))
    return (
        f"The folder {folder} holds no picture that can be read"
        + (f" (found: {found}). " if found else "; it is empty. ")
        + f"Extensions that are read: {' '.join(sorted(ENDINGS))}. Name another folder or convert the files."
    )
