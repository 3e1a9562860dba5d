"""What every stage costs against the number of items, on paper: the table of docs/scale.md, from measured constants.

    python benchmarks/scale.py            # prints the table of the page

Each stage is arithmetic or traffic per item (or per pair of items) times a constant that was measured at one size; the file of
each measurement is named beside it. A prediction is no measurement: the model assumes that nothing else becomes a limit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

ITEMS = (1e6, 1e7, 1e9)
ANSWERS, CLASSES, WIDTH, NEIGHBORS = 5, 100, 512, 16
"""Per item: answers; and classes, numbers in a feature vector, neighbours that vote."""

READ = 23.3 / 1e7  # CPU s an answer: answers_cpu_2026-11-16.jsonl, ten million
READ_BYTES = 3.29e9 / 1e7  # bytes an answer at the peak: the same run
CONSENSUS = 152.8 / 1e9  # CPU s an answer and class: the same run
CONSENSUS_BYTES = 4.37e9 / 1e7  # bytes an answer at the peak: the same run, with what reading left
PREDICT = 1 / 404 * 2  # CPU s a picture: predict_cpu_2026-11-16.jsonl, folder to csv on two cores
EPOCH = 1.466 / 50_000  # GPU s an item, an epoch of ResNet-18 at 32 pixels, C = 100: epoch_h200_2026-11-15.jsonl
NEAR_CPU = 0.708 * 2 / (10_000**2 * 512)  # CPU s a pair and feature: labeling_cpu_2026-11-15.jsonl, two threads
NEAR_GPU = 0.3219 / (200_000**2 * 512)  # GPU s a pair and feature, screened: epoch_variants_h200_2026-11-15.md
LABELING = 0.0369 * 2 / (20_000 * 100)  # CPU s an item and class: labeling_cpu_2026-11-15.jsonl, two threads


class Stage(NamedTuple):
    """One stage of a run, as functions of the number of items."""

    name: str
    seconds: Callable[[float], float]
    unit: str
    memory: Callable[[float], float]
    where: str


ONE, PICTURE = "one machine", 20e3  # bytes of a JPEG of 224 pixels: assumed, not measured

STAGES = (
    Stage("read answers", lambda n: READ * ANSWERS * n, "core", lambda n: READ_BYTES * ANSWERS * n, ONE),
    Stage("Dawid-Skene", lambda n: CONSENSUS * ANSWERS * CLASSES * n, "core", lambda n: CONSENSUS_BYTES * ANSWERS * n, ONE),
    Stage("one epoch, 32 pixels", lambda n: EPOCH * n, "GPU", lambda n: 3 * 32**2 * n, "GPU, or streamed"),
    Stage("features held", lambda n: 0.0, "-", lambda n: 4 * WIDTH * n, ONE),
    Stage("exact neighbours, CPU", lambda n: NEAR_CPU * WIDTH * n**2, "core", lambda n: 4 * WIDTH * n, ONE),
    Stage("exact neighbours, GPU", lambda n: NEAR_GPU * WIDTH * n**2, "GPU", lambda n: 3 * 4 * WIDTH * n, "one GPU"),
    Stage("votes and selection", lambda n: LABELING * CLASSES * n, "core", lambda n: (4 * CLASSES + 12 * NEIGHBORS) * n, ONE),
    Stage("predict, JPEG", lambda n: PREDICT * n, "core", lambda n: 163e6, "streamed"),
    Stage("images, 224 pixels", lambda n: 0.0, "-", lambda n: PICTURE * n, "disk or shards"),
)


def time_of(seconds: float) -> str:
    """Two digits, in the unit that people would use."""
    for name, size in (("years", 365.25 * 86400), ("days", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        if seconds >= 2 * size or name == "s":
            return "-" if seconds == 0 else f"{float(f'{seconds / size:.2g}'):,g} {name}"
    raise AssertionError


def size_of(size: float) -> str:
    for name, unit in (("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if size >= unit or name == "MB":
            return f"{float(f'{size / unit:.2g}'):,g} {name}"
    raise AssertionError


def table() -> str:
    """Markdown: time on one core or one GPU, and memory, of every stage."""
    header = " | ".join(f"{items:,.0f} items" for items in ITEMS)
    lines = [f"| stage | of one | {header} | held in |", "|---|---|" + "---|" * (len(ITEMS) + 1)]
    for stage in STAGES:
        cells = " | ".join(f"{time_of(stage.seconds(n))}, {size_of(stage.memory(n))}" for n in ITEMS)
        lines.append(f"| {stage.name} | {stage.unit} | {cells} | {stage.where} |")
    return "\n".join(lines)


def ranks_for(seconds: float, hours: float) -> int:
    """How many cores or GPUs would finish in so many hours, if nothing were lost between them."""
    return max(1, -int(-seconds // (hours * 3600)))


if __name__ == "__main__":
    print(table())
    n = ITEMS[-1]
    print(f"\nFor {n:,.0f} items in a day each, without loss between them:")
    for stage in STAGES:
        if stage.seconds(n):
            print(f"  {stage.name}: {ranks_for(stage.seconds(n), 24):,} {stage.unit}(s)")
