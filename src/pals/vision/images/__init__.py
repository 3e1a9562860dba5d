"""Folders of images as one uint8 tensor, decoded once into a cache on disk.

Which files are images (`listing`), how one is decoded (`decoding`), what is kept on disk (`image_cache`, `load_folder`), and
their sizes and colours (`pixel_statistics`). Nothing here knows labels or networks.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

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


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Modules are imported when one of their names is used: the first two need no torch."""
        if name in __all__:
            for module in ("decoding", "listing", "pixel_statistics", "image_cache", "load_folder"):
                if hasattr(found := import_module(f"{__name__}.{module}"), name):
                    return getattr(found, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
