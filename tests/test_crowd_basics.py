"""What several people's answers come to: who errs, what a second witness adds, what is doubtful, what is still wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from pals.crowd import (
    Result,
    annotators_table,
    approximate_accuracy,
    arguing_neighbors,
    classes_table,
    confusion_table,
    covering_rate,
    csv_text,
    dawid_skene,
    doubtful_table,
    estimate_noise,
    fuse,
    labels_table,
    leave_one_out,
    majority_vote,
    rank_doubts,
)
from pals.errors import InputError
from pals.readers import Votes, read_votes

Make = Callable[..., tuple[Votes, np.ndarray]]
NAMES = ("newt", "frog", "toad")


@pytest.fixture
def crowd(tmp_path: Path) -> Make:
    """`crowd(items, skills)`: simulated people, each right with their skill and else saying anything; and the truth."""

    def make(items: int, skills: dict[str, float], seed: int = 0, swap: str = "", extra: str = "") -> tuple[Votes, np.ndarray]:
        rng = np.random.default_rng(seed)
        truth_N = rng.integers(3, size=items)
        lines = ["item,worker,label,is_gold"]
        for item, label in enumerate(truth_N):
            for person, skill in skills.items():
                said = label if rng.random() < skill else rng.integers(3)
                if person == swap:
                    said = (1, 0, 2)[said]
                lines.append(f"{item:05d},{person},{NAMES[said]},")
        path = tmp_path / "votes.csv"
        path.write_text("\n".join(lines) + "\n" + extra)
        return read_votes(path, class_names=NAMES), truth_N

    return make


def test_majority_by_hand(tmp_path: Path) -> None:
    (tmp_path / "v.csv").write_text("item,worker,label\na,x,newt\na,y,newt\na,z,frog\nb,x,newt|frog\nb,y,frog\n")
    votes = read_votes(tmp_path / "v.csv", class_names=NAMES)
    np.testing.assert_allclose(majority_vote(votes), [[2 / 3, 1 / 3, 0], [1 / 4, 3 / 4, 0]])


def test_dawid_and_skene_against_a_slow_loop(crowd: Make) -> None:
    """With next to no prior and no hard items it is the model as published: every equation in turn, in loops."""
    votes, _ = crowd(60, {"ann": 0.9, "bob": 0.7, "cho": 0.6})
    found = dawid_skene(votes, strength=1e-6, tolerance=1e-9, iterations=500)
    items, classes, people = 60, 3, 3
    posterior = found.posterior_NC
    confusion = np.full((people, classes, classes), 1e-12)
    for row in range(len(votes.item_R)):
        confusion[votes.worker_R[row], :, votes.label_R[row]] += posterior[votes.item_R[row]]
    confusion /= confusion.sum(axis=2, keepdims=True)
    prior = posterior.mean(axis=0)
    again = np.empty_like(posterior)
    for item in range(items):
        chance = prior.copy()
        for row in np.flatnonzero(votes.item_R == item):
            chance *= confusion[votes.worker_R[row], :, votes.label_R[row]]
        again[item] = chance / chance.sum()
    np.testing.assert_allclose(again, posterior, atol=0.02)  # a fixed point, up to the small prior of the classes


def test_knowing_who_errs_beats_counting(crowd: Make) -> None:
    votes, truth_N = crowd(600, {"ann": 0.95, "bob": 0.3, "cho": 0.3, "dan": 0.3})
    by_count = (majority_vote(votes).argmax(axis=1) == truth_N).mean()
    by_model = (dawid_skene(votes).label_N == truth_N).mean()
    assert by_model > by_count + 0.1


def test_somebody_who_swaps_two_classes_is_worth_as_much(crowd: Make) -> None:
    skills = {"ann": 0.8, "bob": 0.8, "cho": 0.8, "dan": 0.9}
    votes, truth_N = crowd(900, skills, swap="dan")
    found = dawid_skene(votes)
    assert (found.label_N == truth_N).mean() > (majority_vote(votes).argmax(axis=1) == truth_N).mean()
    dan = found.confusion_WCC[votes.workers.index("dan")]
    assert dan[0].argmax() == 1
    assert dan[1].argmax() == 0


def test_one_label_for_everything_says_nothing(crowd: Make, tmp_path: Path) -> None:
    votes, _ = crowd(300, {"ann": 0.8, "bob": 0.8})
    spam = votes.to_frame()
    spam = spam.assign(worker="spam", label="toad").drop_duplicates("item")
    pd.concat([votes.to_frame(), spam]).to_csv(tmp_path / "both.csv", index=False)
    both = read_votes(tmp_path / "both.csv", class_names=NAMES)
    agreed = (dawid_skene(both).label_N == dawid_skene(votes).label_N).mean()
    assert agreed > 0.97
    table = annotators_table(Result(both, dawid_skene(both).posterior_NC)).set_index("worker")
    assert abs(table.loc["spam", "above_chance"]) < 0.1
    assert table.loc["ann", "above_chance"] > 0.6


def test_gold_is_certain_and_items_without_answers_have_the_usual_shares(crowd: Make) -> None:
    votes, _ = crowd(50, {"ann": 0.8, "bob": 0.8}, extra="00003,,toad,1\nnew,,newt,1\n")
    found = dawid_skene(votes)
    place = votes.items.index("00003")
    assert found.posterior_NC[place].tolist() == [0.0, 0.0, 1.0]
    assert labels_table(Result(votes, found.posterior_NC))["status"][place] == "gold"


def test_a_second_witness_helps_and_a_useless_one_does_no_harm(crowd: Make) -> None:
    votes, truth_N = crowd(800, {"ann": 0.6, "bob": 0.6, "cho": 0.6})
    rng = np.random.default_rng(1)
    alone = (fuse(votes, []).label_N == truth_N).mean()
    good = 1.5 * np.eye(3)[truth_N] + rng.normal(size=(800, 3))
    helped = fuse(votes, [good])
    assert (helped.label_N == truth_N).mean() > alone + 0.03
    assert helped.calibration is not None
    useless = fuse(votes, [rng.normal(size=(800, 3))])
    assert (useless.label_N == truth_N).mean() > alone - 0.01
    scaled = fuse(votes, [1000 * good])  # the scale of an opinion is learned
    assert (scaled.label_N == helped.label_N).mean() > 0.99
    np.testing.assert_allclose(helped.posterior_NC.sum(axis=1), 1)


def test_confidence_is_about_right(crowd: Make) -> None:
    votes, truth_N = crowd(3000, {"ann": 0.7, "bob": 0.6, "cho": 0.65})
    fusion = fuse(votes, [])
    right = (fusion.label_N == truth_N).mean()
    assert fusion.confidence_N.mean() == pytest.approx(right, abs=0.03)
    noise = estimate_noise(votes, fusion)
    assert noise.low <= noise.labels_wrong <= noise.high
    assert noise.labels_wrong == pytest.approx(1 - right, abs=0.03)
    wrong_answers = (votes.label_R != truth_N[votes.item_R]).mean()
    assert noise.answers_wrong == pytest.approx(wrong_answers, abs=0.03)


def test_leaving_one_out_against_really_leaving_it_out() -> None:
    """The formula gives what a regression on all other items predicts."""
    rng = np.random.default_rng(0)
    features_ND = torch.from_numpy(rng.normal(size=(30, 4))).float()
    target_NC = rng.dirichlet(np.ones(3), size=30)
    known_N = np.ones(30, dtype=bool)
    known_N[27:] = False
    found = leave_one_out(features_ND, target_NC, generator=torch.Generator().manual_seed(0), known_N=known_N, penalty=0.3)
    x = (features_ND - features_ND.mean(dim=0)).double()
    square = (x[:, None] - x).square().sum(dim=2)
    pairs = torch.triu_indices(30, 30, offset=1)
    spread = torch.Generator().manual_seed(0)
    order = torch.randperm(30, generator=spread)
    median = square[order][:, order][pairs[0], pairs[1]].median()
    kernel = torch.exp(-square / median)
    mean_C = target_NC[known_N].mean(axis=0)
    for item in (0, 13, 28):
        others = [i for i in range(30) if i != item and known_N[i]]
        gram = kernel[others][:, others] + 0.3 * torch.eye(len(others), dtype=torch.float64)
        weight = torch.linalg.solve(gram, torch.from_numpy(target_NC[others] - mean_C))
        expected = mean_C + (kernel[item, others] @ weight).numpy()
        np.testing.assert_allclose(found[item], expected, atol=1e-3)


def test_tables_of_a_small_case(tmp_path: Path) -> None:
    (tmp_path / "v.csv").write_text("item,worker,label\na,x,newt\na,y,newt\na,z,frog\nb,x,frog\nb,y,toad\nc,x,newt\nc,y,newt\n")
    votes = read_votes(tmp_path / "v.csv", class_names=NAMES)
    posterior = np.array([[0.97, 0.02, 0.01], [0.1, 0.2, 0.7], [0.1, 0.85, 0.05]])
    result = Result(votes, posterior)
    labels = labels_table(result)
    assert labels["label"].tolist() == ["newt", "toad", "frog"]
    assert labels["status"].tolist() == ["agreed", "tie-broken", "corrected"]
    assert labels["in_votes"].tolist() == [True, True, False]
    assert labels["agreement"].tolist() == pytest.approx([2 / 3, 1 / 2, 0], abs=1e-6)
    doubts = rank_doubts(result)
    near = np.array([[2, 1], [0, 2], [1, 0]])
    table = doubtful_table(result, doubts, arguing_neighbors(result, doubts, near, np.full((3, 2), 0.5)))
    assert table[["item", "worker", "answer", "suggestion"]].to_numpy().tolist() == [
        ["a", "z", "frog", "newt"],
        ["c", "x", "newt", "frog"],
        ["c", "y", "newt", "frog"],
        ["b", "x", "frog", "toad"],
    ]
    assert table["others"].tolist() == ["newt x2", "newt", "newt", "toad"]
    assert confusion_table(result)["count"].sum() == 7
    assert classes_table(result).set_index("class").loc["frog", "corrected"] == 1
    assert annotators_table(result).set_index("worker").loc["z", "confused"] == "newt -> frog 1 of 1"
    assert csv_text(labels).splitlines()[1] == "a,newt,0.97,3,0.666667,true,agreed"


def test_everybody_agrees_and_one_person_alone(crowd: Make) -> None:
    votes, truth_N = crowd(40, {"ann": 1.0, "bob": 1.0})
    fusion = fuse(votes, [])
    assert (fusion.label_N == truth_N).all()
    assert not len(rank_doubts(Result(votes, fusion.posterior_NC)).answer_M)
    single, truth_N = crowd(40, {"ann": 0.9})
    assert len(fuse(single, []).label_N) == 40
    assert np.isfinite(estimate_noise(single, fuse(single, [])).labels_wrong)


def test_the_two_criteria_by_hand() -> None:
    probability = np.array([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.2, 0.2, 0.6]])
    allowed = np.array([[1, 1, 0], [1, 0, 1], [0, 0, 1]], dtype=bool)
    assert covering_rate(probability, allowed) == pytest.approx(2 / 3)
    assert approximate_accuracy(probability, allowed) == pytest.approx((0.6 / 0.9 + 0 + 1) / 3)
    with pytest.raises(InputError, match="do not belong together"):
        covering_rate(probability, allowed[:2])
