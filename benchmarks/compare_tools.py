"""Labels right and processor seconds of several tools on the same answers: PALS, crowd-kit, peerannot, cleanlab.

    pip install --target tools crowd-kit peerannot cleanlab
    PYTHONPATH=tools python benchmarks/compare_tools.py
    PYTHONPATH=tools python benchmarks/compare_tools.py IMAGES VOTES TRUTH --features features.npy

Without files: scikit-learn's digits with simulated answers, features are the pixels. With files: pictures with people's
answers, features of a pretrained encoder, the same for all tools that take any. Every tool has its own defaults; one that is
not installed is left out. The truth grades, and nothing else. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import platform
import time
import warnings
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from small_sets import add_feature_options, read, read_features, subset

from pals.crowd import closed_form, dawid_skene, majority_vote
from pals.labels.candidates import Truth
from pals.labels.metrics import accuracy_of
from pals.readers import ReadSummary, Votes

PEOPLE, ANSWERS, SKILL = 20, 3, (3.0, 1.5)  # of the simulated crowd; skills come from a beta distribution
FOLDS = 5

Labels = np.ndarray  # a class per item


class Case(NamedTuple):
    """The answers in the forms that tools want, all made before the clock starts."""

    votes: Votes
    long: pd.DataFrame  # task, worker, label
    wide_NW: np.ndarray  # NaN where somebody did not answer
    by_item: dict[int, dict[int, int]]
    features_ND: torch.Tensor


def case_of(votes: Votes, features_ND: torch.Tensor) -> Case:
    long = pd.DataFrame({"task": votes.item_R, "worker": votes.annotator_R, "label": votes.label_R})
    wide_NW = np.full((len(votes.items), len(votes.annotators)), np.nan)
    wide_NW[votes.item_R, votes.annotator_R] = votes.label_R
    by_item: dict[int, dict[int, int]] = {item: {} for item in range(len(votes.items))}
    for item, worker, label in zip(votes.item_R.tolist(), votes.annotator_R.tolist(), votes.label_R.tolist(), strict=True):
        by_item[item][worker] = label
    return Case(votes, long, wide_NW, by_item, features_ND)


def simulated(seed: int) -> tuple[Votes, np.ndarray, torch.Tensor]:
    """Digits, three people of 20 for each, of different skill; who errs takes it for one of the three most like it."""
    rng = np.random.default_rng(seed)
    pixel_ND, truth_N = load_digits(return_X_y=True)
    mean_CD = np.stack([pixel_ND[truth_N == label].mean(axis=0) for label in range(10)])
    alike_C3 = np.square(mean_CD[:, None] - mean_CD[None]).sum(axis=2).argsort(axis=1)[:, 1:4]
    skill_W = rng.beta(*SKILL, size=PEOPLE)
    annotator_R = np.concatenate([rng.choice(PEOPLE, ANSWERS, replace=False) for _ in truth_N])
    item_R = np.repeat(np.arange(len(truth_N)), ANSWERS)
    mistake_R = alike_C3[truth_N[item_R], rng.integers(3, size=len(item_R))]
    label_R = np.where(rng.random(len(item_R)) < skill_W[annotator_R], truth_N[item_R], mistake_R)
    names = [tuple(map(str, range(count))) for count in (len(truth_N), PEOPLE, 10)]
    rows = np.arange(len(item_R))
    summary = ReadSummary((), "simulated", len(rows), len(rows), len(truth_N), PEOPLE, 10, 0)
    votes = Votes(*names, item_R, annotator_R, label_R, rows, np.ones(len(rows)), np.full(len(truth_N), -1), summary)
    return votes, truth_N, torch.from_numpy(pixel_ND).float()


# ---- the tools


def by_pals(case: Case) -> Labels:
    return closed_form(case.votes, case.features_ND).label_N


def by_dawid_skene_of_pals(case: Case) -> Labels:
    return dawid_skene(case.votes).label_N


def by_crowd_kit(name: str) -> Callable[[Case], Labels]:
    def aggregate(case: Case) -> Labels:
        from crowdkit import aggregation

        found = getattr(aggregation, name)().fit_predict(case.long)
        return found.reindex(range(len(case.votes.items))).to_numpy()

    return aggregate


def by_peerannot(name: str) -> Callable[[Case], Labels]:
    def aggregate(case: Case) -> Labels:
        from peerannot import models

        sizes = {"n_workers": len(case.votes.annotators), "n_classes": len(case.votes.class_names)}
        model = getattr(models, name)(case.by_item, **sizes)
        model.run()
        return np.asarray(model.get_answers())

    return aggregate


def by_cleanlab(penalty: float) -> Callable[[Case], Labels]:
    """CROWDLAB takes a classifier of one's own: logistic regression on the same features, by folds, on majority labels."""

    def aggregate(case: Case) -> Labels:
        from cleanlab.multiannotator import get_label_quality_multiannotator, get_majority_vote_label

        answers = pd.DataFrame(case.wide_NW)
        majority_N = get_majority_vote_label(answers, verbose=False)
        model = make_pipeline(StandardScaler(), LogisticRegression(C=1 / penalty, max_iter=200))
        said_NC = cross_val_predict(model, case.features_ND.numpy(), majority_N, cv=FOLDS, method="predict_proba")
        found = get_label_quality_multiannotator(answers, said_NC, verbose=False)["label_quality"]
        return found["consensus_label"].to_numpy()

    return aggregate


