"""How many answers the rule for asking again saves, and how good its forecast is, on pictures whose truth is known.

    python benchmarks/stopping.py IMAGES VOTES TRUTH --features FEATURES.npy --seeds 3

Prints tables in Markdown, in per cent of labels. Stop: where the rule says that all items have enough answers. Replay: labels
right by the rule and with everyone asked equally, and what the rule needs to be as right. Forecast: after a random part of the
answers, the labels right that further answers, asked for by the rule, are said to come to, and what they really come to.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from small_sets import add_feature_options, read, read_features

from pals.crowd import estimate_noise, fuse
from pals.crowd.answer_forecast import forecast
from pals.crowd.closed_form import Again, spectrum_of
from pals.crowd.next_answer import Source, as_sure_as, decide, standing_of, typical_person
from pals.crowd.replay_answers import Arrivals, Fit, by_the_rule
from pals.labels.candidates import Truth
from pals.pipeline.evaluate import Graded
from pals.readers import Votes
from pals.relabel.replay import EQUALLY, RULE, SAME, Replay, play

BEFORE = (1.5, 2.0)  # answers an item from which a forecast is made
PARTS = ["stop", "replay", "forecast"]
FURTHER = (250, 500, 1000)  # answers that it is made for


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
        kinds["pictures"] = lambda: Again(spectrum)
    for kind in args.kinds:
        if "stop" in args.parts:
            show_stop(kind, votes, truth_N, kinds[kind], args.seeds)
        if "replay" in args.parts:
            graded = Graded(np.arange(len(truth_N)), Truth.of(truth_N, votes.class_names), whole=True)
            show_replay(kind, play(votes, kinds[kind], graded, seeds=args.seeds, pictures=kind == "pictures"))
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


def show_replay(kind: str, found: Replay) -> None:
    print(f"\n### Replay, {kind}, {found.seeds} random orders\n")
    print("| asking | answers an item | right |\n|---|---:|---:|")
    for asking in (RULE, EQUALLY):
        for row in found.curve(asking).itertuples():
            print(f"| {asking} | {row.answers_an_item:.2f} | {100 * row.right:.2f} |")
    print(f"\nThe same, within {100 * SAME:g} points:\n")
    print("| everyone equally | right | by the rule | saved |\n|---:|---:|---:|---:|")
    for row in found.saved.itertuples():
        print(f"| {row.answers_an_item:.2f} | {100 * row.right:.2f} | {row.by_the_rule:.2f} | {100 * row.saved:.0f}% |")
    print("\n" + "\n".join(found.sentences), flush=True)


def show_forecast(kind: str, votes: Votes, truth_N: np.ndarray, new_fit: Callable[[], Fit], seeds: int) -> None:
    print(f"\n### Forecast, {kind}, {seeds} random orders\n")
    print("| answers an item before | further answers | right before | said to be | right after | forecast |")
    print("|---:|---:|---:|---:|---:|---:|")
    for before in BEFORE:
        rows = np.array([list(forecasts(votes, truth_N, new_fit(), before, seed)) for seed in range(seeds)]).mean(axis=0)
        for further, row in zip(FURTHER, rows, strict=True):
            print(f"| {before} | {further:,} | " + " | ".join(f"{100 * value:.2f}" for value in row) + " |", flush=True)


def forecasts(votes: Votes, truth_N: np.ndarray, fit: Fit, before: float, seed: int) -> Iterator[tuple[float, ...]]:
    """Labels right and what is said of them, before and after."""
    rng = np.random.default_rng(seed)
    arrivals = Arrivals(votes, rng)
    count_N = 1 + (rng.permutation(len(truth_N)) < (before - 1) * len(truth_N)).astype(int)
    part = arrivals.first(count_N)
    fusion = fit(part)
    said = 1 - estimate_noise(part, fusion, seed).labels_wrong
    standing = as_sure_as(standing_of(fusion), said, np.arange(len(truth_N)))
    person = typical_person(fusion.consensus.answers, fusion.consensus.annotators)
    once_N = np.minimum(arrivals.total_N - count_N, 1)
    crowd = Source("", 1.0, (person,), np.zeros(len(truth_N), dtype=int), once_N)
    order = np.argsort(-decide(standing, [crowd]).rate_N, kind="stable")
    for further in FURTHER:
        more_N = count_N.copy()
        more_N[order[:further]] += 1
        after = fit(arrivals.first(more_N))
        expected = forecast(standing, [crowd], further).right_K[-1]
        yield ((fusion.label_N == truth_N).mean(), said, (after.label_N == truth_N).mean(), expected)


if __name__ == "__main__":
    main()
