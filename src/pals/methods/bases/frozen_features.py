"""Features of all items that training does not change, for methods that compare items before or beside it."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from pals.methods.bases.feature_based import Inputs
from pals.methods.method import Context
from pals.util.errors import InputError
from pals.vision.networks import Output
from pals.vision.networks.patch_features import MIN_PATCH_SIDE, PATCH_IMAGES, PatchNetwork, learned_patches

Frozen = Literal["input", "patches", "network"]
SEED = 0  # of the patches: always the same ones, so that a run that goes on has those it began with


def frozen_features(ctx: Context, kind: Frozen, items: int, device: torch.device) -> Tensor:
    """N x D. "input": the items' own numbers, as the eval view shows them; of a run on vectors of a frozen network, that
    network's features. "patches": how much a picture looks like patches of others. "network": what the predictor sees now, so
    before the first epoch what it sees by the weights that it starts from."""
    if kind == "patches":
        return patch_features(ctx, items, device)
    return ctx.features() if kind == "network" else ctx.outputs(Inputs()).features


def untrained_features(ctx: Context, items: int, device: torch.device) -> Tensor:
    """N x D features that need no training: similarity to patches where items are pictures, and the items' own numbers where
    they are vectors, or too small to cut patches from."""
    pixels = _Pixels()
    ctx.outputs(pixels, rows_M=torch.zeros(1, dtype=torch.int64, device=device))
    has_patches = len(pixels.shape) == 3 and min(pixels.shape[1:]) >= MIN_PATCH_SIDE
    return frozen_features(ctx, "patches" if has_patches else "input", items, device)


class _Pixels(nn.Module):
    """The view itself as features, so that a method can see what a network would."""

    capturable = False  # it leaves the shape behind
    shape: torch.Size

    def forward(self, x: Tensor) -> Output:
        self.shape = x.shape[1:]
        flat = x.flatten(1).float()
        return Output(flat[:, :0], flat)


class _Patches(nn.Module):
    """Patch features in full precision."""

    capturable = False  # used once

    def __init__(self, network: PatchNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Output:
        with torch.autocast(x.device.type, enabled=False):
            features = self.network.encode(x.float())
        return Output(features[:, :0], features)


def patch_features(ctx: Context, items: int, device: torch.device) -> Tensor:
    """N x D features of all training pictures that need no training: how much they look like patches cut from a sample."""
    generator = torch.Generator().manual_seed(SEED)
    pixels = _Pixels()
    rows_M = torch.randperm(items, generator=generator)[:PATCH_IMAGES].to(device)
    flat = ctx.outputs(pixels, rows_M=rows_M).features
    if len(pixels.shape) != 3:
        raise InputError(
            "Patches are cut from pictures, but these items are feature vectors. Choose other features than 'patches'."
        )
    network = learned_patches(flat.cpu().reshape(-1, *pixels.shape), generator)
    return ctx.outputs(_Patches(network).to(device)).features
