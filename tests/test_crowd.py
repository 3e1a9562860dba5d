"""Corner cases of the crowd science: little data, odd people, sets, weights, gold, bad input; and the layout of the tables."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pals.crowd import (
    Result,
    annotators_table,
    arguing_neighbors,
    classes_table,
    confusion_table,
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
from pals.readers import ReadSummary, Votes

Row = tuple[int, int, int]  # item, worker (-1: unnamed), label


def votes_of(
    rows: list[Row], items: int, classes: int = 3, *, answer: list[int] | None = None, weight: list[float] | None = None,
    gold: dict[int, int] | None = None,
) -> Votes:  # fmt: skip
    item_R, worker_R, label_R = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    people = int(worker_R.max(initial=-1)) + 1
    gold_I = np.full(items, -1)
    for item, label in (gold or {}).items():
        gold_I[item] = label
    names = tuple(f"c{c}" for c in range(classes))
    return Votes(
        items=tuple(f"i{i}" for i in range(items)),
        workers=tuple(f"w{w}" for w in range(people)),
        class_names=names,
        item_R=item_R,
        worker_R=worker_R,
        label_R=label_R,
        answer_R=np.arange(len(rows)) if answer is None else np.array(answer),
        weight_R=np.ones(len(rows)) if weight is None else np.array(weight),
        gold_I=gold_I,
        summary=ReadSummary((), "test", len(rows), len(rows), items, people, classes, int((gold_I >= 0).sum())),
    )


def simulated(items: int, accuracy: list[float], classes: int = 3, seed: int = 0) -> tuple[Votes, np.ndarray]:
    """Everybody answers for every item: right with their accuracy, else any other label."""
    rng = np.random.default_rng(seed)
    truth_N = rng.integers(classes, size=items)
    rows = [
        (item, person, int(label if rng.random() < skill else (label + rng.integers(1, classes)) % classes))
        for item, label in enumerate(truth_N)
        for person, skill in enumerate(accuracy)
    ]
    return votes_of(rows, items, classes), truth_N


# ---- consensus


def test_a_single_item() -> None:
    votes = votes_of([(0, 0, 1), (0, 1, 1), (0, 2, 2)], 1)
    for hard_items in (False, True):
        found = dawid_skene(votes, hard_items=hard_items)
        assert found.label_N.tolist() == [1]
        assert found.posterior_NC[0].argsort().tolist() == [0, 2, 1]
    assert np.isfinite(estimate_noise(votes, fuse(votes, [])).labels_wrong)


def test_two_classes() -> None:
    votes, truth_N = simulated(400, [0.8, 0.75, 0.7], classes=2)
    fusion = fuse(votes, [])
    assert (fusion.label_N == truth_N).mean() >= (majority_vote(votes).argmax(axis=1) == truth_N).mean() - 0.01
    np.testing.assert_allclose(fusion.posterior_NC.sum(axis=1), 1)


def test_one_class_is_refused() -> None:
    with pytest.raises(InputError, match="nothing to tell apart"):
        dawid_skene(votes_of([(0, 0, 0)], 1, classes=1))
    with pytest.raises(InputError, match="above zero"):
        dawid_skene(votes_of([(0, 0, 0)], 1), strength=0)


def test_a_class_nobody_chose_is_next_to_impossible() -> None:
    votes, _ = simulated(60, [0.9, 0.9], classes=3)
    wider = votes_of(
        list(zip(*(a.tolist() for a in (votes.item_R, votes.worker_R, votes.label_R)), strict=True)), 60, classes=4
    )
    found = dawid_skene(wider, hard_items=True)
    assert found.posterior_NC[:, 3].max() < 0.01
    assert (found.label_N == dawid_skene(votes, hard_items=True).label_N).all()


def test_items_without_answers_have_the_class_shares() -> None:
    votes, _ = simulated(50, [0.9, 0.9])
    rows = list(zip(*(a.tolist() for a in (votes.item_R, votes.worker_R, votes.label_R)), strict=True))
    found = dawid_skene(votes_of(rows, 52))
    np.testing.assert_allclose(found.posterior_NC[50], found.prior_C, atol=1e-3)
    np.testing.assert_allclose(found.posterior_NC[50], found.posterior_NC[51])
    np.testing.assert_allclose(majority_vote(votes_of(rows, 52))[51], majority_vote(votes).mean(axis=0))


@pytest.mark.parametrize("rows", [[], [(0, 0, 1), (1, 0, 2)]])
def test_answers_without_weight_are_no_answers(rows: list[Row]) -> None:
    votes = votes_of(rows, 2, weight=[0.0] * len(rows))
    fusion = fuse(votes, [np.eye(3)[:2]])
    np.testing.assert_allclose(fusion.posterior_NC, 1 / 3)
    np.testing.assert_allclose(majority_vote(votes), 1 / 3)
    assert labels_table(Result(votes, fusion.posterior_NC))["status"].tolist() == ["no-answer", "no-answer"]
    assert estimate_noise(votes, fusion).labels_wrong == 0


def test_only_proportions_of_weights_matter() -> None:
    votes, _ = simulated(80, [0.8, 0.7, 0.6])
    rows = list(zip(*(a.tolist() for a in (votes.item_R, votes.worker_R, votes.label_R)), strict=True))
    weight = np.tile([1.0, 2.0, 0.5], 80)
    one = dawid_skene(votes_of(rows, 80, weight=weight.tolist())).posterior_NC
    for scale in (1e-300, 1e300):
        np.testing.assert_allclose(
            dawid_skene(votes_of(rows, 80, weight=(scale * weight).tolist())).posterior_NC, one, atol=1e-9
        )


def test_an_answer_with_several_labels_is_a_set() -> None:
    """Half the items have the answer {0, 1} of a third person: it rules class 2 out and does not choose between the others."""
    votes, truth_N = simulated(300, [0.8, 0.8])
    rows = list(zip(*(a.tolist() for a in (votes.item_R, votes.worker_R, votes.label_R)), strict=True))
    answer = list(range(len(rows)))
    for item in np.flatnonzero(truth_N < 2).tolist():
        rows += [(item, 2, 0), (item, 2, 1)]
        answer += [len(votes.item_R) + item] * 2
    order = {number: place for place, number in enumerate(dict.fromkeys(answer))}
    both = votes_of(rows, 300, answer=[order[number] for number in answer])
    before, after = (dawid_skene(v).posterior_NC for v in (votes, both))
    named_N = truth_N < 2
    assert after[named_N, 2].mean() < 0.5 * before[named_N, 2].mean()
    result = Result(both, after)
    assert len(result.first_A) == 600 + named_N.sum()
    np.testing.assert_allclose(result.inside_A[600:], after[result.item_A[600:], :2].sum(axis=1))
    np.testing.assert_allclose(result.share_NC.sum(axis=1), 1)


def test_somebody_with_one_answer_answers_like_everybody() -> None:
    votes, _ = simulated(200, [0.9, 0.9, 0.9])
    rows = list(zip(*(a.tolist() for a in (votes.item_R, votes.worker_R, votes.label_R)), strict=True))
    found = dawid_skene(votes_of([*rows, (0, 3, int((votes.label_R[0] + 1) % 3))], 200))
    known_CC, new_CC = found.confusion_WCC[:3].mean(axis=0), found.confusion_WCC[3]
    assert new_CC.argmax(axis=1).tolist() == [0, 1, 2]  # one deviating answer makes nobody a fool
    assert np.abs(known_CC - new_CC).max() < 0.25  # a little less care, that is all
    np.testing.assert_allclose(found.confusion_WCC.sum(axis=2), 1)


def test_unnamed_answers_are_those_of_one_person() -> None:
    votes, truth_N = simulated(200, [0.9, 0.8, 0.7])
    rows = [(item, -1, label) for item, label in zip(votes.item_R.tolist(), votes.label_R.tolist(), strict=True)]
    found = dawid_skene(votes_of(rows, 200))
    assert (found.label_N == truth_N).mean() > 0.85
    assert found.confusion_WCC.shape == (1, 3, 3)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-1, 3), st.integers(0, 2)), max_size=30), st.booleans())
def test_whatever_people_say_the_result_is_a_distribution(rows: list[Row], gold: bool) -> None:
    votes = votes_of(rows, 6, gold={2: 1} if gold else None)
    fusion = fuse(votes, [np.linspace(-1, 1, 18).reshape(6, 3)])
    for posterior_NC in (fusion.posterior_NC, fusion.consensus.posterior_NC, majority_vote(votes)):
        assert (posterior_NC >= 0).all()
        np.testing.assert_allclose(posterior_NC.sum(axis=1), 1)
    assert (fusion.posterior_NC.argmax(axis=1) == fusion.label_N).all()
    if gold:
        assert fusion.posterior_NC[2].tolist() == [0, 1, 0]
    noise = estimate_noise(votes, fusion)
    assert 0 <= noise.low <= noise.labels_wrong <= noise.high <= 1


# ---- fusion


def test_an_opinion_of_no_worth_leaves_the_votes_alone() -> None:
    """Not nearly the same: the very same, bit for bit."""
    votes, truth_N = simulated(500, [0.7, 0.7, 0.7])
    alone = fuse(votes, [])
    rng = np.random.default_rng(3)
    for opinion_NC in (rng.normal(size=(500, 3)), -np.eye(3)[truth_N], np.zeros((500, 3))):
        fusion = fuse(votes, [opinion_NC])
        assert fusion.calibration is None
        assert np.array_equal(fusion.posterior_NC, alone.posterior_NC)


def test_of_two_opinions_the_better_one_is_believed() -> None:
    votes, truth_N = simulated(800, [0.6, 0.6])
    rng = np.random.default_rng(5)
    good, useless = 2 * np.eye(3)[truth_N] + rng.normal(size=(800, 3)), rng.normal(size=(800, 3))
    fusion = fuse(votes, [useless, good])
    assert fusion.calibration is not None
    assert fusion.calibration.slope_V[1] > 5 * fusion.calibration.slope_V[0]
    assert (fusion.label_N == truth_N).mean() > (fuse(votes, []).label_N == truth_N).mean() + 0.05


def test_what_all_witnesses_share_cannot_be_seen() -> None:
    """A third of the items look like another class, to people and to the opinion alike: the estimate is too low, as the
    documentation says. Independent witnesses are not taken for repeating each other."""
    votes, truth_N = simulated(3000, [0.7, 0.7, 0.7])
    rng = np.random.default_rng(2)
    assert fuse(votes, [np.eye(3)[truth_N] + 0.6 * rng.normal(size=(3000, 3))]).correlation < 0.1
    look_N = np.where(rng.random(3000) < 0.3, rng.integers(3, size=3000), truth_N)
    rows = [
        (item, person, int(look if rng.random() < 0.8 else rng.integers(3)))
        for item, look in enumerate(look_N)
        for person in range(3)
    ]
    misled = votes_of(rows, 3000)
    fusion = fuse(misled, [np.eye(3)[look_N] + 0.6 * rng.normal(size=(3000, 3))])
    assert (fusion.label_N != truth_N).mean() > estimate_noise(misled, fusion).high


def test_opinions_are_checked() -> None:
    votes, _ = simulated(10, [0.9])
    with pytest.raises(InputError, match=r"Opinion 0 has shape \(9, 3\)"):
        fuse(votes, [np.zeros((9, 3))])
    with pytest.raises(InputError, match="first for item 4"):
        fuse(votes, [np.where(np.arange(30).reshape(10, 3) == 13, np.nan, 0.0)])
    with pytest.raises(InputError, match="do not belong together"):
        leave_one_out(torch.zeros(3, 2), np.zeros((4, 2)), generator=torch.Generator())
    with pytest.raises(InputError, match="item 1 hold NaN"):
        leave_one_out(torch.tensor([[0.0], [torch.nan]]), np.zeros((2, 2)), generator=torch.Generator())


def test_landmarks_that_span_the_features_change_nothing() -> None:
    """Twenty different rows, each five times: twenty landmarks would do, forty hold nearly all of them."""
    rng = np.random.default_rng(0)
    features_ND = torch.from_numpy(np.repeat(rng.normal(size=(20, 3)), 5, axis=0)).float()
    target_NC = rng.dirichlet(np.ones(3), size=100)
    all_NC, some_NC = (
        leave_one_out(features_ND, target_NC, generator=torch.Generator().manual_seed(1), landmarks=count)
        for count in (100, 60)
    )
    assert np.abs(all_NC - some_NC).max() < 0.1
    assert not leave_one_out(features_ND, target_NC, generator=torch.Generator(), known_N=np.zeros(100, dtype=bool)).any()


# ---- tables


def test_the_columns_of_every_table() -> None:
    votes, _ = simulated(30, [0.8, 0.7])
    result = Result(votes, dawid_skene(votes).posterior_NC)
    doubts = rank_doubts(result)
    tables = {
        "item,label,confidence,votes,agreement,in_votes,status": labels_table(result),
        "rank,item,worker,answer,suggestion,probability_wrong,confidence,others,neighbors": doubtful_table(result, doubts),
        "worker,answers,agreement,by_chance,above_chance,confused,right: c0,right: c1,right: c2": annotators_table(result),
        "worker,result,answer,count": confusion_table(result),
        "class,items,answers,majority_items,agreement,confidence,corrected,unsure,doubtful_answers,confused": classes_table(
            result
        ),
    }
    for columns, table in tables.items():
        assert ",".join(table.columns) == columns
        back = pd.read_csv(io.StringIO(csv_text(table)))
        assert len(back) == len(table)


def test_every_status() -> None:
    rows = [(0, 0, 0), (0, 1, 1), (1, 0, 0), (1, 1, 0), (2, 0, 0), (3, 0, 0), (4, 0, 1)]
    votes = votes_of(rows, 6, gold={4: 2})
    posterior_NC = np.array([[0.9, 0.1, 0], [1, 0, 0], [0, 0, 1.0], [0.4, 0.3, 0.3], [0, 0, 1], [0.2, 0.8, 0]])
    status = ["tie-broken", "agreed", "corrected", "unsure", "gold", "no-answer"]
    assert labels_table(Result(votes, posterior_NC))["status"].tolist() == status
    assert labels_table(Result(votes, posterior_NC, unsure=0.95))["status"].tolist()[0] == "unsure"
    assert np.isnan(labels_table(Result(votes, posterior_NC))["agreement"][5])


def test_names_with_commas_quotes_and_line_breaks_survive() -> None:
    names = ('a,"b"', "two\nlines", "=1+1; x")
    votes = votes_of([(0, 0, 0), (0, 1, 1), (1, 0, 2)], 2)
    odd = Votes(**{**vars(votes), "class_names": names, "items": names[:2], "workers": names[:2]})
    back = pd.read_csv(io.StringIO(csv_text(labels_table(Result(odd, np.eye(3)[[1, 2]])))))
    assert back["item"].tolist() == list(names[:2])
    assert back["label"].tolist() == list(names[1:])


def test_agreement_by_chance_by_hand() -> None:
    """w0 says c0, c0, c1 where the results are c0, c1, c1: right twice; blindly (2/3)(1/3) + (1/3)(2/3) = 4/9."""
    votes = votes_of([(0, 0, 0), (1, 0, 0), (2, 0, 1)], 3)
    row = annotators_table(Result(votes, np.eye(3)[[0, 1, 1]])).iloc[0]
    assert row["agreement"] == pytest.approx(2 / 3, abs=1e-6)
    assert row["by_chance"] == pytest.approx(4 / 9, abs=1e-6)
    assert row["above_chance"] == pytest.approx((2 / 3 - 4 / 9) / (1 - 4 / 9), abs=1e-6)
    assert row["confused"] == "c1 -> c0 1 of 2"
    assert row["right: c1"] == pytest.approx(0.5)
    assert np.isnan(row["right: c2"])


def test_neighbours_that_argue_against_an_answer() -> None:
    """Of item 0's neighbours, 1 has the answer's label, 2 and 4 the suggestion, 3 another one."""
    votes = votes_of([(0, 0, 1)], 5)
    result = Result(votes, np.eye(3)[[0, 1, 0, 2, 0]])
    doubts = rank_doubts(result)
    neighbor_NK, similarity_NK = np.tile([1, 2, 3, 4], (5, 1)), np.tile([0.9, 0.8, 0.7, 0.6], (5, 1))
    arguing = arguing_neighbors(result, doubts, neighbor_NK, similarity_NK, count=4)
    assert arguing.index_MK.tolist() == [[2, 4, 3, -1]]
    words = doubtful_table(result, doubts, arguing)["neighbors"][0]
    assert words == "i2 (c0 0.80); i4 (c0 0.60); i3 (c2 0.70)"


def test_probabilities_that_are_none_are_refused() -> None:
    votes = votes_of([(0, 0, 1)], 2)
    for bad in (np.full((2, 3), 0.5), np.array([[1.0, 0, 0], [np.nan, 0, 1]])):
        with pytest.raises(InputError, match="not shares that sum to one"):
            Result(votes, bad)
    with pytest.raises(InputError, match="shape"):
        Result(votes, np.eye(3))
