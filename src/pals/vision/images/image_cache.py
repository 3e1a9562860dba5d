"""Cache of decoded images on disk, shared by runs and processes.

    NAME.json          manifest: name of the array, version of Pillow, one entry per image
    NAME.TOKEN.npy     N x 3 x S x S bytes, one row per image that could be decoded, in the order of the manifest
    NAME.lock          locked while a process decodes

NAME is made from the settings: where the images come from, size and way of resizing. An array is written under a new token and
published by replacing the manifest, so tensors that are mapped to the old one stay valid. Files of a killed process
are deleted by the next one, which decodes again.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
import secrets
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import chain
from math import prod
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
import PIL
import torch
from torch import Tensor

from pals.util.errors import InputError
from pals.util.locks import locked
from pals.util.threads import in_order
from pals.vision.images.decoding import BadImageError, DecodedImage, How, Stamp
from pals.vision.images.pillow_limits import quiet

CACHE_VERSION = 2  # raised whenever the same file would be decoded to other pixels, or the manifest changes
MAX_WAITING_BYTES = 64 << 20  # decoded images that wait to be written
MAX_BATCH = 16  # images that a thread decodes at a time
MAX_NAMED = 5  # bad images that an error names
SECONDS_BETWEEN_CALLS = 0.1  # of the function that shows progress

Progress = Callable[[int, int], None]
Watch = Callable[[np.ndarray], None]


class BadImage(NamedTuple):
    """An image that cannot be used, and the reason in a few words."""

    name: str
    reason: str


@dataclass(frozen=True)
class ImageTable:
    """Images of one size with their names. The pixels stay on the disk and are read when they are used."""

    images: Tensor  # N x 3 x S x S, uint8
    names: tuple[str, ...]
    size_N2: Tensor  # width and height of the original images, upright
    bad: tuple[BadImage, ...] = ()
    decoded: int = 0
    "Images decoded by this call; all others came from the cache."

    def __len__(self) -> int:
        return len(self.names)


class NoRoomError(InputError):
    """The disk has no room for the decoded images; `what` gives the room needed and the room left."""

    def __init__(self, message: str, what: str) -> None:
        super().__init__(message)
        self.what = what


def default_cache() -> Path:
    """Cache folder of the user: $PALS_CACHE, else `pals` in the system's folder for caches."""
    home = os.environ.get("PALS_CACHE")
    if home:
        return Path(home)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pals"


@dataclass(frozen=True)
class CacheSettings:
    """What all images of one array have in common; `source` is the folder or the shards that they come from."""

    source: str
    size: int
    how: How
    version: int = CACHE_VERSION

    @property
    def row_shape(self) -> tuple[int, int, int]:
        return 3, self.size, self.size

    @property
    def name(self) -> str:
        """Different for different settings; begins with the last part of the source."""
        digest = hashlib.sha256(json.dumps(asdict(self)).encode("utf-8", "surrogatepass")).hexdigest()
        source = re.sub(r"[^A-Za-z0-9_-]+", "_", Path(self.source).name)[:40]
        return f"{source}-{self.size}-{self.how}-{digest[:12]}"


class CacheEntry(NamedTuple):
    """One image of the manifest. With a reason it is bad and has no row in the array."""

    name: str
    stamp: Stamp
    width: int
    height: int
    reason: str | None


class CachedArray:
    """A published array with its manifest."""

    def __init__(self, path: Path, entries: Sequence[CacheEntry] = ()) -> None:
        self.path = path
        self.entries = {entry.name: entry for entry in entries}
        self.row_of = {name: row for row, name in enumerate(entry.name for entry in entries if entry.reason is None)}

    @classmethod
    def read(cls, folder: Path, settings: CacheSettings) -> CachedArray:
        """Empty if there is no manifest, or if it or its array is damaged."""
        empty = cls(folder / "none")
        try:
            manifest = json.loads((folder / f"{settings.name}.json").read_text(encoding="utf-8"))
            path = folder / Path(manifest["array"]).name
            entries = [CacheEntry(name, tuple(stamp), *rest) for name, stamp, *rest in manifest["entries"]]
            found = cls(path, entries)
            if found.array.shape != (len(found.row_of), *settings.row_shape):
                return empty
        except (OSError, ValueError, KeyError, TypeError, EOFError):
            return empty
        if manifest["pillow"] != PIL.__version__:  # another version may decode what this one could not
            found.entries = {name: entry for name, entry in found.entries.items() if entry.reason is None}
        return found

    @cached_property
    def array(self) -> np.ndarray:
        return map_array(self.path)

    def has(self, name: str, stamp: Stamp) -> bool:
        entry = self.entries.get(name)
        return entry is not None and entry.stamp == stamp


def map_array(path: Path) -> np.ndarray:
    """The array of an .npy file, mapped: pages are read when they are used, and the file can be replaced meanwhile.

    Changes stay in memory and never reach the file. Where the file is larger than the memory, Linux refuses such a mapping; the
    array is then read-only.
    """
    try:
        array = np.load(path, mmap_mode="c", allow_pickle=False)
    except OSError:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    return np.asarray(array)


