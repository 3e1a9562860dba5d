"""The interval in which the share of wrong labels lies."""

from __future__ import annotations

import importlib
import sys
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from _crowd import Row, many_people, rows_of, simulated, votes_of
from pals.crowd import Fusion, NoiseEstimate, closed_form, error_estimate, estimate_noise, fuse
from pals.crowd.answers import Answers, subset
from pals.crowd.gibbs import Shares
from pals.pipeline.summary import still_wrong
from pals.readers import Votes

ROOT = Path(__file__).parents[2]
WEAK = (2.5, 1.5)  # right for 62%


def holds(noise: NoiseEstimate, fusion: Fusion, truth_N: np.ndarray) -> bool:
    return noise.low <= float((fusion.label_N != truth_N).mean()) <= noise.high


def misled_people(items: int) -> tuple[Votes, np.ndarray, np.ndarray]:
    """Some items look like another class, to people and to the classifier."""
    rng = np.random.default_rng(0)
    truth_N = rng.integers(5, size=items)
    alike_N = np.where(rng.random(items) < 0.25, (truth_N + 1) % 5, truth_N)
    said_NW = np.where(rng.random((items, 3)) < 0.6, alike_N[:, None], truth_N[:, None])
    said_NW = np.where(rng.random((items, 3)) < 0.1, rng.integers(5, size=(items, 3)), said_NW)
    rows = [(item, person, int(said_NW[item, person])) for item in range(items) for person in range(3)]
    logits_NC = 2 * np.eye(5)[truth_N] + np.eye(5)[alike_N] + rng.normal(size=(items, 5))
    return votes_of(rows, items, 5), truth_N, logits_NC


@pytest.mark.slow
def test_many_weak_people() -> None:
    """Of each person there are five answers; to believe in what was estimated from them held the truth in one case of six."""
    held = []
    for seed in range(8):
        votes, truth_N = many_people(300, 180, 10, seed, WEAK)
        fusion = fuse(votes, [])
        held.append(holds(estimate_noise(votes, fusion), fusion, truth_N))
    assert sum(held) >= 6


@pytest.mark.slow
def test_after_an_update_it_is_not_too_sure() -> None:
    """Somebody else answers for the items that were least sure."""
    held = []
    for seed in range(4):
        votes, truth_N = many_people(300, 18, 10, seed)
        rng, least_M = np.random.default_rng(seed), fuse(votes, []).confidence_N.argsort(kind="stable")[:60]
        said_M = np.where(rng.random(60) < 0.9, truth_N[least_M], rng.integers(10, size=60))
        rows = [*rows_of(votes), *((int(item), 18, int(label)) for item, label in zip(least_M, said_M, strict=True))]
        asked = votes_of(rows, 300, 10)
        fusion = fuse(asked, [])
        held.append(holds(estimate_noise(asked, fusion), fusion, truth_N))
    assert sum(held) >= 3


def test_after_an_expert_it_is_not_too_sure() -> None:
    """Whom experts are asked about people disagree on. Without those items people would seem to be right whenever they agree,
    and the labels of the others much surer than before."""
    votes, truth_N, logits_NC = misled_people(400)
    before = fuse(votes, [logits_NC])
    least_M = before.confidence_N.argsort(kind="stable")[:60]
    told = replace(votes, gold_I=np.where(np.isin(np.arange(400), least_M), truth_N, -1))
    after = fuse(told, [logits_NC])
    rest = np.setdiff1d(np.arange(400), least_M)
    assert after.correlation == pytest.approx(before.correlation, abs=0.1)
    assert after.correlation > 0.5 * before.correlation > 0.05
    assert (1 - after.confidence_N[rest]).mean() > 0.5 * (1 - before.confidence_N[rest]).mean()
    noise, earlier = estimate_noise(told, after), estimate_noise(votes, before)
    assert noise.labels_wrong > 0.01
    assert noise.labels_wrong > 0.4 * (after.label_N != truth_N).mean()  # from the other items alone: a fifth of it
    assert noise.answers_wrong == pytest.approx(earlier.answers_wrong, abs=0.03)  # the same answers


