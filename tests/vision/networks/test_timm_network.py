"""Networks of the package timm behind our interface. Skipped where timm is not installed."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor

from _pictures import make_pictures
from _refused import refused
from _slow import rest_slow
from _toy import Answer, assert_same
from pals.data import DATASETS, load_dataset
from pals.labels.candidates import Truth
from pals.model import Description, Model, Part
from pals.runs.extractor import starting_network
from pals.runs.run_config import NetworkConfig
from pals.vision.networks import NETWORKS
from pals.vision.networks.timm_network import TimmNetwork, build_timm, native_statistics

MISSING = [name for name in ("timm", "torchvision") if importlib.util.find_spec(name) is None]
needs_timm = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")
SHAPE = (3, 32, 32)
COLUMNS = ("--item-column", "picture", "--annotator-column", "who", "--label-column", "class")


def pictures(count: int, seed: int = 0, shape: tuple[int, ...] = SHAPE) -> Tensor:
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(seed))


def network(name: str = "test_resnet", seed: int = 0, **options: Any) -> TimmNetwork:
    torch.manual_seed(seed)
    return build_timm(name, SHAPE, 4, **options)


@needs_timm
@pytest.mark.parametrize("name", ["timm:test_resnet", "test_vit", "test_efficientnet", "test_convnext"])
def test_it_looks_like_our_networks(timm: Any, name: str) -> None:
    made = network(name).eval()
    output = made(pictures(5))
    assert output.logits.shape == (5, 4) and output.features.shape == (5, made.feature_width)
    assert torch.equal(output.logits, made.classifier(output.features))
    assert torch.equal(output.features, made.encode(pictures(5)))
    assert made.num_classes == 4 and len(made.mean) == len(made.std) == 3 and made.training is False
    grey = build_timm("test_vit", (1, 48, 64), 3).eval()
    assert grey(pictures(2, shape=(1, 48, 64))).logits.shape == (2, 3)


@needs_timm
@pytest.mark.parametrize("name", ["test_resnet", "test_efficientnet", "test_vit"])
def test_each_view_has_statistics_of_its_own(timm: Any, name: str) -> None:
    """Outputs and running statistics are those of one pass after the other, and not those of one large pass."""
    views = [pictures(4, seed=1), 3 * pictures(4, seed=2) + 1]
    together, apart, mixed = (network(name).train() for _ in range(3))
    got = together.each(views)
    torch.stack([output.logits.square().mean() for output in got]).sum().backward()
    assert all(parameter.grad is not None for parameter in together.parameters())
    expected = [apart(view) for view in views]
    for a, b in zip(got, expected, strict=True):
        assert torch.equal(a.logits, b.logits) and torch.equal(a.features, b.features)
    for (key, a), b in zip(together.state_dict().items(), apart.state_dict().values(), strict=True):
        assert torch.equal(a, b), key
    if name != "test_vit":  # one that has batch norms: the test can tell
        assert not torch.allclose(mixed(torch.cat(views)).features[:4], expected[0].features, atol=1e-3)


@needs_timm
def test_a_batch_of_one_and_what_pictures_are_standardised_by(timm: Any) -> None:
    made = network().train()
    before = {key: value.clone() for key, value in made.state_dict().items()}
    one = made(pictures(1))
    assert torch.equal(one.features, made.eval()(pictures(1)).features)
    assert all(torch.equal(value, before[key]) for key, value in made.state_dict().items())
    made.train()
    made(pictures(2))
    assert all(module.training for module in made.modules())
    assert not torch.equal(made.state_dict()["body.bn1.running_mean"], before["body.bn1.running_mean"])
    for name in ("timm:vit_base_patch32_clip_224.openai", "timm:vit_base_patch16_siglip_224.webli", "timm:test_vit"):
        with torch.device("meta"):
            about = timm.create_model(name.removeprefix("timm:")).pretrained_cfg
        assert native_statistics(name) == (about["mean"], about["std"])


@needs_timm
@pytest.mark.parametrize(
    ("name", "classes", "suffix"),
    rest_slow(2, [
        ("test_resnet", 0, ".pth"), ("test_vit", 7, ".safetensors"), ("test_vit", 0, ".pth"), ("test_resnet", 7, ".pth"),
        ("test_efficientnet", 7, ".pth"), ("test_convnext", 7, ".safetensors"),
    ]),
)  # fmt: skip
def test_local_weights_with_and_without_a_head(timm: Any, tmp_path: Path, name: str, classes: int, suffix: str) -> None:
    torch.manual_seed(5)
    source = timm.create_model(name, num_classes=classes, **({"img_size": (32, 32)} if "vit" in name else {}))
    path = tmp_path / f"weights{suffix}"
    if suffix == ".pth":
        torch.save({"state_dict": {f"module.{key}": value for key, value in source.state_dict().items()}, "epoch": 3}, path)
    else:
        pytest.importorskip("safetensors.torch").save_file(source.state_dict(), path)
    made = network(name, seed=6, weights=path).eval()
    source.reset_classifier(0)
    expected = source.eval()(pictures(3))
    assert torch.equal(made.encode(pictures(3)), expected)
    assert not torch.equal(network(name, seed=6).eval().encode(pictures(3)), expected)


OPENAI = {
    "patch_embed.proj": "conv1", "pos_embed": "positional_embedding", "cls_token": "class_embedding",
    "blocks.": "transformer.resblocks.", "norm1": "ln_1", "norm2": "ln_2", "qkv.": "in_proj_",
    "attn.proj": "attn.out_proj", "mlp.fc1": "mlp.c_fc", "mlp.fc2": "mlp.c_proj", "head.weight": "proj",
}  # fmt: skip


@needs_timm
@pytest.mark.parametrize("prefix", ["visual.", "module.visual."])
def test_the_image_tower_of_a_clip_as_openai_saves_it(timm: Any, tmp_path: Path, prefix: str) -> None:
    """With the text tower beside it, and a projection to the texts that has no bias."""
    torch.manual_seed(5)
    source = timm.create_model("test_vit", num_classes=7, img_size=(32, 32))
    state = {"transformer.resblocks.0.ln_1.weight": torch.ones(3), "logit_scale": torch.ones(())}
    for key, value in source.state_dict().items():
        name = "ln_post." + key.removeprefix("norm.") if key.startswith("norm.") else key
        for ours, theirs in OPENAI.items():
            name = name.replace(ours, theirs)
        bare = {"class_embedding": value.flatten(), "positional_embedding": value.squeeze(0)}
        bare["proj"] = value.t() if value.ndim == 2 else value
        if key != "head.bias":
            state[f"{prefix}{name}"] = bare.get(name, value)
    torch.save(state, tmp_path / "clip.pt")
    made = network("test_vit", seed=6, weights=tmp_path / "clip.pt").eval()
    source.reset_classifier(0)
    assert torch.equal(made.encode(pictures(3)), source.eval()(pictures(3)))


@needs_timm
def test_local_weights_of_another_picture_size(timm: Any, tmp_path: Path) -> None:
    """Position embeddings are brought to our size; everything else is the file's."""
    torch.manual_seed(5)
    source = timm.create_model("test_vit", num_classes=0)
    torch.save(source.state_dict(), tmp_path / "w.pt")
    made = network("test_vit", weights=tmp_path / "w.pt")
    assert made.body.pos_embed.shape != source.pos_embed.shape  # type: ignore[union-attr]
    assert torch.equal(made.state_dict()["body.blocks.0.attn.qkv.weight"], source.state_dict()["blocks.0.attn.qkv.weight"])


