"""Detection of items whose class is missing: each class in turn is hidden from the annotators.

    python benchmarks/none_of_these.py IMAGES VOTES TRUTH [--alike 0.7] [--unknown 0] [--encoder efficientnet-lite0]

An answer with the hidden class is replaced by another class. For items of the hidden class it is drawn from the annotators'
confusions: with probability `--alike` one class drawn for the item, so that answers agree, else a class of its own. For other
items it is another annotator's answer. A share `--unknown` is replaced by "don't know".

Prints two tables in Markdown: for each class the AUROC of the probability, its share of the items, as it is and as estimated,
the share that is flagged (probability above one half), how many of the flagged are of it, how many of its items are flagged,
and CPU seconds; then for items by probability, how many are of the hidden class.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from time import process_time

import numpy as np
import torch
from scipy.stats import rankdata
from small_sets import add_feature_options, print_row, read, read_features, subset

from pals.crowd import dawid_skene
from pals.crowd.novelty import PROBABLE, Novelty, none_of_these
from pals.pseudo_labels import nearest
from pals.readers import Votes

NEIGHBORS = 15  # as in `pals fit`
BINS = (0.0, 0.1, 0.5, 0.9, 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs=3, type=Path, help="IMAGES VOTES TRUTH")
    parser.add_argument("--alike", type=float, default=0.7)
    parser.add_argument("--unknown", type=float, default=0.0)
    parser.add_argument("--items", type=int, help="a random subset of so many")
    add_feature_options(parser)
    args = parser.parse_args()
    torch.set_num_threads(1)
    votes, truth_N = read(args.files[1], args.files[2])
    features_ND = read_features(args, votes.items)
    if args.items is not None:
        chosen = np.sort(np.random.default_rng(0).choice(len(truth_N), args.items, replace=False))
        votes, truth_N, features_ND = subset(votes, chosen), truth_N[chosen], features_ND[chosen]
    print_row("hidden", "AUROC", "share", "estimated", "flagged", "right", "found", "s")
    print("|---|" + 7 * "---:|")
    measure("nothing", votes, np.zeros(len(truth_N), dtype=bool), features_ND)
    rows, chances, hidden = [], [], []
    for number, name in enumerate(votes.class_names):
        without = hide(votes, truth_N, number, args.alike, args.unknown, np.random.default_rng(number))
        row, found = measure(name, without, truth_N == number, features_ND)
        rows.append(row)
        chances.append(found.probability_N)
        hidden.append(truth_N == number)
    print_row("mean", *(f"{value:.3f}" for value in np.nanmean(rows, axis=0)[:6]), "")
    print("\nCalibration, all hidden classes together:\n")
    print_row("probability", "items", "mean probability", "really of the hidden class")
    print("|---|" + 3 * "---:|")
    chance_M, hidden_M = np.concatenate(chances), np.concatenate(hidden)
    for low, high in pairwise(BINS):
        inside = (chance_M >= low) & ((chance_M < high) | (high == BINS[-1]))
        shares = (f"{chance_M[inside].mean():.3f}", f"{hidden_M[inside].mean():.3f}") if inside.any() else ("", "")
        print_row(f"{low:.1f} to {high:.1f}", f"{inside.sum():,}", *shares)


def measure(name: str, votes: Votes, hidden_N: np.ndarray, features_ND: torch.Tensor) -> tuple[list[float], Novelty]:
    label_N = dawid_skene(votes).label_N  # the closed form, which `pals fit` has at hand, would take longer than all else
    unit_ND = torch.nn.functional.normalize(features_ND - features_ND.mean(dim=0))
    start = process_time()
    found = none_of_these(votes, features_ND, label_N, nearest(unit_ND, NEIGHBORS, include_self=False).index_NK.numpy())
    seconds = process_time() - start
    assert found is not None
    flagged_N = found.probability_N > PROBABLE
    right = hidden_N[flagged_N].mean() if flagged_N.any() else np.nan
    of_it = flagged_N[hidden_N].mean() if hidden_N.any() else np.nan
    row = [auroc(found.probability_N, hidden_N), hidden_N.mean(), found.share, flagged_N.mean(), right, of_it]
    print_row(name, *("" if np.isnan(value) else f"{value:.3f}" for value in row), f"{seconds:.1f}")
    return row, found


def auroc(score_N: np.ndarray, hidden_N: np.ndarray) -> float:
    """How often an item of the hidden class scores higher than another."""
    positive, negative = int(hidden_N.sum()), int((~hidden_N).sum())
    if not positive:
        return float("nan")
    return float((rankdata(score_N)[hidden_N].sum() - positive * (positive + 1) / 2) / (positive * negative))


def hide(votes: Votes, truth_N: np.ndarray, hidden: int, alike: float, unknown: float, rng: np.random.Generator) -> Votes:
    """The answers had this class not been on the list."""
    classes = len(votes.class_names)
    named_R, of_it_R = votes.label_R == hidden, truth_N[votes.item_R] == hidden
    taken_C = np.bincount(votes.label_R[of_it_R & ~named_R], minlength=classes) / (of_it_R & ~named_R).sum()
    label_R = votes.label_R.copy()
    rows = np.flatnonzero(named_R & of_it_R)
    alike_N = rng.choice(classes, len(truth_N), p=taken_C)
    follows = rng.random(len(rows)) < alike
    label_R[rows] = np.where(follows, alike_N[votes.item_R[rows]], rng.choice(classes, len(rows), p=taken_C))
    for row in np.flatnonzero(named_R & ~of_it_R):
        others = label_R[(votes.item_R == votes.item_R[row]) & ~named_R]
        label_R[row] = rng.choice(others) if len(others) else rng.choice(classes, p=taken_C)
    silent_R = named_R & (rng.random(len(label_R)) < unknown)
    left = replace(votes, label_R=label_R - (label_R > hidden), class_names=_without(votes.class_names, hidden))
    return replace(
        left.take(np.flatnonzero(~silent_R)),
        unknown_item_U=votes.item_R[silent_R],
        unknown_annotator_U=votes.annotator_R[silent_R],
    )


def _without(names: tuple[str, ...], hidden: int) -> tuple[str, ...]:
    return names[:hidden] + names[hidden + 1 :]


if __name__ == "__main__":
    main()
