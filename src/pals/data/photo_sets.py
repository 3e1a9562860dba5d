"""Shared by the data sets of image files: their folder, decoding into the cache, views of photographs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pals.data.download import needed_folder
from pals.data.row_source import Inputs, within_memory
from pals.util.errors import InputError
from pals.vision.augment import Views, image_views
from pals.vision.images.decoding import How
from pals.vision.images.image_cache import default_cache
from pals.vision.images.load_folder import load_images

PHOTO_SIDE = 256
"""Pixels a side of a photograph in the cache; networks get 224 of them."""


def photo_views(mean: Sequence[float], std: Sequence[float]) -> Views:
    """Views of photographs of `PHOTO_SIDE` pixels a side.

    Training crops random boxes of 8 to 100% of the area, resized to 224 x 224; evaluation takes the central 224 x 224.
    """
    return image_views(mean, std, pad=0, flip=True, strong="imagenet", size=224, scale=(0.08, 1.0))


def find_root(title: str, folders: Sequence[str], marks: Sequence[str], data_dir: Path | None, hint: str) -> Path:
    """The first folder with one of the files `marks`: those called `folders` in the data folder, then the data folder."""
    place = needed_folder(title, data_dir, hint)
    for root in (*(place / name for name in folders), place):
        if any((root / mark).exists() for mark in marks):
            return root
    places = ", ".join(f"{name}/" for name in folders)
    raise InputError(f"No {title} in {place}: neither there nor in {places} is {' or '.join(marks)}. {hint}")


def within(name: str) -> bool:
    """Whether this is a plain path that stays in its folder."""
    return not name.startswith("/") and not {"", ".", ".."} & set(name.split("/")) and not {"\\", ":", "\0"} & set(name)


def load_parts(root: Path, parts: Sequence[Sequence[str]], *, unused: Sequence[str] = (), size: int, how: How) -> list[Inputs]:
    """The images of each part, decoded once into the cache, and read from there if memory is short.

    The images in `unused` are decoded too, since the cache is complete only for images that are loaded together.
    """
    every = sorted({name for part in (*parts, unused) for name in part})
    cache = default_cache()
    table = load_images(root, size, cache=cache, names=every, how=how, skip_bad=True)
    if table.bad:
        first = table.bad[0]
        others = f" (and {len(table.bad) - 1:,} more of {len(every):,})" if len(table.bad) > 1 else ""
        raise InputError(f"The image {root / first.name} cannot be used: {first.reason}{others}. Unpack the data set again.")
    return [within_memory(load_images(root, size, cache=cache, names=part, how=how).images) for part in parts]
