"""`pals prune`: answers and features in, a file of answers out that is read again; and what it says of itself."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from _crowd import rows_of, votes_of
from _pictures import make_pictures
from _toy import Answer, toy_candidates, toy_data
from pals.data import Items
from pals.labels.metrics import grade_pruning
from pals.pipeline.prune_files import prune_votes, seen_as, without
from pals.pipeline.prune_files import votes_of as votes_of_sets
from pals.pseudo_labels.prune_sets import prune
from pals.readers import read_votes
from pals.vision.augment import image_views

Pals = Callable[..., Answer]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path, Path]:
    """Sets, vectors and truth of 90 points in three clouds, named by their row."""
    monkeypatch.setenv("PALS_CACHE", str(tmp_path / "cache"))
    data = toy_data()
    sets = toy_candidates(data)
    text = ["item,candidates", *(f"{i},{'|'.join(names(row))}" for i, row in enumerate(sets.allowed_NC))]
    (tmp_path / "sets.csv").write_text("\n".join(text))
    np.save(tmp_path / "x.npy", data.train.inputs.numpy())
    label = [f"{i},class-{c}" for i, c in enumerate(data.truth.label_N.tolist())]
    (tmp_path / "truth.csv").write_text("\n".join(["item,label", *label]))
    return tmp_path / "sets.csv", tmp_path / "x.npy", tmp_path / "truth.csv"


def names(row: torch.Tensor) -> list[str]:
    return [f"class-{c}" for c in row.nonzero().flatten().tolist()]


def test_what_is_written_is_read_again(pals: Pals, files: tuple[Path, Path, Path]) -> None:
    sets, features, truth = files
    answer = pals("prune", sets, "--features", features, "--out", "left.csv", "--tau", "0.6", "--truth", truth)
    assert answer.code == 0, answer.err
    data = toy_data()
    given_NC = toy_candidates(data).allowed_NC
    expected_NC = prune(given_NC, data.train.inputs, tau=0.6)
    found = read_votes("left.csv").to_candidates()
    order = torch.tensor([int(name) for name in found.ids])
    assert sorted(order.tolist()) == list(range(90))
    assert torch.equal(found.allowed_NC, expected_NC[order])
    gone, all_ = int((given_NC & ~expected_NC).sum()), int(given_NC.sum())
    assert gone > 0
    assert f"7 neighbours voted: {gone} of {all_} candidates were removed" in answer.out  # a quarter of 30 items per class
    grades = grade_pruning(given_NC, expected_NC, data.truth)
    percents = [float(number) for number in re.findall(r"([0-9.]+)% of the", answer.out)]
    assert percents == pytest.approx([100 * grades["coverage"], 100 * grades["error"]], abs=0.06)


def test_options_reach_the_function(pals: Pals, files: tuple[Path, Path, Path]) -> None:
    sets, features, _ = files
    texts = {}
    for number, more in enumerate([(), ("--no-spare",), ("--neighbors", "2"), ("--class-share", "0", "--neighbors", "80")]):
        assert pals("prune", sets, "--features", features, "--out", "left.csv", "--tau", "1", *more).code == 0
        texts[number] = Path("left.csv").read_text()
    assert len(set(texts.values())) == 4
    assert pals("prune", sets, "--features", features, "--out", "left.csv", "--tau", "0").code == 0
    whole = read_votes("left.csv").to_candidates()
    assert int(whole.allowed_NC.sum()) == int(toy_candidates(toy_data()).allowed_NC.sum())


def test_a_data_set_is_pruned_and_graded(pals: Pals) -> None:
    rates = ("--partial-rate", "0.5", "--noise-rate", "0")
    answer = pals("prune", "--data", "toy", *rates, "--out", "left.csv", "--tau", "1")
    assert answer.code == 0, answer.err
    coverage, error = (float(number) for number in re.findall(r"([0-9.]+)% of the", answer.out))
    assert coverage > 80
    assert error < 5
    assert len(read_votes("left.csv").items) == 90


def test_pictures_and_answers(pals: Pals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALS_CACHE", str(tmp_path / "cache"))
    data = make_pictures(tmp_path / "data")
    columns = ("--item-column", "picture", "--worker-column", "who", "--label-column", "class")
    for look in ((), ("--look", "pixels")):
        answer = pals("prune", data / "images", data / "votes.csv", *columns, "--out", "left.csv", "--device", "cpu", *look)
        assert answer.code == 0, answer.err
        before = read_votes(data / "votes.csv", columns={"item": "picture", "worker": "who", "label": "class"})
        after = read_votes("left.csv")
        assert set(after.workers) <= set(before.workers)
        assert set(after.items) == set(before.match(after.items)[0].items)
        assert after.num_answers < before.num_answers


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--out", "o.csv"), "Nothing to prune is named"),
        (("votes.csv", "--out", "o.csv"), "Only votes.csv is named"),
        (("votes.csv", "--data", "toy", "--out", "o.csv"), "Both --data toy and votes.csv"),
        (("--data", "toy", "--look", "eyes", "--out", "o.csv"), "choose patches or pixels"),
        (("--data", "toyy", "--out", "o.csv"), "Unknown data set 'toyy'"),
        (("none.csv", "--features", "none.npy", "--out", "o.csv"), "none"),
    ],
)
def test_bad_input_is_one_sentence(pals: Pals, arguments: tuple[str, ...], message: str) -> None:
    answer = pals("prune", *arguments)
    assert answer.code == 2
    assert message in answer.err
    assert "Traceback" not in answer.err
    assert not Path("o.csv").exists()


def test_labels_leave_answers_and_empty_answers_leave() -> None:
    """Item 0: one answer "c0 or c1", one "c1"; c1 goes. Item 1 keeps all."""
    votes = votes_of([(0, 0, 0), (0, 0, 1), (0, 1, 1), (1, 1, 2)], 2, answer=[0, 0, 1, 2], weight=[2, 2, 1, 3])
    gone_IC = np.array([[False, True, False], [False, False, False]])
    left = without(votes, gone_IC)
    assert rows_of(left) == [(0, 0, 0), (1, 1, 2)]
    assert (left.answer_R.tolist(), left.weight_R.tolist(), left.num_answers) == ([0, 1], [2, 3], 2)
    assert left.items == votes.items


def test_gold_and_items_without_answers() -> None:
    """A gold label is the only candidate of its item, whatever people said; who has no answer takes no part."""
    rows = [(item, -1, label) for item in range(6) for label in ((0, 1) if item else (0, 2))]
    votes = votes_of(rows, 8, gold={1: 1})
    features_ND = torch.ones(8, 2)
    made = prune_votes(votes, features_ND, tau=1.0, neighbors=5, class_share=None, spare=False)
    assert len(made.given) == 6
    assert made.given.allowed_NC[1].tolist() == [False, True, False]
    assert made.neighbors == 5
    assert not made.kept_NC[0, 2]
    left = made.votes
    assert (0, -1, 2) not in rows_of(left)
    assert (0, -1, 0) in rows_of(left)
    assert {row for row in rows_of(left) if row[0] == 1} == {(1, -1, 0), (1, -1, 1)}  # beside gold: as they were given
    assert len(left.items) == 8


def test_sets_as_votes_are_the_same_sets() -> None:
    sets = toy_candidates(toy_data())
    again = votes_of_sets(sets, "toy").to_candidates()
    assert torch.equal(again.allowed_NC, sets.allowed_NC)
    assert again.ids == sets.ids


def test_small_pictures_are_compared_by_pixels() -> None:
    views = image_views((0.5,), (0.25,), pad=1, flip=False)
    small, large = (torch.randint(0, 255, (30, 1, side, side), dtype=torch.uint8) for side in (8, 12))
    ids = tuple(map(str, range(30)))
    assert seen_as(None, Items(small, ids), views, "cpu").shape == (30, 64)
    assert seen_as(None, Items(large, ids), views, "cpu").shape == (30, 512)
    assert seen_as("pixels", Items(large, ids), views, "cpu").shape == (30, 144)
    vectors_ND = torch.randn(30, 7)
    assert torch.equal(seen_as(None, Items(vectors_ND, ids), views), vectors_ND)
