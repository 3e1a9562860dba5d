"""How fast a frozen encoder turns picture files into features, against timm's network in a plain loop over single pictures.

    python benchmarks/speed/encode.py [--pictures 96] [--side 500] [--threads 2]
    python benchmarks/speed/encode.py --folder PICTURES

Both decode the files, and both run the same network with the same weights (EfficientNet-Lite0) at the same size: the one for
which it was trained or, for tiny pictures, what `encode` chooses. A last line has the loop at 224 pixels whatever the pictures,
as it is usually written. Two lines have what `pals fit` does with a folder that it sees for the first time, caches written: all
pictures decoded and then encoded, and encoded while others are decoded. Two more lines give the used part of what the cores can
do: floating-point operations a second of the network, pictures being decoded already, and of a large matrix product.

All take turns. `ratio` compares the quickest turns; that of the medians favours the one that other programs disturb less;
CPU seconds (the least of a turn, waiting in a loop for another core included) hardly depend on them with one thread.
"""

from __future__ import annotations

import argparse
import importlib
import math
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _measure import report, seconds
from images import make_pictures
from PIL import Image
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from pals.runs.feature_cache import BackgroundEncoder, encode_cached
from pals.training.extract import ImagePaths, encode
from pals.vision.images.listing import list_images
from pals.vision.images.load_folder import load_images
from pals.vision.images.pixel_statistics import median_side
from pals.vision.pretrained import Encoder, find_encoder


def timm_twin(encoder: Encoder) -> Any:
    """timm's network with the same weights. A torchvision made for another torch lacks two operators that nothing here uses."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    twin = importlib.import_module("timm").create_model("tf_efficientnet_lite0").eval()
    twin.load_state_dict(dict(zip(twin.state_dict(), encoder.network.state_dict().values(), strict=True)))
    twin.reset_classifier(0)
    twin.keep = library  # its operators go when it goes
    return twin


@torch.no_grad()
def plain(paths: list[Path], twin: Any, size: int) -> Tensor:
    parts = []
    for path in paths:
        with Image.open(path) as file:
            picture = file.convert("RGB").resize((size, size), Image.Resampling.BICUBIC)
        x = torch.from_numpy(np.array(picture)).permute(2, 0, 1)[None].float()
        parts.append(twin((x - 127) / 128))
    return torch.cat(parts)


def first_sight(folder: Path, encoder: Encoder, at_once: bool) -> Tensor:
    """Pictures that no cache knows, as `pals fit` reads and encodes them."""
    with tempfile.TemporaryDirectory() as place, BackgroundEncoder(encoder, Path(place)) as ahead:
        images = load_images(folder, encoder.size or 0, cache=place, watch=ahead.add if at_once else None).images
        return encode_cached(images, encoder, Path(place))[0]


def measure(folder: Path, repeats: int) -> None:
    encoder, names = find_encoder("efficientnet-lite0"), list_images(folder)
    twin, paths = timm_twin(encoder), [folder / name for name in names]
    side = median_side(folder, names)
    size = encoder.input_size(side)
    ours, network = f"encode, {size} px", f"encode, {size} px, decoded before"
    pixels = ImagePaths(paths, size).decoded(size)
    seen = replace(encoder, size=size)
    variants: dict[str, Callable[[], object]] = {
        ours: lambda: encode(ImagePaths(paths, side), encoder),
        f"timm one by one, {size} px": lambda: plain(paths, twin, size),
        f"fit, {size} px, decoded and then encoded": lambda: first_sight(folder, seen, at_once=False),
        f"fit, {size} px, both at once": lambda: first_sight(folder, seen, at_once=True),
        network: lambda: encode(pixels, seen),
        MATMUL: matmul,
    }
    if size != encoder.size:
        variants["timm one by one, 224 px"] = lambda: plain(paths, twin, 224)
    load, used = os.getloadavg()[0], dict.fromkeys(variants, math.inf)
    times = seconds({what: billed(what, run, used) for what, run in variants.items()}, repeats)
    operations = {network: len(paths) * per_picture(seen), MATMUL: float(2 * SIDE**3)}
    results = [
        {
            "what": what,
            "seconds": took.best,
            "median": took.median,
            "pictures/s": None if what == MATMUL else len(paths) / took.best,
            "ratio": None if what == MATMUL else took.best / times[ours].best,
            "ratio of medians": None if what == MATMUL else took.median / times[ours].median,
            "CPU seconds": used[what],
            "GFLOP/s": operations[what] / took.best / 1e9 if what in operations else None,
        }
        for what, took in times.items()
    ]
    report(f"encode: {len(paths)} pictures, shorter side {side}, load {load:.1f} before", results)


def billed(what: str, run: Callable[[], object], used: dict[str, float]) -> Callable[[], None]:
    """The same, the least CPU time of any turn being noted."""

    def turn() -> None:
        start = time.process_time()
        run()
        used[what] = min(used[what], time.process_time() - start)

    return turn


SIDE = 2048
MATMUL = f"matmul, {SIDE} x {SIDE}"


@torch.inference_mode()
def matmul() -> Tensor:
    """The best that the cores can do, with which a network's operations a second are compared."""
    square = torch.ones(SIDE, SIDE)
    return square @ square


def per_picture(encoder: Encoder) -> float:
    """Floating-point operations of the network on one picture."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        encoder.network.encode(torch.zeros(1, 3, encoder.size or 0, encoder.size or 0))
    return float(counter.get_total_flops())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=int, default=96)
    parser.add_argument("--side", type=int, default=500)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.folder is not None:
        measure(options.folder, options.repeats)
        return
    with tempfile.TemporaryDirectory() as place:
        folder = make_pictures(Path(place) / "pictures", options.pictures, options.side * 4 // 3, options.side, "jpg")
        measure(folder, options.repeats)


if __name__ == "__main__":
    main()
