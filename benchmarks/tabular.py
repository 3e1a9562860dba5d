"""Accuracy on tabular data sets of partial label learning: all methods on the same folds, by one recipe for all networks.

    python benchmarks/tabular.py lost.mat msrc-v2.mat bird-song.mat --out tabular.jsonl

Writes one line per data set and method as it is done, leaves out what is already there, and prints the table at the end. The
settings are the classifiers' defaults, so PALS has its preset `small`. A setting that is chosen is chosen in each
fold from its training part, by the covering rate, without truth and test items.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pals.estimator import MatData, StratifiedCandidateKFold, classifier_for, covering_scorer, load_mat
from pals.labels.metrics import mean_and_std

FOLDS_SEED = 0


class AverageLogistic(LogisticRegression):  # type: ignore[misc]
    """Every candidate taken for the label, all with the same share of the item's weight: the simplest thing to do."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> AverageLogistic:
        item, label = y.nonzero()
        super().fit(X[item], label, sample_weight=1 / y.sum(axis=1)[item])
        return self


def chosen(name: str, **grid: Any) -> Callable[[int], Any]:
    """A method with the option in `grid` chosen by the covering rate on a holdout, a fifth of the training part."""

    def make(seed: int) -> Any:
        inner = First(StratifiedCandidateKFold(5, shuffle=True, random_state=seed))
        return GridSearchCV(classifier_for(name)(random_state=seed), grid, scoring=covering_scorer, cv=inner)

    return make


class First:
    """Only the first of the folds that a splitter makes."""

    def __init__(self, splitter: StratifiedCandidateKFold) -> None:
        self.splitter = splitter

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        return 1

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Any:
        yield next(self.splitter.split(X, y, groups))


ROWS: dict[str, Callable[[int], Any]] = {
    "logistic, candidates averaged": lambda _: make_pipeline(StandardScaler(), AverageLogistic(max_iter=1000)),
    "pl-knn": lambda _: classifier_for("pl-knn")(),
    "pl-knn, standardize chosen": chosen("pl-knn", standardize=[True, False]),
    "ipal": lambda _: classifier_for("ipal")(),
    "ipal, standardize chosen": chosen("ipal", standardize=[True, False]),
    **{
        name: lambda seed, name=name: classifier_for(name)(random_state=seed)
        for name in ("average", "rc", "cc", "proden", "lws", "crdpll", "pico", "pals")
    },
    "pals, preset official": lambda seed: classifier_for("pals")(preset="official", random_state=seed),
    "pals, preset official, delta chosen": chosen("pals", preset=["official"], delta=[0.25, 0.5, 0.75, 1.0]),
    "truth (upper bound)": lambda seed: classifier_for("average")(random_state=seed),
}


def grade(data: MatData, make: Callable[[int], Any], folds: int, *, on_truth: bool) -> dict[str, Any]:
    """Accuracy in each fold, in percent, what was chosen there, and the mean seconds of a fit on one core."""
    X, candidates, truth = data
    assert truth is not None
    y = np.eye(candidates.shape[1], dtype=np.int8)[truth] if on_truth else candidates
    accuracies, choices, seconds = [], [], []
    splitter = StratifiedCandidateKFold(folds, shuffle=True, random_state=FOLDS_SEED)
    for fold, (train, test) in enumerate(splitter.split(X, candidates)):
        start = time.process_time()
        model = make(fold).fit(X[train], y[train])
        seconds.append(time.process_time() - start)
        accuracies.append(100 * float((model.predict(X[test]) == truth[test]).mean()))
        choices += model.best_params_.values() if hasattr(model, "best_params_") else []
    return {"accuracies": accuracies, "chosen": choices, "seconds": float(np.mean(seconds))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, help="MATLAB files with data, partial_target and target")
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, one per data set and method")
    parser.add_argument("--methods", nargs="+", default=list(ROWS), choices=list(ROWS))
    parser.add_argument("--folds", type=int, default=10)
    options = parser.parse_args()
    torch.set_num_threads(1)
    sets = {path.stem: load_mat(path) for path in options.files}
    done = read(options.out)
    for name, data in sets.items():
        for method in options.methods:
            if (name, method) in done:
                continue
            row = {"data": name, "method": method, **grade(data, ROWS[method], options.folds, on_truth="truth" in method)}
            with options.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
    print(table(read(options.out), list(sets), options.methods))


def read(path: Path) -> dict[tuple[str, str], dict[str, Any]]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    rows = [json.loads(line) for line in lines]
    return {(row["data"], row["method"]): row for row in rows}


def table(done: dict[tuple[str, str], dict[str, Any]], sets: list[str], methods: list[str]) -> str:
    lines = [f"| method | {' | '.join(sets)} | CPU seconds a fit |", "|---" * (len(sets) + 2) + "|"]
    for method in methods:
        rows = [done[name, method] for name in sets]
        scores = [mean_and_std(row["accuracies"]) for row in rows]
        cells = [f"{score['mean']:.1f} ± {score['std']:.1f}" for score in scores]
        times = ", ".join(f"{row['seconds']:.1f}" for row in rows)
        lines.append(f"| {method} | {' | '.join(cells)} | {times} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
