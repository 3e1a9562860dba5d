"""Accuracy of labels for a few hundred images with answers: the closed form on frozen features, a majority vote, and Dawid and
Skene, on random subsets.

    python benchmarks/small_sets.py IMAGES VOTES TRUTH [--encoder efficientnet-lite0] [--items 100 300] [--random 0 0.33]
    python benchmarks/small_sets.py --look-alike CIFAR-100-FOLDER --out FOLDER

The first prints a table in Markdown; with --features FILE.npy the features are kept there and used again. The second writes
images of 20 similar classes of CIFAR-100 with the answers of simulated annotators, as input of the first.
"""

from __future__ import annotations

import argparse
import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from pals.crowd import Result, closed_form, dawid_skene, majority_vote
from pals.crowd.closed_form import solve
from pals.data.cifar import SUPERCLASSES, load_cifar100
from pals.labels.candidates import Truth
from pals.labels.metrics import accuracy_of
from pals.model import expected_calibration_error
from pals.pipeline.item_order import expected_benefit, spread_over_classes
from pals.pipeline.stages.learn import network_of, temperature_of
from pals.readers import Votes, read_votes
from pals.training.extract import ImagePaths, encode
from pals.vision.images.pixel_statistics import median_side
from pals.vision.pretrained import find_encoder

GROUPS = ("flowers", "trees", "medium_mammals", "large_carnivores")
ANSWERS = 5
SKILLS = (0.45, 0.55, 0.65, 0.75, 0.85, 0.9)  # of volunteers
TWO_LABELS, NOBODY_RIGHT = 0.15, 0.1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, help="IMAGES VOTES TRUTH")
    add_feature_options(parser)
    parser.add_argument("--items", type=int, nargs="+", default=[100, 300, 1000, 3000])
    parser.add_argument("--draws", type=int, nargs="+", default=[40, 20, 6, 3], help="random subsets of each size")
    parser.add_argument("--random", type=float, nargs="+", default=[0.0], help="shares of answers that are drawn at random")
    parser.add_argument("--asked", type=int, help="items that an expert is asked about, by the queue of `pals relabel`")
    parser.add_argument("--look-alike", type=Path)
    parser.add_argument("--pictures", type=int, default=2000, help="of the look-alike set")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if args.look_alike is not None:
        look_alike(args.look_alike, args.out, args.pictures)
        return
    votes, truth_N = read(args.files[1], args.files[2])
    features_ND = read_features(args, votes.items)
    if args.asked is None:
        table(args, votes, truth_N, features_ND)
    else:
        update_table(args, votes, truth_N, features_ND)


def read(votes_file: Path, truth_file: Path) -> tuple[Votes, np.ndarray]:
    with truth_file.open() as file:
        truth = {row["image"]: row["label"] for row in csv.DictReader(file)}
    votes = read_votes(votes_file, class_names=sorted(set(truth.values())))
    label_of = {name: number for number, name in enumerate(votes.class_names)}
    return votes, np.array([label_of[truth[item]] for item in votes.items])


def subset(votes: Votes, chosen: np.ndarray) -> Votes:
    """The votes about these items, in this order, and the people who gave them."""
    place_I = np.full(len(votes.items), -1)
    place_I[chosen] = np.arange(len(chosen))
    rows = np.flatnonzero(place_I[votes.item_R] >= 0)
    unknown = np.flatnonzero(place_I[votes.unknown_item_U] >= 0)
    named = np.concatenate([votes.annotator_R[rows], votes.unknown_annotator_U[unknown], [-1]])
    people, annotator = np.unique(named, return_inverse=True)
    return replace(
        votes.take(rows),
        items=tuple(votes.items[item] for item in chosen),
        annotators=tuple(votes.annotators[person] for person in people[1:]),
        item_R=place_I[votes.item_R[rows]],
        annotator_R=annotator[: len(rows)] - 1,
        gold_I=votes.gold_I[chosen],
        audit_I=votes.audit_I[chosen],
        unknown_item_U=place_I[votes.unknown_item_U[unknown]],
        unknown_annotator_U=annotator[len(rows) : -1] - 1,
    )


