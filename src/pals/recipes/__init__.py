"""Settings that go together: what each data set is trained with unless the user says otherwise. Data, no logic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pals.config import merge

_CIFAR: Mapping[str, Any] = {
    "network": {"name": "resnet18"},
    "train": {
        "epochs": 500,
        "batch_size": 256,
        "lr": 0.1,
        "weight_decay": 1e-3,
        "schedule": "cosine",
        "floor": 1e-4,
        "tail": "fill",
        "checkpoint_every": 10,
    },
}

DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "digits": {
        "data": {"partial_rate": 0.5, "noise_rate": 0.3},
        "network": {"name": "small-cnn"},
        "train": {"epochs": 60, "batch_size": 64, "lr": 0.1, "weight_decay": 1e-3},
    },
    "cifar10": {"data": {"partial_rate": 0.5, "noise_rate": 0.3}, **_CIFAR},
    "cifar100": {"data": {"partial_rate": 0.05, "noise_rate": 0.3}, **_CIFAR},
    "cifar10n": merge(_CIFAR, {"train": {"epochs": 200}}),
    "cifar100h": {"data": {"partial_rate": 0.5, "noise_rate": 0.2}, **_CIFAR},
}
"""Per data set: the published training settings for the CIFAR sets, and what works on a laptop for the digits."""

PUBLISHED: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "cifar10n": {"pals": {"method": {"delta": 0.75}}},  # as the authors for answers of real people
}
"""Per data set and method: what the method was published with there, where that differs from the above."""
