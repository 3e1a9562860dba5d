"""What a taxonomy adds, in a simulation where the truth is known: the same answers, coarse ones among them, with the tree and
without it (then a coarse answer is just a set of candidates, and all mistakes are alike).

    python benchmarks/taxonomy.py
    python benchmarks/taxonomy.py --items 500 2000 --seeds 4

The tree is that of CIFAR-100, 20 branches of 5 classes. Each item has three answers from different people. Everybody has a
skill for the branch and, apart from it, one for the class within the branch; a fifth of all answers name the branch alone.
Which class is taken for which differs from class to class and is the same for all. Pictures are vectors with a part that tells
the branch and a weaker one that tells the class. Prints a table in Markdown: shares of wrong labels in per cent, means over
seeds.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch

from pals.crowd import closed_form, dawid_skene, majority_vote
from pals.data.cifar import CIFAR100_TREE
from pals.labels.candidates import Truth
from pals.labels.metrics import accuracy_of
from pals.readers import ReadSummary, Votes

TREE, ANSWERS = CIFAR100_TREE, 3


class Crowd(NamedTuple):
    people: int
    branch: tuple[float, float]  # of the beta distributions that skills come from
    leaf: tuple[float, float]
    coarse: float  # share of the answers that name the branch alone

    def __str__(self) -> str:
        branch, leaf = (f"{100 * a / (a + b):.0f}%" for a, b in (self.branch, self.leaf))
        return f"{self.people} people, branch {branch}, then class {leaf}, {100 * self.coarse:.0f}% coarse"


KNOW_BRANCHES, NOT_CLASSES, EVEN = (9.0, 1.0), (1.5, 1.0), (6.0, 1.5)
CROWDS = (
    Crowd(20, KNOW_BRANCHES, NOT_CLASSES, 0.2),
    Crowd(100, KNOW_BRANCHES, NOT_CLASSES, 0.2),
    Crowd(100, KNOW_BRANCHES, NOT_CLASSES, 0.0),
    Crowd(100, EVEN, EVEN, 0.2),
)


def simulate(crowd: Crowd, items: int, seed: int) -> tuple[Votes, np.ndarray, torch.Tensor]:
    """Votes, the truth, and features."""
    rng = np.random.default_rng(seed)
    classes, branch_C = len(TREE.leaves), TREE.branch_of(TREE.leaves)
    truth_N = rng.integers(classes, size=items)
    annotator_A = np.concatenate([rng.choice(crowd.people, ANSWERS, replace=False) for _ in range(items)])
    item_A = np.repeat(np.arange(items), ANSWERS)
    skill_W2 = np.column_stack([rng.beta(*skill, size=crowd.people) for skill in (crowd.branch, crowd.leaf)])
    same_CC, own_CC = branch_C[:, None] == branch_C, np.eye(classes, dtype=bool)
    liking_CC = rng.dirichlet(np.full(classes, 0.3), size=classes) + 1e-6
    right_A2 = rng.random((len(item_A), 2)) < skill_W2[annotator_A]
    rings_CC = np.where(own_CC, 2, np.where(same_CC, 1, 0))  # levels that two classes share
    chosen_AC = rings_CC[truth_N[item_A]] == np.cumprod(right_A2, axis=1).sum(axis=1)[:, None]
    weight_AC = (chosen_AC * liking_CC[truth_N[item_A]]).cumsum(axis=1)
    meant_A = (rng.random((len(item_A), 1)) * weight_AC[:, -1:] < weight_AC).argmax(axis=1)
    coarse_A = rng.random(len(item_A)) < crowd.coarse
    said_AC = np.where(coarse_A[:, None], same_CC[meant_A], own_CC[meant_A])
    answer_R, label_R = said_AC.nonzero()
    names = tuple(map(str, range(items))), tuple(map(str, range(crowd.people)))
    summary = ReadSummary((), "simulated", len(answer_R), len(item_A), items, crowd.people, classes, 0)
    rows = item_A[answer_R], annotator_A[answer_R], label_R, answer_R, np.ones(len(answer_R)), np.full(items, -1)
    branch_BD, class_CD = rng.normal(size=(branch_C.max() + 1, 64)), rng.normal(size=(classes, 64))
    features_ND = branch_BD[branch_C[truth_N]] + 0.7 * class_CD[truth_N] + 1.5 * rng.normal(size=(items, 64))
    return Votes(*names, TREE.leaves, *rows, summary, TREE), truth_N, torch.from_numpy(features_ND).float()


def measure(crowd: Crowd, items: int, seed: int) -> list[float]:
    """Shares of wrong labels: of the majority, of Dawid and Skene flat and with the tree, of the closed form likewise."""
    votes, truth_N, features_ND = simulate(crowd, items, seed)
    truth, flat = Truth.of(truth_N, votes.class_names), replace(votes, taxonomy=None)
    found = (
        majority_vote(votes),
        *(dawid_skene(each).posterior_NC for each in (flat, votes)),
        *(closed_form(each, features_ND).posterior_NC for each in (flat, votes)),
    )
    return [1 - accuracy_of(posterior_NC, truth) for posterior_NC in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, nargs="+", default=[500, 2000])
    parser.add_argument("--seeds", type=int, default=4)
    chosen = parser.parse_args()
    print("| people | items | majority | Dawid, Skene | with the tree | closed form | with the tree |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for crowd in CROWDS:
        for items in chosen.items:
            mean = np.mean([measure(crowd, items, seed) for seed in range(chosen.seeds)], axis=0)
            print(f"| {crowd} | {items} | " + " | ".join(f"{100 * share:.1f}" for share in mean) + " |", flush=True)


if __name__ == "__main__":
    main()