def add_feature_options(parser: argparse.ArgumentParser) -> None:
    """What `read_features` needs to know."""
    parser.add_argument("--encoder", default="efficientnet-lite0")
    parser.add_argument("--size", type=int, help="pixels a side (default: as the encoder chooses)")
    parser.add_argument("--features", type=Path)


def read_features(args: argparse.Namespace, items: tuple[str, ...]) -> torch.Tensor:
    if args.features is not None and args.features.exists():
        return torch.from_numpy(np.load(args.features))
    encoder, folder = find_encoder(args.encoder), args.files[0]
    if args.size is not None:
        encoder = replace(encoder, size=args.size)
    side = median_side(folder, items)
    features_ND = encode(ImagePaths([folder / item for item in items], side), encoder)
    if args.features is not None:
        np.save(args.features, features_ND.numpy())
    return features_ND


def table(args: argparse.Namespace, votes: Votes, truth_N: np.ndarray, features_ND: torch.Tensor) -> None:
    """The gain is over the better of majority and Dawid and Skene; predictions are for all pictures that were not drawn."""
    print_row("answers at random", "items", "draws", "majority", "Dawid, Skene", "closed form", "gain, mean", "gain, worst",
              "predictions right", "calibration error, mean", "worst")  # fmt: skip
    print("|" + 11 * "---:|")
    for share in args.random:
        for items, draws in zip(args.items, args.draws, strict=True):
            found = 100 * np.array([measure(votes, truth_N, features_ND, items, share, seed) for seed in range(draws)])
            gain_D, error_D = found[:, 2] - found[:, :2].max(axis=1), found[:, 4] / 100
            means = [f"{value:.1f}" for value in found[:, :4].mean(axis=0)]
            gains = f"{gain_D.mean():+.1f}", f"{gain_D.min():+.1f}"
            errors = f"{error_D.mean():.3f}", f"{error_D.max():.3f}"
            print_row(f"{share:.2f}", f"{items:,}", str(draws), *means[:3], *gains, means[3], *errors)


def print_row(*cells: str) -> None:
    print("|", " | ".join(cells), "|", flush=True)


def measure(
    votes: Votes, truth_N: np.ndarray, features_ND: torch.Tensor, items: int, share: float, seed: int
) -> tuple[float, float, float, float, float]:
    """Shares of right labels in a random subset: majority (ties by lot), Dawid and Skene, closed form; of right predictions for
    all other pictures, and their calibration error."""
    rng = np.random.default_rng(seed)
    chosen = np.sort(rng.choice(len(truth_N), items, replace=False))
    part, label_N = some_answers_at_random(subset(votes, chosen), share, rng), truth_N[chosen]
    majority = accuracy_of(majority_vote(part), Truth.of(label_N, votes.class_names))
    found = solve(part, features_ND[chosen])
    labels = [float((result.label_N == label_N).mean()) for result in (dawid_skene(part), found.fusion)]
    new = np.setdiff1d(np.arange(len(truth_N)), chosen)
    with torch.no_grad():
        said_MC = (network_of(found).eval()(features_ND[new]).logits / temperature_of(found)).softmax(dim=1)
    right_M = torch.from_numpy(truth_N[new])
    error = expected_calibration_error(said_MC, right_M)
    return majority, labels[0], labels[1], float((said_MC.argmax(dim=1) == right_M).double().mean()), error


def update_table(args: argparse.Namespace, votes: Votes, truth_N: np.ndarray, features_ND: torch.Tensor) -> None:
    """What the truth of the items that `pals relabel` asks for is worth: the same items beside a majority and a closed form."""
    print_row("answers at random", "items", "draws", "asked", "majority", "with the asked", "closed form", "updated",
              "gain, mean", "gain, worst")  # fmt: skip
    print("|" + 10 * "---:|")
    for share in args.random:
        for items, draws in zip(args.items, args.draws, strict=True):
            seeds = range(draws)
            found = 100 * np.array([ask(votes, truth_N, features_ND, items, share, seed, args.asked) for seed in seeds])
            gain_D = found[:, 3] - found[:, 1]
            means = [f"{value:.1f}" for value in found.mean(axis=0)]
            gains = f"{gain_D.mean():+.1f}", f"{gain_D.min():+.1f}"
            print_row(f"{share:.2f}", f"{items:,}", str(draws), str(args.asked), *means, *gains)


