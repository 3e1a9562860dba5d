"""Votes made by hand, and simulated people."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import load_digits

from pals.readers import ReadSummary, Votes

Row = tuple[int, int, int]  # item, annotator (-1: unnamed), label


def votes_of(
    rows: list[Row], items: int, classes: int = 3, *, answer: list[int] | None = None, weight: list[float] | None = None,
    gold: dict[int, int] | None = None, sure: list[bool] | None = None, unknown: Sequence[tuple[int, int]] = (),
    times: Sequence[float] = (), seconds: Sequence[float] = (),
) -> Votes:  # fmt: skip
    """`unknown`: item and annotator of those who do not know."""
    item_R, annotator_R, label_R = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    unknown_item_U, unknown_annotator_U = np.array(unknown, dtype=np.int64).reshape(-1, 2).T
    people = int(max(annotator_R.max(initial=-1), unknown_annotator_U.max(initial=-1))) + 1
    gold_I = np.full(items, -1)
    for item, label in (gold or {}).items():
        gold_I[item] = label
    names = tuple(f"c{c}" for c in range(classes))
    return Votes(
        items=tuple(f"i{i}" for i in range(items)),
        annotators=tuple(f"w{w}" for w in range(people)),
        class_names=names,
        item_R=item_R,
        annotator_R=annotator_R,
        label_R=label_R,
        answer_R=np.arange(len(rows)) if answer is None else np.array(answer),
        weight_R=np.ones(len(rows)) if weight is None else np.array(weight),
        gold_I=gold_I,
        summary=ReadSummary((), "test", len(rows), len(rows), items, people, classes, int((gold_I >= 0).sum())),
        sure_R=np.array(sure or [], dtype=bool),
        unknown_item_U=unknown_item_U,
        unknown_annotator_U=unknown_annotator_U,
        time_R=np.array(times, dtype=np.float64),
        seconds_R=np.array(seconds, dtype=np.float64),
    )


def simulated(items: int, accuracy: Sequence[float], classes: int = 3, seed: int = 0) -> tuple[Votes, np.ndarray]:
    """Everybody answers for every item: right with their accuracy, else any other label."""
    rng = np.random.default_rng(seed)
    truth_N = rng.integers(classes, size=items)
    rows = [
        (item, person, int(label if rng.random() < skill else (label + rng.integers(1, classes)) % classes))
        for item, label in enumerate(truth_N)
        for person, skill in enumerate(accuracy)
    ]
    return votes_of(rows, items, classes), truth_N


def answered_digits(items: int) -> tuple[np.ndarray, np.ndarray, pd.DataFrame]:
    """scikit-learn's digits in random order, as vectors with their labels, and the answers of three people about the first of
    them: each looks as often as given, and otherwise says anything."""
    x_ND, y_N = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(x_ND))
    x_ND, y_N = x_ND[order].astype(np.float32), y_N[order]
    rows = [
        (item, annotator, f"d{y_N[item] if rng.random() < looks else rng.integers(10)}")
        for item in range(items)
        for annotator, looks in (("ann", 0.85), ("bob", 0.75), ("cho", 0.65))
    ]
    return x_ND, y_N, pd.DataFrame(rows, columns=["item", "annotator", "label"])


def write_vectors(folder: Path, items: int) -> Path:
    """`folder/x.npy`, vectors of three classes, and `votes.csv`, the answers of three people who err in a fifth of cases."""
    rng, truth = np.random.default_rng(0), np.arange(items) % 3
    np.save(folder / "x.npy", (rng.normal(size=(items, 5)) + 3 * np.eye(5)[truth]).astype(np.float32))
    rows = [(i, who, "abc"[t if rng.random() < 0.8 else rng.integers(3)]) for i, t in enumerate(truth) for who in "uvw"]
    pd.DataFrame(rows, columns=["item", "annotator", "label"]).to_csv(folder / "votes.csv", index=False)
    return folder


def rows_of(votes: Votes) -> list[Row]:
    return list(zip(*(a.tolist() for a in (votes.item_R, votes.annotator_R, votes.label_R)), strict=True))


def many_people(
    items: int, people: int, classes: int, seed: int, skill: tuple[float, float] = (4.0, 1.3)
) -> tuple[Votes, np.ndarray]:
    """Three answers for every item, each by another of many people; everybody errs in the way of all, some more often (a beta
    distribution)."""
    rng = np.random.default_rng(seed)
    truth_N = rng.integers(classes, size=items)
    skill_W = rng.beta(*skill, size=people)
    wrong_CC = rng.dirichlet(np.full(classes, 0.3), size=classes) * (1 - np.eye(classes))
    wrong_CC /= wrong_CC.sum(axis=1, keepdims=True)
    rows = [
        (item, person, int(label if rng.random() < skill_W[person] else rng.choice(classes, p=wrong_CC[label])))
        for item, label in enumerate(truth_N)
        for person in rng.choice(people, 3, replace=False).tolist()
    ]
    return votes_of(rows, items, classes), truth_N
