from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pals.labels.candidates import CandidateSets, Statistics, Truth, covered, default_names
from pals.labels.covering import agreement, approximate_accuracy, covering_rate, is_candidate, read_agreement
from pals.util.errors import InputError

ANIMALS = ("cat", "dog", "eel")


def sets(candidates: CandidateSets) -> list[set[str]]:
    return [{candidates.class_names[c] for c in row.nonzero().flatten().tolist()} for row in candidates.allowed_NC]


class TestTruth:
    @pytest.mark.parametrize(
        "labels",
        [[2, 0, 1], (2, 0, 1), iter([2, 0, 1]), torch.tensor([2, 0, 1], dtype=torch.int32)]
        + [np.array([2, 0, 1], dtype=kind) for kind in (np.uint8, np.float64, object)],
    )
    def test_takes_whole_numbers_in_any_container(self, labels: Any) -> None:
        truth = Truth.of(labels)
        assert truth.label_N.tolist() == [2, 0, 1] and truth.label_N.dtype == torch.int64
        assert truth.class_names == ("0", "1", "2") and (len(truth), truth.num_classes) == (3, 3)
        assert Truth.of(truth.label_N[1:2], ANIMALS).num_classes == 3, "names may go beyond the labels"

    @pytest.mark.parametrize(
        ("labels", "message"),
        [
            ([0, 3], r"True label 3 of item 1 .* 3 classes"),
            ([0, 1, -1], "True label -1 of item 2"),
            ([[0], [1]], r"shape \(2, 1\)"),
            (5 * torch.ones(()), r"shape \(\)"),
            ([0, 1.5], "item 1 is 1.5, not a class number"),
            ([0, math.nan], "item 1 is nan, not a class number"),
            ([0, None], "item 1 is None, not a class number"),
            (["cat"], "item 0 is .*cat.*, not a class number"),
        ],
    )
    def test_refuses(self, labels: Any, message: str) -> None:
        with pytest.raises(InputError, match=message):
            Truth.of(labels, ANIMALS)


MATRIX = ((1, 0, 1), (0, 1, 0))


class TestFromMatrix:
    @pytest.mark.parametrize(
        "kind", [list, np.array, torch.tensor, lambda m: torch.tensor(m).bool(), lambda m: np.array(m) * 1.0]
    )
    def test_any_container(self, kind: Any) -> None:
        candidates = CandidateSets.from_matrix(kind(MATRIX), class_names=ANIMALS, ids=["a", "b"])
        assert sets(candidates) == [{"cat", "eel"}, {"dog"}] and candidates.ids == ("a", "b")
        assert candidates.allowed_NC.dtype == torch.bool and candidates.frequency_NC is None

    def test_names_are_numbers_where_none_are_given(self) -> None:
        candidates = CandidateSets.from_matrix(MATRIX)
        assert candidates.ids == ("0", "1") and candidates.class_names == default_names(3) == ("0", "1", "2")
        assert (len(candidates), candidates.num_classes, candidates.size_N.tolist()) == (2, 3, [2, 1])


class TestFromLists:
    def test_any_labels(self) -> None:
        candidates = CandidateSets.from_lists([["dog", "cat"], {"eel"}, ("dog", "dog")])
        assert candidates.class_names == ANIMALS and sets(candidates) == [{"cat", "dog"}, {"eel"}, {"dog"}]

        ordered = CandidateSets.from_lists([["dog"], ["cat"]], class_names=["dog", "eel", "cat"])
        assert ordered.allowed_NC.int().tolist() == [[1, 0, 0], [0, 0, 1]]
        candidates = CandidateSets.from_lists([[2, 0], np.array([1])], ids=["a", "b"])
        assert candidates.class_names == ("0", "1", "2")
        assert candidates.allowed_NC.int().tolist() == [[1, 0, 1], [0, 1, 0]]

        assert sets(CandidateSets.from_lists([[2], [0, 1]], class_names=ANIMALS)) == [{"eel"}, {"cat", "dog"}]
        # among names, numbers are names
        assert sets(CandidateSets.from_lists([[1, "x"], ["1"]])) == [{"1", "x"}, {"1"}]


