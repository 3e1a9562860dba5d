"""WebDataset tar files, read in order by Python's `tarfile`.

The package webdataset is not used: it brings pipelines, shuffling and workers, does not notice a file that is cut off between
two members, and cannot start in the middle of one.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from pals.data.shards.shard import NO_IMAGE, BadShardError, EncodedImage, PackedShard, ShardItem
from pals.readers.limits import Limits
from pals.vision.images.decoding import BadImageError
from pals.vision.images.listing import IMAGE_ENDINGS, SKIPPED_FOLDERS, printable

NO_RANK = 2  # of a member that is not an image
TAR_DAMAGE = (tarfile.TarError, OSError, EOFError, ValueError, OverflowError)
"""What tarfile raises, and `BadShardError`."""


@dataclass(frozen=True)
class TarShard(PackedShard):
    """Consecutive members whose base names are equal up to the first dot are a sample. Its item has that name, and its image is
    the first member with the ending of an image; `x.jpg` comes before `x.mask.png`."""

    @property
    def known_count(self) -> None:
        return None

    def count(self) -> int:
        found = 0
        with suppress(BadShardError), self._archive() as archive:
            for _ in groupby(self._members(archive), _key):
                found += 1
        return found

    def items(self, start: int, stop: int | None) -> Iterator[ShardItem]:
        with self._archive() as archive:
            for number, (key, members) in enumerate(groupby(self._members(archive), _key)):
                if stop is not None and number >= stop:
                    return
                if number >= start:  # others are passed over without reading them
                    yield ShardItem(key, self._image(archive, key, members))
            self._check_end(archive)  # again, for damage after the last image

    def names(self) -> Sequence[str]:
        """Names of the members with an image, as of files in a folder; of a sample without one its key."""
        return self._index[0]

    @cached_property
    def _index(self) -> tuple[list[str], np.ndarray]:
        """Name of each item; offset and bytes of its image, which has no bytes if there is none. Only headers are read."""
        names, spans = list[str](), list[tuple[int, int]]()
        with self._archive() as archive:
            for key, members in groupby(self._members(archive), _key):
                member = min(members, key=_rank)  # of equals the first
                has_image = _rank(member) < NO_RANK and not member.issparse()
                names.append(printable(member.name).removeprefix("./") if has_image else key)
                spans.append((member.offset_data, member.size) if has_image else (0, 0))
        return names, np.array(spans, dtype=np.int64).reshape(-1, 2)

    def read(self, rows: range) -> list[EncodedImage]:
        return [self._read_at(row) for row in rows]

    def _read_at(self, row: int) -> EncodedImage:
        name, (offset, size) = self._index[0][row], self._index[1][row].tolist()
        reason = Limits.from_environment().too_many_bytes(size, "the image")
        if reason or not size:
            return BadImageError(f"{self.path}: {name}", (reason or NO_IMAGE).rstrip("."))
        try:
            with self.path.open("rb") as file:
                file.seek(offset)
                data = file.read(size)
        except FileNotFoundError:
            raise BadShardError(str(self.path), "the file does not exist") from None
        except OSError as error:
            raise BadShardError(str(self.path), f"it cannot be read ({error.strerror or error})") from None
        if len(data) < size:
            raise BadShardError(str(self.path), f"the tar file is cut off within {name}")
        return data

    @contextmanager
    def _archive(self) -> Iterator[tarfile.TarFile]:
        try:
            with tarfile.open(self.path, "r:") as archive:
                yield archive
        except FileNotFoundError:
            raise BadShardError(str(self.path), "the file does not exist") from None
        except BadShardError:
            raise
        except TAR_DAMAGE as error:
            reason = " ".join(str(error).split())[:120] or type(error).__name__
            raise BadShardError(str(self.path), f"the tar file is cut off or damaged ({reason})") from None

    def _members(self, archive: Any) -> Iterator[tarfile.TarInfo]:
        """Plain files that are not hidden. `archive.members` is cleared, since tarfile would keep every header in memory."""
        while (member := archive.next()) is not None:
            archive.members.clear()
            parts = PurePosixPath(member.name).parts
            if member.isreg() and parts and not any(part.startswith(".") or part in SKIPPED_FOLDERS for part in parts):
                yield member
        self._check_end(archive)

    def _image(self, archive: tarfile.TarFile, key: str, members: Iterable[tarfile.TarInfo]) -> EncodedImage:
        """An image right before damage still counts; the next sample then meets the damage."""
        rank, image = NO_RANK, None
        try:
            for member in members:
                own = _rank(member)
                if own < rank:
                    rank, image = own, self._read(archive, member)
        except TAR_DAMAGE:
            if rank > 0:
                raise
        return BadImageError(f"{self.path}: {key}", NO_IMAGE) if image is None else image

    def _read(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> EncodedImage:
        """The member's data, unless its declared size exceeds the limit."""
        reason = Limits.from_environment().too_many_bytes(member.size, "the image")
        if member.issparse():
            reason = "a file with holes, not an image"
        file = None if reason else archive.extractfile(member)
        if file is None:
            return BadImageError(f"{self.path}: {printable(member.name)}", (reason or NO_IMAGE).rstrip("."))
        return file.read()

    def _check_end(self, archive: tarfile.TarFile) -> None:
        """tarfile stops at a damaged header as if there were no more members; a complete archive ends with zeros."""
        file: Any = archive.fileobj
        file.seek(archive.offset)
        block = file.read(tarfile.BLOCKSIZE)
        if len(block) < tarfile.BLOCKSIZE:
            raise BadShardError(str(self.path), "the tar file is cut off: it has no end mark")
        if any(block):
            raise BadShardError(str(self.path), f"the tar file is damaged at byte {archive.offset:,}")


def _rank(member: tarfile.TarInfo) -> int:
    """0 for `x.jpg`, 1 for `x.left.jpg`, `NO_RANK` for a member that is not an image."""
    ending = member.name.rpartition("/")[2].partition(".")[2].lower()
    return 0 if f".{ending}" in IMAGE_ENDINGS else 1 if f".{ending.rpartition('.')[2]}" in IMAGE_ENDINGS else NO_RANK


def _key(member: tarfile.TarInfo) -> str:
    """Name of the sample that the member belongs to."""
    folder, slash, base = printable(member.name).removeprefix("./").rpartition("/")
    return f"{folder}{slash}{base.partition('.')[0]}"
