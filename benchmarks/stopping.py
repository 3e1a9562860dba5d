"""How many answers the rule for asking again saves, and how good its forecast is, on pictures whose truth is known.

    python benchmarks/stopping.py IMAGES VOTES TRUTH --features FEATURES.npy --seeds 3

Prints tables in Markdown, in per cent of labels. Stop: when by the rule all items have enough answers. Replay: accuracy by
the rule and with equally many answers per item, and the answers that the rule needs for the same accuracy. Forecast: after a
random part of the answers, the predicted accuracy with further answers chosen by the rule, and the real one.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from replay_answers import Arrivals, Fit, Point, by_the_rule, count_answers, everyone_equally
from small_sets import add_feature_options, read, read_features

from pals.crowd import estimate_noise, fuse
from pals.crowd.answer_forecast import forecast
from pals.crowd.closed_form import Refit, spectrum_of
from pals.crowd.next_answer import Answerer, as_sure_as, decide, standing_of, typical_annotator
from pals.readers import Votes

BEFORE = (1.5, 2.0)  # answers an item from which a forecast is made
PARTS = ["stop", "replay", "forecast"]
FURTHER = (250, 500, 1000)  # answers that it is made for
SAME = (
    0.001  # shares of right labels that count as the same: a tenth of a point, less than chance makes of a few thousand items
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs=3, type=Path, help="IMAGES VOTES TRUTH")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--with", dest="kinds", nargs="+", choices=["pictures", "alone"], default=["pictures", "alone"])
    add_feature_options(parser)
    args = parser.parse_args()
    torch.set_num_threads(1)
    votes, truth_N = read(args.files[1], args.files[2])
    kinds: dict[str, Callable[[], Fit]] = {"alone": lambda: lambda part: fuse(part, [])}
    if "pictures" in args.kinds:
        spectrum = spectrum_of(read_features(args, votes.items), np.ones(len(truth_N), dtype=bool))
        kinds["pictures"] = lambda: Refit(spectrum)
    for kind in args.kinds:
        if "stop" in args.parts:
            show_stop(kind, votes, truth_N, kinds[kind], args.seeds)
        if "replay" in args.parts:
            show_replay(kind, votes, truth_N, kinds[kind], args.seeds)
        if "forecast" in args.parts:
            show_forecast(kind, votes, truth_N, kinds[kind], args.seeds)


def show_stop(kind: str, votes: Votes, truth_N: np.ndarray, new_fit: Callable[[], Fit], seeds: int) -> None:
    print(f"\n### Where the rule says enough, {kind}\n")
    print("| random order | answers an item | right | with all answers |\n|---:|---:|---:|---:|")
    whole = (new_fit()(votes).label_N == truth_N).mean()
    for seed in range(seeds):
        last = next(point for point in by_the_rule(votes, new_fit(), seed=seed) if point.enough)
        right = (last.fusion.label_N == truth_N).mean()
        print(f"| {seed} | {last.answers / len(truth_N):.2f} | {100 * right:.2f} | {100 * whole:.2f} |", flush=True)


def show_replay(kind: str, votes: Votes, truth_N: np.ndarray, new_fit: Callable[[], Fit], seeds: int) -> None:
    """Both ways to ask: mean curves of share right by answers per item, and what the rule needs to be as right."""
    items, curves = np.count_nonzero(count_answers(votes)), dict[str, np.ndarray]()
    for asking, step in (("by the rule", 0.1), ("everyone equally", 0.25)):
        found = []
        for seed in range(seeds):
            points = (by_the_rule if asking == "by the rule" else everyone_equally)(votes, new_fit(), step=step, seed=seed)
            found.append(np.array([(point.answers / items, _right(point, truth_N)) for point in points]))
        right_SK = [np.interp(found[0][:, 0], *curve_K2.T) for curve_K2 in found]
        curves[asking] = np.stack([found[0][:, 0], np.mean(right_SK, axis=0)], axis=1)
    print(f"\n### Replay, {kind}, {seeds} random orders\n\n| asking | answers an item | right |\n|---|---:|---:|")
    for asking, curve_K2 in curves.items():
        for answers, right in curve_K2:
            print(f"| {asking} | {answers:.2f} | {100 * right:.2f} |")
    print(f"\nThe same, within {100 * SAME:g} points:\n")
    print("| everyone equally | right | by the rule | saved |\n|---:|---:|---:|---:|")
    for answers, right in curves["everyone equally"]:
        needed = answers_for(*curves["by the rule"].T, right)
        print(f"| {answers:.2f} | {100 * right:.2f} | {needed:.2f} | {100 * (1 - needed / answers):.0f}% |", flush=True)


def _right(point: Point, truth_N: np.ndarray) -> float:
    return float((point.fusion.label_N == truth_N).mean())


def answers_for(answers_K: np.ndarray, right_K: np.ndarray, target: float) -> float:
    """Where a curve first comes to the target, within `SAME`, on a straight line between two points; NaN if it never does."""
    reached = np.flatnonzero(right_K >= target - SAME - 1e-12)
    if not len(reached):
        return float("nan")
    first = max(int(reached[0]), 1)
    part = (target - SAME - right_K[first - 1]) / max(right_K[first] - right_K[first - 1], 1e-12)
    return float(answers_K[first - 1] + np.clip(part, 0, 1) * (answers_K[first] - answers_K[first - 1]))


def show_forecast(kind: str, votes: Votes, truth_N: np.ndarray, new_fit: Callable[[], Fit], seeds: int) -> None:
    print(f"\n### Forecast, {kind}, {seeds} random orders\n")
    print("| answers an item before | further answers | right before | said to be | right after | forecast |")
    print("|---:|---:|---:|---:|---:|---:|")
    for before in BEFORE:
        rows = np.array([list(forecasts(votes, truth_N, new_fit(), before, seed)) for seed in range(seeds)]).mean(axis=0)
        for further, row in zip(FURTHER, rows, strict=True):
            print(f"| {before} | {further:,} | " + " | ".join(f"{100 * value:.2f}" for value in row) + " |", flush=True)


def forecasts(votes: Votes, truth_N: np.ndarray, fit: Fit, before: float, seed: int) -> Iterator[tuple[float, ...]]:
    """Accuracy and its estimate, before and after."""
    rng = np.random.default_rng(seed)
    arrivals = Arrivals(votes, rng)
    count_N = 1 + (rng.permutation(len(truth_N)) < (before - 1) * len(truth_N)).astype(int)
    part = arrivals.first(count_N)
    fusion = fit(part)
    said = 1 - estimate_noise(fusion, seed).labels_wrong
    standing = as_sure_as(standing_of(fusion), said, np.arange(len(truth_N)))
    once_N = np.minimum(arrivals.total_N - count_N, 1)
    crowd = Answerer("", 1.0, (typical_annotator(fusion),), np.zeros(len(truth_N), dtype=int), once_N)
    order = np.argsort(-decide(standing, [crowd]).rate_N, kind="stable")
    for further in FURTHER:
        more_N = count_N.copy()
        more_N[order[:further]] += 1
        after = fit(arrivals.first(more_N))
        expected = forecast(standing, [crowd], further).right_K[-1]
        yield ((fusion.label_N == truth_N).mean(), said, (after.label_N == truth_N).mean(), expected)


if __name__ == "__main__":
    main()
