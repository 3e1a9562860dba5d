"""An update finds what a fit of all answers finds, and compares it with the labels of the run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from _crowd import many_people
from pals import fit
<<<<<<< HEAD
from pals.crowd import dawid_skene
from pals.crowd.dawid_skene import em, sparse_em
=======
>>>>>>> 9453427 (Effective annotators, guideline.csv and Gwet's AC1; one fit of answers alone)
from pals.pipeline import update
from pals.pipeline.stages.warm_start import earlier_labels


<<<<<<< HEAD
def grown() -> tuple[Votes, np.ndarray]:
    """Votes on 600 items, and what was found from all but the last hundred answers."""
    votes, _ = many_people(600, 25, 5, seed=4)
    before = votes.take(np.arange(len(votes.item_R) - 100))
    start_NC = dawid_skene(before).posterior_NC.copy()
    start_NC[np.bincount(before.item_R, minlength=600) == 0] = 0.0  # new items
    return votes, start_NC


def counted(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[int]:
    """Grows by one with every call."""
    calls: list[int] = []
    real = getattr(module, name)

    def call(*rest: Any, **options: Any) -> Any:
        calls.append(1)
        return real(*rest, **options)

    monkeypatch.setattr(module, name, call)
    return calls


@pytest.mark.parametrize("hard", rest_slow(1, [True, False]))
@pytest.mark.parametrize(("many", "passes"), [(sparse_em.MANY, (em, "e_step")), (0, (sparse_em, "full_e_step"))])
def test_a_warm_start_finds_the_same_with_less_work(
    hard: bool, many: int, passes: tuple[Any, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sparse_em, "MANY", many)
    votes, start_NC = grown()
    assert (start_NC == 0).all(axis=1).any()
    kept_NC, calls = start_NC.copy(), counted(monkeypatch, *passes)
    cold = dawid_skene(votes, hard_items=hard)
    first = len(calls)
    warm = dawid_skene(votes, hard_items=hard, start_NC=start_NC)
    assert len(calls) - first < first and warm.converged and warm.annotators.strength == cold.annotators.strength
    assert np.abs(warm.posterior_NC - cold.posterior_NC).sum(axis=1).mean() < 2e-3
    assert (warm.label_N == cold.label_N).mean() > 0.99 and (start_NC == kept_NC).all()


def test_few_iterations_are_enough_and_some_labels_are_no_start(tmp_path: Path) -> None:
    votes, _ = grown()
    cold = dawid_skene(votes, strength=30.0)
    again = dawid_skene(votes, strength=30.0, start_NC=cold.posterior_NC)
    assert again.iterations <= cold.iterations / 3
    assert again.posterior_NC == pytest.approx(cold.posterior_NC, abs=1e-3)
=======
def test_earlier_labels_are_read_where_they_can_be(tmp_path: Path) -> None:
>>>>>>> 9453427 (Effective annotators, guideline.csv and Gwet's AC1; one fit of answers alone)
    votes, _ = many_people(20, 4, 3, seed=1)
    earlier = str(tmp_path / "votes.csv")
    assert earlier_labels(votes, None) is None and earlier_labels(votes, earlier) is None
    (tmp_path / "labels.csv").write_text("item,label\ni1,c2\ni2,unheard of\nnobody,c0\n")
    label_N = earlier_labels(votes, earlier)
    assert label_N is not None
    known = votes.items.index("i1")
    assert label_N[known] == votes.class_names.index("c2") and (np.delete(label_N, known) == -1).all()


def test_an_update_finds_what_a_fit_of_all_answers_finds(tmp_path: Path) -> None:
    votes, _ = many_people(90, 8, 3, seed=2)
    table = votes.to_frame()[["item", "annotator", "label"]].replace("c0", "=c0")  # a class that a spreadsheet would run
    table.iloc[:-40].to_csv(tmp_path / "first.csv", index=False)
    table.iloc[-40:].to_csv(tmp_path / "second.csv", index=False)
    table.to_csv(tmp_path / "all.csv", index=False)
    fit(None, tmp_path / "first.csv", out=tmp_path / "run", no_images=True)
    updated = update(tmp_path / "run", tmp_path / "second.csv", out=tmp_path / "updated")
    whole = fit(None, tmp_path / "all.csv", out=tmp_path / "whole", no_images=True)
    both = pd.merge(updated.labels, whole.labels, on="item")
    assert len(both) == 90 and (both["label_x"] == both["label_y"]).mean() > 0.99
    assert both["confidence_x"].to_numpy() == pytest.approx(both["confidence_y"].to_numpy(), abs=0.02)
    assert updated.noise.earlier is not None
