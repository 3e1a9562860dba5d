"""Labels from answers and frozen features: the regression is exact, pictures count as much as they help, and no more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from _crowd import many_people, votes_of
from pals.crowd import closed_form, linear_ridge, majority_vote
from pals.crowd.branches import Branches
from pals.crowd.closed_form import balanced, picture_gain, solve
from pals.crowd.dawid_skene.annotator_model import answer_log_likelihood, design_effect
from pals.crowd.dawid_skene.answer_table import arrange
from pals.crowd.dawid_skene.em import fit_answers
from pals.crowd.image_likelihood import Evidence, mean_log_predicted
from pals.crowd.linear_ridge import BalancedRidge, decompose
from pals.labels.taxonomy import Taxonomy
from pals.readers import Votes, read_votes
from pals.util.errors import InputError
from pals.vision.networks.small_networks import signed_root

REPLICATES = 3


@pytest.fixture(autouse=True)
def few_replicates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three fits instead of twelve: a moment instead of seconds."""
    monkeypatch.setattr("pals.crowd.uncertainty.MAX_REPLICATES", REPLICATES)


def test_answers_are_predicted_from_the_image_and_the_other_answers() -> None:
    """Bayes' rule for each answer in turn, in loops; an item with a gold label is not judged by."""
    votes, _ = many_people(12, 6, 3, seed=0)
    table = arrange(replace(votes, gold_I=np.where(np.arange(12) == 4, 1, -1)))
    annotators, prior_NC = fit_answers(table).annotators, random_targets(12, 3, seed=0)
    log_AC = answer_log_likelihood(table, annotators, np.arange(len(table.item_A))) / design_effect(table, 0.2)[table.item_A]
    expected = 0.0
    for answer, item in enumerate(table.item_A):
        others = [a for a in np.flatnonzero(table.item_A == item) if a != answer]
        without_C = prior_NC[item] * np.exp(log_AC[others].sum(axis=0))
        expected += 0 if item == 4 else np.log((without_C * np.exp(log_AC[answer])).sum() / without_C.sum())
    evidence = Evidence.of(table, annotators, 0.2, np.ones(12))
    assert evidence.log_predicted(np.log(prior_NC[evidence.item_J])) == pytest.approx(expected)


def random_features(items: int, width: int, seed: int) -> torch.Tensor:
    return torch.randn(items, width, generator=torch.Generator().manual_seed(seed)) * 3 + 1


def random_targets(items: int, classes: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.ones(classes), size=items)


def ridge(x: np.ndarray, y: np.ndarray, penalty: float, at: np.ndarray) -> np.ndarray:
    """Normal equations with an intercept that is not penalised, written out."""
    x1 = np.concatenate([x, np.ones((len(x), 1))], axis=1)
    weights = np.linalg.solve(x1.T @ x1 + np.diag([*[penalty] * x.shape[1], 0.0]), x1.T @ y)
    return np.append(at, 1.0) @ weights


@given(items=st.integers(3, 14), width=st.integers(1, 18), seed=st.integers(0, 99), silent=st.integers(0, 3))
def test_left_out_is_what_leaving_out_gives(items: int, width: int, seed: int, silent: int) -> None:
    """With fewer items than features, and with more; some items teach nothing."""
    x, y = random_features(items + silent, width, seed), random_targets(items + silent, 3, seed)
    teach_N = np.random.default_rng(seed).permutation(items + silent) < items
    spectrum = decompose(x, teach_N)
    got = spectrum.left_out(y, 0.05)
    for item in range(items + silent):
        others = teach_N.copy()
        others[item] = False
        expected = ridge(x.double().numpy()[others], y[others], 0.05 * spectrum.total, x[item].double().numpy())
        np.testing.assert_allclose(got[item], expected, atol=1e-4)


@pytest.mark.parametrize(("items", "width"), [(50, 7), (7, 50)])
def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch, items: int, width: int) -> None:
    x, y, teach_N = random_features(items, width, 0), random_targets(items, 4, 0), np.arange(items) % 5 != 2
    whole = decompose(x, teach_N).left_out(y, 0.01)
    monkeypatch.setattr(linear_ridge, "ROWS_PER_BLOCK", 3)
    np.testing.assert_allclose(decompose(x, teach_N).left_out(y, 0.01), whole, atol=1e-5)


