"""What every network looks like from outside."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from pals.vision.backbones.norm import Norm


class Output(NamedTuple):
    """One forward pass: class scores and the features they were read from."""

    logits: Tensor  # B x C, before the softmax
    features: Tensor  # B x D, pooled, not normalised: the classifier reads these


class Network(nn.Module):
    """An encoder and a linear classifier. `classifier` is apart so that it may have its own learning rate."""

    classifier: nn.Linear

    @abstractmethod
    def encode(self, x: Tensor) -> Tensor:
        """Inputs to pooled features, B x D."""

    def forward(self, x: Tensor) -> Output:
        features = self.encode(x)
        return Output(self.classifier(features), features)

    def each(self, views: Sequence[Tensor]) -> list[Output]:
        """Several batches of the same size, each with batch statistics of its own: the same as one pass after the other, but
        in one larger pass."""
        norms = [module for module in self.modules() if isinstance(module, Norm)]
        for norm in norms:
            norm.parts = len(views)
        try:
            output = self(torch.cat(list(views)))
        finally:
            for norm in norms:
                norm.parts = 1
        logits, features = (tensor.chunk(len(views)) for tensor in output)
        return [Output(*pair) for pair in zip(logits, features, strict=True)]

    @property
    def feature_width(self) -> int:
        return self.classifier.in_features

    @property
    def num_classes(self) -> int:
        return self.classifier.out_features

    def own_name(self, published: str) -> str:
        """What this network calls the parameter that files of published weights call so."""
        return published

    def __call__(self, x: Tensor) -> Output:  # for the type checker: nn.Module's own is untyped
        output: Output = super().__call__(x)
        return output
