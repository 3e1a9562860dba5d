from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch


@pytest.fixture(scope="module")
def timm() -> Iterator[Any]:
    """timm, which imports torchvision. A torchvision that was built for another kind of torch than the one here misses two
    operators of its own and refuses to be imported; declared by hand, they are not missed, since no network here uses them."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    yield importlib.import_module("timm")
    library._destroy()
