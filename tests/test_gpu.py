"""What only a GPU can show; `pytest -m gpu` on a machine with one. (Operations, views, neighbours and labelling have their own
tests with this mark beside their other tests.)"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from _toy import run_all, toy_candidates, toy_data, toy_trainer
from pals.data.row_source import TensorRows
from pals.methods import METHODS
from pals.pseudo_labels import pseudo_label
from pals.pseudo_labels.knn import nearest
from pals.training.engine import Engine, EngineConfig
from pals.training.trainer import Trainer
from pals.vision.augment import image_views

pytestmark = pytest.mark.gpu
each_method = pytest.mark.parametrize("name", METHODS)
GRAPH = EngineConfig(device="cuda", precision="bf16", compile=True)
EXACT = EngineConfig(device="cuda", precision="fp32", compile=False)
HALF = EngineConfig(device="cuda", precision="fp16", compile=True)


@each_method
def test_learns_in_bf16_with_the_step_in_a_graph(name: str) -> None:
    """The bar of the common suite, which trains in float32 on a CPU."""
    data = toy_data(items=180)
    trainer = toy_trainer(name, data, toy_candidates(data), train={"epochs": 12, "tail": "fill"}, engine=GRAPH)
    assert run_all(trainer)[-1]["test_accuracy"] >= 0.85


@each_method
def test_a_graph_computes_what_single_operations_do(name: str) -> None:
    """In float32 the losses of the epochs agree; later ones drift apart as rounding is amplified."""
    data = toy_data(items=180)
    losses = []
    for compiled in (False, True):
        config = EngineConfig(device="cuda", precision="fp32", compile=compiled)
        trainer = toy_trainer(name, data, toy_candidates(data), train={"epochs": 3, "tail": "fill", "lr": 0.02}, engine=config)
        losses.append([record["loss"] for record in run_all(trainer)])
    if losses[0][0] is None:
        assert losses[0] == losses[1]
    else:
        assert losses[1][0] == pytest.approx(losses[0][0], rel=1e-4)
        assert losses[1] == pytest.approx(losses[0], rel=2e-2)


def test_a_graph_really_replays_and_deterministic_runs_repeat() -> None:
    data = toy_data(items=180)
    trainer = toy_trainer("pals", data, toy_candidates(data), train={"epochs": 3, "tail": "fill"}, engine=GRAPH)
    run_all(trainer)
    assert trainer.engine._forwards, "the feature pass was not captured"
    assert trainer.engine.warmup_seconds > 0
    data = toy_data(items=180)
    config = EngineConfig(device="cuda", precision="fp32", compile=False, deterministic=True)
    try:
        runs = [run_all(toy_trainer("pals", data, toy_candidates(data), engine=config)) for _ in range(2)]
    finally:
        torch.use_deterministic_algorithms(False)
    assert [record["loss"] for record in runs[0]] == [record["loss"] for record in runs[1]]


@pytest.mark.parametrize("engine", [GRAPH, EXACT, HALF], ids=["graph", "single", "fp16"])
def test_a_run_goes_on_from_its_checkpoint(engine: EngineConfig, tmp_path: Path) -> None:
    """Sums of a GPU may come in another order, so nearly the same and not bit by bit."""
    data = toy_data(items=180)

    def trainer(folder: str) -> Trainer:
        return toy_trainer(
            "pals", data, toy_candidates(data), train={"epochs": 8, "tail": "fill"}, folder=tmp_path / folder, engine=engine
        )

    straight = run_all(trainer("straight"))
    run_all(trainer("stopped"), stop_after=4)
    second = trainer("stopped")
    assert second.resume()
    late = run_all(second)
    assert straight[-1]["test_accuracy"] >= 0.85 and [record["total_epoch"] for record in late] == [5, 6, 7, 8]
    assert late[-1]["test_accuracy"] == pytest.approx(straight[-1]["test_accuracy"], abs=0.05)
    assert late[0]["loss"] == pytest.approx(straight[4]["loss"], rel=0.05)


def test_pseudo_labels_agree_with_those_of_a_cpu() -> None:
    """On features like a trained network's: 20,000 items in 100 tight clouds. The same neighbours, so the same labels."""
    generator = torch.Generator().manual_seed(0)
    truth_N = torch.randint(100, (20_000,), generator=generator)
    features_ND = torch.randn(100, 512, generator=generator)[truth_N] + torch.randn(20_000, 512, generator=generator)
    allowed_NC = torch.rand(20_000, 100, generator=generator) < 0.05
    allowed_NC[torch.arange(20_000), truth_N] = True
    on_cpu = pseudo_label(features_ND, allowed_NC)
    on_gpu = pseudo_label(features_ND.to("cuda"), allowed_NC)
    assert float((on_cpu.pseudo_N == on_gpu.pseudo_N.cpu()).double().mean()) >= 0.999
    assert float((on_cpu.selected_N == on_gpu.selected_N.cpu()).double().mean()) >= 0.999
    found = nearest(features_ND.to("cuda"), 15).index_NK.cpu()
    same_N = (found.sort(dim=1).values == nearest(features_ND, 15).index_NK.sort(dim=1).values).all(dim=1)
    assert float(same_N.double().mean()) >= 0.999


def test_data_that_does_not_fit_stays_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(EXACT)
    images = torch.randint(256, (64, 3, 8, 8), dtype=torch.uint8)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1000, 2000))
    held = engine.place_inputs(images)
    assert isinstance(held, TensorRows)
    taken = engine.send(held[torch.tensor([5, 1, 60], device="cuda")])
    assert taken.is_cuda and torch.equal(taken.cpu(), images[[5, 1, 60]])
    views = image_views((0.5,) * 3, (0.2,) * 3, pad=1, flip=True)
    assert views.make("weak", taken, engine.generator(0)).is_cuda


def test_a_source_that_fits_is_read_into_the_gpu_once_and_another_trains_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    data, records = toy_data(), []
    source = replace(data, train=replace(data.train, inputs=TensorRows(data.train.inputs[:])))
    assert Engine(EXACT).place_inputs(source.train.inputs).is_cuda  # type: ignore[union-attr]
    for dataset, free in ((data, 2**30), (source, 2**30), (source, 1)):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device, free=free: (free, 2**30))
        trainer = toy_trainer("pals", dataset, toy_candidates(data), engine=EXACT)
        assert isinstance(trainer.inputs, TensorRows) == (free == 1)
        records.append([record["loss"] for record in run_all(trainer)])
    assert records[0] == records[1] == records[2]


def test_a_captured_pass_reads_the_weights_of_now() -> None:
    """Also where the network is not compiled and autocast casts its weights: none of them may be cached."""
    trainer = toy_trainer("average", toy_data(items=180), engine=EngineConfig(device="cuda", precision="bf16", compile=False))
    network = trainer.method.network
    plain = trainer.infer(network, trainer.inputs)
    trainer.engine.compiled = True  # from here on captured, but never compiled
    for _ in range(5):
        captured = trainer.infer(network, trainer.inputs)
    torch.testing.assert_close(captured.logits, plain.logits, rtol=1e-2, atol=1e-2)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(0.5)
    changed = trainer.infer(network, trainer.inputs)
    trainer.engine.compiled = False
    torch.testing.assert_close(changed.logits, trainer.infer(network, trainer.inputs).logits, rtol=1e-2, atol=1e-2)
    assert not torch.allclose(changed.logits, plain.logits, rtol=1e-1, atol=1e-1)