@pytest.mark.parametrize("trusted", [False, True])
def test_an_earlier_result_is_compared_by_the_same_estimate(trusted: bool) -> None:
    """Its own estimate was lower than what was still wrong after the expert: labels that got better seemed to get worse."""
    votes, truth_N, _ = misled_people(400)
    before = fuse(votes, [])
    least_M = before.confidence_N.argsort(kind="stable")[:60]
    if trusted:
        more = replace(votes, gold_I=np.where(np.isin(np.arange(400), least_M), truth_N, -1))
    else:
        more = votes_of([*rows_of(votes), *((int(item), 3, int(truth_N[item])) for item in least_M)], 400, 5)
    after = fuse(more, [])
    wrong_before, wrong_after = ((found.label_N != truth_N).mean() for found in (before, after))
    assert wrong_before > wrong_after + 0.01
    noise = estimate_noise(more, after, earlier_N=before.label_N)
    assert noise.earlier is not None and noise.earlier[1] <= noise.earlier[0] <= noise.earlier[2]
    assert noise.earlier[0] - noise.labels_wrong == pytest.approx(wrong_before - wrong_after, abs=0.03)
    assert noise.earlier[0] > noise.labels_wrong
    same = estimate_noise(more, after, earlier_N=np.where(np.arange(400) < 200, -1, after.label_N))
    assert same.earlier == (same.labels_wrong, same.low, same.high)
    assert replace(same, earlier=None) == estimate_noise(more, after)  # the draws are the same


def test_with_gold_alone_shares_are_known() -> None:
    votes, truth_N = simulated(30, [0.8, 0.7])
    told = replace(votes, gold_I=truth_N)
    earlier = estimate_noise(told, fuse(told, []), earlier_N=np.where(np.arange(30) < 3, (truth_N + 1) % 2, truth_N)).earlier
    assert earlier == (0.1, 0.1, 0.1)
    noise = estimate_noise(replace(votes, gold_I=truth_N), fuse(replace(votes, gold_I=truth_N), []))
    wrong = np.mean([truth_N[item] != label for item, _, label in rows_of(votes)])
    assert (noise.answers_wrong, noise.labels_wrong, noise.high) == (pytest.approx(wrong), 0, 0)