@needs_timm
def test_weights_that_do_not_fit_are_refused(timm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_download(*_: Any, **__: Any) -> Any:
        raise AssertionError("tried to download")

    for name in ("load_state_dict_from_hf", "load_state_dict_from_url", "download_cached_file"):
        monkeypatch.setattr(sys.modules["timm.models._builder"], name, no_download)
    state = timm.create_model("test_resnet", num_classes=0).state_dict()
    files = {
        "other.pt": (timm.create_model("test_vit", num_classes=0).state_dict(), "do not fit"),
        "short.pt": ({key: value for key, value in state.items() if not key.startswith("layer4")}, "do not fit"),
        "more.pt": ({**state, "extra.weight": torch.ones(2)}, "do not fit"),
        "empty.pt": ({}, "holds no weights"),
        "numbers.pt": ({"state_dict": {"a": 3}}, "holds no weights"),
        "list.pt": ([1, 2], "Cannot read"),
        "objects.pt": ({"state_dict": state, "args": Path}, "Cannot read"),
    }
    for name, (content, message) in files.items():
        torch.save(content, tmp_path / name)
        text = refused(f"{name}.*{message}|{message}.*{name}", network, weights=tmp_path / name)
        assert "\n" not in text and ("Name the network" in text) == (message == "do not fit")
        assert len(text) < 700 and "weights_only" not in text
    (tmp_path / "cut.pt").write_bytes((tmp_path / "more.pt").read_bytes()[:2000])
    for name, message in (("cut.pt", "Cannot read"), ("none.pt", "There is no weights file")):
        refused(message, network, weights=tmp_path / name)


@needs_timm
@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [("test_resnett", SHAPE, "did you mean 'test_resnet'"),
     ("zzzzzzzzzzzz", SHAPE, "Unknown timm network 'zzzzzzzzzzzz': timm.list_models"),
     ("timm:test_resnet", (8,), "reads images"), ("test_resnet.no_such_tag", SHAPE, "no_such_tag"),
     ("test_vit", (3, 7, 7), r"images of shape \(3, 7, 7\)")],
)  # fmt: skip
def test_what_cannot_be_built(timm: Any, name: str, shape: tuple[int, ...], message: str) -> None:
    assert "\n" not in refused(message, build_timm, name, shape, 4)
    refused("at least two classes", build_timm, "test_resnet", SHAPE, 1)


