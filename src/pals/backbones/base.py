"""What every network looks like from outside."""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

from torch import Tensor, nn


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

    @property
    def feature_width(self) -> int:
        return self.classifier.in_features

    @property
    def num_classes(self) -> int:
        return self.classifier.out_features

    def __call__(self, x: Tensor) -> Output:  # for the type checker: nn.Module's own is untyped
        output: Output = super().__call__(x)
        return output