def test_a_part_holds_an_item_without_gold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nearly all have a gold label, a part at random may have nothing that could be wrong."""
    votes, truth_N = simulated(200, [0.8, 0.7, 0.6])
    told = replace(votes, gold_I=np.where(np.arange(200) == 117, -1, truth_N))
    monkeypatch.setattr(error_estimate, "LARGEST", 60)
    noise = estimate_noise(told, fuse(told, []))
    assert 0 <= noise.low <= noise.labels_wrong <= noise.high <= 1 / 200


def test_gold_labels_of_single_answers_show_how_far_the_opinion_repeats_them() -> None:
    """Nobody else answered; a gold label is a second answer to predict."""
    votes, truth_N, logits_NC = misled_people(400)
    first = [row for row in rows_of(votes) if row[1] == 0]
    correlations = [
        fuse(votes_of(first, 400, 5, gold=gold), [logits_NC]).correlation
        for gold in ({}, {item: int(truth_N[item]) for item in range(200)})
    ]
    assert correlations[0] < 0.01 < correlations[1]


@pytest.mark.parametrize("more", ["asked", "trusted"])
def test_the_benchmark_asks_for_more(more: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    interval = importlib.import_module("interval")
    monkeypatch.delitem(sys.modules, "interval")
    args = Namespace(asked=more == "asked", trusted=more == "trusted")
    votes, truth_N, fusion = interval.of_crowd(interval.CROWDS[4], 40, 0, False, args)
    told = np.flatnonzero(votes.gold_I >= 0)
    assert (len(votes.item_R), len(told)) == ((128, 0) if args.asked else (120, 8))
    assert (fusion.label_N[told] == truth_N[told]).all()


def test_the_label_is_drawn() -> None:
    """With one person there is nobody to compare with; chance alone makes the interval wider than a tenth of the estimate."""
    votes, _ = simulated(100, [0.8])
    noise = estimate_noise(votes, fuse(votes, []))
    assert noise.high - noise.low > 0.1 * noise.labels_wrong > 0


def test_the_same_seed_gives_the_same_interval() -> None:
    votes, _ = simulated(60, [0.8, 0.7, 0.9])
    fusion = fuse(votes, [])
    assert (
        estimate_noise(votes, fusion, seed=3) == estimate_noise(votes, fusion, seed=3) != estimate_noise(votes, fusion, seed=4)
    )


@settings(max_examples=6, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-1, 3), st.integers(0, 2)), max_size=30), st.booleans())
def test_whatever_people_say_it_is_an_interval(rows: list[Row], gold: bool) -> None:
    votes = votes_of(rows, 6, gold={2: 1} if gold else None)
    noise = estimate_noise(votes, fuse(votes, [np.linspace(-1, 1, 18).reshape(6, 3)]))
    assert 0 <= noise.low <= noise.labels_wrong <= noise.high <= 1


def test_answers_with_several_labels() -> None:
    """Everybody names the right label and any other: the label that they share is right."""
    rng = np.random.default_rng(0)
    truth_N, rows, answer = rng.integers(8, size=200), [], []
    for item, label in enumerate(truth_N):
        for person in range(3):
            other = (label + rng.integers(1, 8)) % 8
            rows += [(item, person, int(label)), (item, person, int(other))]
            answer += [3 * item + person] * 2
    votes = votes_of(rows, 200, 8, answer=answer)
    fusion = fuse(votes, [])
    noise = estimate_noise(votes, fusion)
    assert holds(noise, fusion, truth_N)
    assert noise.high < 0.1


def test_of_one_answer_an_item_answers_are_as_wrong_as_labels() -> None:
    """It was 4% of the answers and 35% of the labels, which are the answers."""
    votes = votes_of([(item, item % 2, item % 3 % 2) for item in range(60)], 60, 2)
    noise = estimate_noise(votes, fuse(votes, []))
    assert noise.answers_wrong == pytest.approx(noise.labels_wrong, abs=0.1)  # of a few the label is another


def test_answers_that_name_several_labels_are_right_with_one() -> None:
    votes, truth_N = simulated(200, [0.9, 0.9, 0.9], seed=3)
    rows = [row for item, who, label in rows_of(votes) for row in ((item, who, label), (item, who, (label + 1) % 3))]
    both = votes_of(rows, 200, answer=np.arange(len(rows)).__floordiv__(2).tolist())
    right = np.mean([truth_N[item] in (label, (label + 1) % 3) for item, _, label in rows_of(votes)])
    assert estimate_noise(both, fuse(both, [])).answers_wrong == pytest.approx(1 - right, abs=0.06)


def test_of_many_items_a_part_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    votes, truth_N = many_people(2000, 60, 5, 0)
    fusion = fuse(votes, [])
    drawn, sizes = error_estimate.wrong_shares, []

    def draw(answers: Answers, *rest: Any) -> Shares:
        sizes.append(answers.num_items)
        return drawn(answers, *rest)

    monkeypatch.setattr(error_estimate, "LARGEST", 9000)
    monkeypatch.setattr(error_estimate, "wrong_shares", draw)
    noise = estimate_noise(votes, fusion)
    assert sizes == [600]
    assert noise.labels_wrong == pytest.approx((fusion.label_N != truth_N).mean(), abs=0.04)
    assert 0.01 < noise.high - noise.low < 0.08


def test_a_part_of_the_votes() -> None:
    votes = votes_of([(0, 0, 1), (1, 2, 0), (2, -1, 2), (2, 2, 2), (3, 1, 0)], 4, gold={2: 1})
    part = subset(votes, np.array([2, 1]))
    assert (part.items, part.annotators) == (("i2", "i1"), ("w2",))
    assert rows_of(part) == [(1, 0, 0), (0, -1, 2), (0, 0, 2)]
    assert part.gold_I.tolist() == [1, -1]


# ---- people against the classifier


def test_people_and_classifier_that_contradict_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one draw in common: the labels by the answers alone look good to the answers, and bad with the opinion."""
    votes, truth_N = simulated(100, [0.8, 0.75, 0.7])
    fusion = fuse(votes, [3 * np.eye(3)[truth_N] + np.random.default_rng(0).normal(size=(100, 3))])

    def draw(
        answers: object, log_opinion_NC: np.ndarray | None, start: object, labels: list[np.ndarray], *rest: object
    ) -> Shares:
        share_VS = np.tile(np.linspace(0.0, 0.1, 9) + (0.2 if log_opinion_NC is not None else 0.0), (len(labels), 1))
        return Shares(share_VS, share_VS, share_VS[0])

    monkeypatch.setattr(error_estimate, "wrong_shares", draw)
    assert estimate_noise(votes, fusion).disagreement == pytest.approx((0.05, 0.25))
    told = replace(votes, gold_I=np.where(np.arange(100) < 20, truth_N, -1))  # asked for where the two contradict each other
    assert estimate_noise(told, fuse(told, [np.eye(3)[truth_N]])).disagreement is None


