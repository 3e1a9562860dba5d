"""Labels right before any training: the labelling step of PALS on frozen features of CIFAR-10, with the official kernel and
with one that follows the features and the noise.

    python benchmarks/frozen_vote.py IMAGES truth.csv [--features FILE.npy] [--items 4000] [--seeds 0 1 2]

IMAGES is a folder of pictures, truth.csv has the columns image and label. Prints a table in Markdown: the share of right labels
in per cent, mean and deviation over draws of the candidate sets. With --features the features are kept there and used again.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import pals
from pals.crowd.linear_ridge import decompose
from pals.labels.candidates import Truth
from pals.labels.metrics import mean_and_std
from pals.vision.networks.small_networks import signed_root

RATES = ((0.1, 0.1), (0.3, 0.3), (0.5, 0.3))
PENALTY, ROUNDS, STEEPNESS, LEAK = 1e-3, 10, 2.0, 0.1
"""Of the ridge regression: its penalty, how often it is repeated, how sharp its targets are, and what a label outside the set
counts."""

LOCAL = {"weighting": "local", "self_weight": "auto", "neighbors": "auto"}


def belief(features_ND: Tensor, allowed_NC: Tensor, **options: object) -> Tensor:
    """The class that each item believes in most after one labelling step."""
    return pals.pseudo_label(features_ND, allowed_NC, **options).posterior_NC.argmax(dim=1)  # type: ignore[arg-type]


ROWS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "official": belief,
    "K = 50, temperature 0.3, no self vote": lambda x, y: belief(x, y, neighbors=50, temperature=0.3, include_self=False),
    "`weighting=local`": lambda x, y: belief(x, y, weighting="local"),
    "`weighting=local`, `self_weight=auto`": lambda x, y: belief(x, y, weighting="local", self_weight="auto"),
    "and `neighbors=auto`": lambda x, y: belief(x, y, **LOCAL),
    "and `vote_on=posterior` (preset `small`)": lambda x, y: belief(x, y, **LOCAL, vote_on="posterior"),
    "ridge on the sets, iterated, each item left out": lambda x, y: ridge(x, y),
}


def ridge(features_ND: Tensor, allowed_NC: Tensor) -> Tensor:
    """Leave-one-out ridge regression on the sets; its targets are then made of its predictions, class by class to scale."""
    spectrum = decompose(signed_root(features_ND), np.ones(len(features_ND), dtype=bool))
    set_NC = allowed_NC.double().numpy()
    target_NC = set_NC / set_NC.sum(axis=1, keepdims=True)
    for _ in range(ROUNDS):
        score_NC = spectrum.left_out(target_NC, PENALTY)
        z_NC = (score_NC - score_NC.mean(axis=0)) / score_NC.std(axis=0)
        share_NC = torch.from_numpy(STEEPNESS * z_NC).softmax(dim=1).numpy() * (set_NC + LEAK)
        target_NC = share_NC / share_NC.sum(axis=1, keepdims=True)
    return torch.from_numpy(target_NC.argmax(axis=1))


def read(folder: Path, truth_file: Path, kept: Path | None, items: int) -> tuple[Tensor, Truth]:
    """Features and labels of the first items in the file of the truth."""
    with truth_file.open() as file:
        rows = list(csv.DictReader(file))
    if kept is not None and kept.exists():
        features = np.load(kept)
    else:
        features = pals.encode([folder / row["image"] for row in rows], encoder="efficientnet-lite0")
        if kept is not None:
            np.save(kept, features)
    names = sorted({row["label"] for row in rows})
    label_N = np.array([names.index(row["label"]) for row in rows])
    return torch.as_tensor(features[:items]), Truth.of(label_N[:items], tuple(names))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", type=Path)
    parser.add_argument("truth", type=Path)
    parser.add_argument("--features", type=Path)
    parser.add_argument("--items", type=int, default=4000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of the candidate sets")
    args = parser.parse_args()
    features_ND, truth = read(args.images, args.truth, args.features, args.items)
    print("| labels by | " + " | ".join(f"q = {q}, eta = {eta}" for q, eta in RATES) + " |")
    print("|---|" + "---:|" * len(RATES))
    for name, label in ROWS.items():
        cells = []
        for q, eta in RATES:
            shares = []
            for seed in args.seeds:
                drawn = torch.Generator().manual_seed(seed)
                sets = pals.make_candidates(truth, partial_rate=q, noise_rate=eta, generator=drawn).candidates
                shares.append(100 * float((label(features_ND, sets.allowed_NC) == truth.label_N).double().mean()))
            score = mean_and_std(shares)
            cells.append(f"{score['mean']:.1f} ± {score['std']:.1f}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
