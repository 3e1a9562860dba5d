"""CLSP as a method: sets are pruned once, before the first epoch, and PRODEN trains on what is left."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from _toy import run_all, toy_candidates, toy_data, toy_trainer
from pals.data.dataset import Dataset
from pals.labels.candidates import CandidateSets
from pals.pseudo_labels.prune_sets import prune


def standardized(data: Dataset) -> torch.Tensor:
    inputs_ND = data.train.inputs
    return (inputs_ND - inputs_ND.mean(dim=0)) / inputs_ND.std(dim=0)


def test_sets_are_pruned_once_and_trained_on(toy: Dataset, noisy: CandidateSets) -> None:
    trainer = toy_trainer("clsp", toy, noisy, options={"tau": 0.6})
    method: Any = trainer.method
    expected_NC = prune(noisy.allowed_NC, standardized(toy), tau=0.6, neighbors=5)
    assert not torch.equal(expected_NC, noisy.allowed_NC)
    for record in trainer.epochs():
        assert torch.equal(method.allowed_NC, expected_NC)
        assert record["pruned"] == int((noisy.allowed_NC & ~expected_NC).sum())
        assert not method.posterior()[~expected_NC].any()
    assert noisy.allowed_NC.sum() > expected_NC.sum()


def test_the_first_target_is_uniform_on_what_is_left(toy: Dataset, noisy: CandidateSets) -> None:
    trainer = toy_trainer("clsp", toy, noisy, options={"tau": 0.6, "update": "naive"})
    run_all(trainer)
    left_NC = trainer.method.allowed_NC.float()
    torch.testing.assert_close(trainer.method.posterior(), left_NC / left_NC.sum(dim=1, keepdim=True))


@pytest.mark.parametrize(
    "options", [{"neighbors": 1}, {"tau": 0.0}, {"spare": False}, {"class_share": 0.9}, {"features": "network"}], ids=str
)
def test_every_option_changes_the_sets(options: dict[str, Any]) -> None:
    data = toy_data(items=120, classes=5, apart=2.0)
    noisy = toy_candidates(data, eta=0.4)
    common = {"tau": 0.6, "neighbors": 20}
    plain, changed = (toy_trainer("clsp", data, noisy, train={"epochs": 1}, options=o) for o in (common, common | options))
    run_all(plain)
    run_all(changed)
    assert not torch.equal(plain.method.allowed_NC, changed.method.allowed_NC)


def test_without_pruning_it_is_proden(toy: Dataset, noisy: CandidateSets) -> None:
    pruned, plain = toy_trainer("clsp", toy, noisy, options={"tau": 0.0}), toy_trainer("proden", toy, noisy)
    losses = [[record["loss"] for record in run_all(trainer)] for trainer in (pruned, plain)]
    assert losses[0] == losses[1]


def test_features_of_the_network_are_those_before_training(toy: Dataset, noisy: CandidateSets) -> None:
    trainer = toy_trainer("clsp", toy, noisy, options={"features": "network", "tau": 0.6})
    before_ND = trainer.infer(trainer.method.predictor, toy.train.inputs).features
    run_all(trainer)
    assert torch.equal(trainer.method.allowed_NC, prune(noisy.allowed_NC, before_ND, tau=0.6, neighbors=5))


def test_pruning_helps_where_sets_hold_the_label() -> None:
    """On clouds that lie apart nearly every wrong candidate goes, and nearly no right one."""
    data = toy_data(items=180)
    sets = toy_candidates(data, q=0.5, eta=0.0)
    trainer = toy_trainer("clsp", data, sets, train={"epochs": 1}, options={"tau": 1.0, "neighbors": 15})
    run_all(trainer)
    left_NC = trainer.method.allowed_NC
    assert float(left_NC.gather(1, data.truth.label_N[:, None]).float().mean()) > 0.95
    assert int(left_NC.sum()) < 1.3 * 180 < int(sets.allowed_NC.sum())