@pytest.mark.parametrize(("items", "width"), [(40, 6), (12, 30)])
def test_weighted_left_out_is_what_leaving_out_gives(items: int, width: int) -> None:
    """Weighted normal equations without the item, for items with and without weight; and the regression on all."""
    x, y = random_features(items, width, 0), random_targets(items, 3, 0)
    weight_N = np.random.default_rng(1).random(items) * (np.arange(items) % 4 != 1)
    model = BalancedRidge(decompose(x, np.ones(items, dtype=bool)))
    model.weigh(weight_N)
    data_ND, share_N = x.double().numpy(), weight_N / weight_N.sum()
    centred_ND = data_ND - share_N @ data_ND
    penalty = 0.01 * float((share_N[:, None] * centred_ND**2).sum())

    def fitted(weight_N: np.ndarray, at_D: np.ndarray) -> np.ndarray:
        root_N1 = np.sqrt(weight_N)[:, None]
        x1 = root_N1 * np.concatenate([data_ND, np.ones((items, 1))], axis=1)
        gram = x1.T @ x1 + np.diag([*[penalty] * width, 0.0])
        return np.append(at_D, 1.0) @ np.linalg.solve(gram, x1.T @ (root_N1 * y))

    got = model.left_out(y, 0.01)
    for item in range(items):
        np.testing.assert_allclose(got[item], fitted(np.where(np.arange(items) == item, 0, share_N), data_ND[item]), atol=1e-3)
    weight_DC, bias_C = model.regression(y, 0.01)
    new_D = random_features(1, width, 9)[0].double().numpy()
    np.testing.assert_allclose(new_D @ weight_DC + bias_C, fitted(share_N, new_D), atol=1e-3)


