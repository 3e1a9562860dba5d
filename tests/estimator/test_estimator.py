"""The scikit-learn classifiers: conventions, tools of scikit-learn around them, what they learn."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

import pals.estimator as estimators
from _toy import toy_candidates, toy_data, toy_options
from pals.estimator import (
    CandidateClassifier,
    StratifiedCandidateKFold,
    approximate_scorer,
    classifier_for,
    covering_scorer,
    factory,
)
from pals.estimator.doubt import doubt_of
from pals.estimator.targets import read_target
from pals.labels.candidates import CandidateSets
from pals.methods import METHODS, method_options
from pals.methods.average import Average
from pals.methods.pals import PALS
from pals.util.errors import InputError

PALSClassifier: Any = classifier_for("pals")
QUICK: dict[str, Any] = {"epochs": 3, "batch_size": 32, "random_state": 0}

DATA = toy_data()
SETS = toy_candidates(DATA)
X, MATRIX = DATA.train.inputs.double().numpy(), SETS.allowed_NC.numpy().astype(int)
X_TEST = DATA.test.inputs.double().numpy()
CLEAN = toy_candidates(DATA, eta=0.0).allowed_NC.numpy().astype(int)  # the right label is always among them
TRUTH, TRUTH_TEST = DATA.truth.label_N.numpy(), DATA.test_truth.label_N.numpy()


def quick(name: str, **more: Any) -> Any:
    """A classifier that takes a moment, with options that fit a toy."""
    return classifier_for(name)(**{**QUICK, **toy_options(name), **more})


@parametrize_with_checks([quick("pals"), quick("pl-knn")])
@pytest.mark.filterwarnings("ignore:neighbors=5")  # some checks have fewer items
def test_conventions_of_scikit_learn(estimator: Any, check: Any) -> None:
    """All of them, without exceptions."""
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([CandidateClassifier("cc", **QUICK)])
@pytest.mark.filterwarnings("ignore:neighbors=5")
def test_conventions_of_a_method_by_name(estimator: Any, check: Any) -> None:
    check(estimator)


NOT_PASSED = {
    "pico+": {"check_class_weight_classifiers": "its option class_weight is a number, not weights of classes"},
    "dividemix": {"check_classifiers_train": "unlabeled_weight=25, as published, is too much for 300 points; 1 passes"},
}


OF_EACH_KIND = ("pals", "soft-votes", "pl-knn", "ipal", "proden", "clsp", "pico+", "dividemix")
"""Methods that differ in what they need and keep: labels, neighbours, phases, two networks, a queue. Estimators are made alike
of all, and what is their own is tested below."""


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_EACH_KIND)
@pytest.mark.filterwarnings("ignore:neighbors=", "ignore::sklearn.exceptions.SkipTestWarning")
def test_conventions_with_a_method_of_each_kind_as_it_comes(name: str) -> None:
    """A third of the epochs shows as much, except of those that may end before the last."""
    options = set(classifier_for(name)().get_params())
    few = {} if options & {"patience", "stop_after"} else {"epochs": 20}
    check_estimator(classifier_for(name)(**few), expected_failed_checks=NOT_PASSED.get(name), on_skip=None)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_learns_from_candidates(name: str) -> None:
    model = quick(name, epochs=8).fit(X, CLEAN)
    assert model.score(X_TEST, TRUTH_TEST) > 0.7  # by chance 0.33
    assert (model.labels_ == TRUTH).mean() > 0.7
    assert model.predict_proba(X_TEST).sum(axis=1) == pytest.approx(np.ones(60))
    assert model.posterior_.shape == MATRIX.shape and model.posterior_.sum(axis=1) == pytest.approx(np.ones(90))
    assert (model.labels_ == model.posterior_.argmax(axis=1)).all() and model.doubt_.shape == (90,)
    assert len(model.loss_curve_) == (model.n_iter_ if METHODS[name].networks else 0)
    again = pickle.loads(pickle.dumps(model))
    assert type(again) is type(model) and (again.predict_proba(X_TEST) == model.predict_proba(X_TEST)).all()


@pytest.mark.parametrize("name", METHODS)
def test_options_of_a_method_are_parameters(name: str) -> None:
    cls: Any = classifier_for(name)
    assert cls is getattr(estimators, METHODS[name].__name__ + "Classifier") and cls.__name__ in dir(estimators)
    own = {field.name for field in fields(METHODS[name].Config)}
    shared = set(CandidateClassifier().get_params()) - {"method", "method_options"}
    assert set(cls().get_params()) == own | shared and all(f"\n{option} (default" in cls.__doc__ for option in own)


def test_a_named_class_is_the_general_one_with_its_method_set() -> None:
    named = quick("pals", delta=0.6, smoothing=0.1).fit(X, MATRIX)
    options = {"neighbors": 5, "delta": 0.6, "smoothing": 0.1}
    general = CandidateClassifier("pals", method_options=options, **QUICK).fit(X, MATRIX)
    assert (named.predict_proba(X_TEST) == general.predict_proba(X_TEST)).all()
    other = quick("pals", delta=0.1).fit(X, MATRIX)
    assert (named.predict_proba(X_TEST) != other.predict_proba(X_TEST)).any()


def test_a_preset_rules_what_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    def options(**given: Any) -> Any:
        return method_options(*PALSClassifier(**given)._method())

    assert options().weighting == "exp" and options(preset="paper").weighting == "cosine"
    assert options(preset="paper").draws == "once"
    assert options(preset="paper", weighting="exp").weighting == "exp" and options(delta=0.9).delta == 0.9
    small = quick("pals", preset="small").fit(X, MATRIX).predict_proba(X_TEST)
    official = quick("pals", preset="official").fit(X, MATRIX).predict_proba(X_TEST)
    assert (small != official).any() and (quick("pals").fit(X, MATRIX).predict_proba(X_TEST) == small).all()
    general = CandidateClassifier("pals", method_options={"neighbors": 5}, **QUICK)
    assert (general.fit(X, MATRIX).predict_proba(X_TEST) == small).all()
    monkeypatch.setattr(PALS, "small_preset", ("small", len(X) - 1))
    assert (quick("pals").fit(X, MATRIX).predict_proba(X_TEST) == official).all()


@pytest.mark.parametrize(
    ("name", "options", "items", "epochs"),
    [("pals", {}, 4000, 60), ("pals", {}, 1900, 100), ("pals", {}, 50, 200), ("pals", {"epochs": 7}, 50, 7),
     ("pals", {"preset": "official"}, 50, 60), ("proden", {}, 50, 60)],
)  # fmt: skip
def test_few_items_are_seen_as_often_as_the_preset_asks(name: str, options: dict[str, Any], items: int, epochs: int) -> None:
    assert classifier_for(name)(**options)._training(items)["epochs"] == epochs


def test_methods_registered_later_have_a_class_too(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mine(Average):
        pass

    assert not hasattr(estimators, "MineClassifier")
    monkeypatch.setitem(METHODS, "mine", Mine)
    model = pickle.loads(pickle.dumps(estimators.MineClassifier(**QUICK).fit(X, CLEAN)))
    assert type(model) is classifier_for("mine") and model.predict(X_TEST).shape == (60,)

    class Greedy(Average):
        @dataclass(frozen=True)
        class Config:
            epochs: int = 3

    monkeypatch.setitem(METHODS, "greedy", Greedy)
    with pytest.raises(InputError, match="'greedy' has options that every classifier has: epochs"):
        classifier_for("greedy")


@pytest.fixture(scope="module")
def usual() -> Any:
    return quick("pals").fit(X, MATRIX)


def test_every_form_of_y_gives_the_same_classifier_and_votes_weigh(usual: Any) -> None:
    """`read_target` gives the same table for all forms."""
    for y in (csr_array(MATRIX), [set(row.nonzero()[0].tolist()) for row in MATRIX], SETS):
        model = quick("pals").fit(X, y)
        assert (model.predict_proba(X_TEST) == usual.predict_proba(X_TEST)).all() and len(model.classes_) == 3
    count_NC = MATRIX * np.random.default_rng(0).integers(1, 9, MATRIX.shape)
    as_counts = quick("pals").fit(X, count_NC)
    as_tuples = quick("pals").fit(X, [tuple(np.repeat(np.arange(3), row)) for row in count_NC])
    assert (as_counts.predict_proba(X_TEST) == as_tuples.predict_proba(X_TEST)).all()
    as_sets = quick("pals").fit(X, count_NC > 0)
    assert (as_counts.predict_proba(X_TEST) != as_sets.predict_proba(X_TEST)).any()


def test_labels_come_back_as_they_were_named() -> None:
    names = np.array(["ant", "bee", "cat"])
    model = quick("pals", epochs=8).fit(X, [set(names[row.nonzero()[0]]) for row in MATRIX])
    assert model.classes_.tolist() == names.tolist() and set(model.predict(X_TEST)) <= set(names)
    assert model.score(X_TEST, names[TRUTH_TEST]) > 0.9 and (model.labels_ == names[TRUTH]).mean() > 0.95
    assert set(quick("pals", classes=["x", "y", "z"]).fit(X, MATRIX).predict(X_TEST)) <= {"x", "y", "z"}
    sets = CandidateSets.from_matrix(MATRIX, class_names=names)
    neighbors = quick("pl-knn").fit(X, sets)
    assert neighbors.classes_.tolist() == names.tolist() and neighbors.score(X, sets) == neighbors.score(X, MATRIX)


def test_score_is_accuracy_for_labels_and_covering_for_candidates() -> None:
    model = quick("pl-knn").fit(X, MATRIX)
    predicted = model.predict(X)
    assert model.score(X, TRUTH) == pytest.approx((predicted == TRUTH).mean())
    inside = MATRIX[np.arange(90), predicted] == 1
    assert model.score(X, MATRIX) == pytest.approx(inside.mean())
    assert model.score(X, [set(row.nonzero()[0]) for row in MATRIX]) == pytest.approx(inside.mean())
    weight = np.arange(90.0)
    assert model.score(X, MATRIX, sample_weight=weight) == pytest.approx((inside * weight).sum() / weight.sum())
    assert model.score(X, np.full(90, 7)) == 0 and covering_scorer(model, X, MATRIX) == pytest.approx(inside.mean())
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        covering_scorer(model, X, MATRIX[:2])
    p = model.predict_proba(X)
    parts = [p[i, c] / p[i, MATRIX[i] == 1].sum() if inside[i] else 0.0 for i, c in enumerate(predicted)]
    assert approximate_scorer(model, X, MATRIX) == pytest.approx(np.mean(parts))


def test_doubtful_items_are_those_whose_label_is_missing() -> None:
    rng = np.random.default_rng(0)
    label_N = TRUTH.copy()
    wrong = np.sort(rng.choice(90, 12, replace=False))
    label_N[wrong] = (label_N[wrong] + 1) % 3
    model = quick("pals", epochs=8, smoothing=0.1).fit(X, label_N)
    assert sorted(model.doubtful_) == wrong.tolist() and (np.diff(model.doubt_[model.doubtful_]) <= 0).all()
    assert (model.labels_ == TRUTH).mean() > 0.95 and quick("pals", epochs=8).fit(X, TRUTH).doubtful_.size == 0


def test_doubt_by_a_slow_loop() -> None:
    rng = np.random.default_rng(0)
    features, belief = rng.normal(size=(20, 4)), rng.dirichlet(np.ones(3), size=20)
    for y in (rng.random((20, 3)) < 0.6) | np.eye(3, dtype=bool)[rng.integers(0, 3, 20)], rng.integers(0, 4, (20, 3)) + 1:
        target = read_target(y)
        found = doubt_of(torch.tensor(features), torch.tensor(belief), target)
        unit = features / np.linalg.norm(features, axis=1, keepdims=True)
        for i in range(20):
            near = sorted((j for j in range(20) if j != i), key=lambda j, i=i: -unit[i] @ unit[j])[:15]
            weight = np.array([np.exp(unit[i] @ unit[j] / 0.1) for j in near])
            p = (weight[:, None] * belief[near]).sum(axis=0) / weight.sum()
            given = y[i] / y[i].max()
            assert found[i] == pytest.approx(1 - (p * given).sum(), abs=1e-5)


def test_pictures_of_every_make() -> None:
    rng = np.random.default_rng(0)
    label_N = np.arange(48) % 2
    images = rng.integers(0, 60, (48, 8, 8)).astype(np.uint8)
    images[label_N == 0, ::2] += 150  # stripes across
    images[label_N == 1, :, ::2] += 150  # and down
    color_first = np.repeat(images[:, None], 3, axis=1)
    scores = {}
    for name, pictures in {
        "grey": images,
        "floats": images / 255,
        "channels first": color_first,
        "channels last": np.moveaxis(color_first, 1, 3),
        "tensor": torch.tensor(color_first),
    }.items():
        model = quick("pals", epochs=6, batch_size=16).fit(pictures, label_N)
        scores[name] = model.score(pictures, label_N)
        assert model.n_features_in_ == np.prod(pictures.shape[1:])
        again = pickle.loads(pickle.dumps(model))
        assert (again.predict_proba(pictures) == model.predict_proba(pictures)).all()
    assert min(scores.values()) > 0.9, scores
    with pytest.raises(InputError, match=r"shape \(3, 4, 4\).*fit \(3, 8, 8\)"):
        model.predict(color_first[:, :, :4, :4])
    with pytest.raises(InputError, match="another kind"):
        model.predict(np.zeros((2, 192)))
    with pytest.raises(ValueError, match="NaN"):
        quick("pals").fit(np.full((48, 8, 8), np.nan), label_N)
    assert quick("pl-knn").fit(images, label_N).score(images, label_N) > 0.9


def test_in_a_pipeline_with_a_grid_search() -> None:
    pipeline = make_pipeline(StandardScaler(), quick("pals"))
    grid = {"palsclassifier__delta": [0.25, 0.75], "palsclassifier__neighbors": [4, 6]}
    search = GridSearchCV(pipeline, grid, cv=StratifiedCandidateKFold(2), scoring=covering_scorer).fit(X, MATRIX)
    assert len(search.cv_results_["params"]) == 4
    assert search.best_estimator_.named_steps["palsclassifier"].delta == search.best_params_["palsclassifier__delta"]
    assert search.score(X_TEST, np.eye(3, dtype=int)[TRUTH_TEST]) > 0.9


def test_searches_over_numbers_and_methods() -> None:
    grid = {"neighbors": np.arange(4, 6), "epochs": np.array([1, 2]), "batch_size": np.array([8]), "delta": np.array([0.5])}
    search = GridSearchCV(quick("pals"), grid, cv=StratifiedCandidateKFold(2), error_score="raise").fit(X, MATRIX)
    assert search.best_params_["neighbors"] in (4, 5)
    search = GridSearchCV(CandidateClassifier(**QUICK), {"method": ["average", "proden", "cc"]}, cv=2).fit(X, MATRIX)
    assert search.best_estimator_.method in ("average", "proden", "cc")


@pytest.mark.parametrize("form", [np.asarray, pd.DataFrame, lambda y: [set(row.nonzero()[0]) for row in y]])
def test_cross_validation_cuts_every_form(form: Any) -> None:
    scores = cross_val_score(quick("pl-knn"), X, form(MATRIX), cv=StratifiedCandidateKFold(3), error_score="raise")
    assert len(scores) == 3 and scores.min() > 0.5


def test_clones_pickles_and_feature_names(monkeypatch: pytest.MonkeyPatch) -> None:
    model = quick("pals", delta=0.4, classes=["a", "b", "c"]).fit(X, MATRIX)
    fresh = clone(model)
    assert fresh.get_params() == model.get_params() and not hasattr(fresh, "classes_")
    with pytest.raises(NotFittedError):
        fresh.predict(X)
    data = pickle.dumps(quick("pl-knn").fit(X, MATRIX))
    monkeypatch.setattr(factory, "_MADE", {})  # as where nothing has asked for the class before
    model = pickle.loads(data)
    assert type(model).__name__ == "PLKNNClassifier" and model.predict(X_TEST).shape == (60,)
    frame = pd.DataFrame(X, columns=[f"f{i}" for i in range(6)])
    model = quick("pl-knn").fit(frame, MATRIX)
    assert model.feature_names_in_.tolist() == list(frame.columns)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[frame.columns[::-1]])
    pictures = np.arange(90 * 16, dtype=np.uint8).reshape(90, 4, 4)
    assert not hasattr(quick("pl-knn").fit(frame, MATRIX).fit(pictures, MATRIX), "feature_names_in_")


def test_same_seed_same_classifier_and_other_random_numbers_are_not_changed() -> None:
    draws = []
    for fitted in (False, True):
        torch.manual_seed(5)
        np.random.seed(5)
        first = quick("pals").fit(X, MATRIX) if fitted else None
        draws.append((torch.rand(3).tolist(), np.random.rand(3).tolist()))
    assert draws[0] == draws[1] and first is not None
    with pytest.warns(FutureWarning, match="posterior_"):
        assert (quick("pals").fit(X, MATRIX).belief_ == first.posterior_).all()
    other = quick("pals", random_state=1).fit(X, MATRIX)
    assert (other.predict_proba(X_TEST) != first.predict_proba(X_TEST)).any()


def test_too_few_items_for_the_neighbours() -> None:
    with pytest.warns(UserWarning, match="neighbors=15, but each of the 12 items has only 11 others"):
        model = PALSClassifier(neighbors=15, **QUICK).fit(X[:12], MATRIX[:12])
    assert model.predict(X_TEST).shape == (60,)
    assert model.neighbors == 15  # a parameter stays what it was set to
    assert PALSClassifier(**QUICK).fit(X[:12], MATRIX[:12]).predict(X_TEST).shape == (60,)  # as many as there are, unasked


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "train_options.epochs = 0"),
        ({"batch_size": "many"}, "train_options.batch_size"),
        ({"train_options": {"optimiser": "adam"}}, "did you mean 'train_options.optimizer'"),
        ({"train_options": {"lr": 0.1}}, "train_options has 'lr'"),
        ({"delta": 2}, "method.delta = 2"),
        ({"network": "mpl"}, "did you mean 'mlp'"),
        ({"network": "resnet18"}, "choose 'mlp'"),
        ({"device": "tpu"}, "Unknown device 'tpu'"),
        ({"view_options": {"flip": True}}, "Unknown view option 'flip'"),
        ({"on_empty": "drop"}, "Unknown on_empty 'drop'"),
        ({"classes": ["a", "b"]}, "3 columns, but there are 2 classes"),
    ],
)
def test_bad_settings_are_named_in_fit(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        quick("pals", **settings).fit(X, MATRIX)


def test_other_bad_input() -> None:
    for kind, message, work in (
        (TypeError, "detla", lambda: PALSClassifier(detla=0.3)),
        (InputError, "did you mean 'proden'", lambda: CandidateClassifier("prodn").fit(X, MATRIX)),
        (InputError, "did you mean 'pals'", lambda: classifier_for("palz")),
        (ValueError, "inconsistent numbers of samples", lambda: quick("pals").fit(X, MATRIX[:-1])),
        (InputError, "Only one class", lambda: quick("pals").fit(X, ["a"] * 90)),
        (AttributeError, "no attribute 'NoClassifier'", lambda: estimators.NoClassifier),
    ):
        with pytest.raises(kind, match=message):
            work()


def test_items_without_labels_can_be_learned_from() -> None:
    some = CLEAN.copy()
    some[::4] = 0
    with pytest.raises(InputError, match="23 of 90 items have no candidate label; the first is row 0"):
        quick("pals").fit(X, some)
    model = quick("pals", epochs=8, on_empty="all").fit(X, some)
    assert (model.labels_[::4] == TRUTH[::4]).mean() > 0.9


def test_verbose_shows_the_epochs(capsys: pytest.CaptureFixture[str]) -> None:
    model = quick("proden", verbose=True).fit(X, MATRIX)
    out = capsys.readouterr().out
    assert "PRODENClassifier: epoch 3/3, loss" in out and len(model.loss_curve_) == 3
    quick("proden").fit(X, MATRIX)
    assert capsys.readouterr().out == ""
