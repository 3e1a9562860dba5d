"""Several shards as one stream of items: named by the user, divided among machines, read from any position on."""

from __future__ import annotations

import glob
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from pals.data.shards.arrow import ParquetShard, SavedShard, is_saved
from pals.data.shards.plain_files import ArrayShard, FolderShard
from pals.data.shards.shard import BadShardError, Chunk, PackedShard, Shard
from pals.data.shards.tar import TarShard
from pals.util.errors import InputError
from pals.util.files import PATTERN
from pals.vision.images.image_cache import BadImage
from pals.vision.images.listing import list_images

SHARD_TYPES: dict[str, type[TarShard | ParquetShard]] = {".tar": TarShard, ".parquet": ParquetShard, ".pq": ParquetShard}
COMPRESSED = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")
SHARD_HINT = "Name a folder of images, one image, an .npy file, or shards (.tar, .parquet, a saved Hugging Face data set)."
MAX_EXPANDED = 1_000_000  # names that braces may stand for


class StreamPosition(NamedTuple):
    """Number of a shard, and how many of its items have been read."""

    shard: int
    item: int


STREAM_START = StreamPosition(0, 0)


class StreamPart(NamedTuple):
    """Consecutive items and the position after them; or a bad shard."""

    chunk: Chunk
    end: StreamPosition
    bad: tuple[BadImage, ...] = ()


@dataclass(frozen=True)
class ShardRange:
    """Items of a shard from `start` to before `stop`, or to its end. `to_end`: reads on to the end of the file, so that damage
    after `stop` is noticed."""

    shard: Shard
    start: int = 0
    stop: int | None = None
    to_end: bool = False

    @property
    def known_count(self) -> int | None:
        return self.shard.known_count if self.stop is None else self.stop - self.start


@dataclass(frozen=True)
class Stream:
    """Items of several shards, in order."""

    name: str
    ranges: tuple[ShardRange, ...]

    @classmethod
    def of(cls, named: Path | str | Sequence[Path | str]) -> Stream:
        """From what the user names: a folder of images, one image, an .npy file, tar or Parquet files, a folder of these, a
        folder saved by Hugging Face `datasets`, or a pattern: `shards-{000..009}.tar`, `shards-*.tar`."""
        given = [named] if isinstance(named, Path | str) else list(named)
        paths = [path for one in given for path in _expanded(str(one))]
        if not any(path.exists() for path in paths):
            raise InputError(f"{' '.join(map(str, given)) or 'Nothing'} does not exist. {SHARD_HINT}")
        shards = [shard for path in paths for shard in _shards(path)]
        return cls(" ".join(map(str, given)), tuple(map(ShardRange, shards)))

    @property
    def known_count(self) -> int | None:
        """Number of items, or None if that takes a pass over the files."""
        counts = [part.known_count for part in self.ranges]
        return None if None in counts else sum(count for count in counts if count is not None)

    def count(self) -> int:
        return sum(part.shard.count() if part.stop is None else part.stop - part.start for part in self.ranges)

    def share(self, number: int, of: int) -> Stream:
        """Share `number` of `of`, from 1: whole files if there are enough of them, else an even range of the items. The shares
        in order are the stream."""
        if not 1 <= number <= of:
            raise InputError(f"The share {number}/{of} does not exist: give i/n with i from 1 to n, such as 2/8.")
        if self.packed and len(self.ranges) >= of:
            return replace(self, ranges=self.ranges[_part(len(self.ranges), number, of)])
        counts = [part.shard.count() for part in self.ranges]
        share = _part(sum(counts), number, of)
        cut = list[ShardRange]()
        for part, count, end in zip(self.ranges, counts, accumulate(counts), strict=True):
            start, stop = max(share.start - end + count, 0), min(share.stop - end + count, count)
            to_end = share.start < end <= share.stop or (end == 0 and number == 1)  # one share, also of a missing shard
            if start < stop or to_end:
                cut.append(ShardRange(part.shard, start, stop, to_end))
        return replace(self, ranges=tuple(cut))

    @property
    def packed(self) -> bool:
        """Whether all shards are files with many images each."""
        return all(isinstance(part.shard, PackedShard) for part in self.ranges)

    def fingerprint(self) -> str:
        """Digest of names, sizes and times of all files, and of the ranges taken of them."""
        digest = hashlib.sha256()
        for part in self.ranges:
            digest.update(repr((type(part.shard).__name__, part.start, part.stop)).encode())
            for stamp in part.shard.stamps():
                digest.update(repr(stamp).encode())
        return digest.hexdigest()

    def parts(self, size: int, at: StreamPosition = STREAM_START, *, skip_bad: bool = False) -> Iterator[StreamPart]:
        """All items from a position on, at most `size` at a time; no part extends over two shards.

        skip_bad: a missing shard, or the rest of a damaged one, is left out and listed in a part of its own."""
        for number, part in enumerate(self.ranges[at.shard :], start=at.shard):
            item = at.item if number == at.shard else 0
            try:
                for chunk in part.shard.chunks(size, part.start + item, None if part.to_end else part.stop):
                    item += len(chunk.names)
                    yield StreamPart(chunk, StreamPosition(number, item))
            except BadShardError as error:
                if not skip_bad:
                    raise InputError(f"{error} Fetch this shard again, or leave it out: --skip-bad (skip_bad=True).") from None
                yield StreamPart(Chunk((), ()), StreamPosition(number + 1, 0), (BadImage(error.name, error.reason),))


