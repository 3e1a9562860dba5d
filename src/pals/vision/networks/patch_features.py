"""Features without training: similarity of every part of an image to patches cut from the images themselves.

For each window x_p of 6x6 pixels, normalised to mean 0 and variance 1 (contrast constant .3) and ZCA-whitened:
    w_p = (U (L + ridge)^-1/2 U') (x_p - mean),   s_pk = cos(w_p, patch_k)
    response = [average over a 3x3 grid of fields of max(s_pk - t, 0) and of max(-s_pk - t, 0)],   t = .2
averaged with that of the mirror image, standardised, and projected on its 512 largest principal components.

Reference: Coates, Lee and Ng 2011 (proceedings.mlr.press/v15/coates11a), with random patches in place of centroids.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pals.util.errors import InputError
from pals.vision.networks.network import Network

PATCH = 6  # pixels a side
POOL_GRID = 3  # fields a side over which responses are averaged
MIN_PATCH_SIDE = PATCH + POOL_GRID  # pixels a side of an image
FILTERS = 512
CONTRAST = 0.3
"""Added to a patch's standard deviation before dividing by it, so that flat patches are not amplified."""
RIDGE = 0.01
"""Added to the variances in whitening."""
MIN_COSINE = 0.2
"""Cosine below which a window does not respond to a patch."""
RESPONSE_BYTES = 16 << 20
"""Bytes of responses computed at a time on a CPU: about its cache. A GPU computes 64 times as many."""
PATCH_FEATURES = 512
"""Principal components of the responses: the width of the features."""
PATCH_IMAGES = 5000
"""Images that patches are cut from, at most."""
COMPONENT_IMAGES = 2 * PATCH_FEATURES
"""Images from which the components are computed."""


