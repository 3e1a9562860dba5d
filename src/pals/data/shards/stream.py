"""Shards one after the other as one stream of items: named by the user, divided among machines, read from any place on."""

from __future__ import annotations

import glob
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from pals.data.shards.parquet_shards import ParquetShard
from pals.data.shards.plain_files import PictureFiles, Rows
from pals.data.shards.saved_datasets import SavedDataset, is_saved
from pals.data.shards.shard import BadShardError, Chunk, Shard
from pals.data.shards.tar import TarShard
from pals.util.errors import InputError
from pals.util.files import PATTERN
from pals.vision.images import BadImage, list_images

KINDS: dict[str, type[TarShard | ParquetShard]] = {".tar": TarShard, ".parquet": ParquetShard, ".pq": ParquetShard}
PACKED = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")
CHOICE = "Name a folder of pictures, one picture, an .npy file, or shards (.tar, .parquet, a saved Hugging Face data set)."
MOST_NAMES = 1_000_000  # that braces may stand for


class Place(NamedTuple):
    """Where in a stream: the shard, and how many of its items are done."""

    shard: int
    item: int


START = Place(0, 0)


class Stretch(NamedTuple):
    """Some items in order, and where they end; or a shard that is bad."""

    chunk: Chunk
    end: Place
    bad: tuple[BadImage, ...] = ()


@dataclass(frozen=True)
class Span:
    """Items of a shard from `start` to before `stop`, or to its end. `to_end`: beyond `stop` nothing is expected but damage,
    which whoever reads this span meets."""

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
    spans: tuple[Span, ...]

    @classmethod
    def of(cls, named: Path | str | Sequence[Path | str]) -> Stream:
        """What the user names: a folder of pictures, one picture, an .npy file, tar or Parquet files, a folder of such, a
        folder that Hugging Face datasets saved, or a pattern: `shards-{000..009}.tar`, `shards-*.tar`."""
        given = [named] if isinstance(named, Path | str) else list(named)
        paths = [path for one in given for path in _expanded(str(one))]
        if not any(path.exists() for path in paths):
            raise InputError(f"{' '.join(map(str, given)) or 'Nothing'} does not exist. {CHOICE}")
        shards = [shard for path in paths for shard in _shards(path)]
        return cls(" ".join(map(str, given)), tuple(map(Span, shards)))

    @property
    def known_count(self) -> int | None:
        """How many items there are, unless that would take a pass over the files."""
        counts = [span.known_count for span in self.spans]
        return None if None in counts else sum(count for count in counts if count is not None)

    def count(self) -> int:
        return sum(span.shard.count() if span.stop is None else span.stop - span.start for span in self.spans)

    def share(self, number: int, of: int) -> Stream:
        """The share with this number, from 1: whole files where there are enough of them, else an even range of the items.
        Shares follow each other, and together they are the stream."""
        if not 1 <= number <= of:
            raise InputError(f"The share {number}/{of} does not exist: give i/n with i from 1 to n, such as 2/8.")
        if self.packed and len(self.spans) >= of:
            return replace(self, spans=self.spans[_part(len(self.spans), number, of)])
        counts = [span.shard.count() for span in self.spans]
        part = _part(sum(counts), number, of)
        cut = list[Span]()
        for span, count, end in zip(self.spans, counts, accumulate(counts), strict=True):
            start, stop = max(part.start - end + count, 0), min(part.stop - end + count, count)
            to_end = part.start < end <= part.stop or (end == 0 and number == 1)  # one share, also of a shard that is missing
            if start < stop or to_end:
                cut.append(Span(span.shard, start, stop, to_end))
        return replace(self, spans=tuple(cut))

    @property
    def packed(self) -> bool:
        """Whether pictures lie in files with many of them each."""
        return all(isinstance(span.shard, TarShard | ParquetShard | SavedDataset) for span in self.spans)

    def fingerprint(self) -> str:
        """Of names, sizes and times of all files, and of what is taken of them."""
        digest = hashlib.sha256()
        for span in self.spans:
            digest.update(repr((type(span.shard).__name__, span.start, span.stop)).encode())
            for stamp in span.shard.stamps():
                digest.update(repr(stamp).encode())
        return digest.hexdigest()

    def stretches(self, size: int, at: Place = START, *, skip_bad: bool = False) -> Iterator[Stretch]:
        """All items from a place on, at most `size` at a time; a stretch ends with its shard.

        skip_bad: a missing shard, or the rest of a damaged one, is left out and named in a stretch of its own."""
        for number, span in enumerate(self.spans[at.shard :], start=at.shard):
            item = at.item if number == at.shard else 0
            try:
                for chunk in span.shard.chunks(size, span.start + item, None if span.to_end else span.stop):
                    item += len(chunk.names)
                    yield Stretch(chunk, Place(number, item))
            except BadShardError as error:
                if not skip_bad:
                    raise InputError(
                        f"{error} Fetch or write this shard again, or leave it out with --skip-bad (skip_bad=True)."
                    ) from None
                yield Stretch(Chunk((), ()), Place(number + 1, 0), (BadImage(error.name, error.reason),))