class TestFromVotes:
    def test_weights_become_shares(self) -> None:
        votes = [("a", "cat", 3.0), ("a", "dog", 0.0), ("b", "dog", 1e-3), ("a", "eel"), ("b", "dog", 1e-3)]
        candidates = CandidateSets.from_votes(votes)
        assert candidates.ids == ("a", "b")
        assert sets(candidates) == [{"cat", "eel"}, {"dog"}], "a vote of weight 0 is no vote"
        assert candidates.frequency_NC is not None and candidates.frequency_NC.tolist() == [[0.75, 0, 0.25], [0, 1, 0]]
        assert candidates.frequency_NC.dtype == torch.float32

    def test_ids_fix_the_order_and_the_items(self) -> None:
        votes = [("a", "dog"), ("c", "cat")]
        with pytest.raises(InputError, match=r"1 of 3 items .* the first is 'b'"):
            CandidateSets.from_votes(votes, ids=["c", "b", "a"])
        dropped = CandidateSets.from_votes(votes, ids=["c", "b", "a"], on_empty="drop")
        assert dropped.ids == ("c", "a") and sets(dropped) == [{"cat"}, {"dog"}]
        assert dropped.frequency_NC is not None and dropped.frequency_NC.tolist() == [[1, 0], [0, 1]]

    @given(
        st.lists(
            st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 3), st.floats(0.5, 8, allow_subnormal=False)), min_size=1
        )
    )
    def test_against_a_loop(self, votes: list[tuple[str, str | int, float]]) -> None:
        candidates = CandidateSets.from_votes(votes, class_names=default_names(4))
        assert candidates.frequency_NC is not None
        for i, item in enumerate(candidates.ids):
            weight = [sum(w for name, label, w in votes if name == item and label == c) for c in range(4)]
            assert candidates.allowed_NC[i].tolist() == [w > 0 for w in weight]
            assert candidates.frequency_NC[i].tolist() == pytest.approx([w / sum(weight) for w in weight])


