"""The interface of all networks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from pals.util.process_group import ProcessGroup, group_for, shared_by
from pals.vision.networks.batchnorm import Norm


class Output(NamedTuple):
    """Result of a forward pass: class scores, and the features from which the classifier computes them.

    >>> import torch
    >>> from pals import Output
    >>> Output(logits=torch.tensor([[0.5, 2.0]]), features=torch.zeros(1, 8)).logits.argmax(dim=1)
    tensor([1])
    """

    logits: Tensor  # B x C, before the softmax
    features: Tensor  # B x D, pooled, not normalised: the input of the classifier


class Network(nn.Module):
    """An encoder and a linear classifier: logits = W encode(x) + b. Subclasses define `encode` and set `classifier`.

    >>> import torch
    >>> from torch import nn
    >>> from pals import Network
    >>> class Flat(Network):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.classifier = nn.Linear(12, 3)
    ...
    ...     def encode(self, x):
    ...         return x.flatten(1)
    >>> Flat()(torch.zeros(2, 3, 2, 2)).logits.shape
    torch.Size([2, 3])
    """

    classifier: nn.Linear

    @abstractmethod
    def encode(self, x: Tensor) -> Tensor:
        """Pooled features of the inputs, B x D."""

    def forward(self, x: Tensor) -> Output:
        features = self.encode(x)
        return Output(self.classifier(features), features)

    def each(self, views: Sequence[Tensor]) -> list[Output]:
        """Outputs of several batches of one size, each with its own batch statistics, as of separate passes but in one."""
        group = group_for(views[0]) if views else None
        if group is not None:
            return self._each_with(group, views)
        norms = [module for module in self.modules() if isinstance(module, Norm)]
        for norm in norms:
            norm.parts = len(views)
        try:
            with shared_by(None):  # each batch has too few rows to share
                output = self(torch.cat(list(views)))
        finally:
            for norm in norms:
                norm.parts = 1
        logits, features = (tensor.chunk(len(views)) for tensor in output)
        return [Output(*pair) for pair in zip(logits, features, strict=True)]

    def _each_with(self, group: ProcessGroup, views: Sequence[Tensor]) -> list[Output]:
        """`each`, of which this process computes its rows of each batch."""
        norms = [module for module in self.modules() if isinstance(module, Norm)] if group.sync_norms else []
        for norm in norms:
            norm.group = group
        try:
            with shared_by(None):
                own = [group.rows(view) for view in views]
                outputs = self.each(own) if len(own) > 1 else [self(own[0])]
        finally:
            for norm in norms:
                norm.group = None
        parts = [part for output in outputs for part in output]
        whole = torch.split(group.gathered(torch.cat(parts, dim=1), len(views[0])), [part.shape[1] for part in parts], dim=1)
        same = [table.to(part.dtype) for table, part in zip(whole, parts, strict=True)]
        return [Output(*pair) for pair in zip(same[::2], same[1::2], strict=True)]

    @property
    def feature_width(self) -> int:
        return self.classifier.in_features

    @property
    def num_classes(self) -> int:
        return self.classifier.out_features

    def own_name(self, published: str) -> str:
        """This network's name for a parameter in files of published weights."""
        return published

    def __call__(self, x: Tensor) -> Output:
        group = group_for(x)
        if group is not None:
            return self._each_with(group, [x])[0]
        output: Output = super().__call__(x)
        return output
