"""What answers are worth: Kish's formula by hand, copies counted once, and the sentence about it."""

from __future__ import annotations

import pytest

from _crowd import votes_of
from pals.crowd import dawid_skene
from pals.crowd.copied_answers import Same
from pals.crowd.effective_annotators import effective_annotators
from pals.pipeline.summary import effective_sentence


@pytest.mark.parametrize(
    ("rho", "copies", "worth"),
    [
        (0.0, (), 4.0),
        (0.5, (), 4 / 2.5),
        (1.0, (), 1.0),
        (0.5, (Same((1, 2, 3), 40),), 2 / 1.5),  # three copy: two answers an item are left
        (0.5, (Same((0, 1, 2, 3), 40),), 1.0),
    ],
)
def test_kishs_formula(rho: float, copies: tuple[Same, ...], worth: float) -> None:
    votes = votes_of([(item, person, item % 2) for item in range(40) for person in range(4)], 40, 2)
    found = effective_annotators(dawid_skene(votes, correlation=rho), copies)
    assert (found.answers, found.everybody) == (4.0, 4)
    assert found.independent == pytest.approx(worth)
    lines = effective_sentence(found)
    assert lines == [] if worth == 4 else f"4 annotators are worth {worth:.1f} independent" in lines[0]


def test_of_many_annotators_the_answers_to_an_item_count() -> None:
    votes = votes_of([(item, (item + step) % 9, item % 2) for item in range(45) for step in range(3)], 45, 2)
    found = effective_annotators(dawid_skene(votes, correlation=0.5))
    assert (found.answers, found.everybody, found.independent) == (3.0, 0, pytest.approx(1.5))
    assert effective_sentence(found)[0].startswith("The 3.0 answers to an item are worth 1.5")
