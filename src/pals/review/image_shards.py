"""The images of a run that lie in tar, Parquet or Arrow files, read one at a time by name."""

from __future__ import annotations

import hashlib
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pals.review.image_files import (
    MAX_SHOWN_SIDE,
    MAX_THUMBNAIL_SIDE,
    ImageBytes,
    ImageFiles,
    NoImageError,
    kept_copy,
    kind_of,
    packed,
)
from pals.util.errors import InputError
from pals.vision.images.decoding import decode_bytes, read_header

if TYPE_CHECKING:
    from pals.data.shards.random_access import ShardImages

SHARD_ENDINGS = (".tar", ".parquet", ".pq", ".arrow")


def is_of_shards(images: Path, item: str) -> bool:
    """Whether `images` is a shard, or a folder with shards and without a file of this name."""
    if images.suffix in SHARD_ENDINGS:
        return True
    with suppress(OSError):
        return not (images / item).is_file() and any(path.suffix in SHARD_ENDINGS for path in images.iterdir())
    return False


class ImageShards(ImageFiles):
    """The index of the shards is read in the background, so that only a request for an image waits for it."""

    def __init__(self, images: Path, keep: Path) -> None:
        super().__init__(images, keep)
        self._found: tuple[ShardImages, dict[str, int]] | None = None
        self._looking = threading.Lock()
        threading.Thread(target=self._begin, daemon=True).start()

    @property
    def there(self) -> bool:
        return True

    def check(self, item: str) -> None:
        """Nothing is checked before the image is requested: the page does not wait for the index."""

    def full(self, item: str) -> ImageBytes:
        data = self._encoded(item)
        kind = kind_of(data)
        return ImageBytes(data, kind) if kind else self._square(data, item, MAX_SHOWN_SIDE, "pad")

    def thumbnail(self, item: str) -> ImageBytes:
        """The centre of the image, cropped to a square."""
        data = self._encoded(item)
        mark = hashlib.blake2b(data, digest_size=16).hexdigest()
        return kept_copy(self.keep, mark, lambda: self._square(data, item, MAX_THUMBNAIL_SIDE, "crop"))

    def _square(self, data: bytes, item: str, largest: int, how: Literal["crop", "pad"]) -> ImageBytes:
        """Never enlarged."""
        width, height = read_header(data) or (largest, largest)
        side = min(largest, min(width, height) if how == "crop" else max(width, height))
        with self._turn:
            return packed(decode_bytes(data, item, side, how=how))

    def _encoded(self, item: str) -> bytes:
        try:
            shards, row_of = self._look_up()
            if item in row_of:
                return shards.encoded(row_of[item])
        except InputError as error:  # also where the image is damaged
            raise NoImageError(str(error)) from None
        raise NoImageError(f"{item} is no longer in {self.folder}; put the images back to see it.")

    def _begin(self) -> None:
        with suppress(InputError):  # reported with each image that is requested
            self._look_up()

    def _look_up(self) -> tuple[ShardImages, dict[str, int]]:
        with self._looking:
            if self._found is None:
                from pals.pipeline.stages.images import shards_of  # which loads what training needs

                shards = shards_of(str(self.folder))
                if shards is None:
                    raise NoImageError(f"The images are no longer in {self.folder}; put them back to see them.")
                self._found = shards, {name: row for row, name in enumerate(shards.names)}
            return self._found