def test_a_part_of_the_items_and_of_the_axes(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, items = random_features(30, 5, 0), random_targets(30, 3, 0), np.array([3, 9, 4, 20, 11])
    spectrum = decompose(x, np.ones(30, dtype=bool))
    part, whole = BalancedRidge(spectrum, items), BalancedRidge(spectrum)
    part.weigh(np.ones(5))
    whole.weigh(np.isin(np.arange(30), items).astype(float))
    np.testing.assert_allclose(part.left_out(y[items], 0.1), whole.left_out(y, 0.1)[items], atol=1e-9)
    monkeypatch.setattr(linear_ridge, "MAX_AXES", 2)
    fewer = BalancedRidge(spectrum)
    fewer.weigh(np.ones(30))
    assert np.linalg.matrix_rank(fewer.regression(y, 0.1)[0], tol=1e-6) == 2


def test_classes_weigh_the_same() -> None:
    weight_N = balanced(np.eye(3)[[0, 0, 0, 0, 1, 2, 2]], np.array([1, 1, 1, 1, 1, 1, 0.0]))
    assert weight_N.tolist() == [0.25] * 4 + [1, 1, 0]


def features_of(truth_N: np.ndarray, spread: float, seed: int = 0, width: int = 16) -> torch.Tensor:
    """Features around a centre of each class."""
    rng = np.random.default_rng(seed)
    centre_CD = rng.normal(size=(int(truth_N.max()) + 1, width))
    return torch.from_numpy(centre_CD[truth_N] + spread * rng.normal(size=(len(truth_N), width))).float()


def right(label_N: np.ndarray, truth_N: np.ndarray) -> float:
    return float((label_N == truth_N).mean())


def test_images_correct_annotators() -> None:
    votes, truth_N = many_people(300, 30, 5, seed=1)
    found = closed_form(votes, features_of(truth_N, 0.8))
    people = right(majority_vote(votes).argmax(axis=1), truth_N)
    assert right(found.label_N, truth_N) > people + 0.05
    assert found.calibration is not None and found.calibration.slope_V[0] > 0
    assert found.gain > 50 and found.consensus.converged
    np.testing.assert_allclose(found.prediction_NC.sum(axis=1), 1)


@pytest.mark.parametrize("seed", range(5))
def test_noise_has_no_weight(seed: int) -> None:
    votes, truth_N = many_people(120, 20, 4, seed=seed)
    noise = torch.randn(len(truth_N), 32, generator=torch.Generator().manual_seed(seed))
    found = closed_form(votes, noise)
    assert found.calibration is None
    assert found.consensus is found.alone
    np.testing.assert_allclose(found.prediction_NC, np.tile(found.alone.answers.class_share_C, (120, 1)))


def test_the_same_twice_and_at_any_scale() -> None:
    votes, truth_N = many_people(80, 10, 3, seed=2)
    features = features_of(truth_N, 1.0)
    one = closed_form(votes, features).posterior_NC
    np.testing.assert_array_equal(closed_form(votes, features).posterior_NC, one)
    np.testing.assert_allclose(closed_form(votes, 1000 * features).posterior_NC, one, atol=1e-3)


def with_silence(votes: Votes, items: list[int]) -> Votes:
    return votes.take(np.flatnonzero(~np.isin(votes.item_R, items)))


def test_items_without_answers_are_labelled_by_their_pictures() -> None:
    votes, truth_N = many_people(200, 20, 4, seed=3)
    silent = list(range(0, 200, 10))
    found = closed_form(with_silence(votes, silent), features_of(truth_N, 0.5))
    assert right(found.label_N[silent], truth_N[silent]) > 0.9


def test_gold_is_kept_and_its_weight_is_chosen() -> None:
    """Half of class 1 looks like class 0 to annotators; gold says what it is. Drawn at random it chooses a large weight for
    itself, not where annotators err alone, and not where it was picked."""
    votes, truth_N = many_people(200, 20, 4, seed=4)
    seen_N, drawn_N = np.where((truth_N == 1) & (np.arange(200) % 2 == 0), 0, truth_N), np.arange(200) < 60
    label_R = np.where((votes.label_R == truth_N[votes.item_R]), seen_N[votes.item_R], votes.label_R)
    votes = replace(votes, gold_I=np.where(drawn_N, truth_N, -1))
    misled, features_ND = replace(votes, label_R=label_R), features_of(truth_N, 0.6)
    audited = [replace(given, audit_I=drawn_N) for given in (misled, votes)]
    light, heavy, alone = (closed_form(given, features_ND) for given in (misled, *audited))
    for found in (light, heavy, alone):
        assert (found.label_N[drawn_N] == truth_N[drawn_N]).all() and (found.confidence_N[drawn_N] == 1).all()
    assert right(heavy.label_N[~drawn_N], truth_N[~drawn_N]) > right(light.label_N[~drawn_N], truth_N[~drawn_N]) + 0.02
    np.testing.assert_array_equal(alone.posterior_NC, closed_form(votes, features_ND).posterior_NC)


def test_replicates_are_averaged_and_differ() -> None:
    votes, truth_N = many_people(120, 20, 4, seed=6)
    for spread in (0.8, 100.0):
        found = closed_form(votes, features_of(truth_N, spread))
        assert len(found.fit_BNC) == REPLICATES
        np.testing.assert_allclose(np.mean(found.fit_BNC, axis=0), found.mean_NC, atol=1e-5)
        assert np.std(found.fit_BNC, axis=0).max() > 0.01
        assert (found.posterior_NC.argmax(axis=1) == found.label_N).all()


def test_a_label_that_nobody_gave_needs_more() -> None:
    """Two items of which people say the same, one of them deep inside another class: three agreeing people win there."""
    votes, truth_N = many_people(200, 20, 4, seed=5)
    features = features_of(truth_N, 0.6)
    said_N = majority_vote(votes)
    sure = int(np.flatnonzero((said_N.max(axis=1) == 1) & (said_N.argmax(axis=1) == truth_N))[0])
    other = int(np.flatnonzero(truth_N != truth_N[sure])[0])
    features[sure] = features[other]
    assert closed_form(votes, features).label_N[sure] == truth_N[sure]


@pytest.mark.parametrize(
    ("features", "text"),
    [
        (torch.zeros(3, 2), "one row of features per item"),
        (torch.tensor([[0.0], [float("nan")], [1.0], [2.0]]), "item 1 hold NaN"),
    ],
)
def test_bad_features(features: torch.Tensor, text: str) -> None:
    with pytest.raises(InputError, match=text):
        closed_form(votes_of([(0, 0, 1), (1, 0, 2)], 4), features)


def test_features_that_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_ridge, "MAX_SIDE", 4)
    with pytest.raises(InputError, match=r"6 features are too many.*landmarks"):
        decompose(torch.randn(9, 6), np.ones(9, dtype=bool))


