"""Exponential moving averages of networks: theta_ema <- d theta_ema + (1 - d) theta."""

from __future__ import annotations

import torch
from torch import Tensor, nn


@torch.no_grad()
def update_ema(ema: nn.Module, network: nn.Module, decay: float | Tensor, *, buffer_decay: float | None = None) -> None:
    """Move the average towards the network, in place.

    Args:
        ema: the averaged network.
        network: the trained network, of the same architecture.
        decay: d of the parameters; a tensor where it changes between steps that are captured in a graph.
        buffer_decay: d of floating-point buffers such as batch statistics; other buffers are copied. None: no buffer changes.

    >>> ema, network = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)
    >>> _ = nn.init.constant_(ema.weight, 1.0), nn.init.constant_(network.weight, 3.0)
    >>> update_ema(ema, network, 0.5)
    >>> ema.weight.item()
    2.0
    """
    old, new = tuple(ema.parameters()), tuple(network.parameters())
    if isinstance(decay, Tensor):
        torch._foreach_mul_(old, decay)
        torch._foreach_add_(old, torch._foreach_mul(new, 1 - decay))
    else:
        torch._foreach_lerp_(old, new, 1 - decay)
    if buffer_decay is None:
        return
    for average, current in zip(ema.buffers(), network.buffers(), strict=True):
        if average.is_floating_point():
            average.lerp_(current, 1 - buffer_decay)
        else:
            average.copy_(current)