@pytest.mark.parametrize(
    ("kind", "values", "more", "message"),
    [
        ("matrix", [1, 0, 1], {}, r"two dimensions.* shape \(3,\)"),
        ("matrix", [[1, 0], [1, 0], [0.5, 1]], {}, "Row 2 of the candidate matrix"),
        ("matrix", [[1, 0], [math.nan, 1]], {}, "Row 1 of the candidate matrix"),
        ("matrix", [[1, 0], [1]], {}, r"Row 1 of the candidate matrix is \[1\]"),
        ("matrix", [[1, 0], ["x", "y"]], {}, r"Row 1 of the candidate matrix is \['x', 'y'\]"),
        ("matrix", [[1, 0], [1, None]], {}, r"Row 1 of the candidate matrix is \[1, None\]"),
        ("matrix", [[1, 0], [0, 0], [0, 0]], {}, "2 of 3 items have no candidate label; the first is '1'.*on_empty='all'"),
        ("matrix", [[1], [1]], {}, r"Only one class \(0\).*at least two"),
        ("matrix", [[], []], {}, "No class.*at least two"),
        ("matrix", MATRIX, {"ids": ["a"]}, "1 item names for 2 items"),
        ("matrix", MATRIX, {"class_names": ["cat", "dog"]}, r"\(2, 3\) .* 2 items .* 2 classes"),
        ("matrix", MATRIX, {"class_names": ["cat", "cat", "dog"]}, "same name"),
        ("matrix", MATRIX, {"on_empty": "al"}, "Unknown on_empty 'al': did you mean 'all'"),
        ("lists", [["cat"], ["doog"]], {"class_names": ANIMALS}, "In item '1': Unknown label 'doog': did you mean 'dog'"),
        ("lists", [["cat"], ["doog"]], {"class_names": ANIMALS, "ids": ["a", "b.png"]}, "In item 'b.png': Unknown label"),
        ("lists", [[0], [3]], {"class_names": ANIMALS}, r"Label 3 of item '1' .* 3 classes \(0 to 2\)"),
        ("lists", [[0, 1], [-1]], {}, "Label -1 of item '1'"),
        ("lists", [["cat", "dog"], ["cat", None]], {}, "Label None of item '1' is neither"),
        ("lists", [["cat", "dog"], [math.nan]], {}, "Label nan of item '1' is neither"),
        ("lists", [[0, 1], torch.tensor([1])], {}, r"Label tensor\(1\) of item '1' is neither"),
        ("lists", [["cat", "dog"], "dog"], {}, "item '1' are the text 'dog'; put them into a list"),
        ("lists", [["cat", "dog"], []], {"ids": ["a", "b"]}, "1 of 2 items have no candidate label; the first is 'b'"),
        ("lists", [], {}, "No class"),
        ("lists", [["cat", "dog"]], {"ids": []}, "0 item names for 1 items"),
        ("votes", [("a", "cat", -1.0)], {}, "vote 'cat' for item 'a' has weight -1.0"),
        ("votes", [("a", "cat", math.nan)], {}, "has weight nan"),
        ("votes", [("a", "cat", math.inf)], {}, "has weight inf"),
        ("votes", [("a", "cat"), ("z", "dog")], {"ids": ["a"]}, "vote 'dog' names item 'z', which is not among the 1 items"),
        ("votes", [("a", "cat"), ("b", "dog")], {"ids": ["a", "b", "a"]}, "Item 'a' is named twice"),
        ("votes", [("a", 0), ("b", 7)], {"class_names": ANIMALS}, "Label 7 of item 'b'"),
        ("votes", [("a", "cat"), ("b", "dog", 0.0)], {}, "1 of 2 items have no candidate label; the first is 'b'"),
    ],
)
def test_refuses(kind: str, values: Any, more: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        getattr(CandidateSets, f"from_{kind}")(values, **more)


class TestOnEmpty:
    labels = ((), ("cat",), (), ("dog", "eel"))

    def test_all_puts_every_class_in_and_drop_keeps_the_names_of_the_rest(self) -> None:
        candidates = CandidateSets.from_lists(self.labels, on_empty="all")
        assert sets(candidates) == [set(ANIMALS), {"cat"}, set(ANIMALS), {"dog", "eel"}]
        assert candidates.ids == ("0", "1", "2", "3")
        assert sets(CandidateSets.from_votes([], ids=["a"], class_names=ANIMALS, on_empty="all")) == [set(ANIMALS)]
        candidates = CandidateSets.from_votes([("a", 0), ("b", 1, 0.0)], on_empty="all")
        assert candidates.frequency_NC is not None and candidates.frequency_NC.tolist() == [[1, 0], [0.5, 0.5]]
        candidates = CandidateSets.from_lists(self.labels, on_empty="drop")
        assert sets(candidates) == [{"cat"}, {"dog", "eel"}] and candidates.ids == ("1", "3")

    @pytest.mark.parametrize("choice", ["error", "all", "drop"])
    def test_neither_touches_full_data(self, choice: Any) -> None:
        assert CandidateSets.from_matrix([[1, 0], [1, 1]], on_empty=choice).allowed_NC.int().tolist() == [[1, 0], [1, 1]]


@pytest.mark.parametrize(
    ("frequency", "message"),
    [
        ([[1.0, 0.0]], r"votes \(1, 2\) and sets \(2, 2\)"),
        ([[1.0, 0.0], [0.5, 0.6]], "frequencies of item 'b' are not shares"),
        ([[1.0, 0.0], [-0.5, 1.5]], "frequencies of item 'b' are not shares"),
        ([[math.nan, 0.0], [0.5, 0.5]], "frequencies of item 'a' are not shares"),
    ],
)
def test_frequencies_are_shares(frequency: list[list[float]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        CandidateSets(torch.ones(2, 2), ("a", "b"), ("x", "y"), torch.tensor(frequency))


class TestTruthAndCandidates:
    candidates = CandidateSets.from_lists([["cat"], ["cat", "dog"], ["cat", "dog", "eel"], ["eel", "dog"]])

    def test_from_truth(self) -> None:
        candidates = CandidateSets.from_truth(Truth.of([2, 0], ANIMALS), ids=["a", "b"])
        assert sets(candidates) == [{"eel"}, {"cat"}] and candidates.ids == ("a", "b")

    def test_statistics_and_coverage(self) -> None:
        expected = Statistics(items=4, classes=3, mean_size=2.0, singletons=0.25, full=0.25, coverage=None)
        assert self.candidates.statistics() == expected
        truth = Truth.of([0, 2, 2, 0], ANIMALS)
        assert covered(self.candidates, truth).tolist() == [True, False, True, False]
        assert self.candidates.statistics(truth).coverage == 0.5
        assert CandidateSets.from_truth(truth).statistics(truth).coverage == 1

    @pytest.mark.parametrize(
        "truth", [Truth.of([0, 0, 0], ANIMALS), Truth.of([0, 0, 0, 2]), Truth.of([0, 0, 0, 0], (*ANIMALS, "fox"))]
    )
    def test_coverage_needs_the_same_data(self, truth: Truth) -> None:
        with pytest.raises(InputError, match=r"Truth and candidates differ"):
            covered(self.candidates, truth)


class TestTake:
    candidates = CandidateSets.from_votes([("a", 0), ("b", 1), ("b", 0), ("c", 2)])

    @pytest.mark.parametrize(
        ("index", "ids"),
        [([2, 0], "ca"), ([1, 1], "bb"), ([-1], "c"), ([True, False, True], "ac"), ([True, True, True], "abc")],
    )
    def test_rows_names_and_frequencies_move_together(self, index: list[int], ids: str) -> None:
        taken = self.candidates.take(torch.tensor(index))
        assert taken.ids == tuple(ids) and taken.frequency_NC is not None and self.candidates.frequency_NC is not None
        for i, item in enumerate(taken.ids):
            row = self.candidates.ids.index(item)
            assert torch.equal(taken.allowed_NC[i], self.candidates.allowed_NC[row])
            assert torch.equal(taken.frequency_NC[i], self.candidates.frequency_NC[row])

    def test_leaves_the_original_alone(self) -> None:
        assert CandidateSets.from_matrix([[1, 0], [0, 1]]).take(torch.tensor([1])).frequency_NC is None
        self.candidates.take(torch.tensor([0])).allowed_NC.fill_(True)
        assert sets(self.candidates)[0] == {"0"}


@given(st.lists(st.sets(st.integers(0, 4), min_size=1), min_size=1))
def test_lists_and_matrix_agree(labels: list[set[int]]) -> None:
    matrix = [[int(c in row) for c in range(5)] for row in labels]
    from_matrix = CandidateSets.from_matrix(matrix)
    from_lists = CandidateSets.from_lists(labels, class_names=default_names(5))
    assert torch.equal(from_lists.allowed_NC, from_matrix.allowed_NC)
    assert from_lists.size_N.tolist() == [len(row) for row in labels]


PROBABILITY_NC = torch.tensor([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.2, 0.2, 0.6]], dtype=torch.float64)
ALLOWED_NC = torch.tensor([[1, 1, 0], [1, 0, 1], [0, 0, 1]], dtype=torch.bool)


def test_the_two_criteria_by_hand() -> None:
    assert is_candidate(ALLOWED_NC, torch.tensor([0, 1, 2])).tolist() == [True, False, True]
    assert float(covering_rate(PROBABILITY_NC, ALLOWED_NC)) == pytest.approx(2 / 3)
    assert float(covering_rate(PROBABILITY_NC.log(), ALLOWED_NC)) == pytest.approx(2 / 3)  # only the order matters
    assert float(approximate_accuracy(PROBABILITY_NC, ALLOWED_NC)) == pytest.approx((0.6 / 0.9 + 0 + 1) / 3)
    alone_NC = torch.tensor([[1.0, 0.0, 0.0]])  # no probability on any candidate
    assert float(approximate_accuracy(alone_NC, torch.tensor([[False, True, True]]))) == 0.0
    both = agreement(PROBABILITY_NC.log(), ALLOWED_NC)
    assert read_agreement(both) == pytest.approx({"covering": 2 / 3, "approximate": (0.6 / 0.9 + 0 + 1) / 3})
