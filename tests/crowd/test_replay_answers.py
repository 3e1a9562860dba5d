"""Finished data played back: which answers have arrived when, and what the rule saves."""

from __future__ import annotations

import numpy as np
import pytest

from _crowd import simulated, votes_of
from pals.crowd import Fusion, fuse
from pals.crowd.replay_answers import Arrivals, by_the_rule, count_answers, everyone_equally
from pals.readers import Votes


class Recorder:
    """Estimates, and remembers from how many answers to each item."""

    def __init__(self) -> None:
        self.counts: list[np.ndarray] = []

    def __call__(self, votes: Votes) -> Fusion:
        self.counts.append(count_answers(votes))
        return fuse(votes, [], strength=30.0)


def test_answers_arrive_whole_and_in_another_order_each_time() -> None:
    """An answer with two labels is one; so is each of three to the same item."""
    votes = votes_of([(0, 0, 0), (0, 0, 1), (0, 1, 2), (1, 0, 1), (0, 2, 0)], 3, answer=[0, 0, 1, 2, 3])
    assert count_answers(votes).tolist() == [3, 1, 0]
    seen = set()
    for seed in range(20):
        part = Arrivals(votes, np.random.default_rng(seed)).first(np.array([1, 1, 0]))
        assert count_answers(part).tolist() == [1, 1, 0]
        seen.add(tuple(part.label_R[part.item_R == 0].tolist()))
    assert seen == {(0, 1), (2,), (0,)}
    whole = Arrivals(votes, np.random.default_rng(0)).first(np.array([9, 9, 9]))
    assert (whole.label_R == votes.label_R).all() and (whole.answer_R == votes.answer_R).all()


def test_steps_of_both_ways() -> None:
    votes, _ = simulated(60, [0.8] * 3, seed=1)
    rule, equal = Recorder(), Recorder()
    points = list(by_the_rule(votes, rule, step=0.5, second=0.1, worth=1.0))  # nothing is worth that
    assert [point.answers for point in points] == [66, 96, 126, 156, 180]
    assert rule.counts[0].min() == 1 and (rule.counts[0] == 2).sum() == 6 and rule.counts[-1].min() == 3
    assert all((after >= before).all() for before, after in zip(rule.counts, rule.counts[1:], strict=False))
    assert all(point.enough for point in points)
    assert (points[-1].fusion.label_N == fuse(votes, [], strength=30.0).label_N).all()
    assert [point.answers for point in everyone_equally(votes, equal, step=0.75)] == [60, 105, 150, 180]
    assert all(np.ptp(count) <= 1 for count in equal.counts)


def test_the_rule_asks_where_people_disagree() -> None:
    """Of items with two answers, those with two that differ get the third."""
    votes, truth_N = simulated(300, [0.8] * 3, classes=4, seed=2)
    record = Recorder()
    curve = {}
    for point in by_the_rule(votes, record, step=0.1, second=1.0):  # all have two to begin with
        curve[point.answers] = (point.fusion.label_N == truth_N).mean()
    split_N = np.ptp(votes.label_R.reshape(300, 3), axis=1) > 0
    asked_N = record.counts[3] == 3  # after three rounds
    assert split_N[asked_N].mean() > 0.9 > split_N.mean() + 0.2
    last = curve[900]
    assert max(right for answers, right in curve.items() if answers <= 750) >= last - 0.005  # a fifth was never needed


def test_the_rule_stops_before_the_answers_end() -> None:
    """People who are right for nineteen of twenty: two of them agree on most items, and a third is hardly ever worth it."""
    votes, _ = simulated(120, [0.95] * 4, classes=5, seed=6)
    points = list(by_the_rule(votes, Recorder(), step=0.5))
    stop = next(number for number, point in enumerate(points) if point.enough)
    assert points[stop].answers < 330 and all(point.enough for point in points[stop:])
    assert [b.answers - a.answers for a, b in zip(points[stop:-2], points[stop + 1 : -1], strict=True)] == [60] * (
        len(points) - stop - 2
    )
    assert points[-1].answers == 480


def test_the_same_seed_gives_the_same_replay() -> None:
    votes, _ = simulated(50, [0.7] * 3, seed=4)
    one, two, other = (
        [point.fusion.label_N.tolist() for point in by_the_rule(votes, Recorder(), step=1.0, seed=seed)] for seed in (0, 0, 1)
    )
    assert one == two != other


@pytest.mark.parametrize("answers", [[2, 1, 0, 3], [1, 1, 1, 1]])
def test_items_with_few_answers(answers: list[int]) -> None:
    rows = [(item, person, person % 2) for item, count in enumerate(answers) for person in range(count)]
    points = list(by_the_rule(votes_of(rows, 4, classes=2), Recorder(), step=0.25))
    assert points[-1].answers == sum(answers) and points[-1].enough