def test_people_and_classifier_in_harmony() -> None:
    votes, truth_N = simulated(600, [0.8, 0.75, 0.7], classes=5)
    score_NC = 3 * np.eye(5)[truth_N] + np.random.default_rng(0).normal(size=(600, 5))
    fusion = fuse(votes, [score_NC])
    assert fusion.calibration is not None
    assert estimate_noise(votes, fusion).disagreement is None


def test_a_contradiction_is_said() -> None:
    quiet = NoiseEstimate(0.2, 0.05, 0.03, 0.08)
    loud = still_wrong(replace(quiet, disagreement=(0.02, 0.31)))
    assert loud.startswith(still_wrong(quiet))
    assert "2.0%" in loud
    assert "31.0%" in loud
    assert "contradict" not in still_wrong(quiet)


def test_the_closed_form_has_the_same_interval() -> None:
    torch = pytest.importorskip("torch")
    votes, truth_N = many_people(200, 6, 4, 0)
    features_ND = torch.from_numpy(np.eye(4)[truth_N] + 0.4 * np.random.default_rng(0).normal(size=(200, 4)))
    fusion = closed_form(votes, features_ND)
    assert fusion.calibration is not None
    assert holds(estimate_noise(votes, fusion), fusion, truth_N)


def test_of_many_classes_the_opinion_is_not_believed_more_and_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three items a class: classes that are drawn by the opinion teach that it is right."""
    monkeypatch.setattr("pals.crowd.error_estimate.SWEEPS", 60)
    monkeypatch.setattr("pals.crowd.error_estimate.COMPARED", 2)
    rng, items, classes = np.random.default_rng(0), 180, 60
    truth_N, branch_C = rng.integers(classes, size=items), np.arange(classes) // 5
    rows = []
    for item, truth in enumerate(truth_N.tolist()):
        for person in rng.choice(20, 3, replace=False).tolist():
            mistake = rng.choice(np.flatnonzero(branch_C == branch_C[truth])) if rng.random() < 0.85 else rng.integers(classes)
            rows.append((item, person, truth if rng.random() < 0.6 else int(mistake)))
    look_CD = rng.normal(size=(12, 32))[branch_C] + 0.7 * rng.normal(size=(classes, 32))
    features_ND = torch.from_numpy(look_CD[truth_N] + 1.5 * rng.normal(size=(items, 32))).float()
    votes = votes_of(rows, items, classes)
    found = closed_form(votes, features_ND)
    noise = estimate_noise(votes, found)
    assert abs(noise.labels_wrong - (found.label_N != truth_N).mean()) < 0.05
