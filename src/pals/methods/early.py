"""For the first epochs, when a network's features are too poor to vote with: more neighbours, features that need no training,
and an averaged network. Shared by methods that label through neighbours; not a method itself."""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn

from pals.backbones import Network, Output
from pals.backbones.patches import PatchNetwork, learn_patches
from pals.errors import InputError
from pals.methods.base import Context

CUT_FROM = 5000  # pictures that patches are cut from
SEED = 0  # of the patches: always the same ones, so that a run that goes on has those it began with


def neighbors_at(epoch: int, first: int | None, last: int, epochs: int) -> int:
    """How many neighbours vote in this epoch (from 1): falls geometrically from `first` to `last`, reached after `epochs`."""
    if first is None or epoch >= epochs:
        return last
    return round(first * math.pow(last / first, (epoch - 1) / (epochs - 1)))


class Averaged(nn.Module):
    """A copy of a network whose weights and batch statistics are an exponential moving average (EMA) of the original's."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = copy.deepcopy(network).requires_grad_(False)

    @torch.no_grad()
    def follow(self, network: nn.Module, decay: float) -> None:
        """One step: the average keeps `decay` of itself."""
        pairs: list[tuple[Tensor, Tensor]] = [*zip(self.network.parameters(), network.parameters(), strict=True)]
        buffers = [*zip(self.network.buffers(), network.buffers(), strict=True)]
        pairs += [(slow, fast) for slow, fast in buffers if slow.is_floating_point()]
        torch._foreach_lerp_([slow.detach() for slow, _ in pairs], [fast.detach() for _, fast in pairs], 1 - decay)
        for slow, fast in buffers:
            if not slow.is_floating_point():
                slow.copy_(fast)


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
    rows_M = torch.randperm(items, generator=generator)[:CUT_FROM].to(device)
    flat = ctx.outputs(pixels, rows_M=rows_M).features
    if len(pixels.shape) != 3:
        raise InputError(
            "start = 'patches' cuts patches from pictures; these items are feature vectors. Use start = 'network'."
        )
    with torch.random.fork_rng(devices=[]):  # the classifier that nobody asks draws numbers too
        network = PatchNetwork(pixels.shape[0], num_classes=1)
    learn_patches(network, flat.cpu().reshape(-1, *pixels.shape), generator)
    return ctx.outputs(_Patches(network).to(device)).features
