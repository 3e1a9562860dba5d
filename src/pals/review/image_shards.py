"""The pictures of a run whose pictures lie in tar, Parquet or Arrow files: taken out one at a time, by name."""

from __future__ import annotations

import hashlib
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pals.review.image_files import (
    LARGEST_SHOWN,
    THUMBNAIL,
    NoPictureError,
    Pictures,
    Sent,
    kept_copy,
    kind_of,
    packed,
)
from pals.util.errors import InputError
from pals.vision.images.decoding import decode_bytes, read_header_bytes

if TYPE_CHECKING:
    from pals.data.shards import ShardPictures

ENDINGS = (".tar", ".parquet", ".pq", ".arrow")


def is_of_shards(images: Path, item: str) -> bool:
    """Whether shards are named, or lie in the folder and no picture of this name does."""
    if images.suffix in ENDINGS:
        return True
    with suppress(OSError):
        return not (images / item).is_file() and any(path.suffix in ENDINGS for path in images.iterdir())
    return False


class PicturesInShards(Pictures):
    """Where each lies is looked up once, beside the page: nobody waits for it but who asks for a picture at once."""

    def __init__(self, images: Path, keep: Path) -> None:
        super().__init__(images, keep)
        self._found: tuple[ShardPictures, dict[str, int]] | None = None
        self._looking = threading.Lock()
        threading.Thread(target=self._begin, daemon=True).start()

    @property
    def there(self) -> bool:
        return True

    def check(self, item: str) -> None:
        """Not before it is asked for: the page does not wait for shards."""

    def full(self, item: str) -> Sent:
        data = self._encoded(item)
        kind = kind_of(data)
        return Sent(data, kind) if kind else self._square(data, item, LARGEST_SHOWN, "pad")

    def thumbnail(self, item: str) -> Sent:
        """Its middle, as the page shows it."""
        data = self._encoded(item)
        mark = hashlib.blake2b(data, digest_size=16).hexdigest()
        return kept_copy(self.keep, mark, lambda: self._square(data, item, THUMBNAIL, "crop"))

    def _square(self, data: bytes, item: str, largest: int, how: Literal["crop", "pad"]) -> Sent:
        """Never enlarged."""
        width, height = read_header_bytes(data) or (largest, largest)
        side = min(largest, min(width, height) if how == "crop" else max(width, height))
        with self._turn:
            return packed(decode_bytes(data, item, side, how=how))

    def _encoded(self, item: str) -> bytes:
        try:
            shards, row_of = self._look_up()
            if item in row_of:
                return shards.encoded(row_of[item])
        except InputError as error:  # also of a picture that is damaged
            raise NoPictureError(str(error)) from None
        raise NoPictureError(f"{item} is no longer in {self.folder}; put the pictures back to see it.")

    def _begin(self) -> None:
        with suppress(InputError):  # it is said of every picture that is asked for
            self._look_up()

    def _look_up(self) -> tuple[ShardPictures, dict[str, int]]:
        with self._looking:
            if self._found is None:
                from pals.pipeline.stages.images import shards_of  # which loads what training needs

                shards = shards_of(str(self.folder))
                if shards is None:
                    raise NoPictureError(f"The pictures are no longer in {self.folder}; put them back to see them.")
                self._found = shards, {name: row for row, name in enumerate(shards.names)}
            return self._found
