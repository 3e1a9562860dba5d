"""What a classifier reads: every form of y, X as vectors and pictures, folds, MATLAB files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.io import savemat
from scipy.sparse import csc_matrix, csr_array
from sklearn.exceptions import DataConversionWarning

from pals.estimator import StratifiedCandidateKFold, candidate_matrix, load_mat
from pals.estimator.inputs import Images, Vectors
from pals.estimator.model_selection import deal
from pals.estimator.targets import read_target
from pals.labels.candidates import CandidateSets
from pals.readers import read_votes
from pals.util.errors import InputError

MATRIX = np.array([[1, 1, 0], [0, 0, 1], [0, 1, 1], [1, 0, 0]])
NAMES = ["ant", "bee", "cat"]
SETS = [{"ant", "bee"}, {"cat"}, {"bee", "cat"}, {"ant"}]


@pytest.mark.parametrize(
    "y",
    [MATRIX, MATRIX.astype(bool), MATRIX.astype(float), MATRIX.tolist(), torch.tensor(MATRIX), csr_array(MATRIX),
     csc_matrix(MATRIX), pd.DataFrame(MATRIX), CandidateSets.from_matrix(MATRIX)],
    ids=lambda y: type(y).__name__,
)  # fmt: skip
def test_a_candidate_matrix_in_any_wrapping(y: Any) -> None:
    target = read_target(y)
    assert target.allowed_NC.dtype == bool and (target.allowed_NC == MATRIX).all()
    assert [str(c) for c in target.classes] == ["0", "1", "2"] and target.frequency_NC is None and not target.plain


@pytest.mark.parametrize(
    "y",
    [
        SETS,
        [list(labels) for labels in SETS],
        [frozenset(labels) for labels in SETS],
        pd.Series(SETS),
        np.array(SETS, dtype=object),
        pd.DataFrame(MATRIX[:, [2, 0, 1]], columns=["cat", "ant", "bee"])[NAMES],
    ],
    ids=["sets", "lists", "frozensets", "series", "object array", "frame"],
)
def test_sets_of_names(y: Any) -> None:
    target = read_target(y)
    assert target.classes.tolist() == NAMES and (target.allowed_NC == MATRIX).all() and target.frequency_NC is None


@pytest.mark.parametrize(
    "y",
    [
        [("ant", "bee", "ant"), ("bee",), ("cat", "bee")],
        [{"ant": 2, "bee": 1}, {"bee": 5}, {"cat": 0.5, "bee": 0.5, "ant": 0}],
        np.array([["ant", "bee", "ant"], ["bee", "bee", "bee"], ["cat", "bee", None]], dtype=object),
        pd.DataFrame({"ann": ["ant", "bee", "cat"], "bob": ["bee", None, "bee"], "cy": ["ant", "bee", None]}),
    ],
    ids=["tuples", "weights", "table of answers", "frame of answers"],
)
def test_votes_are_counted(y: Any) -> None:
    target = read_target(y)
    assert target.classes.tolist() == NAMES and target.frequency_NC is not None
    assert target.frequency_NC == pytest.approx(np.array([[2 / 3, 1 / 3, 0], [0, 1, 0], [0, 0.5, 0.5]]))
    assert (target.allowed_NC == (target.frequency_NC > 0)).all()


def test_a_matrix_of_counts_and_votes_of_a_file_are_read_as_shares(tmp_path: Path) -> None:
    target = read_target(np.array([[2, 1, 0], [0, 4, 0]]))
    assert target.frequency_NC is not None
    assert target.frequency_NC == pytest.approx(np.array([[2 / 3, 1 / 3, 0], [0, 1, 0]]))
    again, classes = candidate_matrix(np.array([[2, 1, 0], [0, 4, 0]]))
    assert again == pytest.approx(target.frequency_NC) and classes.tolist() == [0, 1, 2]
    assert read_target([[0.5, 0.5, 0.0], [0.0, 1.0, 0.0]]).frequency_NC is not None
    rows = [f"{i},{name}" for i, labels in enumerate(SETS) for name in sorted(labels)]
    (tmp_path / "votes.csv").write_text("\n".join(["item,label", *rows]))
    target = read_target(read_votes(tmp_path / "votes.csv"))
    assert target.classes.tolist() == NAMES and (target.allowed_NC == MATRIX).all()
    assert target.frequency_NC == pytest.approx(MATRIX / MATRIX.sum(axis=1, keepdims=True))


@pytest.mark.parametrize("y", [["b", "a", "b"], np.array(["b", "a", "b"]), pd.Series(["b", "a", "b"], dtype="category")])
def test_plain_labels_are_sets_of_one(y: Any) -> None:
    target = read_target(y)
    assert target.plain and target.classes.tolist() == ["a", "b"]
    assert target.allowed_NC.tolist() == [[False, True], [True, False], [False, True]]
    with pytest.warns(DataConversionWarning):  # a column of labels
        assert read_target(np.array([[1], [0], [1]])).plain


def test_numbers_stay_numbers_and_ids_are_rows() -> None:
    target = read_target([[7, 3], [3], [40]])
    assert target.classes.tolist() == [3, 7, 40]
    assert target.allowed_NC.tolist() == [[True, True, False], [True, False, False], [False, False, True]]
    assert (target.sets().class_names, target.sets().ids) == (("3", "7", "40"), ("0", "1", "2"))
    with pytest.raises(InputError, match="on_empty"):
        read_target(MATRIX, on_empty="drop")  # type: ignore[arg-type]
    target = read_target([{"ant", "yak"}, {"yak"}], NAMES, lenient=True)
    assert target.allowed_NC.tolist() == [[True, False, False], [False, False, False]]
    assert read_target(["yak", "bee"], NAMES, lenient=True).allowed_NC.tolist() == [[False] * 3, [False, True, False]]
    assert read_target([{"a"}, set(), {"b"}], on_empty="all").allowed_NC[1].all()
    shares = read_target(np.array([[2, 0], [0, 0]]), on_empty="all").frequency_NC
    assert shares is not None and shares.tolist() == [[1, 0], [0.5, 0.5]]


def test_classes_fix_order_and_number() -> None:
    order = ["cat", "dog", "ant", "bee"]
    for y in (SETS, pd.DataFrame(MATRIX, columns=NAMES)):
        target = read_target(y, order)
        assert target.classes.tolist() == order
        assert target.allowed_NC[:, [2, 3, 0]].tolist() == MATRIX.astype(bool).tolist()
        assert not target.allowed_NC[:, 1].any()
    assert read_target(MATRIX, NAMES).classes.tolist() == NAMES
    assert read_target(["bee", "ant"], NAMES).allowed_NC.tolist() == [[False, True, False], [True, False, False]]


@pytest.mark.parametrize(
    ("y", "classes", "message"),
    [
        (None, None, "requires y"),
        ("abc", None, "y is str"),
        ({"a": 1}, None, "y is dict"),
        ([{"a"}, set()], None, "the first is row 1.*on_empty='all'"),
        (np.array([[1, 0], [0, 0]]), None, "1 of 2 items have no candidate"),
        (np.array([[1.0, -1], [0, 1]]), None, "Row 0 of y holds a negative"),
        (np.array([[1.0, 0], [np.nan, 1]]), None, "Row 1 of y holds a negative number, NaN"),
        ([{"a"}, "b"], None, "Row 1 of y is 'b'.*write {'b'}"),
        ([["a", "a"], ["b"]], None, "Row 0 of y names a label twice.*tuple"),
        ([{"a": -1}, {"b": 1}], None, "gives 'a' the weight -1"),
        ([{"a"}, {1}], None, "cannot be compared: int, str"),
        ([[["a"]], ["b"]], None, "Row 0.*not a label"),
        ([{"ant"}, {"be"}], NAMES, "row 1 of y.*did you mean 'bee'"),
        (["ant", "be"], NAMES, "'be'.*did you mean 'bee'"),
        (MATRIX, NAMES[:2], "3 columns, but there are 2 classes"),
        (MATRIX, ["a", "a", "b"], "every class once"),
        ([0.5, 1.5, 2.5], None, "Unknown label type"),
        ([1.0, np.nan, 2.0], None, "y contains NaN"),
        (["a", None, "b"], None, "Row 1 of y has no label"),
        (["a", np.nan, "b"], None, "Row 1 of y has no label"),
        (pd.Series(["a", "b", None]), None, "Row 2 of y has no label"),
        (["a", "b", 1], None, "Row 2 of y is a number while others are text"),
        (MATRIX + 0j, None, "y is a table of complex128"),
        (np.array([[1, {}], [0, 1]], dtype=object), None, "y is a table of object"),
    ],
)
def test_bad_targets_are_refused_with_a_reason(y: Any, classes: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_target(y, classes)


def test_vectors_are_standardised_by_what_fit_saw() -> None:
    X = np.array([[1e9, 5.0], [1e9 + 2, 5.0]])  # in float32 the first feature would be constant
    ready = Vectors.fit(X, standardize=True).prepare(X)
    assert ready.dtype == torch.float32 and ready.tolist() == [[-1, 0], [1, 0]]
    assert Vectors.fit(X, standardize=False).prepare(np.ones((1, 2))).tolist() == [[1, 1]]
    X = np.arange(2.0 * 3).reshape(2, 3)
    with pytest.raises(InputError, match="did you mean 'noise'"):
        Vectors.fit(X, True).views({"nose": 1})
    assert Vectors.fit(X, True).views({"noise": 0.0}).names[:3] == ("weak", "strong", "eval")


@pytest.mark.parametrize("shape", [(5, 8, 6), (5, 1, 8, 6), (5, 3, 8, 6), (5, 8, 6, 3), (5, 3, 8, 3)])
def test_channels_are_found(shape: tuple[int, ...]) -> None:
    X = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    images = Images.fit(X)
    held = images.prepare(X)
    expected = X[:, None] if X.ndim == 3 else np.moveaxis(X, 3, 1) if shape == (5, 8, 6, 3) else X
    assert (held.numpy() == expected).all()
    view = images.views(None).make("eval", held, torch.Generator())
    assert view.mean(dim=(0, 2, 3)).abs().max() < 1e-5
    assert view.std(dim=(0, 2, 3), correction=0).sub(1).abs().max() < 1e-5


def test_other_numbers_become_bytes_by_the_range_seen_first() -> None:
    X = np.linspace(-1, 1, 2 * 4 * 4).reshape(2, 4, 4)
    images = Images.fit(X)
    assert images.prepare(X).flatten()[[0, -1]].tolist() == [0, 255]
    assert images.prepare(np.full((1, 4, 4), 7.0)).unique().tolist() == [255]
    assert images.prepare(np.zeros((1, 4, 4))).unique().tolist() == [128]
    for shape, message in (((4, 8, 8, 8), "1, 3 or 4 channels"), ((4, 3, 8, 8, 2), "Pictures are"), ((4, 8, 8), "same single")):
        with pytest.raises(InputError, match=message):
            Images.fit(np.zeros(shape, dtype=float if len(shape) == 3 else np.uint8))


@given(hnp.arrays(bool, st.tuples(st.integers(4, 60), st.integers(2, 6))), st.integers(2, 4))
def test_folds_are_a_partition_into_equal_parts(allowed_NC: np.ndarray, folds: int) -> None:
    size_F = np.bincount(deal(allowed_NC, folds), minlength=folds)
    assert size_F.sum() == len(allowed_NC) and size_F.max() - size_F.min() <= 1


@given(st.lists(st.integers(0, 4), min_size=6, max_size=80), st.integers(2, 5))
def test_of_plain_labels_every_fold_has_its_share(labels: list[int], folds: int) -> None:
    label_N = np.array(labels)
    fold_N = deal(np.eye(5, dtype=bool)[label_N], folds)
    count_FC = np.stack([np.bincount(label_N[fold_N == fold], minlength=5) for fold in range(folds)])
    assert (count_FC.max(axis=0) - count_FC.min(axis=0)).max() <= 1


def test_candidates_of_every_class_are_spread_evenly() -> None:
    rng = np.random.default_rng(0)
    share_C = np.array([0.5, 0.2, 0.1, 0.05, 0.02])
    allowed_NC = rng.random((600, 5)) < share_C
    allowed_NC[np.arange(600), rng.choice(5, 600, p=share_C / share_C.sum())] = True
    fold_N = deal(allowed_NC, 10)
    count_FC = np.stack([allowed_NC[fold_N == fold].sum(axis=0) for fold in range(10)])
    assert (count_FC.max(axis=0) - count_FC.min(axis=0)).max() <= 3  # the largest class has 47 or so in each
    dealt_F = np.arange(600) % 10
    plain_FC = np.stack([allowed_NC[dealt_F == fold].sum(axis=0) for fold in range(10)])
    assert count_FC.std(axis=0).sum() < plain_FC.std(axis=0).sum() / 4


def test_splitter_takes_every_form_and_shuffles_by_its_seed() -> None:
    matrix = np.tile(MATRIX, (5, 1))
    X = np.zeros((20, 2))
    forms = [matrix, csr_array(matrix), [set(row.nonzero()[0]) for row in matrix], CandidateSets.from_matrix(matrix)]
    found = [[test.tolist() for _, test in StratifiedCandidateKFold(5).split(X, y)] for y in forms]
    assert found[1:] == found[:-1] and sorted(row for test in found[0] for row in test) == list(range(20))
    for train, test in StratifiedCandidateKFold(5).split(X, matrix):
        assert sorted([*train, *test]) == list(range(20))
    seeds = [
        [t.tolist() for _, t in StratifiedCandidateKFold(5, shuffle=True, random_state=seed).split(X, matrix)]
        for seed in (0, 0, 1)
    ]
    assert seeds[0] == seeds[1] != seeds[2] and StratifiedCandidateKFold(4).get_n_splits() == 4
    assert "n_splits=5" in repr(StratifiedCandidateKFold(5))


def test_splitter_refuses() -> None:
    folds = list(StratifiedCandidateKFold(2).split(None, [{"a"}, set(), {"b"}, set()]))
    assert [len(test) for _, test in folds] == [2, 2]
    with pytest.raises(InputError, match="at least two"):
        StratifiedCandidateKFold(1)
    with pytest.raises(InputError, match="5 folds cannot be made of 4"):
        list(StratifiedCandidateKFold(5).split(None, MATRIX))
    with pytest.raises(ValueError, match="inconsistent"):
        list(StratifiedCandidateKFold(2).split(np.zeros((3, 1)), MATRIX))


@pytest.mark.parametrize("form", [np.asarray, csc_matrix])
def test_mat_files_give_features_candidates_and_truth(tmp_path: Path, form: Any) -> None:
    X = np.random.default_rng(0).normal(size=(4, 6))
    truth = np.array([0, 2, 1, 0])
    arrays = {"data": X, "partial_target": form(MATRIX.T * 1.0), "target": form(np.eye(3)[truth].T)}
    savemat(tmp_path / "toy.mat", arrays)
    data = load_mat(tmp_path / "toy.mat")
    assert (data.X == X).all() and (data.candidates == MATRIX).all() and data.truth is not None
    assert data.truth.tolist() == truth.tolist()
    savemat(tmp_path / "sparse.mat", arrays | {"data": csc_matrix(X)})
    assert (load_mat(str(tmp_path / "sparse.mat")).X == X).all()


def test_mat_files_without_truth_or_features(tmp_path: Path) -> None:
    savemat(tmp_path / "toy.mat", {"data": np.eye(4), "partial_target": MATRIX.T})
    assert load_mat(tmp_path / "toy.mat").truth is None
    savemat(tmp_path / "bare.mat", {"partial_target": MATRIX.T})
    with pytest.raises(InputError, match=r"bare.mat: there is no `data`"):
        load_mat(tmp_path / "bare.mat")
    savemat(tmp_path / "holes.mat", {"data": np.full((4, 2), np.nan), "partial_target": MATRIX.T})
    with pytest.raises(ValueError, match="NaN"):
        load_mat(tmp_path / "holes.mat")
