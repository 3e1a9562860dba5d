"""What the data sets of image files share: where they lie, decoding into the cache, views of photographs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pals.data.download import VARIABLE, data_folder
from pals.data.row_source import Inputs, within_memory
from pals.util.errors import InputError
from pals.vision.augment import Views, image_views
from pals.vision.images import How, default_cache, load_images

PHOTO_SIDE = 256
"""Pixels a side of a photograph as it is kept; networks see 224 of them."""


def photo_views(mean: Sequence[float], std: Sequence[float]) -> Views:
    """Of images of `PHOTO_SIDE`: training on random boxes of 8 to 100% of the area, brought to 224 x 224, all else on the
    central 224 x 224."""
    return image_views(mean, std, pad=0, flip=True, strong="imagenet", size=224, scale=(0.08, 1.0))


def find_root(title: str, folders: Sequence[str], marks: Sequence[str], data_dir: Path | None, advice: str) -> Path:
    """The first folder that has one of the `marks`: those called `folders` in the user's data folder, then that itself."""
    place = data_folder(data_dir)
    if place is None:
        raise InputError(f"No folder to look for {title} in: {VARIABLE} is not set and no --data-dir is given. {advice}")
    roots = [*(place / name for name in folders), place]
    for root in roots:
        if any((root / mark).exists() for mark in marks):
            return root
    looked = ", ".join(f"{name}/" for name in folders)
    raise InputError(f"No {title} in {place}: neither there nor in {looked} is {' or '.join(marks)}. {advice}")


def within(name: str) -> bool:
    """Whether this is a plain path that stays in its folder."""
    return not name.startswith("/") and not {"", ".", ".."} & set(name.split("/")) and not {"\\", ":", "\0"} & set(name)


def load_parts(root: Path, parts: Sequence[Sequence[str]], *, unused: Sequence[str] = (), size: int, how: How) -> list[Inputs]:
    """The images of each part, decoded once into the cache, and read from there where memory is short. `unused` ones are
    decoded with them, since the cache holds what was asked for together."""
    every = sorted({name for part in (*parts, unused) for name in part})
    cache = default_cache()
    table = load_images(root, size, cache=cache, names=every, how=how, skip_bad=True)
    if table.bad:
        first = table.bad[0]
        others = f" (and {len(table.bad) - 1:,} more of {len(every):,})" if len(table.bad) > 1 else ""
        raise InputError(
            f"The image {root / first.name} cannot be used: {first.reason}{others}. Unpack the data set again, all of it."
        )
    return [within_memory(load_images(root, size, cache=cache, names=part, how=how).images) for part in parts]
