"""Images of shards in any order: tar files by the offsets of their members, Parquet files by row groups, saved data sets by
rows."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from copy import copy
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from threading import Lock

import numpy as np

from pals.data.row_source import DecodedImages
from pals.data.shards.shard import BadShardError, PackedShard
from pals.data.shards.stream import Stream
from pals.util.errors import InputError
from pals.vision.images.decoding import BadImageError, DecodedImage, How, decode_bytes, read_image_bytes
from pals.vision.images.image_cache import CacheLoader, CacheSettings, ImageTable, Progress, Watch
from pals.vision.images.pillow_limits import MemoryBudget

MAX_ROW_GROUPS = 4
"""Row groups of Parquet files that are kept in memory."""


class ShardImages(DecodedImages):
    """Images in tar or Parquet files, or in a data set saved by Hugging Face `datasets`, decoded on every use.

    The files are indexed when it is made; images are read when they are used.

    Args:
        shards: Files, a folder of them, or a pattern, as for `pals predict`.
        size: Pixels a side.
        how: "squash", "crop", "pad", "torchvision-squash" or "torchvision-crop"; default "squash". See docs/images.md.
        threads: Threads that decode; default one per core.

    Raises:
        InputError: There is no such shard, or one is damaged.

    >>> import io, tarfile
    >>> from PIL import Image
    >>> from pals import ShardImages
    >>> data = io.BytesIO()
    >>> Image.new("RGB", (20, 10), (200, 120, 40)).save(data, "PNG")
    >>> with tarfile.open("frogs.tar", "w") as archive:
    ...     member = tarfile.TarInfo("frog.png")
    ...     member.size = len(data.getvalue())
    ...     archive.addfile(member, io.BytesIO(data.getvalue()))
    >>> source = ShardImages("frogs.tar", size=4)
    >>> source.names, source.shape
    (('frog.png',), (1, 3, 4, 4))
    """

    def __init__(
        self, shards: str | Path | Sequence[str | Path], size: int, how: How = "squash", threads: int | None = None
    ) -> None:
        stream = Stream.of(shards)
        self.name, self._stamp = stream.name, (0, 0, int(stream.fingerprint()[:15], 16))
        self._shards = list[PackedShard]()
        for shard in (part.shard for part in stream.ranges):
            if not isinstance(shard, PackedShard):
                found = f"{shard.path} is not a shard"
                raise InputError(f"{found}: name tar or Parquet files, a folder of them, or a saved data set.")
            self._shards.append(shard)
        try:
            names = [shard.names() for shard in self._shards]
        except BadShardError as error:
            raise _broken(error) from None
        self._ends = list(accumulate(map(len, names)))
        self.names = tuple(name for part in names for name in part)
        self._lock, self._group = Lock(), lru_cache(MAX_ROW_GROUPS)(lambda shard, rows: shard.read(rows))
        super().__init__(len(self.names), size, how, threads)

    def at(self, size: int, how: How) -> ShardImages:
        """The same images at another size, without indexing again."""
        other = copy(self)
        DecodedImages.__init__(other, len(self), size, how, self.threads)
        return other

    def encoded(self, row: int) -> bytes:
        """The bytes of an image file. Raises `BadImageError` if there is none."""
        number = bisect_right(self._ends, row)
        shard, row = self._shards[number], row - (self._ends[number - 1] if number else 0)
        try:
            rows = shard.rows_with(row)
            if len(rows) == 1:
                image = shard.read(rows)[0]
            else:
                with self._lock:  # threads that need the same row group wait for it
                    image = self._group(shard, rows)[row - rows.start]
        except BadShardError as error:
            raise _broken(error) from None
        if isinstance(image, BadImageError):
            raise image
        assert isinstance(image, bytes)
        return image

    def decode(self, row: int) -> np.ndarray:
        return decode_bytes(self.encoded(row), self._title(row), self.size, how=self.how)

    def _title(self, row: int) -> str:
        return f"{self._shards[bisect_right(self._ends, row)].path}: {self.names[row]}"

    def cached(
        self,
        cache: str | Path | None,
        names: Sequence[str] | None = None,
        *,
        skip_bad: bool = False,
        progress: Progress | None = None,
        watch: Watch | None = None,
    ) -> ImageTable:
        """The images decoded once, into the same cache as `load_images`.

        Args:
            cache: Folder of the cache; None: a temporary file, deleted with the tensor.
            names: Names in the order wanted, each the only one of its kind; default all.
            skip_bad: Leave out images that cannot be decoded, and list them; otherwise they are an error.
            progress: Called now and then with the number of images ready and the total, if any have to be decoded.
            watch: Called with the pixels of each image as soon as it is decoded.

        Returns:
            `ImageTable`, as of `load_images`.

        Raises:
            InputError: Bad images, a name that occurs twice, or a cache that cannot be written.
        """
        row_of = {name: row for row, name in enumerate(self.names)}
        if len(row_of) < len(self.names):
            raise InputError(f"Several images of {self.name} have the same name. Give each a unique name to cache them.")
        budget = MemoryBudget()

        def decode(name: str) -> DecodedImage:
            row = row_of[name]
            return read_image_bytes(self.encoded(row), self._title(row), self._stamp, self.size, self.how, budget)

        loader = CacheLoader(
            CacheSettings(str(Path(self.name).absolute()), self.size, self.how),
            decode,
            lambda names, _: {name: self._stamp if name in row_of else "it is not in the shards" for name in names},
            self.threads,
            progress,
            watch,
        )
        return loader.load(self.names if names is None else names, cache, skip_bad=skip_bad)


def _broken(error: BadShardError) -> InputError:
    return InputError(f"{error} Fetch or write this shard again.")
