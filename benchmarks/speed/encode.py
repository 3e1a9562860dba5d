"""How fast a frozen encoder turns picture files into features, against timm's network in a plain loop over single pictures.

    python benchmarks/speed/encode.py [--pictures 96] [--side 500] [--threads 2]
    python benchmarks/speed/encode.py --folder PICTURES

Both decode the files, and both run the same network with the same weights (EfficientNet-Lite0) at the same size: the one for
which it was trained or, for tiny pictures, what `encode` chooses. A last line has the loop at 224 pixels whatever the pictures,
as it is usually written.
"""

from __future__ import annotations

import argparse
import importlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _measure import report, seconds
from images import make_pictures
from PIL import Image

from pals.training.encoding import PictureFiles, encode
from pals.vision.encoders import Encoder, find_encoder
from pals.vision.images import list_images, survey


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
def plain(paths: list[Path], twin: Any, size: int) -> torch.Tensor:
    parts = []
    for path in paths:
        with Image.open(path) as file:
            picture = file.convert("RGB").resize((size, size), Image.Resampling.BICUBIC)
        x = torch.from_numpy(np.array(picture)).permute(2, 0, 1)[None].float()
        parts.append(twin((x - 127) / 128))
    return torch.cat(parts)


def measure(folder: Path, repeats: int) -> None:
    encoder, names = find_encoder("efficientnet-lite0"), list_images(folder)
    twin, paths = timm_twin(encoder), [folder / name for name in names]
    side = survey(folder, names).shorter_side
    size = encoder.input_size(side)
    variants: dict[str, Callable[[], object]] = {
        f"encode, {size} px": lambda: encode(PictureFiles(paths, side), encoder),
        f"timm one by one, {size} px": lambda: plain(paths, twin, size),
    }
    if size != encoder.size:
        variants["timm one by one, 224 px"] = lambda: plain(paths, twin, 224)
    times = seconds(variants, repeats)
    unit = times[f"encode, {size} px"].best
    results = [
        {
            "what": what,
            "seconds": time.best,
            "median": time.median,
            "pictures/s": len(paths) / time.best,
            "ratio": time.best / unit,
        }
        for what, time in times.items()
    ]
    report(f"encode: {len(paths)} pictures, shorter side {side}", results)


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
