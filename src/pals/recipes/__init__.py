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

# RC and CC (the same archive): the authors' ResNet-32; their other network, a small DenseNet, is not here. Images as they are.
_FENG: Mapping[str, Any] = {
    "method": {"view": "eval"},
    "network": {"name": "resnet32"},
    "train": {"epochs": 250, "optimizer": "adam", "lr": 1e-3, "weight_decay": 1e-3, "schedule": "constant"},
}
# The authors of RC, CC, PRODEN and LWS give no settings for CIFAR-100: a recommendation of ours, with ResNet-18.
_RECOMMENDED: Mapping[str, Any] = {
    "train": {"epochs": 500, "lr": 0.01, "weight_decay": 1e-3, "schedule": "cosine-epoch", "floor": 1e-5},
}
# CRDPLL, on both sets.
_WU: Mapping[str, Any] = {
    "network": {"name": "wrn-34-10"},
    "train": {
        "epochs": 200,
        "batch_size": 64,
        "lr": 0.1,
        "weight_decay": 1e-4,
        "schedule": "step",
        "milestones": [100, 150],
        "factor": 0.1,
    },
}
# PiCO, on both sets; a short last batch is left out and not filled.
_PICO: Mapping[str, Any] = {
    "train": {
        "epochs": 800,
        "batch_size": 256,
        "lr": 0.01,
        "weight_decay": 1e-3,
        "schedule": "cosine-epoch",
        "floor": 1e-5,
        "tail": "keep",
    },
}

PUBLISHED: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "cifar10": {
        "rc": _FENG,
        "cc": _FENG,
        "proden": {  # the authors' ResNet-32; images as they are
            "method": {"view": "eval"},
            "network": {"name": "resnet32"},
            "train": {"epochs": 500, "lr": 0.05, "weight_decay": 1e-3, "schedule": "constant"},
        },
        "lws": {  # the authors' only network; images as they are
            "method": {"view": "eval"},
            "network": {"name": "convnet9"},
            "train": {
                "epochs": 250,
                "lr": 0.05,
                "weight_decay": 1e-3,
                "schedule": "exponential",
                "factor": 0.5,
                "period": 50,
            },
        },
        "crdpll": _WU,
        "pico": _PICO,
    },
    "cifar100": {
        "rc": _RECOMMENDED,
        "cc": _RECOMMENDED,
        "proden": _RECOMMENDED,
        "lws": merge(_RECOMMENDED, {"train": {"lr": 0.05, "floor": 5e-5}}),
        "crdpll": _WU,
        "pico": _PICO,
    },
    "cifar10n": {"pals": {"method": {"delta": 0.75}}},  # as the authors for answers of real people
}
"""Per data set and method: what the method was published with there, where that differs from the above."""