def test_the_classifier_says_of_new_items_what_it_says_of_those_without_answers() -> None:
    votes, truth_N = many_people(200, 20, 4, seed=2)
    features_ND = features_of(np.append(truth_N, [0, 1, 2]), 0.5)
    longer = replace(votes, items=(*votes.items, "x", "y", "z"), gold_I=np.append(votes.gold_I, [-1, -1, -1]))
    found = solve(longer, features_ND)
    logit_NC = signed_root(features_ND).double().numpy() @ found.weight_DC + found.bias_C
    np.testing.assert_allclose(logit_NC[-3:], found.logit_NC[-3:], atol=0.05)  # of one round before
    assert abs(logit_NC[:-3] - found.logit_NC[:-3]).max() > 0.01  # of the others it has seen the answers
    assert logit_NC[-3:].argmax(axis=1).tolist() == [0, 1, 2]


def test_encoders_are_told_apart_by_what_they_add_to_the_answers() -> None:
    votes, truth_N = many_people(300, 30, 4, seed=1)
    sharp, blurred = (picture_gain(votes, features_of(truth_N, spread)) for spread in (0.4, 2.0))
    assert sharp > blurred > 0
    assert picture_gain(votes, torch.randn(300, 16, generator=torch.Generator().manual_seed(0))) == 0
    alone = closed_form(votes, features_of(truth_N, 0.4)).alone
    right_NC = np.full((300, 4), 0.02)
    right_NC[np.arange(300), truth_N] = 0.94
    assert mean_log_predicted(alone, right_NC) > mean_log_predicted(alone, np.full((300, 4), 0.25))


@pytest.mark.parametrize("seed", [2, 3])
def test_a_branch_that_most_leave_undivided_keeps_its_classes(seed: int, tmp_path: Path) -> None:
    """Of cats and dogs 85% are called pets, and pictures tell them apart a little: one of them had nearly all items in the end,
    also those that somebody called the other."""
    tree = Taxonomy.from_parents({"pets": None, "cat": "pets", "dog": "pets", "ship": None, "frog": None})
    rng = np.random.default_rng(seed)
    truth_N, rows = rng.integers(4, size=240), ["item,annotator,label"]
    features_ND = (0.5 * rng.normal(size=(4, 20)))[truth_N] + rng.normal(size=(240, 20))
    for item, label in enumerate(truth_N.tolist()):
        for person in "abc":
            said = label if rng.random() < 0.9 else int(rng.integers(4))
            rows.append(f"{item},{person},{'pets' if said < 2 and rng.random() < 0.85 else tree.leaves[said]}")
    (tmp_path / "votes.csv").write_text("\n".join(rows))
    votes = read_votes(tmp_path / "votes.csv", taxonomy=tree)
    order = [int(item) for item in votes.items]
    label_N = closed_form(votes, torch.from_numpy(features_ND[order])).label_N
    assert (label_N == truth_N[order])[truth_N[order] < 2].mean() > 0.7


def test_classes_that_no_answer_tells_apart_teach_alike(tmp_path: Path) -> None:
    """By hand: item 0 has "pets" twice, item 1 "pets" and "cat", item 2 "ship"."""
    tree = Taxonomy.from_parents({"pets": None, "cat": "pets", "dog": "pets", "ship": None})
    (tmp_path / "votes.csv").write_text("item,annotator,label\n0,a,pets\n0,b,pets\n1,a,pets\n1,b,cat\n2,a,ship\n")
    votes = read_votes(tmp_path / "votes.csv", taxonomy=tree)
    table, posterior_NC = arrange(votes), np.tile([0.6, 0.1, 0.3], (3, 1))
    cat, dog, ship = (votes.class_names.index(name) for name in ("cat", "dog", "ship"))
    posterior_NC = posterior_NC[:, np.argsort([cat, dog, ship])]
    even_NC = Branches.of(votes, table).even(posterior_NC)
    np.testing.assert_array_equal(even_NC[1:], posterior_NC[1:])
    share_C = table.class_share_C
    assert even_NC[0, cat] == pytest.approx(0.7 * share_C[cat] / (share_C[cat] + share_C[dog]))
    assert even_NC[0].sum() == pytest.approx(1) and even_NC[0, ship] == 0.3
    assert Branches.none().even(posterior_NC) is posterior_NC
