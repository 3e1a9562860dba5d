"""What several people's answers come to: who errs, what a second source adds, what is still wrong; with little data, odd
people, sets, weights and gold."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from _crowd import Row, many_people, rows_of, simulated, votes_of
from pals.crowd import (
    Result,
    dawid_skene,
    estimate_noise,
    fuse,
    leave_one_out,
    majority_vote,
    rank_doubts,
)
from pals.labels.candidates import Truth
from pals.labels.metrics import accuracy_of
from pals.pipeline.tables.result_tables import annotators_table, labels_table
from pals.util.errors import InputError

# ---- consensus


def test_majority_by_hand() -> None:
    votes = votes_of([(0, 0, 0), (0, 1, 0), (0, 2, 1), (1, 0, 0), (1, 0, 1), (1, 1, 1)], 2, answer=[0, 1, 2, 3, 3, 4])
    np.testing.assert_allclose(majority_vote(votes), [[2 / 3, 1 / 3, 0], [1 / 4, 3 / 4, 0]])


def test_dawid_and_skene_against_a_slow_loop() -> None:
    """With next to no prior and no hard items it is the model as published, except that an answer is weighed by what the
    others show of its person: every equation in turn, in loops."""
    votes, _ = simulated(60, [0.9, 0.7, 0.6])
    found = dawid_skene(votes, strength=1e-6, tolerance=1e-9, iterations=500)
    posterior = found.posterior_NC
    count = np.zeros((3, 3, 3))  # person, class, answer
    for item, person, label in rows_of(votes):
        count[person, :, label] += posterior[item]
    again = np.tile(posterior.mean(axis=0), (60, 1))
    for item, person, label in rows_of(votes):
        own = posterior[item]
        again[item] *= (count[person, :, label] - own + 1e-9) / (count[person].sum(axis=1) - own + 1e-9)
    again /= again.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(again, posterior, atol=0.01)  # a fixed point, up to the small prior of the classes


def test_knowing_who_errs_beats_counting() -> None:
    votes, truth_N = simulated(600, [0.95, 0.5, 0.5, 0.5])
    by_count = (majority_vote(votes).argmax(axis=1) == truth_N).mean()
    assert (dawid_skene(votes).label_N == truth_N).mean() > by_count + 0.05


def test_somebody_who_swaps_two_classes_is_worth_as_much() -> None:
    votes, truth_N = simulated(900, [0.8, 0.8, 0.8, 0.95])
    swapped = [(item, person, (1, 0, 2)[label] if person == 3 else label) for item, person, label in rows_of(votes)]
    found = dawid_skene(votes_of(swapped, 900))
    assert (found.label_N == truth_N).mean() > (dawid_skene(votes).label_N == truth_N).mean() - 0.02
    assert found.confusion_WCC[3].argmax(axis=1).tolist() == [1, 0, 2]


def test_few_items_are_no_worse_than_counted() -> None:
    """Ten items of each class do not show who takes what for what; to believe in what they seem to show costs 5 points."""
    right = []
    for seed in range(10):
        votes, truth_N = simulated(100, [0.8, 0.8, 0.8], classes=10, seed=seed)
        by_lot = accuracy_of(majority_vote(votes), Truth.of(truth_N, votes.class_names))
        right.append((by_lot, (dawid_skene(votes).label_N == truth_N).mean()))
    counted, weighed = np.mean(right, axis=0)
    assert weighed >= counted - 0.005


def test_one_label_for_everything_says_nothing() -> None:
    votes, _ = simulated(300, [0.85, 0.8, 0.75])
    both = votes_of([*rows_of(votes), *((item, 3, 2) for item in range(300))], 300)
    found = dawid_skene(both)
    without = dawid_skene(votes)
    assert (found.label_N == without.label_N)[without.confidence_N > 0.6].all()  # the rest are ties, more or less
    assert (found.label_N == without.label_N).mean() > 0.95
    table = annotators_table(Result(both, found.posterior_NC)).set_index("annotator")
    assert abs(table.loc["w3", "above_chance"]) < 0.1
    assert table.loc["w0", "above_chance"] > 0.6


def test_gold_is_certain() -> None:
    votes, _ = simulated(50, [0.8, 0.8])
    known = votes_of(rows_of(votes), 51, gold={3: 2, 50: 0})
    found = dawid_skene(known)
    assert found.posterior_NC[[3, 50]].tolist() == [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    assert labels_table(Result(known, found.posterior_NC))["status"][3] == "gold"


def test_everybody_agrees_and_one_person_alone() -> None:
    votes, truth_N = simulated(40, [1.0, 1.0])
    fusion = fuse(votes, [])
    assert (fusion.label_N == truth_N).all()
    assert not len(rank_doubts(Result(votes, fusion.posterior_NC)).answer_M)
    single, _ = simulated(40, [0.9])
    assert np.isfinite(estimate_noise(single, fuse(single, [])).labels_wrong)


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
    wider = votes_of(rows_of(votes), 60, classes=4)
    found = dawid_skene(wider, hard_items=True)
    assert found.posterior_NC[:, 3].max() < 0.01
    without = dawid_skene(votes, hard_items=True)
    assert (found.label_N == without.label_N)[without.confidence_N > 0.5].all()


def test_items_without_answers_have_the_class_shares() -> None:
    votes, _ = simulated(50, [0.9, 0.9])
    rows = rows_of(votes)
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
    rows = rows_of(votes)
    weight = np.tile([1.0, 2.0, 0.5], 80)
    one = dawid_skene(votes_of(rows, 80, weight=weight.tolist())).posterior_NC
    for scale in (1e-300, 1e300):
        np.testing.assert_allclose(
            dawid_skene(votes_of(rows, 80, weight=(scale * weight).tolist())).posterior_NC, one, atol=1e-9
        )


def test_an_answer_with_several_labels_is_a_set() -> None:
    """Half the items have the answer {0, 1} of a third person: it rules class 2 out and does not choose between the others."""
    votes, truth_N = simulated(300, [0.8, 0.8])
    rows = rows_of(votes)
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
    rows = rows_of(votes)
    found = dawid_skene(votes_of([*rows, (0, 3, int((votes.label_R[0] + 1) % 3))], 200))
    known_CC, new_CC = found.confusion_WCC[:3].mean(axis=0), found.confusion_WCC[3]
    assert new_CC.argmax(axis=1).tolist() == [0, 1, 2]  # one deviating answer makes nobody a fool
    assert np.abs(known_CC - new_CC).max() < 0.25  # a little less care, that is all
    np.testing.assert_allclose(found.confusion_WCC.sum(axis=2), 1)


def test_each_unnamed_answer_counts_and_tells_of_no_other() -> None:
    """Not one person's, who would have a matrix from all of them and of whose equal answers one would count."""
    votes, truth_N = simulated(200, [0.9, 0.8, 0.7])
    rows = [(item, -1, label) for item, _, label in rows_of(votes)]
    found = dawid_skene(votes_of(rows, 200))
    assert (found.label_N == truth_N).mean() > 0.85
    assert (found.answers.count_N == 3).all()
    assert not found.annotators.count_PC.any() and not found.annotators.total_WC.any()
    mixed = votes_of([*rows_of(votes), *((item, -1, 0) for item in range(200) for _ in range(2))], 200)
    assert not dawid_skene(mixed).annotators.total_WC[-1].any()
    twice = votes_of([(0, 0, 1), (0, 0, 1), (0, -1, 1), (0, -1, 1)], 2)
    assert dawid_skene(twice).answers.count_N.tolist() == [3, 0]  # what one person says twice is one answer