TOOLS: tuple[tuple[str, str, str, Callable[[Case], Labels]], ...] = (
    ("pals-learn", "Dawid and Skene", "answers", by_dawid_skene_of_pals),
    ("crowd-kit", "Dawid and Skene, one coin", "answers", by_crowd_kit("OneCoinDawidSkene")),
    ("crowd-kit", "Dawid and Skene", "answers", by_crowd_kit("DawidSkene")),
    ("crowd-kit", "GLAD", "answers", by_crowd_kit("GLAD")),
    ("crowd-kit", "MMSR", "answers", by_crowd_kit("MMSR")),
    ("crowd-kit", "MACE", "answers", by_crowd_kit("MACE")),
    ("peerannot", "Dawid and Skene", "answers", by_peerannot("DawidSkene")),
    ("peerannot", "Wawa", "answers", by_peerannot("Wawa")),
    ("cleanlab", "CROWDLAB, logistic regression, penalty 1", "answers and features", by_cleanlab(1)),
    ("cleanlab", "CROWDLAB, logistic regression, penalty 100", "answers and features", by_cleanlab(100)),
    ("cleanlab", "CROWDLAB, logistic regression, penalty 10,000", "answers and features", by_cleanlab(10_000)),
    ("pals-learn", "closed form", "answers and features", by_pals),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, help="IMAGES VOTES TRUTH; none for the simulated digits")
    parser.add_argument("--seed", type=int, default=0, help="of the simulation, and of what tools draw")
    add_feature_options(parser)
    args = parser.parse_args()
    if args.files:
        votes, truth_N = read(args.files[1], args.files[2])
        features_ND = read_features(args, votes.items)
    else:
        votes, truth_N, features_ND = simulated(args.seed)
    sizes = f"{len(votes.items):,} items, {len(votes.item_R):,} answers by {len(votes.annotators)} people"
    right = (votes.label_R == truth_N[votes.item_R]).mean()
    print(f"{sizes}, {len(votes.class_names)} classes; {100 * right:.2f}% of the answers are right.\n")
    compare(case_of(votes, features_ND), truth_N, args.seed)
    print(f"\nPython {platform.python_version()}, torch {torch.__version__}, numpy {np.__version__}, {os.cpu_count()} cores.")


def compare(case: Case, truth_N: np.ndarray, seed: int) -> None:
    print("| tool | method | uses | labels right | processor seconds |")
    print("|---|---|---|---:|---:|")
    majority = accuracy_of(majority_vote(case.votes), Truth.of(truth_N, case.votes.class_names))
    print(f"| | majority, ties by lot | answers | {100 * majority:.2f}% | |")
    for package, method, uses, tool in TOOLS:
        try:
            version = metadata.version(package)
        except metadata.PackageNotFoundError:
            print(f"| {package} | {method} | {uses} | not installed | |")
            continue
        label_N, seconds = timed(tool, case, seed)
        right = 100 * (label_N == truth_N).mean()
        print(f"| {package} {version} | {method} | {uses} | {right:.2f}% | {seconds:.1f} |", flush=True)


def timed(tool: Callable[[Case], Labels], case: Case, seed: int) -> tuple[Labels, float]:
    """What it found, and processor time of all threads. It runs on a few items first, so that everything is loaded by then."""
    few = case_of(subset(case.votes, np.arange(200)), case.features_ND[:200])
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        tool(few)
        np.random.seed(seed)
        torch.manual_seed(seed)
        began = time.process_time()
        return tool(case), time.process_time() - began


if __name__ == "__main__":
    main()
