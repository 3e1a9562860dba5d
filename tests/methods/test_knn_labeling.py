"""What PALS and SRSE offer for the first epochs: more neighbours, patch features."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

from _toy import toy_trainer
from pals.data.dataset import Items
from pals.labels.candidates import Truth
from pals.labels.noise import make_candidates
from pals.methods import Problem, method_options
from pals.methods.bases.knn_labeling import neighbors_at
from pals.methods.pals import PALS
from pals.pseudo_labels import knn, pseudo_label
from pals.training.engine import Engine, EngineConfig
from pals.training.optim import TrainConfig, learning_rate
from pals.training.trainer import Trainer
from pals.util.config import build
from pals.util.errors import InputError
from pals.vision.augment import image_views
from pals.vision.networks import SmallCNN


def test_neighbours_fall_geometrically() -> None:
    counts = [neighbors_at(epoch, 240, 15, 5) for epoch in range(1, 8)]
    assert counts == [240, 120, 60, 30, 15, 15, 15]  # half as many each time: (15 / 240) ** (1 / 4)
    assert {neighbors_at(epoch, None, 15, 5) for epoch in range(1, 8)} == {15}


def epochs_of(options: dict[str, Any], epochs: int = 4, **more: Any) -> tuple[Trainer, list[dict[str, Any]]]:
    trainer = toy_trainer("pals", options=options, train={"epochs": epochs, **more})
    return trainer, list(trainer.epochs())


@pytest.mark.parametrize(
    "options",
    [{"neighbors_start": 40, "early_epochs": 3}, {"start": "untrained"}, {"neighbors": "auto"}],
    ids=lambda options: "-".join(options),
)
def test_every_option_matters_and_a_run_goes_on_alike(options: dict[str, Any], tmp_path: Any) -> None:
    plain, _ = epochs_of({})
    whole, records = epochs_of(options)
    assert records[-1]["test_accuracy"] > 0.6
    weights = torch.cat([w.flatten() for w in whole.method.predictor.parameters()])
    assert not torch.equal(weights, torch.cat([w.flatten() for w in plain.method.predictor.parameters()]))
    first = toy_trainer("pals", options=options, folder=tmp_path)
    list(first.epochs(stop_after=2))
    again = toy_trainer("pals", options=options, folder=tmp_path)
    assert again.resume()
    list(again.epochs())
    assert torch.equal(weights, torch.cat([w.flatten() for w in again.method.predictor.parameters()]))


def pictures_trainer(**options: Any) -> Trainer:
    """60 pictures of stripes, upright, level or none, in any light: patches tell them apart at once."""
    generator = torch.Generator().manual_seed(3)
    label_N = torch.arange(60) % 3
    light = torch.randint(0, 180, (60, 3, 1, 1), generator=generator)
    noise = torch.randint(0, 25, (60, 3, 12, 12), generator=generator)
    stripe = 50 * ((torch.arange(12) // 2) % 2)
    kind = torch.stack([stripe.expand(12, 12), stripe[:, None].expand(12, 12), torch.full((12, 12), 25)])
    images = (light + noise + kind[label_N][:, None]).to(torch.uint8)
    ids = tuple(map(str, range(60)))
    truth = Truth.of(label_N)
    candidates = make_candidates(truth, partial_rate=0.3, noise_rate=0.0, generator=generator, ids=ids).candidates
    torch.manual_seed(1)
    problem = Problem(candidates, lambda name=None: SmallCNN(3, 3, 12))
    method = PALS(method_options("pals", {"neighbors": 5, **options}), problem)
    views = image_views((0.4, 0.4, 0.4), (0.2, 0.2, 0.2), pad=1, flip=False, strong="cifar", cutout=4)
    config = build(TrainConfig, {"epochs": 2, "batch_size": 20})
    return Trainer(method, Items(images, ids), views, config, Engine(EngineConfig(device="cpu")), seed=1, truth=truth)


def test_patches_label_better_than_an_untrained_network() -> None:
    shares = {}
    for start in ("network", "patches"):
        trainer = pictures_trainer(start=start, start_epochs=1)
        records = trainer.epochs()
        record = next(records)
        shares[start] = record["correct"] / record["selected"]
        next(records)
        assert trainer.method.frozen_ND is None  # not held longer than needed
    assert shares["patches"] > 0.9 > shares["network"]


def test_untrained_features_are_patches_of_pictures_and_vectors_as_they_are() -> None:
    of_pictures = pictures_trainer(start="untrained", start_epochs=1), pictures_trainer(start="patches", start_epochs=1)
    beliefs = []
    for trainer in of_pictures:
        next(trainer.epochs())
        beliefs.append(trainer.method.posterior())
    assert torch.equal(*beliefs)
    trainer = toy_trainer("pals", options={"start": "untrained", "include_self": False})
    next(trainer.epochs())
    vectors_ND = trainer.method.frozen_ND
    assert torch.equal(vectors_ND, trainer.views.make("eval", trainer.inputs, torch.Generator()))
    method = trainer.method
    expected = pseudo_label(vectors_ND, method.allowed_NC, neighbors=method.config.neighbors, include_self=False)
    assert torch.equal(method.posterior(), expected.posterior_NC)


def test_line_and_warm_up() -> None:
    config = build(TrainConfig, {"lr": 1.0, "floor": 0.0, "schedule": "linear", "warmup": 2.0})
    rates = [learning_rate(config, done, 10) for done in (0, 1, 2, 5, 10)]
    assert rates == pytest.approx([0.0, 0.45, 0.8, 0.5, 0.0])
    assert learning_rate(config, 0, 10, step=0.25) == pytest.approx(1 / 8)
    assert learning_rate(config, 5, 10, step=0.25) == learning_rate(config, 5, 10)


def test_the_first_step_of_a_warm_up_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    rates: list[float] = []
    monkeypatch.setattr(Engine, "set_learning_rate", lambda engine, optimizer, rate: rates.append(rate))
    train = {"epochs": 4, "lr": 0.8, "schedule": "constant", "warmup": 2.0, "batch_size": 20}
    records = list(toy_trainer("average", train=train).epochs(stop_after=2))
    steps = len(rates) // 2
    assert rates == pytest.approx([0.8 * (step + 1) / (2 * steps) for step in range(2 * steps)])
    assert [record["lr"] for record in records] == [rates[0], rates[steps]]


@pytest.mark.parametrize(("method", "neighbors_option"), [("pals", 5), ("srse", 5), ("pals", "auto"), ("srse", "auto")])
def test_faiss_searches_where_a_setting_says_so(
    method: str, neighbors_option: int | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exactly, with `faiss-flat`: the same labels. Where the number of neighbours is to be found, that search uses it too."""
    pytest.importorskip("faiss")
    searched: list[str] = []
    search = knn.search_faiss

    def spy(*arguments: Any) -> Any:
        searched.append(arguments[4])
        return search(*arguments)

    monkeypatch.setattr(knn, "search_faiss", spy)
    option_sets = ({"neighbors": neighbors_option, "neighbor_backend": backend} for backend in ("torch", "faiss-flat"))
    plain, faiss = (toy_trainer(method, options=options) for options in option_sets)
    first, same = next(plain.epochs()), next(faiss.epochs())
    assert searched == ["faiss-flat"] * (2 if neighbors_option == "auto" else 1)
    assert same["selected"] == first["selected"] and same["loss"] == pytest.approx(first["loss"], abs=1e-4)


def test_faiss_that_is_not_here_is_missed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(InputError, match=r"The search 'faiss-hnsw' needs faiss: pip install 'pals-learn\[faiss\]'"):
        toy_trainer("pals", options={"neighbor_backend": "faiss-hnsw"})
