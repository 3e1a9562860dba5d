"""`pals demo`: PALS on real handwritten digits whose labels were made ambiguous and noisy."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from pals.bench.report.learning_curves import draw_curves
from pals.data import load_dataset
from pals.labels.metrics import mean_and_std
from pals.runs.run import Run
from pals.runs.run_config import RunConfig
from pals.runs.run_folder import check_base
from pals.util.config import merge
from pals.util.files import write_json

VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "pals": {"method": {"name": "pals"}},
    "average": {"method": {"name": "average"}},
    "truth": {"method": {"name": "average"}, "data": {"supervision": "truth"}},
}
VARIANT_NAMES = {"pals": "PALS", "average": "plain average over the candidates", "truth": "true labels (upper bound)"}


class Scope(NamedTuple):
    """Defaults of the demonstration."""

    folder: Path
    seeds: list[int]
    epochs: int | None
    "None: those of the published settings for the digits."


FULL_DEMO = Scope(Path("runs/demo"), [1, 2, 3], None)
QUICK_DEMO = Scope(Path("runs/demo-quick"), [1], 10)


def demo_runs(
    out: Path, seeds: Sequence[int], values: Mapping[str, Any], *, fresh: bool = False
) -> Iterator[tuple[str, int, Run]]:
    """The runs of the demonstration, all on the same candidate sets: those that the authors' generator draws.

    Args:
        out: folder of the demonstration.
        seeds: of each variant.
        values: settings that win over those of the variants.
        fresh: delete the results of an earlier demonstration first.

    Yields:
        Name of the variant, seed and run.

    Raises:
        InputError: if `out` holds something else, or a setting is wrong.
    """
    check_base(out, runs="*/seed-*")
    configs = {
        (name, seed): RunConfig.of(merge({"data": {"name": "digits", "draws": "official"}, "seed": seed}, variant, values))
        for name, variant in VARIANTS.items()
        for seed in seeds
    }
    torch.set_num_threads(1)  # in a network this small more threads are slower
    dataset = load_dataset("digits")
    if fresh:
        Run(next(iter(configs.values())), dataset=dataset)  # fails before anything is deleted
        forget_demo(out)
    for (name, seed), config in configs.items():
        yield name, seed, Run(config, demo_folder(out, name, seed), dataset=dataset)


def forget_demo(out: Path) -> None:
    """Delete the files of an earlier demonstration in a folder, and nothing else."""
    runs = [config.parent for name in VARIANTS for config in (out / name).glob("seed-*/config.yaml")]
    if runs:
        for name in ("summary.json", "curves.png"):
            (out / name).unlink(missing_ok=True)
    for run in runs:
        shutil.rmtree(run)


def demo_folder(out: Path, name: str, seed: int) -> Path:
    """The folder of one run."""
    return out / name / f"seed-{seed}"


def summarise(
    out: Path, accuracies: Mapping[str, Sequence[float]], seeds: Sequence[int], about: Mapping[str, Any]
) -> dict[str, Any]:
    """Write `summary.json` and `curves.png`.

    Args:
        out: folder of the demonstration.
        accuracies: of each variant, in per cent of the held-out digits.
        seeds: of the accuracies.
        about: further entries of the summary.

    Returns:
        The summary.
    """
    scores = {name: mean_and_std(values) | {"runs": list(values)} for name, values in accuracies.items()}
    summary = {**scores, "unit": "percent of held-out digits, last epoch", "seeds": list(seeds), **about}
    write_json(out / "summary.json", summary)
    groups = {name: [demo_folder(out, name, seed) for seed in seeds] for name in VARIANTS}
    title = "Handwritten digits, five candidate labels each, the right one missing for about 3 in 10"
    draw_curves(groups, out / "curves.png", title=title, main="pals")
    return summary