def _part(count: int, number: int, of: int) -> slice:
    return slice(count * (number - 1) // of, count * number // of)


def _shards(path: Path) -> list[Shard]:
    if path.suffix in SHARD_TYPES and not path.is_dir():
        return [SHARD_TYPES[path.suffix](path)]
    if path.name.endswith(COMPRESSED):
        raise InputError(f"{path} is compressed and could not be resumed. Decompress it to a plain .tar file.")
    if not path.exists():
        raise InputError(f"{path} does not exist. {SHARD_HINT}")
    if path.is_dir():
        return _in_folder(path)
    return [ArrayShard(path) if path.suffix == ".npy" else FolderShard(path.parent, (path.name,))]


def _in_folder(folder: Path) -> list[Shard]:
    """The saved data set, the images, or else the shards of a folder."""
    if is_saved(folder):
        return [SavedShard(folder)]
    try:
        return [FolderShard(folder, list_images(folder))]
    except InputError:
        files = sorted(path for path in folder.glob("*") if path.suffix in SHARD_TYPES and not path.name.startswith("."))
        if not files:
            raise
        return [SHARD_TYPES[path.suffix](path) for path in files]


def _expanded(named: str) -> list[Path]:
    """The paths that a pattern stands for, as in a shell, unless there is a file of that name."""
    if Path(named).exists() or not PATTERN.search(named):
        return [Path(named)]
    paths = list[Path]()
    for name in _braces(named):
        found = sorted(glob.glob(name)) if re.search(r"[*?\[]", name) else [name]  # noqa: PTH207 (Path.glob needs a folder)
        if not found:
            raise InputError(f"No file matches {name}. {SHARD_HINT}")
        paths += map(Path, found)
    return paths


def _braces(text: str) -> list[str]:
    """`a{00..12}.tar` and `{train,test}.tar` written out, as a shell does."""
    found = re.search(r"\{(?:(\d+)\.\.(\d+)|([^{}]*,[^{}]*))\}", text)
    if found is None:
        return [text]
    first, last, words = found.groups()
    if words is not None:
        middles = words.split(",")
    else:
        if abs(int(last) - int(first)) >= MAX_EXPANDED:
            raise InputError(f"{text} stands for more than {MAX_EXPANDED:,} files. Check the range, or name the folder.")
        step = 1 if int(first) <= int(last) else -1
        width = max(len(first), len(last)) if "0" in (first[0], last[0]) else 0
        middles = [str(number).zfill(width) for number in range(int(first), int(last) + step, step)]
    heads, tails = text[: found.start()], _braces(text[found.end() :])
    return [f"{heads}{middle}{tail}" for middle in middles for tail in tails]