def ask(
    votes: Votes, truth_N: np.ndarray, features_ND: torch.Tensor, items: int, share: float, seed: int, asked: int
) -> tuple[float, float, float, float]:
    """Shares of right labels: majority, majority and the truth of the asked items, closed form, the same updated."""
    rng = np.random.default_rng(seed)
    chosen = np.sort(rng.choice(len(truth_N), items, replace=False))
    part, label_N = some_answers_at_random(subset(votes, chosen), share, rng), truth_N[chosen]
    truth, first = Truth.of(label_N, votes.class_names), closed_form(part, features_ND[chosen])
    result = Result(part, first.posterior_NC)
    agreement_N = np.nan_to_num(result.agreement_N)
    benefit_N = expected_benefit(result.confidence_N, result.answers_N, agreement_N)
    queue = spread_over_classes(benefit_N, result.label_N, asked)[:asked]
    gold_I = part.gold_I.copy()
    gold_I[queue] = label_N[queue]
    told = replace(part, gold_I=gold_I)
    second = closed_form(told, features_ND[chosen])
    assert (second.label_N[queue] == label_N[queue]).all()  # an expert is never overruled
    posteriors = majority_vote(part), majority_vote(told), first.posterior_NC, second.posterior_NC
    return tuple(accuracy_of(posterior_NC, truth) for posterior_NC in posteriors)  # type: ignore[return-value]


def some_answers_at_random(votes: Votes, share: float, rng: np.random.Generator) -> Votes:
    drawn_R = rng.random(len(votes.label_R)) < share
    label_R = np.where(drawn_R, rng.integers(len(votes.class_names), size=len(drawn_R)), votes.label_R)
    return replace(votes, label_R=label_R)


def look_alike(folder: Path, out: Path, count: int) -> None:
    """Pictures of four superclasses, `ANSWERS` answers each. Mistakes stay within the superclass; some answers name two labels;
    for a tenth of the images all answers are wrong, and most name the same label."""
    rng = np.random.default_rng(0)
    data = load_cifar100(folder)
    names = [name for group in GROUPS for name in SUPERCLASSES[group]]
    label_N = data.truth.label_N.numpy()  # type: ignore[union-attr]
    rows = np.flatnonzero(np.isin(label_N, [data.class_names.index(name) for name in names]))
    rows = np.sort(rng.choice(rows, count, replace=False))
    (out / "images").mkdir(parents=True, exist_ok=True)
    votes, truth = [], []
    for number, row in enumerate(rows):
        image, name = f"{number:05}.png", data.class_names[label_N[row]]
        Image.fromarray(data.train.inputs[row].permute(1, 2, 0).numpy()).save(out / "images" / image)
        truth.append((image, name))
        votes += [(image, who, said) for who, said in answers_to(name, rng)]
    for file, head, lines in (("votes.csv", ("image", "annotator", "label"), votes), ("truth.csv", ("image", "label"), truth)):
        with (out / file).open("w", newline="") as handle:
            csv.writer(handle).writerows([head, *lines])


def answers_to(name: str, rng: np.random.Generator) -> list[tuple[str, str]]:
    group = next(SUPERCLASSES[group] for group in GROUPS if name in SUPERCLASSES[group])
    others = [other for other in group if other != name]
    decoy = others[rng.integers(len(others))] if rng.random() < NOBODY_RIGHT else None
    found = []
    for person in rng.choice(5 * len(SKILLS), ANSWERS, replace=False):
        wrong = others[rng.integers(len(others))]
        right = rng.random() < SKILLS[person % len(SKILLS)]
        said = (name if right else wrong) if decoy is None else (decoy if right else wrong)
        second = others[rng.integers(len(others))]
        two = rng.random() < TWO_LABELS and second != said
        found.append((f"v{person:02}", f"{said}|{second}" if two else said))
    return found


if __name__ == "__main__":
    main()
