"""A folder of pictures as one tensor: decoded in parallel, kept on disk, decoded again only where a file has changed."""

from __future__ import annotations

import errno
import math
import os
import shutil
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from pals.util.errors import InputError
from pals.util.locks import locked
from pals.vision.images.decoding import BadImageError, How, Picture, Stamp, check, read_picture, stamp_of
from pals.vision.images.image_cache import Entry, Settings, Store, Writer, left_behind, list_of, lock_of, mapped, remove_others
from pals.vision.images.listing import existing_folder, list_images, printable, unprintable
from pals.vision.images.pillow_limits import Budget, quiet

READY = 64 << 20  # bytes of decoded pictures that may wait to be written
SECONDS_BETWEEN_CALLS = 0.1  # of the function that shows progress
SHOWN = 5  # bad pictures that an error names

Progress = Callable[[int, int], None]
Watch = Callable[[np.ndarray], None]
A = TypeVar("A")
B = TypeVar("B")


class BadImage(NamedTuple):
    """A picture that cannot be used, and why, in a few words."""

    name: str
    reason: str


@dataclass(frozen=True)
class ImageTable:
    """Pictures of one size with their names. The pixels lie on the disk and are read when they are touched."""

    images: Tensor  # N x 3 x S x S, uint8
    names: tuple[str, ...]
    size_N2: Tensor  # width and height of the files' pictures, upright
    bad: tuple[BadImage, ...] = ()
    decoded: int = 0
    "How many had to be decoded now; all others came from the cache."

    def __len__(self) -> int:
        return len(self.names)


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
    """All pictures in the folder, or those named, in that order, as 3 x size x size. `decode` says how one is resized.

    The pixels stay on disk and need not fit in memory. Decoding takes 64 MB for finished pictures, 2 GB for pictures in
    progress (more only if a single picture needs more), and about half a kilobyte per name.

    Args:
        cache: Folder for the decoded pictures, which are reused while the files are unchanged; new and changed files are
            added. It may serve many image folders and processes at once. None: a temporary file, deleted with the tensor.
        skip_bad: Leave out pictures that cannot be decoded, and list them; otherwise they are an error that names them.
        progress: Called now and then with the number of pictures ready and the total, if any have to be decoded.
        watch: Called with the pixels of each picture as soon as it is decoded; decoding pauses while 64 MB of finished
            pictures are waiting for it.
    """
    folder = existing_folder(folder)
    check(size, how)
    if workers is not None and workers < 1:
        raise InputError(f"{workers} workers cannot do any work; choose at least 1, or None for one per core.")
    wanted = list_images(folder) if names is None else _checked(names)
    with ExitStack() as stack:
        if cache is None:
            cleaned = tempfile.TemporaryDirectory(prefix="pals-", ignore_cleanup_errors=True)
            place = Path(stack.enter_context(cleaned))
        else:
            place = Path(cache)
        try:
            place.mkdir(parents=True, exist_ok=True)
            table = _Loader(folder, Settings(str(folder.resolve()), size, how), place, workers, progress, watch).load(wanted)
        except _FullError as error:
            raise NoRoomError(place, cache is None, str(error)) from None
        except OSError as error:  # those of the pictures have become reasons, so this is about the cache
            if error.errno == errno.ENOMEM:
                raise InputError(
                    f"There is too little memory to read the pictures of {folder} at {size} pixels. "
                    "Close other programs, raise the limit of this one, or choose a smaller size, and start again."
                ) from None
            raise _no_place(place, cache is None, error.strerror or str(error)) from None
    if table.bad and not (skip_bad and table.names):
        raise _bad_images(folder, table)
    return table


