"""What PALS and SRSE share, which label by a vote of neighbours: the network, and help for the first epochs, when its features
are too poor to vote with (more neighbours, features that need no training, an averaged network). Not a method itself."""

from __future__ import annotations

import copy
import math
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from pals.labeling.neighbors import Backend, check_backend
from pals.methods.base import Batch, Context, Method, Problem, check_neighbors
from pals.util.config import STRICT
from pals.util.errors import InputError
from pals.vision.backbones import Network, Output
from pals.vision.backbones.patches import PICTURES, PatchNetwork, learned_patches

SEED = 0  # of the patches: always the same ones, so that a run that goes on has those it began with


class ByNeighbors(Method):
    """A method that labels items by a vote of their neighbours in each epoch."""

    @dataclass(frozen=True, config=STRICT)
    class Config:
        neighbors: int = Field(default=15, ge=1)
        "K: how many neighbours vote."
        neighbor_backend: Backend = "torch"
        "How they are searched: torch (exact, on the device); on the CPU faiss-flat (exact), faiss-hnsw, faiss-ivf (nearly so)."
        early_epochs: int = Field(default=20, ge=1)
        "The first epochs, in which `neighbors_start` and `relabel_every` act."
        neighbors_start: int | None = Field(default=None, ge=1)
        "How many neighbours vote in the first epoch; falls geometrically to `neighbors` over the early epochs. None: always K."
        relabel_every: float = Field(default=1.0, gt=0, le=1)
        "Share of an epoch after which items are labelled anew, in the early epochs; 0.25 labels four times in each."
        start: Literal["network", "patches"] = "network"
        "Features that the first `start_epochs` vote with: the network's, or similarity to patches, which needs no training."
        start_epochs: int = Field(default=5, ge=1)
        "How long those of `start` are used."
        average: float = Field(default=0.0, ge=0, lt=1)
        "Share of its old weights that an averaged network (EMA) keeps at each step; it labels and answers. 0: there is none."
        average_until: float = Field(default=1.0, ge=0, le=1)
        "Share of the epochs after which the network itself labels again; the averaged one still answers."
        use_frequencies: bool = True
        "Weigh the candidates' votes by how often people gave them, where votes were counted."

    counted_in_epochs: ClassVar[tuple[str, ...]] = ("early_epochs", "start_epochs")

    def __init__(self, config: Any, problem: Problem) -> None:
        super().__init__(config, problem)
        check_neighbors(max(config.neighbors, config.neighbors_start or 0), self.num_items)
        check_backend(config.neighbor_backend)
        self.network = problem.network()
        self.averaged = Averaged(self.network) if config.average else None
        self.prior_NC: Tensor | None
        self.register_buffer("prior_NC", problem.candidates.frequency_NC if config.use_frequencies else None)
        self.patch_features_ND: Tensor | None = None  # in the first epochs; made again when a run goes on

    @property
    def predictor(self) -> nn.Module:
        return self.network if self.averaged is None else self.averaged.network

    def plans(self, epoch: int, epochs: int) -> int:
        return round(1 / self.config.relabel_every) if epoch <= self.config.early_epochs else 1

    def draws(self, ctx: Context) -> int:
        """How many items are drawn for one plan: as many as there are, over the whole epoch."""
        return self.num_items // self.plans(ctx.epoch, ctx.epochs)

    def labeler(self, ctx: Context) -> nn.Module | None:
        """The network that labels in this epoch; None: the predictor."""
        return None if ctx.epoch <= self.config.average_until * ctx.epochs else self.network

    def voters(self, ctx: Context) -> int:
        """How many neighbours vote in this epoch."""
        c = self.config
        return neighbors_at(ctx.epoch, c.neighbors_start, c.neighbors, c.early_epochs)

    def start_features(self, ctx: Context) -> Tensor | None:
        """N x D features to search neighbours by in the first epochs, if those of the network are not to be used."""
        if self.config.start == "network" or ctx.epoch > self.config.start_epochs:
            self.patch_features_ND = None  # the memory is wanted elsewhere
        elif self.patch_features_ND is None:
            self.patch_features_ND = patch_features(ctx, self.num_items, self.allowed_NC.device)
        return self.patch_features_ND

    def after_step(self, batch: Batch) -> None:
        if self.averaged is not None:
            self.averaged.follow(self.network, self.config.average)


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
    rows_M = torch.randperm(items, generator=generator)[:PICTURES].to(device)
    flat = ctx.outputs(pixels, rows_M=rows_M).features
    if len(pixels.shape) != 3:
        raise InputError(
            "Patches are cut from pictures, but these items are feature vectors. Choose other features than 'patches'."
        )
    network = learned_patches(flat.cpu().reshape(-1, *pixels.shape), generator)
    return ctx.outputs(_Patches(network).to(device)).features
