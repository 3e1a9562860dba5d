"""Items whose class is missing from the list: found, told apart from what is just hard, and put into groups."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score

from _crowd import votes_of
from pals.crowd import Result, dawid_skene
from pals.crowd.closed_form import solve
from pals.crowd.linear_ridge import decompose
from pals.crowd.novelty import PROBABLE, Novelty, hide, learn, missing_share, none_of_these
from pals.crowd.novelty import gather as rows_of_votes
from pals.crowd.novelty_groups import group_alike
from pals.crowd.result import NONE_OF_THESE
from pals.pseudo_labels import nearest
from pals.readers import Votes

ITEMS, HIDDEN, LOOKS = 700, 7, 0.85


def digits(
    hidden: int | None, seed: int = 0, items: int = ITEMS, looks: float = LOOKS
) -> tuple[Votes, torch.Tensor, np.ndarray]:
    """Three people look at digits; who cannot find the digit on the list, or does not look, says any other."""
    x_ND, y_N = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y_N))[:items]
    allowed = [digit for digit in range(10) if digit != hidden]
    rows = [
        (item, person, allowed.index(digit if digit != hidden and rng.random() < looks else rng.choice(allowed)))
        for item, digit in enumerate(y_N[order].tolist())
        for person in range(3)
    ]
    return votes_of(rows, items, len(allowed)), torch.from_numpy(x_ND[order]).float(), y_N[order] == hidden


def find(votes: Votes, features_ND: torch.Tensor) -> Novelty:
    unit_ND = torch.nn.functional.normalize(features_ND - features_ND.mean(dim=0))
    neighbor_NK = nearest(unit_ND, 15, include_self=False).index_NK.numpy()
    found = none_of_these(votes, features_ND, dawid_skene(votes).label_N, neighbor_NK)
    assert found is not None
    return found


def test_a_missing_class_is_found() -> None:
    votes, features_ND, hidden_N = digits(HIDDEN)
    found = find(votes, features_ND)
    flagged_N = found.probability_N > PROBABLE
    assert roc_auc_score(hidden_N, found.probability_N) > 0.95
    assert hidden_N[flagged_N].mean() > 0.8 and flagged_N[hidden_N].mean() > 0.9
    assert abs(found.share - hidden_N.mean()) < 0.05
    assert (find(votes, features_ND).probability_N == found.probability_N).all()


def test_features_that_were_decomposed_are_not_decomposed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless other items teach: the result is the same to the last bit."""
    votes, features_ND, _ = digits(HIDDEN, items=300)
    solution = solve(votes, features_ND)
    label_N, neighbor_NK = dawid_skene(votes).label_N, nearest(features_ND, 15, include_self=False).index_NK.numpy()
    fresh = none_of_these(votes, features_ND, label_N, neighbor_NK)
    fewer = decompose(features_ND, np.arange(300) > 0)
    other = none_of_these(votes, features_ND, label_N, neighbor_NK, spectrum=fewer)
    monkeypatch.setattr("pals.crowd.linear_ridge._axes", None)  # not asked
    again = none_of_these(votes, features_ND, label_N, neighbor_NK, spectrum=solution.spectrum)
    assert fresh is not None and again is not None and other is not None
    assert (again.probability_N == fresh.probability_N).all() and (other.probability_N == fresh.probability_N).all()


def test_of_few_items_it_is_as_likely_as_it_says() -> None:
    """Scores of 250 items tell less than the regression believes; how much less, the classes that play show."""
    chances, truths = [], []
    for hidden in range(5):
        votes, features_ND, hidden_N = digits(hidden, seed=hidden, items=250, looks=0.7)
        chances.append(find(votes, features_ND).probability_N)
        truths.append(hidden_N)
    chance_M, hidden_M = np.concatenate(chances), np.concatenate(truths)
    flagged_M = chance_M > PROBABLE
    assert flagged_M[hidden_M].mean() > 0.6
    assert abs(chance_M[flagged_M].mean() - hidden_M[flagged_M].mean()) < 0.1


def test_where_none_is_missing_nothing_is_flagged() -> None:
    votes, features_ND, _ = digits(None)
    found = find(votes, features_ND)
    assert not (found.probability_N > PROBABLE).any()
    assert found.probability_N.sum() < 1