def as_tensor(array: np.ndarray) -> Tensor:
    """A tensor on the array's memory."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*not writable.*")
        return torch.from_numpy(array)


@dataclass
class CacheLoader:
    """One call for images of a source: those of the cache, and the others decoded now.

    `decode` gives the image of a name, or raises `BadImageError`. `stamps_of` gives the stamp of each image, or the reason why
    there is none.
    """

    settings: CacheSettings
    decode: Callable[[str], DecodedImage]
    stamps_of: Callable[[Sequence[str], Executor], Mapping[str, Stamp | str]]
    workers: int | None = None
    progress: Progress | None = None
    watch: Watch | None = None

    def __post_init__(self) -> None:
        self.passing: dict[str, str] = {}  # reasons that may not hold the next time, by name
        self.decoded, self.last_call = 0, -math.inf
        if self.workers is not None and self.workers < 1:
            raise InputError(f"{self.workers} workers cannot do any work; choose at least 1, or None for one per core.")
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self.threads = self.workers or cores

    def load(self, wanted: Sequence[str], cache: str | Path | None, *, skip_bad: bool = False) -> ImageTable:
        """The wanted images. Without a cache folder they are in a temporary one, deleted with the tensor.

        Raises `NoRoomError` if the disk is full, `InputError` for a cache that cannot be written, and for bad images unless
        they are to be skipped.
        """
        with ExitStack() as stack:
            temporary = tempfile.TemporaryDirectory(prefix="pals-", ignore_cleanup_errors=True) if cache is None else None
            self.folder = Path(stack.enter_context(temporary) if temporary else str(cache))
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                table = self._load(wanted)
            except OSError as error:  # those of the images have become reasons, so this one is about the cache
                if error.errno == errno.ENOMEM:
                    raise InputError(
                        f"There is too little memory to read the images of {self.settings.source} at {self.settings.size} "
                        "pixels. Close other programs, raise the limit of this one, or choose a smaller size, and start again."
                    ) from None
                what = error.strerror or str(error)
                hint = "give a cache folder on a larger disk" if temporary else "choose another cache folder"
                message = (
                    f"The decoded images cannot be kept in {self.folder}: {what}. Make room there or {hint}, and start again."
                )
                raise (NoRoomError(message, what) if error.errno == errno.ENOSPC else InputError(message)) from None
        if table.bad and not (skip_bad and table.names):
            raise _bad_images(self.settings.source, table)
        return table

    def _load(self, wanted: Sequence[str]) -> ImageTable:
        # Threads, not processes: Pillow releases the interpreter while it decodes and resizes, so photographs scale with
        # the cores as they do in processes, without sending pixels around or guarding __main__ in every script.
        with locked(self.folder / f"{self.settings.name}.lock") as alone, quiet:
            self.pool = ThreadPoolExecutor(self.threads, thread_name_prefix="pals-images")
            try:
                array = self._complete(wanted, alone)
                good = [name for name in wanted if name in array.row_of and name not in self.passing]
                images = self._images(array, [array.row_of[name] for name in good])
            finally:
                self.pool.shutdown(cancel_futures=True)
        reasons = self.passing | {name: entry.reason for name, entry in array.entries.items() if entry.reason is not None}
        sizes = [(array.entries[name].width, array.entries[name].height) for name in good]
        return ImageTable(
            images=images,
            names=tuple(good),
            size_N2=torch.tensor(sizes, dtype=torch.int32).view(-1, 2),
            bad=tuple(BadImage(name, reasons[name]) for name in wanted if name in reasons),
            decoded=self.decoded,
        )

    def _complete(self, wanted: Sequence[str], alone: bool) -> CachedArray:
        """An array with all wanted images: the present one if it has them, else a new one.

        Other images of the present array are kept while their files are unchanged, so that two calls for different images do
        not undo each other's work.
        """
        present = CachedArray.read(self.folder, self.settings)
        stamps = self._stamps(wanted)
        complete = all(present.has(name, stamp) for name, stamp in stamps.items())
        others = [name for name in present.entries if name not in stamps]
        if complete and len(others) > len(wanted):  # a few out of many: checking all others would take longer
            return present
        kept = {name: stamp for name, stamp in self._stamps(others).items() if present.has(name, stamp)}
        if complete and len(kept) == len(others):
            return present
        new = self._build(dict(sorted({**stamps, **kept}.items())), present)
        for path in self.folder.glob(f"{self.settings.name}.*.*") if alone else ():  # else they may be in the making
            if path != new.path:
                with suppress(OSError):  # Windows deletes no mapped file; a later call will
                    path.unlink()
        return new

    def _stamps(self, names: Sequence[str]) -> dict[str, Stamp]:
        """Stamps of the images that exist."""
        found = self.stamps_of(names, self.pool)
        self.passing |= {name: stamp for name, stamp in found.items() if isinstance(stamp, str)}
        return {name: stamp for name, stamp in found.items() if not isinstance(stamp, str)}

    def _build(self, files: Mapping[str, Stamp], present: CachedArray) -> CachedArray:
        """A new array with these images; rows of the present one are copied."""
        waiting = max(1, MAX_WAITING_BYTES // prod(self.settings.row_shape))
        batch = min(MAX_BATCH, max(1, waiting // (4 * self.threads)))
        missing = [name for name, stamp in files.items() if not present.has(name, stamp)]
        batches = in_order(
            self.pool,
            self._decode_all,
            (missing[start : start + batch] for start in range(0, len(missing), batch)),
            1 + max(self.threads, waiting // batch),
        )
        decoded = chain.from_iterable(batches)
        entries: list[CacheEntry] = []

        def rows() -> Iterator[np.ndarray]:
            for number, (name, stamp) in enumerate(files.items(), start=1):
                if present.has(name, stamp):
                    entries.append(present.entries[name])
                    if name in present.row_of:
                        yield present.array[present.row_of[name]]
                else:
                    result = next(decoded)
                    self.decoded += 1
                    if isinstance(result, DecodedImage):
                        entries.append(CacheEntry(name, result.stamp, result.width, result.height, None))
                        yield result.pixels
                        if self.watch is not None:
                            self.watch(result.pixels)
                    elif result.lasting:
                        entries.append(CacheEntry(name, stamp, 0, 0, result.reason))
                    else:
                        self.passing[name] = result.reason
                self._report(number, len(files))

        path = self._write(rows(), len(files))
        manifest = path.with_suffix(".part")
        try:
            values = {"array": path.name, "pillow": PIL.__version__, "entries": entries}
            manifest.write_text(json.dumps(values), encoding="utf-8")
            manifest.replace(self.folder / f"{self.settings.name}.json")
        except BaseException:
            path.unlink(missing_ok=True)
            manifest.unlink(missing_ok=True)
            raise
        return CachedArray(path, entries)

    def _write(self, rows: Iterable[np.ndarray], most: int) -> Path:
        """A new file with these rows, at most `most`. After any failure no file is left."""
        needed, free = most * prod(self.settings.row_shape), shutil.disk_usage(self.folder).free
        if needed > free:  # better now than after an hour
            what = f"{most:,} images need {needed / 1e6:,.1f} MB and {free / 1e6:,.1f} MB are free"
            raise OSError(errno.ENOSPC, what)
        path = self.folder / f"{self.settings.name}.{secrets.token_hex(4)}.npy"
        try:
            with path.open("xb", buffering=1 << 20) as file:
                self._write_header(file, most)
                count = 0
                for row in rows:
                    file.write(row.data)
                    count += 1
                file.seek(0)
                self._write_header(file, count)  # as long as the first one: numpy leaves room for a larger number
                file.flush()
                os.fsync(file.fileno())
        except BaseException:  # also an interrupt
            path.unlink(missing_ok=True)
            raise
        return path

    def _write_header(self, file: IO[bytes], count: int) -> None:
        header = {"descr": "|u1", "fortran_order": False, "shape": (count, *self.settings.row_shape)}
        np.lib.format.write_array_header_1_0(file, header)

    def _decode_all(self, names: Sequence[str]) -> list[DecodedImage | BadImageError]:
        found: list[DecodedImage | BadImageError] = []
        for name in names:
            try:
                found.append(self.decode(name))
            except BadImageError as error:
                found.append(error)
        return found

    def _report(self, done: int, total: int) -> None:
        now = time.monotonic()
        if self.progress is not None and (now - self.last_call > SECONDS_BETWEEN_CALLS or done == total):
            self.last_call = now
            self.progress(done, total)

    def _images(self, array: CachedArray, rows: list[int]) -> Tensor:
        """These rows of the array where they follow each other, else a copy in a file that is deleted with the tensor."""
        if not rows:
            return torch.empty(0, *self.settings.row_shape, dtype=torch.uint8)
        if rows == list(range(rows[0], rows[0] + len(rows))):
            return as_tensor(array.array[rows[0] : rows[-1] + 1])
        path = self._write((array.array[row] for row in rows), len(rows))
        try:
            return as_tensor(map_array(path))
        finally:
            with suppress(OSError):
                path.unlink()


def _bad_images(source: str, table: ImageTable) -> InputError:
    shown = "; ".join(f"{bad.name!r}: {bad.reason}" for bad in table.bad[:MAX_NAMED])
    rest = f"; and {len(table.bad) - MAX_NAMED:,} more" if len(table.bad) > MAX_NAMED else ""
    total = len(table.bad) + len(table)
    if not table.names:
        return InputError(f"No image in {source} can be read, of {total:,} ({shown}{rest}). Is it the right folder?")
    return InputError(
        f"{len(table.bad):,} of {total:,} images in {source} cannot be read ({shown}{rest}). "
        f"Fix or remove them, or skip unreadable ones with --skip-bad (skip_bad=True)."
    )
