"""WebDataset tar files, read by Python's own tarfile from front to back.

Not by the package webdataset: it would bring pipelines, shuffling and workers of its own, takes a file that is cut off between
two members for whole, and cannot start in the middle of one.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from pals.data.shards.shard import NO_PICTURE, BadShardError, Chunk, Item, Picture, chunked, stamp_of
from pals.readers.limits import Limits
from pals.vision.images import ENDINGS, BadImageError
from pals.vision.images.listing import NOT_PICTURES, printable

NOT_ONE = 2  # the rank of what is no picture
DAMAGE = (tarfile.TarError, OSError, EOFError, ValueError, OverflowError)
"""What tarfile raises, and `BadShardError`."""


class Location(NamedTuple):
    """Where a picture lies in a tar file; it has no bytes if the sample has none."""

    name: str
    "Of the member, ending and all, as of a file in a folder; of a sample without a picture its key."
    offset: int
    bytes: int


@dataclass(frozen=True)
class TarShard:
    """What members that follow each other share up to the first dot of their base names is a sample. Its item is called so, and
    shows the first member that ends as a picture; `x.jpg` comes before `x.mask.png`."""

    path: Path

    @property
    def known_count(self) -> None:
        return None

    def count(self) -> int:
        found = 0
        with suppress(BadShardError), self._archive() as archive:
            for _ in groupby(self._members(archive), _key):
                found += 1
        return found

    def chunks(self, size: int, start: int, stop: int | None) -> Iterator[Chunk]:
        return chunked(islice(self._samples(start), None if stop is None else max(0, stop - start)), size)

    def locations(self) -> Iterator[Location]:
        """Where the picture of each sample lies, from a look at the headers alone."""
        with self._archive() as archive:
            for key, members in groupby(self._members(archive), _key):
                member = min(members, key=_rank)  # of equals the first
                if _rank(member) < NOT_ONE and not member.issparse():
                    yield Location(printable(member.name).removeprefix("./"), member.offset_data, member.size)
                else:
                    yield Location(key, 0, 0)

    def read(self, place: Location) -> Picture:
        """What lies there."""
        name = f"{self.path}: {place.name}"
        reason = Limits.from_environment().too_many_bytes(place.bytes, "the picture")
        if reason or not place.bytes:
            return BadImageError(name, (reason or NO_PICTURE).rstrip("."))
        try:
            with self.path.open("rb") as file:
                file.seek(place.offset)
                data = file.read(place.bytes)
        except FileNotFoundError:
            raise BadShardError(str(self.path), "the file does not exist") from None
        except OSError as error:
            raise BadShardError(str(self.path), f"it cannot be read ({error.strerror or error})") from None
        if len(data) < place.bytes:
            raise BadShardError(str(self.path), f"the tar file is cut off within {place.name}")
        return data

    def stamps(self) -> Iterator[tuple[object, ...]]:
        yield stamp_of(self.path)

    def _samples(self, start: int) -> Iterator[Item]:
        with self._archive() as archive:
            for number, (key, members) in enumerate(groupby(self._members(archive), _key)):
                if number >= start:  # others are passed over without reading them
                    yield Item(key, self._picture(archive, key, members))
            self._check_end(archive)  # again, for damage behind the last picture

    @contextmanager
    def _archive(self) -> Iterator[tarfile.TarFile]:
        try:
            with tarfile.open(self.path, "r:") as archive:
                yield archive
        except FileNotFoundError:
            raise BadShardError(str(self.path), "the file does not exist") from None
        except BadShardError:
            raise
        except DAMAGE as error:
            reason = " ".join(str(error).split())[:120] or type(error).__name__
            raise BadShardError(str(self.path), f"the tar file is cut off or damaged ({reason})") from None

    def _members(self, archive: Any) -> Iterator[tarfile.TarInfo]:
        """Plain files, hidden ones left out. What was read is forgotten: else memory would grow with the archive."""
        while (member := archive.next()) is not None:
            archive.members.clear()
            parts = PurePosixPath(member.name).parts
            if member.isreg() and parts and not any(part.startswith(".") or part in NOT_PICTURES for part in parts):
                yield member
        self._check_end(archive)

    def _picture(self, archive: tarfile.TarFile, key: str, members: Iterable[tarfile.TarInfo]) -> Picture:
        """Where the archive is damaged right behind it, it still counts; the next sample then meets the damage."""
        rank, picture = NOT_ONE, None
        try:
            for member in members:
                own = _rank(member)
                if own < rank:
                    rank, picture = own, self._read(archive, member)
        except DAMAGE:
            if rank > 0:
                raise
        return BadImageError(f"{self.path}: {key}", NO_PICTURE) if picture is None else picture

    def _read(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> Picture:
        """Its declared size is looked at first."""
        reason = Limits.from_environment().too_many_bytes(member.size, "the picture")
        if member.issparse():
            reason = "a file with holes, not a picture"
        file = None if reason else archive.extractfile(member)
        if file is None:
            return BadImageError(f"{self.path}: {printable(member.name)}", (reason or NO_PICTURE).rstrip("."))
        return file.read()

    def _check_end(self, archive: tarfile.TarFile) -> None:
        """A damaged header ends tarfile's reading as if there were no more members; a whole archive ends with zeros."""
        file: Any = archive.fileobj
        file.seek(archive.offset)
        block = file.read(tarfile.BLOCKSIZE)
        if len(block) < tarfile.BLOCKSIZE:
            raise BadShardError(str(self.path), "the tar file is cut off: it has no end mark")
        if any(block):
            raise BadShardError(str(self.path), f"the tar file is damaged at byte {archive.offset:,}")


def _rank(member: tarfile.TarInfo) -> int:
    """Of a member as the picture of its sample: 0 for `x.jpg`, 1 for `x.left.jpg`, and then what is none."""
    ending = member.name.rpartition("/")[2].partition(".")[2].lower()
    return 0 if f".{ending}" in ENDINGS else 1 if f".{ending.rpartition('.')[2]}" in ENDINGS else NOT_ONE


def _key(member: tarfile.TarInfo) -> str:
    """What its sample is called."""
    folder, slash, base = printable(member.name).removeprefix("./").rpartition("/")
    return f"{folder}{slash}{base.partition('.')[0]}"
