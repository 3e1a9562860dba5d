"""Tiny data in the layouts of the published picture sets."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image

from pals.data.crowd_sets import Crowd

BIRDS = ("001.Black_footed_Albatross", "002.Laysan_Albatross", "003.Sooty_Albatross")


def picture(path: Path, width: int, height: int, label: int, rng: np.random.Generator) -> None:
    """Classes differ in brightness."""
    pixels = rng.integers(0, 90, (height, width, 3)) + 80 * (label % 3)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels.astype(np.uint8)).save(path)


def make_cub(root: Path, items: int = 30) -> Path:
    """`root` as CUB_200_2011.tgz unpacks to; numbers from 1, the order of the pictures not that of the classes, every third
    to test on."""
    rng = np.random.default_rng(0)
    rows: dict[str, list[str]] = {"images": [], "image_class_labels": [], "train_test_split": []}
    for number in range(1, items + 1):
        label = number % 3
        name = f"{BIRDS[label]}/Bird_{number:04d}_{number}.png"
        picture(root / "images" / name, 20 + number % 5, 16 + number % 3, label, rng)
        rows["images"].append(f"{number} {name}")
        rows["image_class_labels"].append(f"{number} {label + 1}")
        rows["train_test_split"].append(f"{number} {int(number % 3 != 0 or number % 2)}")
    rows["classes"] = [f"{number} {name}" for number, name in enumerate(BIRDS, start=1)]
    for name, lines in rows.items():
        (root / f"{name}.txt").write_text("\n".join(lines) + "\n")
    return root


def make_folders(root: Path, per_class: int = 4) -> Path:
    rng = np.random.default_rng(1)
    for part in ("train", "test"):
        for label, name in enumerate(BIRDS):
            for number in range(per_class):
                picture(root / part / name / f"{number}.png", 18, 16, label, rng)
    return root


def make_crowd(root: Path, crowd: Crowd, items: int = 60, voters: int = 12) -> dict[str, list[str | None]]:
    """`root` as one of the DCIC sets unpacks to. Gives the answers for each path in the order of the file, which is not
    sorted; one picture has null answers only."""
    rng = np.random.default_rng(2)
    said: dict[str, list[str | None]] = {}
    for number in rng.permutation(items).tolist():
        label = number % len(crowd.class_names)
        name = f"fold{number % 5 + 1}/{crowd.class_names[label]}/{number:03d}.png"
        picture(root / name, 30, 20, label, rng)
        others = rng.integers(len(crowd.class_names), size=voters)
        wrong = rng.random(voters) < 0.4
        answers: list[str | None] = [crowd.class_names[int(o) if w else label] for o, w in zip(others, wrong, strict=True)]
        said[f"{crowd.folder}/{name}"] = [*answers, None]
    said[f"{crowd.folder}/fold1/nobody.png"] = [None]
    write_annotations(root, said)
    return said


def write_annotations(root: Path, said: dict[str, list[str | None]]) -> None:
    """All first answers, then all second ones...; and a second set, which does not count."""
    rounds = max(map(len, said.values()))
    pairs = ((name, answers[turn]) for turn in range(rounds) for name, answers in said.items() if turn < len(answers))
    sets = [{"name": "INVALID1", "annotations": _entries(pairs)}, {"annotations": _entries([("X/fold1/other.png", "other")])}]
    (root / "annotations.json").write_text(json.dumps(sets))


def _entries(pairs: Iterable[tuple[str, str | None]]) -> list[dict[str, str | None]]:
    return [{"image_path": name, "class_label": label, "created_at": ""} for name, label in pairs]
