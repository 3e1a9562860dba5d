"""Folders of images as one uint8 tensor, decoded once into a cache on disk.

Names of the image files (`listing`), decoding (`decoding`), the cache (`image_cache`, `load_folder`), and sizes and colours
(`pixel_statistics`). Modules are imported when one of their names is used: the first two need no torch.

Shape letters: N images, S pixels a side, C channels, V grey levels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pals.util.lazy import lazily

if TYPE_CHECKING:
    from pals.vision.images.decoding import HOWS, BadImageError, How, decode, decode_bytes
    from pals.vision.images.image_cache import BadImage, ImageTable, NoRoomError, default_cache
    from pals.vision.images.listing import IMAGE_ENDINGS, list_images
    from pals.vision.images.load_folder import load_images
    from pals.vision.images.pixel_statistics import MIN_SIDE, SizeSurvey, image_statistics, survey

__all__ = [
    "HOWS",
    "IMAGE_ENDINGS",
    "MIN_SIDE",
    "BadImage",
    "BadImageError",
    "How",
    "ImageTable",
    "NoRoomError",
    "SizeSurvey",
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
        "decoding": ("HOWS", "BadImageError", "How", "decode", "decode_bytes"),
        "image_cache": ("BadImage", "ImageTable", "NoRoomError", "default_cache"),
        "listing": ("IMAGE_ENDINGS", "list_images"),
        "load_folder": ("load_images",),
        "pixel_statistics": ("MIN_SIDE", "SizeSurvey", "image_statistics", "survey"),
    },
)