def test_without_timm(monkeypatch: pytest.MonkeyPatch) -> None:
    for fault, message in ((ImportError("no"), r"pals-learn\[timm\]"), (RuntimeError("nms"), "nms")):
        monkeypatch.setattr(importlib, "import_module", Mock(side_effect=fault))
        refused(message, build_timm, "resnet18", SHAPE, 3)


@needs_timm
def test_a_saved_classifier_with_a_timm_network(timm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NETWORKS, "timm:test_resnet", lambda shape, classes: build_timm("test_resnet", shape, classes))
    made = network()
    about = Description(tuple("abcd"), Part("timm:test_resnet", SHAPE, (0.5,) * 3, (0.25,) * 3))
    images = torch.randint(0, 256, (3, *SHAPE), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    model = Model(about, made, device="cpu")
    model.save(tmp_path / "model.safetensors")
    again = Model.load(tmp_path / "model.safetensors", device="cpu")
    assert torch.equal(model.probabilities(images), again.probabilities(images))


@needs_timm
@pytest.mark.slow
def test_one_command_with_a_local_file(timm: Any, tmp_path: Path, pals: Callable[..., Answer]) -> None:
    """`pals fit --network timm:NAME --weights FILE`: frozen, saved with the classifier, and predicting without the file."""
    data = make_pictures(tmp_path / "data", items=30)
    torch.manual_seed(0)
    state = timm.create_model("test_resnet", num_classes=1000).state_dict()
    torch.save(state, tmp_path / "test_resnet.pth")
    quick = ("--epochs", "1", "--set", "method.neighbors=5", "--device", "cpu", "--cache", tmp_path / "cache")
    chosen = ("--network", "timm:test_resnet", "--weights", tmp_path / "test_resnet.pth")
    answer = pals("fit", data / "images", data / "votes.csv", "--out", "run", *COLUMNS, *quick, *chosen, code=0)
    assert "method pals, mlp on the features of timm:test_resnet" in " ".join(answer.out.split())
    (tmp_path / "test_resnet.pth").unlink()
    pals("predict", "run", data / "images", "--out", "p.csv", "--device", "cpu", code=0)
    assert (tmp_path / "p.csv").read_text().count("\n") == 31


@needs_timm
@pytest.mark.parametrize("frozen", rest_slow(1, ["--frozen", "--no-frozen"]))
def test_train_through_a_local_file(
    timm: Any, tmp_path: Path, pals: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch, frozen: str
) -> None:
    """`pals train --encoder timm:NAME --weights FILE`: saved with the classifier, and evaluated."""
    digits = load_dataset("digits")
    few = [replace(items, inputs=items.inputs[:20], ids=items.ids[:20]) for items in (digits.train, digits.test) if items]
    truths = [Truth.of(truth.label_N[:20], digits.class_names) for truth in (digits.truth, digits.test_truth) if truth]
    data = replace(digits, train=few[0], truth=truths[0], test=few[1], test_truth=truths[1])
    monkeypatch.setitem(DATASETS, "few", lambda **_: data)
    monkeypatch.setenv("PALS_CACHE", str(tmp_path / "cache"))
    torch.save(timm.create_model("test_resnet", num_classes=1000).state_dict(), tmp_path / "test_resnet.pth")
    chosen = ("--encoder", "timm:test_resnet", "--weights", tmp_path / "test_resnet.pth", frozen)
    quick = ("--epochs", "1", "--set", "method.neighbors=5", "--device", "cpu")
    answer = pals("train", "few", *chosen, *quick, "--out", "run", code=0)
    assert "Pictures are encoded by timm:test_resnet at 160 px." in answer.out
    assert pals("evaluate", "run", "--device", "cpu").code == 0
    about = Model.load(tmp_path / "run", "cpu").about
    assert about.input_shape == (3, 160, 160) and (about.encoder is None) == (frozen == "--no-frozen")


@pytest.mark.slow
@needs_timm
def test_an_update_starts_from_the_run_s_own_network(timm: Any, tmp_path: Path, pals: Callable[..., Answer]) -> None:
    """The classifier that a run saved is no file of timm's, though the network is."""
    data = make_pictures(tmp_path / "data", items=30)
    quick = ("--epochs", "1", "--device", "cpu", "--cache", tmp_path / "cache")
    chosen = ("--network", "timm:test_resnet", "--folds", "0", "--set", "method.neighbors=5")
    pals("fit", data / "images", data / "votes.csv", "--out", "run", *COLUMNS, *quick, *chosen, code=0)
    pals("update", "run", data / "votes.csv", "--out", "next", *COLUMNS, *quick, code=0)
    first = Model.load(tmp_path / "run", "cpu")
    weights = str(tmp_path / "run" / "model.safetensors")
    started = starting_network(NetworkConfig(name="timm:test_resnet", weights=weights), SHAPE, first.class_names)
    assert_same(dict(started.state_dict()), dict(first.network.state_dict()))
