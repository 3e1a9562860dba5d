"""Features without training: how much each part of a picture looks like patches cut from the pictures themselves."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pals.util.errors import InputError
from pals.vision.networks.network import Network

PATCH = 6  # pixels a side
GRID = 3  # responses are averaged in so many fields a side
SMALLEST = PATCH + GRID  # pixels a side of a picture
FILTERS = 512
CONTRAST = 0.3
"""Added to a patch's deviation before dividing by it, so that flat ones are not blown up."""
RIDGE = 0.01
"""Added to the variances that whitening divides by."""
THRESHOLD = 0.2
"""How alike, as a cosine, a place must be to a patch before it counts."""
BLOCK_VALUES = 16 << 20
"""Bytes of responses: about what a CPU's cache holds. Of larger pieces the system takes back the memory each time, too. A GPU
is given 64 times as much."""
WIDTH = 512
"""Features that are left: the largest principal components of all responses."""
PICTURES = 5000
"""That patches are cut from, where there are more."""
LOOKED_AT = 2 * WIDTH
"""Pictures that the components are found on."""


class PatchNetwork(Network):
    """Every place is normalised and whitened, compared with random patches, both ways, and what exceeds the threshold is
    averaged over a grid of fields; the picture and its mirror image together, unless `mirror` is false; then the principal
    components. After Coates, Lee and Ng (2011), with patches in place of centroids. All of it comes from the pictures
    (`learn_patches`), nothing from labels."""

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
        self.register_buffer("components", torch.zeros(WIDTH, 2 * filters * GRID**2))
        self.register_buffer("offset", torch.zeros(WIDTH))
        self.classifier = nn.Linear(WIDTH, num_classes)

    def encode(self, x: Tensor) -> Tensor:
        return self.reduced(self.responses(x))

    def reduced(self, response: Tensor) -> Tensor:
        """The principal components of responses."""
        return F.linear(response, self.components, self.offset)

    def responses(self, x: Tensor) -> Tensor:
        """How much each field looks like each patch, or its opposite. A few pictures at a time; all of them where a graph is
        taken, which has to hold for any number."""
        if torch.compiler.is_compiling():
            return self._both_ways(x)
        places = (x.shape[2] - PATCH + 1) * (x.shape[3] - PATCH + 1)
        at_once = BLOCK_VALUES if x.device.type == "cpu" else BLOCK_VALUES << 6
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
        both = ((alike - THRESHOLD).relu_(), alike.neg_().sub_(THRESHOLD).relu_())  # large: no more copies than it takes
        return torch.cat([F.adaptive_avg_pool2d(half, GRID).flatten(1) for half in both], dim=1)


class Responses(Network):
    """All responses of a patch network as features, for comparing pictures with one another."""

    def __init__(self, network: PatchNetwork) -> None:
        super().__init__()
        self.network = network
        self.classifier = nn.Linear(network.components.shape[1], network.num_classes)

    def encode(self, x: Tensor) -> Tensor:
        return self.network.responses(x)


def learned_patches(x: Tensor, generator: torch.Generator) -> PatchNetwork:
    """A network that is learned from these standardised pictures alone; torch's own generator is left as it is."""
    with torch.random.fork_rng(devices=[]):  # the classifier that nobody asks draws numbers too
        network = PatchNetwork(x.shape[1], num_classes=2)
    learn_patches(network, x, generator)
    return network


@torch.no_grad()
def learn_patches(network: PatchNetwork, x: Tensor, generator: torch.Generator, samples: int = 50_000) -> None:
    """Fill the network from standardised pictures (N x channels x height x width), of which `samples` patches are looked at."""
    channels, height, width = x.shape[1:]
    if min(height, width) < SMALLEST:
        raise InputError(
            f"Pictures of {height} x {width} pixels are too small to cut patches from; at least {SMALLEST} a side."
        )

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
    _reduce(network, x[torch.randperm(len(x), generator=generator)[:LOOKED_AT]])


def _reduce(network: PatchNetwork, x: Tensor) -> None:
    """The principal components of the responses to these pictures, each response standardised. Fewer pictures than components
    leave the rest at zero."""
    response = network.responses(x)
    std, mean = torch.std_mean(response, dim=0)
    std = std + 1e-6
    normal = (response - mean) / std
    value, vector = torch.linalg.eigh((normal @ normal.T).double())  # far fewer pictures than responses
    kept = (value > 1e-6 * value[-1]).nonzero().flatten().flip(0)[:WIDTH]
    axes = (vector[:, kept] / value[kept].sqrt()).float().T @ normal
    network.components.zero_()
    network.components[: len(kept)] = axes / std
    network.offset.copy_(-(network.components @ mean))