def _part(count: int, number: int, of: int) -> slice:
    return slice(count * (number - 1) // of, count * number // of)


def _shards(path: Path) -> list[Shard]:
    if path.suffix in KINDS and not path.is_dir():
        return [KINDS[path.suffix](path)]
    if path.name.endswith(PACKED):
        raise InputError(
            f"{path} is compressed and could not be resumed in the middle: decompress it to a plain .tar file first."
        )
    if not path.exists():
        raise InputError(f"{path} does not exist. {CHOICE}")
    if path.is_dir():
        return _in_folder(path)
    return [Rows(path) if path.suffix == ".npy" else PictureFiles(path.parent, (path.name,))]


def _in_folder(folder: Path) -> list[Shard]:
    """The data set that was saved there, or its pictures; where it has none, its shards."""
    if is_saved(folder):
        return [SavedDataset(folder)]
    try:
        return [PictureFiles(folder, list_images(folder))]
    except InputError:
        files = sorted(path for path in folder.glob("*") if path.suffix in KINDS and not path.name.startswith("."))
        if not files:
            raise
        return [KINDS[path.suffix](path) for path in files]


def _expanded(named: str) -> list[Path]:
    """What a shell would make of a pattern, unless a file is called so."""
    if Path(named).exists() or not PATTERN.search(named):
        return [Path(named)]
    return [path for name in _braces(named) for path in _globbed(name)]


def _globbed(name: str) -> list[Path]:
    if not re.search(r"[*?\[]", name):
        return [Path(name)]
    found = [Path(path) for path in sorted(glob.glob(name))]  # noqa: PTH207 (Path.glob needs a folder to start from)
    if not found:
        raise InputError(f"No file matches {name}. {CHOICE}")
    return found


def _braces(text: str) -> list[str]:
    """`a{00..12}.tar` and `{train,test}.tar` written out, as a shell does."""
    found = re.search(r"\{(?:(\d+)\.\.(\d+)|([^{}]*,[^{}]*))\}", text)
    if found is None:
        return [text]
    first, last, words = found.groups()
    if words is not None:
        middles = words.split(",")
    else:
        if abs(int(last) - int(first)) >= MOST_NAMES:
            raise InputError(f"{text} stands for more than {MOST_NAMES:,} files. Check the range, or name the folder.")
        step = 1 if int(first) <= int(last) else -1
        width = max(len(first), len(last)) if "0" in (first[0], last[0]) else 0
        middles = [str(number).zfill(width) for number in range(int(first), int(last) + step, step)]
    heads, tails = text[: found.start()], _braces(text[found.end() :])
    return [f"{heads}{middle}{tail}" for middle in middles for tail in tails]
