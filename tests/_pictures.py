"""A small folder of pictures with the answers of three people: bright, dark and striped squares."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = ("bright", "dark", "striped")


def make_pictures(folder: Path, items: int = 60, side: int = 12, seed: int = 0, noise: float = 0.25) -> Path:
    """`folder/images/*.png`, `votes.csv` and `truth.csv`."""
    rng = np.random.default_rng(seed)
    (folder / "images" / "sub").mkdir(parents=True)
    with (folder / "votes.csv").open("w", newline="") as votes, (folder / "truth.csv").open("w", newline="") as truth:
        answers, right = csv.writer(votes), csv.writer(truth)
        answers.writerow(["picture", "who", "class"])
        right.writerow(["image", "label"])
        for number in range(items):
            label = number % 3
            name = f"{'sub/' if number % 5 == 0 else ''}{number:03d}.png"
            Image.fromarray(picture(label, side, rng)).save(folder / "images" / name)
            right.writerow([name, CLASSES[label]])
            for person in ("ann", "bob", "cho"):
                said = int(rng.integers(3)) if rng.random() < noise else label
                answers.writerow([name, person, CLASSES[said]])
    return folder


def picture(label: int, side: int, rng: np.random.Generator) -> np.ndarray:
    pixels = rng.integers(0, 60, (side, side, 3))
    if label == 0:
        pixels += 180
    elif label == 2:
        pixels[::2] += 150
    return pixels.astype(np.uint8)