def test_items_without_an_answer_are_judged_by_their_neighbours() -> None:
    votes, features_ND, hidden_N = digits(HIDDEN)
    silent_N = np.arange(ITEMS) % 10 == 0
    found = find(votes.take(np.flatnonzero(~silent_N[votes.item_R])), features_ND)
    assert roc_auc_score(hidden_N[silent_N], found.probability_N[silent_N]) > 0.9


def test_two_classes_or_too_few_items_say_nothing() -> None:
    rng = np.random.default_rng(0)
    features_ND, neighbor_NK = torch.randn(30, 4), np.tile(np.arange(1, 4), (30, 1))
    two = votes_of([(item, 0, int(rng.integers(2))) for item in range(30)], 30, 2)
    assert none_of_these(two, features_ND, np.zeros(30, dtype=int), neighbor_NK) is None
    few = votes_of([(item, 0, 0 if item > 2 else item) for item in range(30)], 30, 3)
    assert none_of_these(few, features_ND, dawid_skene(few).label_N, neighbor_NK) is None


def test_who_leaves_classes_open_contradicts_nobody() -> None:
    """ "0 or 1" of a 1 is for 1; of a 2 it is for both."""
    votes = votes_of([(0, 0, 0), (0, 0, 1), (0, 1, 1), (1, 0, 0), (1, 0, 1)], 2, answer=[0, 0, 1, 2, 2])
    assert rows_of_votes(votes, np.array([1, 2])).share_NC(3).tolist() == [[0, 1, 0], [0.5, 0.5, 0]]


def test_hiding_leaves_other_answers_alone() -> None:
    votes = votes_of([(0, 0, 0), (0, 1, 2), (1, 0, 1), (2, 0, 2)], 4)
    opinion_NC, label_N = np.tile([0.5, 0.3, 0.2], (4, 1)), np.array([0, 1, 2, 0])
    share_ND = hide(rows_of_votes(votes, label_N), label_N, opinion_NC, 0, 1.0, np.random.default_rng(0))
    assert share_ND.shape == (4, 2)
    assert share_ND[1:].tolist() == [[1, 0], [0, 1], [0, 0]]
    assert share_ND[0].sum() == 1 and share_ND[0, 1] >= 0.5


@pytest.mark.parametrize(("odds", "share"), [([1e6] * 10 + [1e-6] * 90, 0.1), ([0.5] * 100, 1 / 102), ([1.0] * 100, 1 / 102)])
def test_the_share_that_is_missing(odds: list[float], share: float) -> None:
    assert missing_share(np.array(odds), parameters=6) == pytest.approx(share, abs=1e-3)


def test_odd_items_of_a_small_set_do_not_make_others_look_odd() -> None:
    """Scores with a long tail, as few items have them, and no class missing."""
    rng, items, classes = np.random.default_rng(7), 200, 8
    score_NF = rng.exponential(size=(items, 1)) * rng.random((1, 5)) + 0.5 * rng.normal(size=(items, 5))
    hidden_PN = rng.integers(classes, size=items) == np.arange(classes)[:, None]
    played_PNF = score_NF + 0.3 * rng.normal(size=(classes, items, 5)) + 0.8 * hidden_PN[:, :, None]
    probability_N, share = learn(score_NF, played_PNF, hidden_PN, np.ones(items, dtype=bool))
    assert share < 1 / items and not (probability_N > PROBABLE).any()


def test_the_status_gives_way_to_what_is_known() -> None:
    votes = votes_of([(0, 0, 0), (1, 0, 0), (2, 0, 1)], 4, gold={1: 0})
    posterior_NC = np.tile([0.8, 0.1, 0.1], (4, 1))
    result = Result(votes, posterior_NC, none_N=np.array([0.9, 0.9, 0.4, 0.9]))
    assert (result.status_N == NONE_OF_THESE).tolist() == [True, False, False, False]  # the last has no answer


def test_groups_are_those_that_look_alike() -> None:
    rng = np.random.default_rng(0)
    one_MD = rng.normal(size=(60, 20))
    assert [len(rows) for rows in group_alike(one_MD)] == [60]
    two_MD = np.concatenate([one_MD, one_MD[:25] + 8])
    assert [rows.tolist() for rows in group_alike(two_MD)] == [list(range(60)), list(range(60, 85))]
    assert [len(rows) for rows in group_alike(one_MD[:1])] == [1]
    assert [len(rows) for rows in group_alike(np.zeros((5, 3)))] == [5]
