"""What an epoch costs whose items are read while it runs, beside one whose items are in memory.

    python benchmarks/speed/source.py [--items 2000] [--side 64] [--network small-cnn] [--folder PICTURES] [--repeats 5]

The same run five times: items in a tensor, in an .npy file that is mapped into memory, in image files that are decoded
whenever they are needed, in a tar file of these, and in that tar file decoded once into the image cache. Epochs take turns.
The first, in which everything is decoded for the first time, has a ratio of its own (that of the tensor is torch's warm-up). An
epoch of PALS passes over the items twice: once for features, once for the steps. The losses are compared, and are the same.

`CPU seconds` are those of all threads together: what reading costs in all, of which a free core hides what it does while the
steps run. `load` is how many processes wanted a core at the start; where there are fewer cores than that, nothing is hidden.
"""

from __future__ import annotations

import argparse
import os
import tarfile
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _measure import report, seconds
from images import make_pictures

from pals.data.dataset import Items
from pals.data.row_source import FileImages, Inputs, open_array
from pals.data.shards.random_access import ShardImages
from pals.labels.candidates import CandidateSets
from pals.methods import Problem, find_method, method_options
from pals.training.engine import Engine, EngineConfig
from pals.training.optim import TrainConfig
from pals.training.trainer import Trainer
from pals.vision.augment import image_views
from pals.vision.images.listing import list_images
from pals.vision.networks import build_network

CLASSES = 10


def trainer_of(inputs: Inputs, network: str, device: str) -> Trainer:
    """Always the same run, whatever the items lie in."""
    torch.manual_seed(1)
    ids, names = tuple(map(str, range(len(inputs)))), tuple(f"class-{number}" for number in range(CLASSES))
    allowed_NC = torch.rand(len(inputs), CLASSES, generator=torch.Generator().manual_seed(2)) < 0.2
    allowed_NC[torch.arange(len(inputs)), torch.arange(len(inputs)) % CLASSES] = True
    problem = Problem(
        CandidateSets(allowed_NC, ids, names), lambda name=None: build_network(network, tuple(inputs.shape[1:]), CLASSES)
    )
    method = find_method("pals")(method_options("pals", {}), problem)
    side = inputs.shape[-1]
    views = image_views((0.5,) * 3, (0.25,) * 3, pad=side // 8, flip=True, strong="cifar", cutout=side // 2)
    config = TrainConfig(epochs=1000, batch_size=64, lr=0.01, feature_batch=256)
    return Trainer(method, Items(inputs, ids), views, config, Engine(EngineConfig(device=device)), seed=1)


def sources(folder: Path, side: int, place: Path, limit: int) -> dict[str, Inputs]:
    """The same pixels in several places."""
    paths = [folder / name for name in list_images(folder)[:limit]]
    files = FileImages(paths, side)
    pixels = files[:]
    np.save(place / "pixels.npy", pixels.numpy())
    with tarfile.open(place / "all.tar", "w") as archive:
        for number, path in enumerate(paths):
            archive.add(path, f"{number:07}{path.suffix}")
    return {
        "in memory": pixels,
        "mapped .npy": open_array(place / "pixels.npy"),
        "picture files, on the fly": files,
        "tar file, on the fly": ShardImages(place / "all.tar", side),
        "tar file, cached": ShardImages(place / "all.tar", side).cached(place / "cache").images,
    }


def measure(folder: Path, options: argparse.Namespace, place: Path) -> None:
    load = os.getloadavg()[0]
    found = sources(folder, options.side, place, options.items)
    count = len(found["in memory"])
    losses: dict[str, list[float]] = {name: [] for name in found}
    running = {name: trainer_of(inputs, options.network, options.device).epochs() for name, inputs in found.items()}
    cpu: dict[str, list[float]] = {name: [] for name in found}

    def epoch(name: str) -> None:
        before = time.process_time()
        losses[name].append(next(running[name])["loss"])
        cpu[name].append(time.process_time() - before)

    variants = {name: partial(epoch, name) for name in running}
    times = seconds(variants, options.repeats, options.device)
    unit = times["in memory"]
    results: list[dict[str, Any]] = [
        {
            "what": name,
            "seconds": taken.best,
            "median": taken.median,
            "items/s": count / taken.best,
            "ratio to memory": taken.best / unit.best,
            "ratio of medians": taken.median / unit.median,
            "CPU seconds": min(cpu[name][1:]),
            "CPU ratio": min(cpu[name][1:]) / min(cpu["in memory"][1:]),
            "CPU ratio, first epoch": cpu[name][0] / min(cpu["in memory"][1:]),
            "same losses": losses[name] == losses["in memory"],
            "load": load,
        }
        for name, taken in times.items()
    ]
    report(f"source: an epoch of PALS, {options.network}, {count:,} pictures of {options.side} pixels", results)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=2000)
    parser.add_argument("--side", type=int, default=64, help="pixels that pictures are brought to")
    parser.add_argument("--network", default="small-cnn")
    parser.add_argument("--folder", type=Path, help="pictures; by default JPEG files of 160 x 120 pixels are made")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = options.folder or make_pictures(Path(place) / "pictures", options.items, 160, 120, "jpg")
        measure(folder, options, Path(place))


if __name__ == "__main__":
    main()
