"""Batch norm for batches of one, for several batches in one pass, and for batches shared by several processes.

    y = weight (x - mean) / sqrt(var + eps) + bias,   mean and var over the batch in training, running ones in evaluation

With S processes of n_s values each:  mean = sum_s n_s mean_s / n,   var = sum_s n_s (var_s + (mean_s - mean)^2) / n.

Reference: Ioffe and Szegedy 2015, arXiv:1502.03167.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm

from pals.util.errors import InputError
from pals.util.process_group import ProcessGroup


class Norm(nn.modules.batchnorm._BatchNorm):
    """Batch norm with additions that depend on shapes alone, so that it compiles to one graph.

    In `parts` (see `Network.each`) a training batch is several batches one after the other, each with statistics of its own.
    A single value per channel has no variance, which torch refuses in training: the running statistics are used then, so that
    an epoch whose last batch has one item does not fail. With a `group` the statistics are those of all its processes' rows.
    """

    parts: int = 1
    group: ProcessGroup | None = None

    def __init__(self, channels: int, eps: float = 1e-5, momentum: float | None = 0.1) -> None:
        if momentum is None:
            raise InputError("A norm with momentum None (the average of all batches so far) is not supported. Give a number.")
        super().__init__(channels, eps, momentum)

    def forward(self, x: Tensor) -> Tensor:
        if self.training and self.group is not None:
            return self._normalise_with(self.group, x)
        if self.training and x.numel() == self.parts * x.shape[1]:  # a single value per channel in each part
            return batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
        if not self.training or self.parts == 1:
            return self._normalise(x)
        if torch.compiler.is_compiling():
            part, var, mean, count = self._statistics(x)  # all parts at once: a compiler fuses this into one pass
            return self._normalise_by(part, var, mean, count).to(x.dtype)
        return torch.cat([self._normalise(part) for part in x.chunk(self.parts)])

    def _normalise_with(self, group: ProcessGroup, x: Tensor) -> Tensor:
        """By the mean and the variance of all processes' values, of which each may have another number."""
        part, var, mean, count = self._statistics(x)
        counts, means, variances = group.stacked(torch.stack([torch.full_like(mean, count), mean, var])).unbind(dim=1)
        total = counts.sum(dim=0)
        mean = (counts * means).sum(dim=0) / total
        var = (counts * (variances + (means - mean).square())).sum(dim=0) / total
        return self._normalise_by(part, var, mean, total.flatten()[0].detach()).to(x.dtype)

    def _statistics(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, int]:
        """The values by parts, at least in float32, their variance and mean, and how many there are of each channel."""
        part = torch.unflatten(x, 0, (self.parts, -1)).to(torch.promote_types(x.dtype, torch.float32))
        others = [d for d in range(part.ndim) if d not in (0, 2)]
        var, mean = torch.var_mean(part, dim=others, correction=0, keepdim=True)
        return part, var, mean, part[0].numel() // x.shape[1]

    def _normalise_by(self, part: Tensor, var: Tensor, mean: Tensor, count: int | Tensor) -> Tensor:
        scale = self.weight.view(mean[0].shape) * torch.rsqrt(var + self.eps)
        shift = self.bias.view(mean[0].shape) - mean * scale
        self._track(mean.detach().flatten(1), var.detach().flatten(1), count)
        normed: Tensor = (part * scale + shift).flatten(0, 1)
        return normed

    @torch.no_grad()
    def _track(self, mean_PC: Tensor, var_PC: Tensor, count: int | Tensor) -> None:
        """Running statistics, one part after the other."""
        assert self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None
        assert self.momentum is not None
        for mean_C, var_C in zip(mean_PC, var_PC, strict=True):
            self.running_mean.lerp_(mean_C, self.momentum)
            self.running_var.lerp_(var_C * (count / (count - 1)), self.momentum)
        self.num_batches_tracked += self.parts

    def _normalise(self, x: Tensor) -> Tensor:
        normed: Tensor = super().forward(x)
        return normed


class BatchNorm1d(Norm, nn.BatchNorm1d):
    """Batch norm over feature vectors; see `Norm`."""


class BatchNorm2d(Norm, nn.BatchNorm2d):
    """Batch norm over images; see `Norm`."""
