"""A folder of pictures as names and one uint8 tensor, decoded once into a cache on disk.

Which files are pictures, how each is decoded, what is kept and when it is made anew. Nothing here knows labels or networks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pals.util.lazy import lazily

if TYPE_CHECKING:
    from pals.vision.images.decoding import HOWS, BadImageError, How, decode, decode_bytes
    from pals.vision.images.image_cache import default_cache
    from pals.vision.images.listing import ENDINGS, list_images
    from pals.vision.images.load_folder import BadImage, ImageTable, NoRoomError, load_images
    from pals.vision.images.pixel_statistics import SMALLEST_SIDE, Survey, image_statistics, survey

__all__ = [
    "ENDINGS",
    "HOWS",
    "SMALLEST_SIDE",
    "BadImage",
    "BadImageError",
    "How",
    "ImageTable",
    "NoRoomError",
    "Survey",
    "decode",
    "decode_bytes",
    "default_cache",
    "image_statistics",
    "list_images",
    "load_images",
    "survey",
]

__getattr__ = lazily(
    __name__,
    {
        "decoding": (
            "HOWS",
            "BadImageError",
            "How",
            "decode",
            "decode_bytes",
        ),
        "listing": (
            "ENDINGS",
            "list_images",
        ),
        "pixel_statistics": (
            "SMALLEST_SIDE",
            "Survey",
            "image_statistics",
            "survey",
        ),
        "image_cache": ("default_cache",),
        "load_folder": (
            "BadImage",
            "ImageTable",
            "NoRoomError",
            "load_images",
        ),
    },
)
