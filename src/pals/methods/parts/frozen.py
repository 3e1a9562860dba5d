"""Features of all items that training does not change, for methods that compare items before or beside it."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from pals.methods.base import Context
from pals.methods.parts.by_neighbors import patch_features
from pals.methods.parts.features import Inputs

Frozen = Literal["input", "patches", "network"]


def frozen_features(ctx: Context, kind: Frozen, items: int, device: torch.device) -> Tensor:
    """N x D. "input": the items' own numbers, as the eval view shows them; of a run on vectors of a frozen network, that
    network's features. "patches": how much a picture looks like patches of others. "network": what the predictor sees now, so
    before the first epoch what it sees by the weights that it starts from."""
    if kind == "patches":
        return patch_features(ctx, items, device)
    return ctx.features() if kind == "network" else ctx.outputs(Inputs()).features
