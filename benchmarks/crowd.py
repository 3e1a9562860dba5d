"""Accuracy of labels from answers alone and with a classifier's predictions, and of its estimate by the run, in a simulation.

    python benchmarks/crowd.py
    python benchmarks/crowd.py --items 300 1000 3000 --seeds 4

Each item gets three answers from different annotators. All confuse the same classes, some more often; errors of the
classifier are independent of theirs. Prints a table in Markdown, means over seeds, in per cent.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

import numpy as np

from pals.crowd import dawid_skene, estimate_noise, fuse, majority_vote
from pals.labels.candidates import Truth
from pals.labels.metrics import accuracy_of
from pals.readers import ReadSummary, Votes


class Crowd(NamedTuple):
    people: int
    classes: int
    skill: tuple[float, float]  # of the beta distribution that accuracies come from

    def __str__(self) -> str:
        a, b = self.skill
        return f"{self.people} people, {self.classes} classes, right for {100 * a / (a + b):.0f}%"


GOOD, WORSE = (4.0, 1.3), (2.5, 1.5)
CROWDS = (Crowd(3, 10, GOOD), Crowd(18, 10, GOOD), Crowd(180, 10, GOOD), Crowd(180, 10, WORSE), Crowd(60, 2, GOOD))


def simulate(crowd: Crowd, items: int, seed: int) -> tuple[Votes, np.ndarray, np.ndarray]:
    """Votes, the truth, and a classifier's logits."""
    rng = np.random.default_rng(seed)
    truth_N = rng.integers(crowd.classes, size=items)
    skill_W = rng.beta(*crowd.skill, size=crowd.people)
    wrong_CC = rng.dirichlet(np.full(crowd.classes, 0.3), size=crowd.classes) * (1 - np.eye(crowd.classes))
    wrong_CC /= wrong_CC.sum(axis=1, keepdims=True)
    annotator_R = np.concatenate([rng.choice(crowd.people, 3, replace=False) for _ in range(items)])
    item_R = np.repeat(np.arange(items), 3)
    drawn_RC = wrong_CC[truth_N[item_R]].cumsum(axis=1)
    mistake_R = (rng.random(3 * items)[:, None] < drawn_RC).argmax(axis=1)
    label_R = np.where(rng.random(3 * items) < skill_W[annotator_R], truth_N[item_R], mistake_R)
    logits_NC = rng.normal(size=(items, crowd.classes))
    logits_NC[np.arange(items), truth_N] += 3.0
    names = [tuple(map(str, range(count))) for count in (items, crowd.people, crowd.classes)]
    rows, gold_I = np.arange(3 * items), np.full(items, -1)
    summary = ReadSummary((), "simulated", len(rows), len(rows), items, crowd.people, crowd.classes, 0)
    votes = Votes(*names, item_R, annotator_R, label_R, rows, np.ones(len(rows)), gold_I, summary)
    return votes, truth_N, logits_NC


def measure(crowd: Crowd, items: int, seed: int) -> list[float]:
    """Error rates: of the majority, of Dawid and Skene, of the answers alone (estimated, real), with the classifier."""
    votes, truth_N, logits_NC = simulate(crowd, items, seed)
    majority = 1 - accuracy_of(majority_vote(votes), Truth.of(truth_N, votes.class_names))
    found = [majority, float((dawid_skene(votes).label_N != truth_N).mean())]
    for opinions in ([], [logits_NC]):
        fusion = fuse(votes, opinions)
        found += [estimate_noise(fusion).labels_wrong, float((fusion.label_N != truth_N).mean())]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, nargs="+", default=[300, 3000])
    parser.add_argument("--seeds", type=int, default=4)
    args = parser.parse_args()
    print("| people | items | majority | Dawid, Skene | people alone: estimated, real | with the opinion: estimated, real |")
    print("|---|---:|---:|---:|---:|---:|")
    for crowd in CROWDS:
        for items in args.items:
            found = 100 * np.mean([measure(crowd, items, seed) for seed in range(args.seeds)], axis=0)
            first, model, alone, alone_real, both, both_real = (f"{value:.1f}" for value in found)
            print(f"| {crowd} | {items} | {first} | {model} | {alone}, {alone_real} | {both}, {both_real} |", flush=True)


if __name__ == "__main__":
    main()
