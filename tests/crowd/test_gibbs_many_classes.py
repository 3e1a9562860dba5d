"""The share of wrong labels where classes are many: drawn for the labels that are given, not for all by all."""

from __future__ import annotations

import numpy as np
from pals.crowd.dawid_skene.annotators import initial_annotators

from _crowd import rows_of, simulated, votes_of
from pals.crowd import gibbs
from pals.crowd.answers import arrange
from pals.crowd.dawid_skene.em import majority_vote
from pals.crowd.error_estimate import estimate_noise
from pals.crowd.fusion import fuse


def test_labels_that_nobody_gives_cost_next_to_nothing() -> None:
    few, _ = simulated(26, [0.8, 0.7, 0.75], classes=8)
    votes = votes_of(rows_of(few), 26, 2000)
    answers, rng = arrange(votes), np.random.default_rng(0)
    start = gibbs.Start(majority_vote(votes), initial_annotators(answers, 30.0, False), 0.0)
    chain = gibbs.Chain(answers, None, start, rng)
    for _ in range(10):
        chain.sweep(draw_correlation=False)
    assert chain.mistake_CL.shape == (2000, 8)  # a table of all classes by all would be nearly empty
    total_C = chain.mistake_CL.sum(axis=1)
    assert (total_C <= 1 + 1e-9).all()
    assert total_C[8:].mean() < 0.5  # most of what could be mistaken has names that nobody gave


def test_what_is_wrong_hardly_depends_on_classes_that_nobody_names() -> None:
    votes, truth_N = simulated(200, [0.85, 0.8, 0.9], classes=6, seed=3)
    more = votes_of(rows_of(votes), 200, 30)
    with_more, without = fuse(more, ()), fuse(votes, ())
    found = [estimate_noise(votes, without), estimate_noise(more, with_more)]
    assert abs(found[0].labels_wrong - found[1].labels_wrong) < 0.04
    wrong = (with_more.label_N != truth_N).mean()
    assert found[1].low - 0.02 <= wrong <= found[1].high + 0.02
