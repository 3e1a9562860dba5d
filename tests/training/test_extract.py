"""Features of pictures: the quick way gives what the plain way gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from pals.training.extract import ImagePaths, encode, enlarged, folded
from pals.util.errors import InputError
from pals.vision.images.decoding import decode
from pals.vision.networks import build_network
from pals.vision.networks.fused import has_clamped_conv
from pals.vision.pretrained import Encoder, find_encoder


@pytest.fixture(scope="module")
def lite0() -> Encoder:
    return find_encoder("efficientnet-lite0")


def pictures(count: int, side: int, seed: int = 0) -> Tensor:
    """Smooth, so that filters matter little."""
    coarse = torch.rand(count, 3, 5, 5, generator=torch.Generator().manual_seed(seed)) * 255
    return nn.functional.interpolate(coarse, size=(side, side), mode="bilinear").to(torch.uint8)


def slowly(images: Tensor, encoder: Encoder) -> Tensor:
    """One by one, with the norms where they were."""
    mean, std = (torch.tensor(values)[:, None, None] for values in (encoder.mean, encoder.std))
    with torch.inference_mode():
        return torch.cat([encoder.network.encode(((image / 255 - mean) / std)[None]) for image in images])


def test_it_is_what_the_network_says(lite0: Encoder) -> None:
    images = pictures(5, 64)
    small = Encoder(**{**vars(lite0), "size": 64})
    got = encode(images, small, batch=2)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, slowly(images, small), atol=1e-4, rtol=1e-3)
    before = {name: value.clone() for name, value in lite0.network.state_dict().items()}
    quick = folded(lite0.network)
    assert not any(isinstance(module, nn.BatchNorm2d) for module in quick.modules())
    after = lite0.network.state_dict()
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)
    assert encode(torch.zeros(0, 3, 8, 8, dtype=torch.uint8), lite0).shape == (0, 1280)
    image = pictures(1, 32)
    by_pillow = Image.fromarray(image[0].permute(1, 2, 0).numpy()).resize((112, 112), Image.Resampling.BICUBIC)
    difference = enlarged(image, lite0)[0].permute(1, 2, 0).numpy().astype(int) - np.asarray(by_pillow)
    assert abs(difference).max() <= 1


def test_files_give_the_features_of_their_pixels(lite0: Encoder, tmp_path: Path) -> None:
    images = pictures(5, 32)
    for number, image in enumerate(images):
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(tmp_path / f"{number}.png")
    files = ImagePaths([tmp_path / f"{number}.png" for number in range(5)], side=32)
    told: list[tuple[int, int]] = []
    got = encode(files, lite0, batch=2, progress=lambda done, total: told.append((done, total)))
    assert told == [(2, 5), (4, 5), (5, 5)]
    pixels = torch.stack([torch.from_numpy(decode(path, 112)) for path in files.paths])
    torch.testing.assert_close(got, slowly(pixels, lite0), atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(encode(files.paths, lite0), got, atol=1e-4, rtol=1e-3)  # by name, their size looked up
    torch.testing.assert_close(encode([str(path) for path in files.paths], lite0), got, atol=1e-4, rtol=1e-3)
    alike = nn.functional.cosine_similarity(got, encode(images, lite0))  # another code for the same filter
    assert alike.min() > 0.99


def test_arrays_are_read_with_channels_first_or_last(lite0: Encoder) -> None:
    images = pictures(3, 16)
    small = Encoder(**{**vars(lite0), "size": 64})
    expected = encode(images, small)
    for array in (images.numpy(), images.permute(0, 2, 3, 1).numpy(), images.permute(0, 2, 3, 1)):
        torch.testing.assert_close(encode(array, small), expected, atol=1e-5, rtol=1e-4)


def test_patches_are_encoded_as_they_are() -> None:
    images = pictures(30, 16)
    encoder = find_encoder("patches", images=images)
    torch.testing.assert_close(encode(images, encoder), slowly(images, encoder), atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize(
    ("images", "batch", "text"),
    [
        (torch.zeros(2, 3, 8, 8), 4, "uint8"),
        (np.zeros((2, 3, 8, 8)), 4, "found torch.float64"),
        (torch.zeros(2, 3, 8, 8, dtype=torch.uint8), 0, "batch of 0"),
        (torch.zeros(2, 3, 8, 7, dtype=torch.uint8), 4, "7 pixels high or wide"),
        (torch.zeros(2, 5, 8, 8, dtype=torch.uint8), 4, "N x 3 x H x W"),
        ("a.png", 4, "a list of names"),
        ([1, 2], 4, "a list of names"),
        (None, 4, "a list of names"),
        (["no.png"], 4, "no.png"),
        (ImagePaths(["broken.png"], side=32), 4, r"broken\.png"),
    ],
)
def test_bad_input(images: Any, batch: int, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("broken.png").write_bytes(b"\x89PNG")
    encoder = Encoder("x", build_network("small-cnn", (3, 8, 8), 2), 8, (0.5,) * 3, (0.5,) * 3, None, "")
    with pytest.raises(InputError, match=text):
        encode(images, encoder, batch=batch)


def test_a_pass_is_saved_where_torch_can_and_changes_nothing(lite0: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    images = pictures(3, 64)
    small = Encoder(**{**vars(lite0), "size": 64})
    quick = encode(images, small)
    monkeypatch.setattr("pals.vision.networks.fused.has_clamped_conv", lambda: False)
    torch.testing.assert_close(encode(images, small), quick, atol=1e-4, rtol=1e-3)
    assert has_clamped_conv.__wrapped__() == torch.backends.mkldnn.is_available()

    def another_door(*_: object) -> Tensor:
        raise RuntimeError("expected other arguments")

    monkeypatch.setattr("pals.vision.networks.fused._clamped_conv", another_door)
    assert not has_clamped_conv.__wrapped__()
