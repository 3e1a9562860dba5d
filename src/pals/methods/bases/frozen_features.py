"""Features of all training items that need no training: the inputs, similarity to patches, or an untrained network."""

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
PATCH_SEED = 0  # always the same patches, so that a resumed run gets those it began with


def frozen_features(ctx: Context, kind: Frozen, items: int, device: torch.device) -> Tensor:
    """Compute features of all training items.

    Args:
        ctx: the run.
        kind: "input": the numbers of the eval view, or the features of a frozen encoder; "patches": similarity to image
            patches; "network": features of the predictor as it is now.
        items: number of items N.
        device: where they are computed.

    Returns:
        N x D.

    Raises:
        InputError: for patches of items that are vectors.
    """
    if kind == "patches":
        return patch_features(ctx, items, device)
    return ctx.features() if kind == "network" else ctx.outputs(Inputs()).features


def untrained_features(ctx: Context, items: int, device: torch.device) -> Tensor:
    """Similarity to patches for images, and the inputs for vectors and images too small for patches.

    Args:
        ctx: the run.
        items: number of items N.
        device: where they are computed.

    Returns:
        N x D.
    """
    pixels = _Pixels()
    ctx.outputs(pixels, rows_M=torch.zeros(1, dtype=torch.int64, device=device))
    has_patches = len(pixels.shape) == 3 and min(pixels.shape[1:]) >= MIN_PATCH_SIDE
    return frozen_features(ctx, "patches" if has_patches else "input", items, device)


def patch_features(ctx: Context, items: int, device: torch.device) -> Tensor:
    """Similarity of each training image to patches cut from a sample of them.

    Args:
        ctx: the run.
        items: number of items N.
        device: where they are computed.

    Returns:
        N x D.

    Raises:
        InputError: if the items are vectors.
    """
    generator = torch.Generator().manual_seed(PATCH_SEED)
    pixels = _Pixels()
    rows_M = torch.randperm(items, generator=generator)[:PATCH_IMAGES].to(device)
    flat = ctx.outputs(pixels, rows_M=rows_M).features
    if len(pixels.shape) != 3:
        raise InputError("Patches are cut from images, but the items are vectors. Choose other features than 'patches'.")
    network = learned_patches(flat.cpu().reshape(-1, *pixels.shape), generator)
    return ctx.outputs(_Patches(network).to(device)).features


class _Pixels(nn.Module):
    """The view itself as features; it stores the shape of an item."""

    capturable = False
    shape: torch.Size

    def forward(self, x: Tensor) -> Output:
        self.shape = x.shape[1:]
        flat = x.flatten(1).float()
        return Output(flat[:, :0], flat)


class _Patches(nn.Module):
    """Patch features in float32."""

    capturable = False  # used once

    def __init__(self, network: PatchNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Output:
        with torch.autocast(x.device.type, enabled=False):
            features = self.network.encode(x.float())
        return Output(features[:, :0], features)