@pytest.mark.parametrize("classes", [2, 5])
def test_without_names_the_shares_of_wrong_answers_and_labels_are_right(classes: int) -> None:
    votes, truth_N = simulated(400, [0.785] * 5, classes)
    rows = [(item, -1, label) for item, _, label in rows_of(votes)]
    unnamed = votes_of(rows, 400, classes)
    fusion = fuse(unnamed, [])
    noise = estimate_noise(unnamed, fusion)
    assert abs(noise.answers_wrong - (votes.label_R != truth_N[votes.item_R]).mean()) < 0.05
    assert noise.low <= (fusion.label_N != truth_N).mean() <= noise.high < 0.15
    assert fusion.correlation < 0.2  # sources do not repeat each other


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


# ---- fusion


def test_a_second_witness_helps_and_its_scale_is_learned() -> None:
    votes, truth_N = simulated(800, [0.7, 0.7, 0.7])
    good = 1.5 * np.eye(3)[truth_N] + np.random.default_rng(1).normal(size=(800, 3))
    helped, scaled = fuse(votes, [good]), fuse(votes, [1000 * good])
    assert (helped.label_N == truth_N).mean() > (fuse(votes, []).label_N == truth_N).mean() + 0.03
    assert (scaled.label_N == helped.label_N).mean() > 0.99


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


@pytest.mark.slow
def test_what_all_witnesses_share_cannot_be_seen() -> None:
    """A third of the items look like another class, to people and to the opinion alike: the estimate is too low, as the
    documentation says. Independent sources are not taken for repeating each other."""
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


# ---- how sure


@pytest.mark.slow
def test_confidence_is_about_right() -> None:
    """With few classes rather too low: people who repeat each other's mistakes would look much the same."""
    votes, truth_N = simulated(3000, [0.8, 0.73, 0.77])
    fusion = fuse(votes, [])
    wrong = (fusion.label_N != truth_N).mean()
    noise = estimate_noise(votes, fusion)
    assert noise.low <= noise.labels_wrong <= noise.high
    assert wrong - 0.01 < noise.labels_wrong < wrong + 0.04
    assert noise.answers_wrong == pytest.approx((votes.label_R != truth_N[votes.item_R]).mean(), abs=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_an_answer_does_not_vouch_for_itself(seed: int) -> None:
    """Many people with some fifty answers each: the estimate must not fall to half of what is wrong."""
    votes, truth_N = many_people(1500, 90, 10, seed)
    opinion_NC = 1.2 * np.eye(10)[truth_N] + 0.5 * np.random.default_rng(seed).normal(size=(1500, 10))
    for opinions in ([], [opinion_NC]):
        fusion = fuse(votes, opinions)
        wrong = (fusion.label_N != truth_N).mean()
        assert 0.65 < estimate_noise(votes, fusion).labels_wrong / wrong < 1.5
    everybody_alike = dawid_skene(many_people(1500, 450, 10, seed)[0])
    assert everybody_alike.annotators.strength > dawid_skene(votes).annotators.strength  # ten answers tell little of a person
