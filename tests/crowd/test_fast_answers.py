"""How long people take for an answer, and who is flagged for it: fast clickers, neither fast experts nor anybody honest."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from _crowd import Row, votes_of
from pals.crowd import Result, majority_vote
from pals.crowd.annotator_flags import WORSE, among_others, pace
from pals.pipeline.tables.flag_columns import fast
from pals.pipeline.tables.result_tables import annotators_table
from pals.readers import Votes

CLASSES, PEOPLE = 5, 10
NIGHT = 40_000.0


def crowd(seed: int, *, skill: float | None = None, speed: float = 1.0, items: int = 300, spread: float = 0.5) -> Votes:
    """Four answers an item, each by another person. People look at each item for a time that is lognormal around their own
    median, itself lognormal around eight seconds; once everybody sleeps. The first person is right as often as
    `skill` says, where given, and takes `speed` as long as everybody on average."""
    rng = np.random.default_rng(seed)
    truth_N = rng.integers(CLASSES, size=items)
    skill_W = rng.uniform(0.6, 0.95, size=PEOPLE)
    seconds_W = 8 * rng.lognormal(sigma=spread, size=PEOPLE)
    if skill is not None:
        skill_W[0], seconds_W[0] = skill, 8 * speed
    clock_W, rows, times = rng.uniform(0, 1e4, size=PEOPLE), list[Row](), []
    for item, label in enumerate(truth_N.tolist()):
        clock_W += NIGHT if item == items // 10 else 0
        for person in rng.choice(PEOPLE, 4, replace=False).tolist():
            clock_W[person] += seconds_W[person] * rng.lognormal(sigma=0.7)
            looks = rng.random() < skill_W[person]
            rows.append((item, person, label if looks else int(rng.integers(CLASSES))))
            times.append(clock_W[person])
    return votes_of(rows, items, CLASSES, times=times)


def flagged(votes: Votes) -> np.ndarray:
    return pace(votes).fast_W & among_others(votes).below(WORSE)


@pytest.mark.slow
def test_honest_people_of_any_pace_are_left_in_peace() -> None:
    """A hundred crowds, a thousand people: some are fast, nobody is flagged."""
    crowds = [crowd(seed) for seed in range(100)]
    assert sum(pace(votes).fast_W.sum() for votes in crowds) > 0
    assert sum(flagged(votes).sum() for votes in crowds) == 0


@pytest.mark.parametrize(("skill", "expected"), [(0.0, 10), (0.3, 10), (0.95, 0)])
def test_a_fast_clicker_is_found_and_a_fast_expert_is_not(skill: float, expected: int) -> None:
    found = np.array([flagged(crowd(100 + seed, skill=skill, speed=0.1, items=500)) for seed in range(10)])
    assert found[:, 0].sum() == expected and found[:, 1:].sum() == 0


def test_seconds_by_hand() -> None:
    """w0: 10 s, then two answers together after 6 s (3 s each), a pause, 4 s: median of 3, 3, 4, 10. w1 answers once, w2 with
    two labels 5 s after another answer; nobody is named for the last."""
    rows = [
        (0, 0, 0),
        (1, 0, 0),
        (2, 0, 0),
        (3, 0, 0),
        (4, 0, 0),
        (5, 0, 0),
        (0, 1, 0),
        (0, 2, 0),
        (1, 2, 0),
        (1, 2, 1),
        (0, -1, 0),
    ]
    times = [100, 110, 116, 116, 1000, 1004, 50, 200, 204, 205, 1]
    found = pace(votes_of(rows, 6, answer=[0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 9], times=times))
    assert found.answers_W.tolist() == [4, 0, 1]
    np.testing.assert_array_equal(found.seconds_W, [3.5, np.nan, 5])
    assert np.isnan(found.others_W).all() and not found.fast_W.any()


def test_the_seconds_that_an_answer_took_go_before_the_time_between_answers() -> None:
    """Of the first person all are known, the pause of an hour among them; of the second one; of the third none."""
    rows = [(item, person, 0) for person in range(3) for item in range(4)]
    seconds = [2.0, 3600.0, 4.0, 7.0, np.nan, np.nan, 1.0, np.nan, *[np.nan] * 4]
    times = [*[np.nan] * 4, 10, 20, 30, 45, 10, 20, 30, 40]
    found = pace(votes_of(rows, 4, times=times, seconds=seconds))
    assert found.answers_W.tolist() == [3, 3, 3]
    np.testing.assert_array_equal(found.seconds_W, [4, 10, 10])
    several = votes_of([(0, 0, 0), (0, 0, 1), (1, 0, 0)], 2, answer=[0, 0, 1], seconds=[3, 3, 9])
    assert pace(several).answers_W.tolist() == [2] and pace(several).seconds_W.tolist() == [6]


def test_few_answers_and_few_people_flag_nobody() -> None:
    def gaps(people: int, answers: int) -> np.ndarray:
        rows = [(item, person, 0) for person in range(people) for item in range(answers)]
        return pace(votes_of(rows, answers, times=[(9 if person else 1) * item for item, person, _ in rows])).fast_W

    assert gaps(3, 21).tolist() == [True, False, False]
    assert not gaps(2, 21).any() and not gaps(3, 20).any()


def test_evidence_and_table() -> None:
    votes = crowd(100, skill=0.0, speed=0.1)
    result = Result(votes, majority_vote(votes))
    seconds_W, others = pace(votes).seconds_W, pace(votes).others_W[0]
    (words,) = fast(result).values()
    assert words == f"a median of {seconds_W[0]:.2f} s per answer, others {others:.1f} s"
    table = annotators_table(result)
    assert table["evidence"][0].count("agrees with others") == 1  # said of chance
    some = crowd(100, skill=0.3, speed=0.1)
    (apart,) = fast(Result(some, majority_vote(some))).values()
    assert re.match(r"a median of .* s, and agrees with others \d\d% of 116 times", apart)
    assert "fast" in table["flags"][0] and table["annotator"][0] == "w0" and words in table["evidence"][0]
    assert table.set_index("annotator")["seconds"].to_dict() == pytest.approx(
        {f"w{w}": seconds_W[w] for w in range(PEOPLE)}, abs=1e-3
    )
    untimed = replace(result, votes=replace(votes, time_R=np.empty(0)))
    assert fast(untimed) == {}
    assert annotators_table(untimed).columns.tolist() == [name for name in table if name != "seconds"]
