"""How fast a folder of pictures becomes a tensor, against Pillow decoding one file after the other.

    python benchmarks/speed/images.py [--small 5000] [--photos 24] [--folder PICTURES --size 224]

Cold: all decoded. Warm: all from the cache. Processes: the same decoding in forked processes instead of threads. The ratio is
to the plain way in the same run: open, convert to RGB, resize with the same filter, one picture at a time.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from _measure import in_fresh_process, peak_bytes, report, seconds
from PIL import Image

from pals.vision.images.decoding import decode
from pals.vision.images.listing import list_images
from pals.vision.images.load_folder import load_images


def make_pictures(folder: Path, count: int, width: int, height: int, ending: str) -> Path:
    """Blurred patches with grain: what compresses about as well as photographs."""
    folder.mkdir()
    rng = np.random.default_rng(1)
    grain = rng.normal(0, 9, (height, width, 3))
    for number in range(count):
        patches = Image.fromarray(rng.integers(0, 256, (12, 16, 3), dtype=np.uint8))
        values = np.asarray(patches.resize((width, height), Image.Resampling.BICUBIC)) + np.roll(grain, 17 * number, axis=1)
        Image.fromarray(values.clip(0, 255).astype(np.uint8)).save(folder / f"{number:05}.{ending}", quality=88)
    return folder


def plain(folder: Path, size: int) -> list[np.ndarray]:
    found = []
    for name in list_images(folder):
        with Image.open(folder / name) as file:
            image = file.convert("RGB")
        if image.size != (size, size):
            image = image.resize((size, size), Image.Resampling.BICUBIC)
        found.append(np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1)))
    return found


def in_processes(folder: Path, size: int) -> list[np.ndarray]:
    paths = [folder / name for name in list_images(folder)]
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("fork")) as pool:
        return list(pool.map(partial(decode, size=size), paths, chunksize=16 if len(paths) > 1000 else 1))


def measure(title: str, folder: Path, size: int, repeats: int) -> None:
    count = len(list_images(folder))
    with tempfile.TemporaryDirectory() as cache:
        variants: dict[str, Callable[[], object]] = {
            "plain Pillow, one by one": lambda: plain(folder, size),
            "load_images, cold": lambda: load_images(folder, size, cache=None),
            "load_images, warm": lambda: load_images(folder, size, cache=cache),
            "decode in processes": lambda: in_processes(folder, size),
        }
        times = seconds(variants, repeats)
    peak = in_fresh_process(["--memory-of", str(folder), "--size", str(size)])
    unit = times["plain Pillow, one by one"].best
    results = [
        {
            "what": what,
            "seconds": time.best,
            "median": time.median,
            "images/s": count / time.best,
            "ratio to plain": time.best / unit,
            "peak MB": peak / 1e6 if what == "load_images, cold" else None,
        }
        for what, time in times.items()
    ]
    report(f"images: {count:,} {title} to {size} pixels", results)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", type=int, default=5000, help="pictures of 32 x 32 pixels, PNG")
    parser.add_argument("--photos", type=int, default=24, help="pictures of 12 megapixels, JPEG")
    parser.add_argument("--folder", type=Path, help="measure this folder instead")
    parser.add_argument("--size", type=int, default=224, help="of the results, for photos and --folder")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--memory-of", type=Path, help="only the peak memory of loading this folder, for the script itself")
    options = parser.parse_args()
    if options.memory_of is not None:
        print(peak_bytes(lambda: load_images(options.memory_of, options.size, cache=None)))
        return
    if options.folder is not None:
        measure("pictures of a folder", options.folder, options.size, options.repeats)
        return
    with tempfile.TemporaryDirectory() as folder:
        small = make_pictures(Path(folder) / "small", options.small, 32, 32, "png")
        measure("PNG of 32 x 32", small, 32, options.repeats)
        photos = make_pictures(Path(folder) / "photos", options.photos, 4000, 3000, "jpg")
        measure("JPEG of 12 megapixels", photos, options.size, options.repeats)


if __name__ == "__main__":
    main()
