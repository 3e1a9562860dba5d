"""EfficientNet-Lite against timm's, and against photographs."""

from __future__ import annotations

import importlib.util
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_sample_image
from torch import Tensor, nn

from _slow import rest_slow
from pals.vision.networks import Network, build_network
from pals.vision.networks.efficientnet_lite import SameConv
from pals.vision.pretrained import find_encoder

needs_timm = pytest.mark.skipif(importlib.util.find_spec("timm") is None, reason="not installed: timm")

DAISY = 985
BUILDINGS = {442, 497, 663, 698}  # bell cote, church, monastery, palace


def random_network(number: int) -> Network:
    """With norms that do something."""
    torch.manual_seed(number)
    network = build_network(f"efficientnet-lite{number}", (3, 64, 64), 10).eval()
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            for value, low, high in ((module.weight, 0.5, 1.5), (module.bias, -0.5, 0.5), (module.running_var, 0.5, 2.0)):
                assert value is not None
                nn.init.uniform_(value, low, high)
    return network


def as_timm(timm: Any, network: Network, number: int) -> Any:
    """timm's network with the same weights: both list them in the order in which they are used."""
    made = timm.create_model(f"tf_efficientnet_lite{number}", num_classes=network.num_classes).eval()
    ours = network.state_dict().values()
    made.load_state_dict(dict(zip(made.state_dict(), ours, strict=True)))
    return made


def assert_alike(network: Network, reference: Any, x: Tensor) -> None:
    with torch.inference_mode():
        output = network(x)
        features = reference.global_pool(reference.forward_features(x))
        assert torch.allclose(output.features, features, atol=1e-4)
        assert torch.allclose(output.logits, reference(x), atol=1e-4)
    assert output.features.std() > 0.01  # not all zero


@needs_timm
@pytest.mark.parametrize("number", rest_slow(1, [0, 1, 2]))
def test_it_is_timms(timm: Any, number: int) -> None:
    network = random_network(number)
    for size in (64, 75):  # odd sizes are padded otherwise
        assert_alike(network, as_timm(timm, network, number), torch.randn(2, 3, size, size))
    if number == 0:
        published = find_encoder("efficientnet-lite0").network
        assert_alike(published, as_timm(timm, published, 0), torch.randn(2, 3, 224, 224))


def photograph(name: str) -> Tensor:
    """As the Lite family wants it."""
    picture = Image.fromarray(load_sample_image(name)).resize((224, 224), Image.Resampling.BICUBIC)
    return (torch.from_numpy(np.array(picture)).permute(2, 0, 1)[None].float() - 127) / 128


def test_it_knows_a_flower_and_a_temple() -> None:
    """scikit-learn's two photographs. ImageNet has no dahlia; a daisy is the only open flower with petals that it has."""
    network = find_encoder("efficientnet-lite0").network
    with torch.inference_mode():
        assert int(network(photograph("flower.jpg")).logits.argmax()) == DAISY
        assert BUILDINGS & set(network(photograph("china.jpg")).logits.topk(5).indices[0].tolist())


@pytest.mark.parametrize(("side", "kernel", "stride"), [(7, 3, 2), (8, 3, 2), (9, 5, 2), (10, 5, 2), (6, 5, 1), (7, 1, 1)])
def test_padding_is_tensorflows(side: int, kernel: int, stride: int) -> None:
    """Its rule, written down by hand: ceil(side / stride) places, of the missing pixels the smaller half first."""
    conv = SameConv(1, 1, kernel, stride).requires_grad_(False)
    x = torch.randn(1, 1, side, side)
    places = -(-side // stride)
    missing = max((places - 1) * stride + kernel - side, 0)
    wide = torch.zeros(side + missing, side + missing)
    wide[missing // 2 : missing // 2 + side, missing // 2 : missing // 2 + side] = x[0, 0]
    for r, c in product(range(places), repeat=2):
        expected = (wide[r * stride :, c * stride :][:kernel, :kernel] * conv.weight[0, 0]).sum()
        assert torch.allclose(conv(x)[0, 0, r, c], expected, atol=1e-5)