class _Loader:
    """One call of `load_images`."""

    def __init__(
        self,
        folder: Path,
        settings: Settings,
        place: Path,
        workers: int | None,
        progress: Progress | None,
        watch: Watch | None,
    ) -> None:
        self.folder, self.settings, self.place = folder, settings, place
        self.workers = workers or _cores()
        self.progress = progress or (lambda done, total: None)
        self.watch = watch or (lambda pixels: None)
        self.budget = Budget()
        self.told = -math.inf
        self.decoded = 0
        self.failed: dict[str, str] = {}  # reasons that the next run has to check again

    def load(self, wanted: list[str]) -> ImageTable:
        # Threads, not processes: Pillow lets go of the interpreter while it decodes and resizes, so photographs scale with
        # the cores as they do in processes. Tiny pictures do not (some thousands a second whatever the cores); there many
        # processes would win a few seconds once, but have to be started, send all pixels around, and need a guarded
        # __main__ in every script that calls this.
        with locked(lock_of(self.place, self.settings)) as alone, quiet:
            self.pool = ThreadPoolExecutor(self.workers, thread_name_prefix="pals-images")
            try:
                return self._table(self._store(wanted, alone), wanted)
            finally:
                self.pool.shutdown(cancel_futures=True)

    def _store(self, wanted: list[str], alone: bool) -> Store:
        """A store that has every wanted picture: the present one if it will do, else a new one.

        The others in it stay as long as their files do, so that two calls for different pictures do not undo each other's work.
        """
        present = Store.read(list_of(self.place, self.settings), self.settings)
        stamps = self._look_at(wanted)
        complete = all(present.has(name, stamp) for name, stamp in stamps.items())
        others = [name for name in present.entries if name not in stamps]
        if complete and len(others) > len(wanted):  # a few out of many: looking at all would take longer
            return present
        kept = {name: stamp for name, stamp in self._look_at(others).items() if present.has(name, stamp)}
        if complete and len(kept) == len(others):
            return present
        sources = [present, *(left_behind(self.place, self.settings) if alone else ())]
        store = self._build(dict(sorted((stamps | kept).items())), sources)
        if alone:
            remove_others(self.place, self.settings, store)
        elif present.entries:
            with suppress(OSError):
                present.rows.unlink()
        return store

    def _look_at(self, names: list[str]) -> dict[str, Stamp]:
        """Stamps of the files that are there."""
        found = self._in_order(self._stamp, names, chunk=64, ahead=1024)
        return {name: stamp for name, stamp in zip(names, found, strict=True) if stamp is not None}

    def _stamp(self, name: str) -> Stamp | None:
        path = f"{self.folder}/{name}"
        try:
            return stamp_of(os.stat(path))  # noqa: PTH116 (a million times)
        except BadImageError as error:
            self.failed[name] = error.reason
        except OSError as error:
            self.failed[name] = _why_absent(str(self.folder), name, error)
        return None

    def _build(self, files: dict[str, Stamp], sources: list[Store]) -> Store:
        """A new store with these pictures; what the sources have is copied."""
        self._check_room(len(files))
        rows = [source.pixels() for source in sources]
        numbers = range(len(sources))
        origin = {name: next((n for n in numbers if sources[n].has(name, stamp)), None) for name, stamp in files.items()}
        ready = max(1, READY // self.settings.row_bytes)
        chunk = min(16, max(1, ready // (4 * self.workers)))
        missing = [name for name in files if origin[name] is None]
        pictures = self._in_order(self._decode, missing, chunk=chunk, ahead=max(self.workers, ready // chunk))
        writer = Writer(self.place, self.settings)
        try:
            for number, (name, stamp) in enumerate(files.items()):
                source = origin[name]
                if source is None:
                    self._add(writer, name, stamp, next(pictures))
                else:
                    row = sources[source].row_of.get(name)
                    writer.add(sources[source].entries[name], rows[source][row] if row is not None else None)
                self._tell(number + 1, len(files))
            return writer.publish()
        except OSError:
            writer.discard()
            raise
        except BaseException:  # also a key pressed to stop it
            writer.leave()
            raise

    def _decode(self, name: str) -> Picture | BadImageError:
        try:
            return read_picture(self.folder / name, name, self.settings.size, self.settings.how, self.budget)
        except BadImageError as error:
            return error

    def _add(self, writer: Writer, name: str, stamp: Stamp, result: Picture | BadImageError) -> None:
        self.decoded += 1
        if isinstance(result, Picture):
            writer.add(Entry(name, result.stamp, result.width, result.height, None), result.pixels)
            self.watch(result.pixels)
        elif result.lasting:
            writer.add(Entry(name, stamp, 0, 0, result.reason), None)
        else:
            self.failed[name] = result.reason

    def _table(self, store: Store, wanted: list[str]) -> ImageTable:
        good = [name for name in wanted if name in store.row_of and name not in self.failed]
        reasons = self.failed | {name: entry.reason for name, entry in store.entries.items() if entry.reason is not None}
        sizes = [(store.entries[name].width, store.entries[name].height) for name in good]
        return ImageTable(
            images=self._images(store, [store.row_of[name] for name in good]),
            names=tuple(good),
            size_N2=torch.tensor(sizes, dtype=torch.int32).view(-1, 2),
            bad=tuple(BadImage(name, reasons[name]) for name in wanted if name in reasons),
            decoded=self.decoded,
        )

    def _images(self, store: Store, rows: list[int]) -> Tensor:
        """The rows as they lie in the store if they follow each other, else a copy that goes when the tensor goes."""
        size = self.settings.size
        if not rows:
            return torch.empty(0, 3, size, size, dtype=torch.uint8)
        if rows == list(range(rows[0], rows[0] + len(rows))):
            with store.rows.open("rb") as file:
                return mapped(file, rows[0], len(rows), size)
        self._check_room(len(rows))
        pixels = store.pixels()
        with tempfile.TemporaryFile(dir=self.place) as copy:
            for row in rows:
                copy.write(pixels[row].data)
            copy.flush()
            return mapped(copy, 0, len(rows), size)

    def _check_room(self, count: int) -> None:
        """Better now than after an hour."""
        needed, free = count * self.settings.row_bytes, shutil.disk_usage(self.place).free
        if needed > free:
            raise _FullError(f"{count:,} pictures need {needed / 1e6:,.1f} MB and {free / 1e6:,.1f} MB are free")

    def _tell(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self.told > SECONDS_BETWEEN_CALLS or done == total:
            self.told = now
            self.progress(done, total)

    def _in_order(self, work: Callable[[A], B], items: Iterable[A], *, chunk: int, ahead: int) -> Iterator[B]:
        """What `work` makes of each item, in their order. The pool is at most `ahead` chunks ahead of who takes it."""
        rest = iter(items)
        running: deque[Future[list[B]]] = deque()
        while part := list(islice(rest, chunk)):
            running.append(self.pool.submit(_each, work, part))
            if len(running) > ahead:
                yield from running.popleft().result()
        while running:
            yield from running.popleft().result()


def _each(work: Callable[[A], B], items: list[A]) -> list[B]:
    return [work(item) for item in items]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _checked(names: Sequence[str]) -> list[str]:
    wanted = [printable(name) for name in names]
    if not wanted:
        raise InputError("No picture is named. Name at least one, or none at all to take the whole folder.")
    if len(set(wanted)) < len(wanted):
        twice = next(name for name, count in Counter(wanted).items() if count > 1)
        raise InputError(f"The picture {twice!r} is named twice. Name every picture once.")
    for name in wanted:
        if name.startswith("/") or Path(name).is_absolute() or ".." in name.split("/") or not name or "\0" in name:
            raise InputError(f"The picture {name!r} is not a path within the image folder. Name it relative to the folder.")
    return wanted


def _why_absent(folder: str, name: str, error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        if unprintable(name) != name and os.path.lexists(f"{folder}/{unprintable(name)}"):
            return "its name is not valid UTF-8; rename the file"
        if os.path.islink(f"{folder}/{name}"):  # noqa: PTH114
            return "the link leads nowhere"
        return "the file does not exist"
    return f"it cannot be opened ({error.strerror or error})"


def _bad_images(folder: Path, table: ImageTable) -> InputError:
    shown = "; ".join(f"{bad.name!r}: {bad.reason}" for bad in table.bad[:SHOWN])
    rest = f"; and {len(table.bad) - SHOWN:,} more" if len(table.bad) > SHOWN else ""
    total = len(table.bad) + len(table)
    if not table.names:
        return InputError(f"No picture in {folder} can be read, of {total:,} ({shown}{rest}). Is it the right folder?")
    return InputError(
        f"{len(table.bad):,} of {total:,} pictures in {folder} cannot be read ({shown}{rest}). "
        f"Fix or remove them, or skip unreadable ones with --skip-bad (skip_bad=True)."
    )


class _FullError(OSError):
    """Of the disk, before anything is written."""


class NoRoomError(InputError):
    """The disk has no room for the decoded pictures. `what` says how much there is and how much they need."""

    def __init__(self, place: Path, temporary: bool, what: str) -> None:
        super().__init__(str(_no_place(place, temporary, what)))
        self.what = what


def _no_place(place: Path, temporary: bool, what: str) -> InputError:
    remedy = "give a cache folder on a larger disk" if temporary else "choose another cache folder"
    return InputError(f"The decoded pictures cannot be kept in {place}: {what}. Make room there or {remedy}, and start again.")
