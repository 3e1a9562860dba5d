"""Items that have the answers of others are noticed, and nothing else is taken for them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from _crowd import votes_of
from _slow import rest_slow
from pals.crowd import Fusion, fuse
from pals.crowd.data_checks import find_mix_up

ITEMS, CLASSES = 600, 5


def crowd(mixed_up: float, *, sharp: float = 4.0, right: float = 0.9, seed: int = 0) -> tuple[Fusion, np.ndarray]:
    """Three people, and a classifier whose logits are noise around the truth; some items have each other's answers."""
    rng = np.random.default_rng(seed)
    truth_N = rng.integers(CLASSES, size=ITEMS)
    other_NW = rng.integers(CLASSES, size=(ITEMS, 3))
    said_NW = np.where(rng.random((ITEMS, 3)) < right, truth_N[:, None], other_NW)
    moved = rng.choice(ITEMS, round(mixed_up * ITEMS), replace=False)
    said_NW[moved] = said_NW[np.roll(moved, 1)]
    votes = votes_of([(i, w, int(said_NW[i, w])) for i in range(ITEMS) for w in range(3)], ITEMS, CLASSES)
    logits_NC = rng.normal(size=(ITEMS, CLASSES)) + sharp * np.eye(CLASSES)[truth_N]
    return fuse(votes, [0.5 * logits_NC]), moved[truth_N[moved] != truth_N[np.roll(moved, 1)]]


@pytest.mark.parametrize(("share", "sharp"), [(0.1, 4.0), (0.2, 4.0), (0.2, 1.5)])
def test_it_is_found_and_the_items_are_named(share: float, sharp: float) -> None:
    """Also by a classifier that is right for two thirds, as one on few pictures is."""
    fusion, moved = crowd(share, sharp=sharp)
    found = find_mix_up(fusion)
    assert found is not None
    assert found.share == pytest.approx(share, abs=0.06)
    assert np.isin(found.items[:20], moved).mean() >= 0.9


@pytest.mark.parametrize("seed", rest_slow(1, range(4)))
@pytest.mark.parametrize(("sharp", "right"), [(4.0, 0.9), (4.0, 0.6), (1.5, 0.9), (0.5, 0.75)])
def test_poor_people_and_poor_classifiers_are_no_mix_up(sharp: float, right: float, seed: int) -> None:
    assert find_mix_up(crowd(0.0, sharp=sharp, right=right, seed=seed)[0]) is None


def test_without_a_classifier_nobody_can_tell() -> None:
    fusion, _ = crowd(0.2)
    assert find_mix_up(replace(fusion, calibration=None)) is None
