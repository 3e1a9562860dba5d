"""How the example was made that comes along with PALS: `python tests/_example.py FOLDER` makes it again."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

ITEMS, SIDE, SEED = 60, 64, 7
PEOPLE = {"ana": 0.95, "ben": 0.9, "cleo": 0.8, "dev": 0.7, "eli": 0.5}
"""How often each of them sees which digit it is; otherwise they name one that looks like it."""
ALIKE = {0: 6, 1: 7, 2: 3, 3: 8, 4: 9, 5: 6, 6: 5, 7: 1, 8: 3, 9: 4}
ANSWERS_EACH = 4


def make_example(folder: Path) -> None:
    """`images/*.png`, `answers.csv`, `truth.csv`."""
    digits = load_digits()
    rng = np.random.default_rng(SEED)
    row = np.concatenate(
        [rng.choice(np.flatnonzero(digits.target == digit), ITEMS // 10, replace=False) for digit in range(10)]
    )
    row = rng.permutation(row)
    (folder / "images").mkdir(parents=True, exist_ok=True)
    with (folder / "answers.csv").open("w", newline="") as first, (folder / "truth.csv").open("w", newline="") as second:
        answers, truth = (csv.writer(file, lineterminator="\n") for file in (first, second))
        answers.writerow(["picture", "person", "answer"])
        truth.writerow(["picture", "label"])
        for number, index in enumerate(row):
            name, digit = f"digit-{number + 1:02d}.png", int(digits.target[index])
            picture(digits.images[index]).save(folder / "images" / name, optimize=True)
            truth.writerow([name, digit])
            for person in rng.permutation(list(PEOPLE))[:ANSWERS_EACH]:
                answers.writerow([name, person, answer(digit, PEOPLE[str(person)], rng)])


def picture(pixels: np.ndarray) -> Image.Image:
    """Dark ink on white, eight times as large."""
    ink = (255 - 255 / 16 * pixels).round().astype(np.uint8)
    return Image.fromarray(ink).resize((SIDE, SIDE), Image.Resampling.BICUBIC)


def answer(digit: int, skill: float, rng: np.random.Generator) -> str:
    """Now and then with two labels, with a question mark, or none at all."""
    knows = rng.random() < skill
    said = digit if knows else ALIKE[digit] if rng.random() < 0.7 else int(rng.integers(10))
    way = rng.random()
    if way < 0.03:
        return "don't know"
    if way < 0.1:
        return f"{said}|{ALIKE[said]}"
    return f"{said}?" if way < 0.2 - 0.1 * knows else str(said)


if __name__ == "__main__":
    make_example(Path(sys.argv[1]))
