"""A folder of images as one tensor: decoded in parallel into the cache, decoded again only where a file has changed."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Executor
from functools import partial
from itertools import chain
from pathlib import Path

from pals.util.errors import InputError
from pals.util.threads import in_order
from pals.vision.images.decoding import BadImageError, How, Stamp, check, read_image, stamp_of
from pals.vision.images.image_cache import CacheLoader, CacheSettings, ImageTable, Progress, Watch
from pals.vision.images.listing import existing_folder, list_images, printable, unprintable
from pals.vision.images.pillow_limits import MemoryBudget

STAMPS_AT_ONCE = 64  # files whose stamps a thread reads at a time


def load_images(
    folder: str | Path,
    size: int,
    *,
    cache: str | Path | None,
    names: Sequence[str] | None = None,
    skip_bad: bool = False,
    how: How = "squash",
    workers: int | None = None,
    progress: Progress | None = None,
    watch: Watch | None = None,
) -> ImageTable:
    """Images of a folder as one tensor, N x 3 x size x size, resized by `how`.

    The pixels stay on disk and need not fit in memory. Decoding takes 64 MB for finished images, 2 GB for images in progress
    (more only if a single image needs more), and about half a kilobyte per name.

    Args:
        folder: Folder with images, in subfolders too.
        size: Pixels a side, 1 to 4096.
        cache: Folder for the decoded images, which are reused while the files are unchanged; new and changed files are added.
            It may serve many image folders and processes at once. None: a temporary file, deleted with the tensor.
        names: Paths relative to the folder, in the order wanted; default all images, sorted.
        skip_bad: Leave out images that cannot be decoded, and list them; otherwise they are an error that names them.
        how: "squash", "crop", "pad", "torchvision-squash" or "torchvision-crop"; see docs/images.md.
        workers: Threads; default one per core.
        progress: Called now and then with the number of images ready and the total, if any have to be decoded.
        watch: Called with the pixels of each image as soon as it is decoded; decoding pauses while 64 MB of finished images
            wait for it.

    Returns:
        `ImageTable` with `images` (uint8 tensor), `names`, `size_N2` (original width and height), `bad` (name and reason of
        each image left out) and `decoded` (how many were not in the cache).

    Raises:
        InputError: A name outside the folder, a bad image that is not to be skipped, or a cache that cannot be written.

    >>> from pathlib import Path
    >>> from PIL import Image
    >>> from pals import load_images
    >>> Path("photos").mkdir()
    >>> Image.new("RGB", (64, 48), (200, 120, 40)).save("photos/frog.png")
    >>> table = load_images("photos", 32, cache="cache")
    >>> table.names, table.images.shape, table.decoded
    (('frog.png',), torch.Size([1, 3, 32, 32]), 1)
    >>> load_images("photos", 32, cache="cache").decoded
    0
    """
    folder = existing_folder(folder)
    check(size, how)
    wanted = list_images(folder) if names is None else _checked(names)
    budget = MemoryBudget()
    loader = CacheLoader(
        CacheSettings(str(folder.resolve()), size, how),
        lambda name: read_image(folder / name, name, size, how, budget),
        partial(_stamps_of, str(folder)),
        workers,
        progress,
        watch,
    )
    return loader.load(wanted, cache, skip_bad=skip_bad)


def _stamps_of(folder: str, names: Sequence[str], pool: Executor) -> dict[str, Stamp | str]:
    """The stamp of each file, or the reason why it cannot be read."""

    def stamp(name: str) -> Stamp | str:
        try:
            return stamp_of(os.stat(f"{folder}/{name}"))  # noqa: PTH116 (a million times)
        except BadImageError as error:
            return error.reason
        except OSError as error:
            return _why_absent(folder, name, error)

    parts = (names[start : start + STAMPS_AT_ONCE] for start in range(0, len(names), STAMPS_AT_ONCE))
    found = in_order(pool, lambda part: [stamp(name) for name in part], parts, 1024)
    return dict(zip(names, chain.from_iterable(found), strict=True))


def _checked(names: Sequence[str]) -> list[str]:
    wanted = [printable(name) for name in names]
    if not wanted:
        raise InputError("No image is named. Name at least one, or none at all to take the whole folder.")
    name, count = Counter(wanted).most_common(1)[0]
    if count > 1:
        raise InputError(f"The image {name!r} is named twice. Name every image once.")
    for name in wanted:
        if name.startswith("/") or Path(name).is_absolute() or ".." in name.split("/") or not name or "\0" in name:
            raise InputError(f"The image {name!r} is not a path within the image folder. Name it relative to the folder.")
    return wanted


def _why_absent(folder: str, name: str, error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        if unprintable(name) != name and os.path.lexists(f"{folder}/{unprintable(name)}"):
            return "its name is not valid UTF-8; rename the file"
        if os.path.islink(f"{folder}/{name}"):  # noqa: PTH114
            return "the link leads nowhere"
        return "the file does not exist"
    return f"it cannot be opened ({error.strerror or error})"