class PatchNetwork(Network):
    """The features described above; `mirror`: averaged with those of the mirror image. All buffers are computed from images
    by `learn_patches`, none from labels."""

    def __init__(self, channels: int, num_classes: int, filters: int = FILTERS, *, mirror: bool = True) -> None:
        super().__init__()
        self.mirror = mirror
        width = channels * PATCH**2
        self.whiten: Tensor
        self.centre: Tensor
        self.patches: Tensor
        self.register_buffer("whiten", torch.zeros(width, channels, PATCH, PATCH))
        self.register_buffer("centre", torch.zeros(width))
        self.register_buffer("patches", torch.zeros(filters, width, 1, 1))
        self.components: Tensor
        self.offset: Tensor
        self.register_buffer("components", torch.zeros(PATCH_FEATURES, 2 * filters * POOL_GRID**2))
        self.register_buffer("offset", torch.zeros(PATCH_FEATURES))
        self.classifier = nn.Linear(PATCH_FEATURES, num_classes)

    def encode(self, x: Tensor) -> Tensor:
        return self.reduced(self.responses(x))

    def reduced(self, response: Tensor) -> Tensor:
        """Responses projected on the principal components."""
        return F.linear(response, self.components, self.offset)

    def responses(self, x: Tensor) -> Tensor:
        """Similarity of each field to each patch and to its negative. A few images at a time, unless a graph is traced, which
        has to be valid for any number."""
        if torch.compiler.is_compiling():
            return self._both_ways(x)
        places = (x.shape[2] - PATCH + 1) * (x.shape[3] - PATCH + 1)
        at_once = RESPONSE_BYTES if x.device.type == "cpu" else RESPONSE_BYTES << 6
        few = max(1, at_once // (2 * 4 * len(self.patches) * places))
        return torch.cat([self._both_ways(part) for part in torch.split(x, few)])

    def _both_ways(self, x: Tensor) -> Tensor:
        return (self._responses(x) + self._responses(x.flip(-1))) / 2 if self.mirror else self._responses(x)

    def _responses(self, x: Tensor) -> Tensor:
        mean = F.avg_pool2d(x.mean(dim=1, keepdim=True), PATCH, 1)
        square = F.avg_pool2d(x.square().mean(dim=1, keepdim=True), PATCH, 1)
        spread = (square - mean.square()).clamp_min(0).sqrt() + CONTRAST
        white = F.normalize(F.conv2d(x, self.whiten) / spread - self.centre[:, None, None], dim=1)
        alike = F.conv2d(white, self.patches)
        both = ((alike - MIN_COSINE).relu_(), alike.neg_().sub_(MIN_COSINE).relu_())  # in place: these are large
        return torch.cat([F.adaptive_avg_pool2d(half, POOL_GRID).flatten(1) for half in both], dim=1)


class Responses(Network):
    """All responses of a patch network as features, for comparing images."""

    def __init__(self, network: PatchNetwork) -> None:
        super().__init__()
        self.network = network
        self.classifier = nn.Linear(network.components.shape[1], network.num_classes)

    def encode(self, x: Tensor) -> Tensor:
        return self.network.responses(x)


def learned_patches(x: Tensor, generator: torch.Generator) -> PatchNetwork:
    """A network computed from these standardised images; torch's global generator is left unchanged."""
    with torch.random.fork_rng(devices=[]):  # initialising the unused classifier draws numbers
        network = PatchNetwork(x.shape[1], num_classes=2)
    learn_patches(network, x, generator)
    return network


@torch.no_grad()
def learn_patches(network: PatchNetwork, x: Tensor, generator: torch.Generator, samples: int = 50_000) -> None:
    """Fill the network from `samples` patches of standardised images (N x channels x height x width)."""
    channels, height, width = x.shape[1:]
    if min(height, width) < MIN_PATCH_SIDE:
        raise InputError(f"Images of {height} x {width} pixels are too small for patches; at least {MIN_PATCH_SIDE} a side.")

    def whole(limit: int) -> Tensor:
        return torch.randint(limit, (samples, 1, 1, 1), generator=generator)

    offset = torch.arange(PATCH)
    rows = whole(height - PATCH + 1) + offset[:, None]
    columns = whole(width - PATCH + 1) + offset
    patch = x[whole(len(x)), torch.arange(channels)[:, None, None], rows, columns].reshape(samples, -1)
    patch = patch - patch.mean(dim=1, keepdim=True)
    patch = patch / (patch.square().mean(dim=1, keepdim=True).sqrt() + CONTRAST)
    mean = patch.mean(dim=0)
    covariance = (patch - mean).T @ (patch - mean) / samples
    value, vector = torch.linalg.eigh(covariance.double())
    whitening = (vector * (value.clamp_min(0) + RIDGE).rsqrt()) @ vector.T
    size = len(mean)
    without_mean = torch.eye(size, dtype=torch.float64) - 1 / size
    network.whiten.copy_((whitening @ without_mean).reshape(network.whiten.shape))
    network.centre.copy_(whitening @ mean.double())
    chosen = torch.randperm(samples, generator=generator)[: len(network.patches)]
    white = F.normalize((patch[chosen] - mean).double() @ whitening, dim=1)
    network.patches.copy_(white.reshape(network.patches.shape))
    _reduce(network, x[torch.randperm(len(x), generator=generator)[:COMPONENT_IMAGES]])


def _reduce(network: PatchNetwork, x: Tensor) -> None:
    """The principal components of the standardised responses to these images. With fewer images than components the rest is
    zero."""
    response = network.responses(x)
    std, mean = torch.std_mean(response, dim=0)
    std = std + 1e-6
    normal = (response - mean) / std
    value, vector = torch.linalg.eigh((normal @ normal.T).double())  # N x N: far fewer images than responses
    kept = (value > 1e-6 * value[-1]).nonzero().flatten().flip(0)[:PATCH_FEATURES]
    axes = (vector[:, kept] / value[kept].sqrt()).float().T @ normal
    network.components.zero_()
    network.components[: len(kept)] = axes / std
    network.offset.copy_(-(network.components @ mean))
