"""Coverage of the interval "likely x to y of the labels are wrong", whose nominal level is 95%.

    python benchmarks/interval.py                                         # simulated crowds
    python benchmarks/interval.py --asked                                 # the same after `pals update`
    python benchmarks/interval.py --trusted                               # the same after `pals update --trust`
    python benchmarks/interval.py IMAGES VOTES TRUTH --random 0 0.3333    # the closed form on random parts of real pictures

Prints a table in Markdown: the share of draws whose interval contains the real share of wrong labels, both shares and the width
of the interval, in per cent, and the share of the labels in which the answers alone and the fit with the images differ.
Labels known to be right do not count. Random parts of real images are disjoint as long as there are images.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from time import process_time

import numpy as np
import torch
from small_sets import add_feature_options, read, read_features, some_answers_at_random, subset

from crowd import CROWDS, Crowd, simulate
from pals.crowd import Fusion, closed_form, estimate_noise, fuse
from pals.readers import Votes

ASKED, EXPERT = 0.2, 0.9  # share of the items that are asked about again, the least sure ones; how often the answer is right

Draw = Callable[[int], tuple[Votes, np.ndarray, Fusion]]  # seed -> votes, truth, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, help="IMAGES VOTES TRUTH (default: simulated crowds)")
    parser.add_argument("--items", type=int, nargs="+", default=[300, 1500])
    parser.add_argument("--seeds", type=int, nargs="+", default=[40, 20], help="draws for each number of items")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--crowds", type=int, nargs="+", default=range(len(CROWDS)))
    further = parser.add_mutually_exclusive_group()
    further.add_argument("--asked", action="store_true", help="one more person answers for the least sure items")
    further.add_argument("--trusted", action="store_true", help="the right label of the least sure items becomes known")
    parser.add_argument("--random", type=float, nargs="+", default=[0.0], help="shares of the answers that are drawn at random")
    parser.add_argument("--pictures", type=int, nargs=2, help="the first of the real pictures to draw from, and the end")
    add_feature_options(parser)
    args = parser.parse_args()
    torch.set_num_threads(1)
    print("| answers | items | draws | held the truth | too high, too low | wrong | estimated | width | models differ | s |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for name, items, seeds, draw in real(args) if args.files else simulated(args):
        found = np.array([measure(*draw(args.first + seed), args.first + seed) for seed in range(seeds)])
        held, more, less, wrong, estimated, width, differ, seconds = found.mean(axis=0)
        print(
            f"| {name} | {items:,} | {seeds} | {held:.3f} | {more:.2f}, {less:.2f} | {100 * wrong:.2f} | {100 * estimated:.2f} "
            f"| {100 * width:.1f} | {100 * differ:.1f} | {seconds:.1f} |",
            flush=True,
        )


def measure(votes: Votes, truth_N: np.ndarray, fusion: Fusion, seed: int) -> tuple[float, ...]:
    start = process_time()
    noise, wrong = estimate_noise(fusion, seed), float((fusion.label_N != truth_N).mean())
    more, less = wrong < noise.low - 1e-9, wrong > noise.high + 1e-9
    shares = (wrong, noise.labels_wrong, noise.high - noise.low)
    return (not (more or less), more, less, *shares, noise.models_differ, process_time() - start)


def simulated(args: argparse.Namespace) -> Iterable[tuple[str, int, int, Draw]]:
    for items, seeds in zip(args.items, args.seeds, strict=True):
        for crowd in (CROWDS[number] for number in args.crowds):
            for opinion in (False, True):
                yield (
                    f"{crowd}, {'with an opinion' if opinion else 'alone'}",
                    items,
                    seeds,
                    lambda seed, crowd=crowd, items=items, opinion=opinion: of_crowd(crowd, items, seed, opinion, args),
                )


def of_crowd(crowd: Crowd, items: int, seed: int, opinion: bool, args: argparse.Namespace) -> tuple[Votes, np.ndarray, Fusion]:
    votes, truth_N, logits_NC = simulate(crowd, items, seed)
    opinions = [logits_NC] if opinion else []
    return with_more(votes, truth_N, lambda votes: fuse(votes, opinions), args, np.random.default_rng(seed))


def with_more(
    votes: Votes, truth_N: np.ndarray, fit: Callable[[Votes], Fusion], args: argparse.Namespace, rng: np.random.Generator
) -> tuple[Votes, np.ndarray, Fusion]:
    """Votes, truth and result; the latter after more was asked, if it was."""
    fusion = fit(votes)
    if not (args.asked or args.trusted):
        return votes, truth_N, fusion
    item_M = np.argsort(fusion.confidence_N, kind="stable")[: round(ASKED * len(truth_N))]
    votes = ask(votes, truth_N, item_M, rng) if args.asked else tell(votes, truth_N, item_M)
    return votes, truth_N, fit(votes)


def tell(votes: Votes, truth_N: np.ndarray, item_M: np.ndarray) -> Votes:
    """The votes with the right label of these items."""
    gold_I = votes.gold_I.copy()
    gold_I[item_M] = truth_N[item_M]
    return replace(votes, gold_I=gold_I)


def ask(votes: Votes, truth_N: np.ndarray, item_M: np.ndarray, rng: np.random.Generator) -> Votes:
    """The votes with the answers of one more person for these items."""
    label_M = np.where(
        rng.random(len(item_M)) < EXPERT, truth_N[item_M], rng.integers(len(votes.class_names), size=len(item_M))
    )
    return replace(
        votes,
        annotators=(*votes.annotators, "expert"),
        item_R=np.append(votes.item_R, item_M),
        annotator_R=np.append(votes.annotator_R, np.full(len(item_M), len(votes.annotators))),
        label_R=np.append(votes.label_R, label_M),
        answer_R=np.append(votes.answer_R, votes.answer_R.max() + 1 + np.arange(len(item_M))),
        weight_R=np.append(votes.weight_R, np.ones(len(item_M))),
        sure_R=np.append(votes.sure_R, np.ones(len(item_M), dtype=bool)),
        trusted_R=np.append(votes.trusted_R, np.zeros(len(item_M), dtype=bool)),
        rank_R=np.append(votes.rank_R, np.zeros(len(item_M), dtype=votes.rank_R.dtype)),
        **{
            name: np.append(getattr(votes, name), np.full(len(item_M), np.nan)) for name in ("time_R", "seconds_R", "percent_R")
        },
    )


def real(args: argparse.Namespace) -> Iterable[tuple[str, int, int, Draw]]:
    votes, truth_N = read(args.files[1], args.files[2])
    features_ND = read_features(args, votes.items)
    first, end = args.pictures or (0, len(truth_N))

    def draw(seed: int, items: int, share: float) -> tuple[Votes, np.ndarray, Fusion]:
        again, place = divmod(seed, (end - first) // items)
        order = first + np.random.default_rng([items, again]).permutation(end - first)
        chosen, rng = np.sort(order[place * items :][:items]), np.random.default_rng(seed)
        part = some_answers_at_random(subset(votes, chosen), share, rng)
        return with_more(part, truth_N[chosen], lambda votes: closed_form(votes, features_ND[chosen]), args, rng)

    for share in args.random:
        for items, seeds in zip(args.items, args.seeds, strict=True):
            yield f"{100 * share:.0f}% at random", items, seeds, lambda seed, items=items, share=share: draw(seed, items, share)


if __name__ == "__main__":
    main()
