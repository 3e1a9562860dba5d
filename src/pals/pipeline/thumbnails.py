"""Small copies of images as data: addresses, for the report and for notebooks."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable

from PIL import Image
from torch import Tensor

from pals.data.row_source import Inputs
from pals.readers import Votes

THUMBNAIL_SIDE = 96  # pixels
MAX_LOSSLESS_SIDE = 48  # pixels up to which a thumbnail is a PNG


def thumbnails(names: Iterable[str], votes: Votes, images: Inputs) -> dict[str, str]:
    """A thumbnail of each item, by name; none where the items are feature vectors."""
    if images.ndim != 4:
        return {}
    place = {name: item for item, name in enumerate(votes.items)}
    return {name: thumbnail(images[place[name]]) for name in dict.fromkeys(names)}


def thumbnail(image: Tensor) -> str:
    """A small copy of an image as a data: address; PNG if it is tiny, else JPEG."""
    array = image.permute(1, 2, 0).numpy()
    small = Image.fromarray(array.squeeze(2) if array.shape[2] == 1 else array)
    small.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE))
    kind, options = ("PNG", {"optimize": True}) if max(small.size) <= MAX_LOSSLESS_SIDE else ("JPEG", {"quality": 82})
    buffer = io.BytesIO()
    small.save(buffer, kind, **options)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(buffer.getvalue()).decode()}"
