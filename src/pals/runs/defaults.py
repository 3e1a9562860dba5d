"""Settings that go together: what each data set is trained with unless the user says otherwise. Data, no logic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pals.util.config import merge

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

# The authors', except that the short last batch is filled and that fewer items at a time go through large networks.
_CUB: Mapping[str, Any] = {
    "data": {"partial_rate": 0.05, "noise_rate": 0.2},
    "network": {"name": "imagenet-resnet18", "weights": "resnet18-f37072fd.pth"},
    "train": {
        "epochs": 250,
        "batch_size": 64,
        "lr": 0.05,
        "weight_decay": 5e-4,
        "schedule": "step",
        "milestones": [60, 120, 160, 200],
        "factor": 0.2,
        "tail": "fill",
        "feature_batch": 250,
        "checkpoint_every": 10,
    },
}
_CROWD: Mapping[str, Any] = {
    "network": {"name": "imagenet-resnet50-projected", "weights": "resnet50-0676ba61.pth"},
    "train": {
        **_CUB["train"],
        "epochs": 100,
        "batch_size": 32,
        "encoder_lr_scale": 0.01,
        "milestones": [60],
    },
}

HEAD: Mapping[str, Any] = {"batch_size": 64, "lr": 0.05}
"""How a small head on features is trained."""
TUNED: Mapping[str, Any] = {"batch_size": 64, "lr": 0.01, "encoder_lr_scale": 0.1}
"""How a pretrained network is trained further."""
_ANY_DATA: Mapping[str, Any] = {
    "optimizer": "sgd",
    "schedule": "cosine",
    "floor": 1e-4,
    "milestones": [],
    "weight_decay": 1e-3,
    "tail": "fill",
    "checkpoint_every": 10,
}
ON_FEATURES: Mapping[str, Any] = {
    "train": {
        **_ANY_DATA,
        **HEAD,
        "epochs": 60,
        "encoder_lr_scale": 1.0,
    },
}
"""With `pals train --encoder`, in place of what the data set's own network is trained with: a small head on features."""
FINE_TUNED: Mapping[str, Any] = {
    "train": {
        **_ANY_DATA,
        **TUNED,
        "epochs": 20,
        "feature_batch": 250,
    },
}
"""The same with --no-frozen."""

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
    "cub200": _CUB,
    "treeversity": _CROWD,
    "benthic": _CROWD,
    "plankton": _CROWD,
}
"""Per data set: the authors' training settings, and what works on a laptop for the digits."""

# RC and CC (the same archive): the authors' ResNet-32; their other network, a small DenseNet, is not here. Images as they are.
_FENG: Mapping[str, Any] = {
    "method": {"view": "eval"},
    "network": {"name": "resnet32"},
    "train": {"epochs": 250, "optimizer": "adam", "lr": 1e-3, "weight_decay": 1e-3, "schedule": "constant"},
}
# The authors of RC, CC, PRODEN and LWS give no settings for CIFAR-100, those of APL none that we could read: a recommendation
# of ours, with ResNet-18.
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

# PLRC at q = 0.5, eta <= 0.3 and at q = 0.05; docs/methods/plrc.md has what its authors take at other rates. PaPi, its trunk,
# alike. Rates are estimated, where the authors give the true ones.
_PENG_10: Mapping[str, Any] = merge(_PICO, {"train": {"epochs": 500, "lr": 0.05, "floor": 5e-5}})
_PENG_100: Mapping[str, Any] = merge(_PICO, {"train": {"epochs": 500, "lr": 0.1, "floor": 1e-4}})
# CLSP as published for sets that hold the true label; with patches, where the authors have features of a foundation model.
_CLSP: Mapping[str, Any] = {
    "method": {"tau": 0.6, "neighbors": 150, "class_share": None, "spare": False, "features": "patches"},
}

# FREDIS, what both sets share. The rest depends on the rates: here for those of the recipes, in docs/methods/fredis.md for all.
_QIAO: Mapping[str, Any] = {
    "network": {"name": "resnet32"},
    "train": {
        "epochs": 250,
        "batch_size": 256,
        "lr": 0.01,
        "weight_decay": 1e-5,
        "schedule": "step",
        "milestones": [100, 150],
        "factor": 0.1,
        "tail": "keep",
    },
}
# UPLLRS, what both sets share: 2^20 steps at most, in epochs of the 40,000 items that are not held out.
_SHI: Mapping[str, Any] = {
    "method": {"separator": "resnet20"},
    "network": {"name": "wrn-28-2"},
    "train": {
        "epochs": 6721,
        "batch_size": 256,
        "lr": 0.05,
        "nesterov": True,
        "weight_decay": 1e-3,
        "decay": "weights",
        "schedule": "short-cosine",
        "tail": "keep",
    },
}

# PiCO+, which is trained as PiCO; the share of reliable items is the authors' at eta = 0.2.
_PICO_PLUS_10: Mapping[str, Any] = {**_PICO, "method": {"delta": 0.6}}
_PICO_PLUS_100: Mapping[str, Any] = {**_PICO, "method": {"prototypes_from": 51, "neighbors": 5, "delta": 0.6}}
# ALIM and IRNet, on all sets.
_LIAN: Mapping[str, Any] = merge(_PICO, {"train": {"epochs": 1000, "batch_size": 128}})
_ALIM_10: Mapping[str, Any] = {**_LIAN, "method": {"adjust_from": 140}}  # at q = 0.5; 80, the default, below
# IRNet's tau at the rates of the recipes; docs/methods/irnet.md has those for others.
_IRNET_10: Mapping[str, Any] = {**_LIAN, "method": {"loss": "symmetric", "tau": 0.008}}
_IRNET_100: Mapping[str, Any] = {**_LIAN, "method": {"tau": 0.002}}
# DivideMix, what all sets share; CIFAR-10 has the defaults, which are those for 50 to 80% wrong labels.
_LI: Mapping[str, Any] = {
    "network": {"name": "preact-resnet18"},
    "train": {
        "epochs": 300,
        "batch_size": 64,
        "lr": 0.02,
        "weight_decay": 5e-4,
        "schedule": "step",
        "milestones": [150],
        "factor": 0.1,
    },
}
_LI_100: Mapping[str, Any] = {**_LI, "method": {"warm_up": 30, "unlabeled_weight": 150.0}}
# ELR+; CIFAR-10 has the defaults.
_LIU: Mapping[str, Any] = merge(_LI, {"train": {"epochs": 200, "batch_size": 128}})
_LIU_100: Mapping[str, Any] = merge(
    _LIU,
    {
        "method": {"memory_momentum": 0.9, "memory_weight": 7.0, "memory_ramp": 40_000, "reweight": True},
        "train": {"epochs": 250, "milestones": [200]},
    },
)

# ProMix; CIFAR-10 has the defaults. What counts epochs is meant for 600: elsewhere it is ours, in proportion to the schedule.
_XIAO: Mapping[str, Any] = {
    "train": {"epochs": 600, "lr": 0.05, "weight_decay": 5e-4, "schedule": "cosine-epoch", "floor": 5e-5},
}
_XIAO_100: Mapping[str, Any] = {
    **_XIAO,
    "method": {"warm_up": 30, "tau": 0.95, "debias_output": 0.5, "debias_guess": 0.5},
}
_XIAO_DIGITS: Mapping[str, Any] = {
    "method": {"warm_up": 5, "rho_ramp": 5, "ramp": 5, "unlabeled_epochs": 10, "guess_last": 25, "share_momentum": 0.99},
}
_XIAO_CROWD: Mapping[str, Any] = {
    "method": {"warm_up": 5, "rho_ramp": 9, "ramp": 9, "unlabeled_epochs": 17, "guess_last": 42, "share_momentum": 0.999},
}
_XIAO_FINE: Mapping[str, Any] = {
    "method": {"warm_up": 13, "rho_ramp": 21, "ramp": 21, "unlabeled_epochs": 42, "guess_last": 104, "share_momentum": 0.999},
}

# PiCO on CUB-200. On answers of crowds nothing was published: the same is taken there.
_FINE: Mapping[str, Any] = merge(
    _PICO,
    {
        "method": {"queue": 4096},
        "train": {"epochs": 300, "weight_decay": 1e-5, "encoder_lr_scale": 1.0, "milestones": []},
    },
)
_PICO_FINE: Mapping[str, Any] = merge(_FINE, {"method": {"prototypes_from": 101}})
_ALIM_FINE: Mapping[str, Any] = merge(_FINE, {"method": {"adjust_from": 60, "confidence_from": 30}, "train": {"epochs": 200}})
# Answers of crowds, in a benchmark of Schmarje et al. (NeurIPS 2022).
_DCIC: Mapping[str, Any] = {
    "method": {"labels": "votes"},
    "network": {"name": "imagenet-resnet50"},
    "train": {"lr": 0.002, "encoder_lr_scale": 1.0, "weight_decay": 1e-3, "factor": 0.1, "tail": "keep"},
}
# SRSE, on CIFAR and elsewhere; a short last batch is left out and not filled.
_SRSE: Mapping[str, Any] = {"train": {"epochs": 500, "schedule": "cosine-epoch", "floor": 0.0, "tail": "keep"}}
_SRSE_FINE: Mapping[str, Any] = {"train": {"tail": "keep"}}
_CROWD_METHODS: Mapping[str, Mapping[str, Any]] = {
    "pals": {"method": {"delta": 0.75}},
    "srse": {**_SRSE_FINE, "method": {"neighbors": 5, "delta": 1.0}},
    "pico": _PICO_FINE,
    "alim-scale": _ALIM_FINE,
    "alim-onehot": _ALIM_FINE,
    "dividemix": merge(
        _DCIC,
        {
            "method": {"warm_up": 1, "warm_up_penalty": 1.0, "train_on": "labeled", "zeta": 0.5},
            "train": {"epochs": 80, "batch_size": 32, "milestones": [40]},
        },
    ),
    "elr+": merge(
        _DCIC,
        {
            "method": {"slow_rule": "mean", "slow_momentum": 0.9999},
            "train": {"epochs": 15, "batch_size": 64, "milestones": [7]},
        },
    ),
    "promix": _XIAO_CROWD,
}

# PRODEN: the authors' ResNet-32; images as they are.
_LV: Mapping[str, Any] = {
    "method": {"view": "eval"},
    "network": {"name": "resnet32"},
    "train": {"epochs": 500, "lr": 0.05, "weight_decay": 1e-3, "schedule": "constant"},
}
_ON_CIFAR10: Mapping[str, Mapping[str, Any]] = {
    "srse": _SRSE,
    "rc": _FENG,
    "cc": _FENG,
    "proden": _LV,
    "clsp": merge(_LV, _CLSP),
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
    "papi": _PENG_10,
    "plrc": _PENG_10,
    "pico+": _PICO_PLUS_10,
    "alim-scale": _ALIM_10,
    "alim-onehot": _ALIM_10,
    "irnet": _IRNET_10,
    "apl": _RECOMMENDED,
    "fredis": _QIAO,
    "upllrs": merge(_SHI, {"method": {"exclude": 0.03, "unreliable_weight": 2.0}}),
    "dividemix": _LI,
    "elr+": _LIU,
    "promix": _XIAO,
}
_ON_CIFAR100: Mapping[str, Mapping[str, Any]] = {
    "srse": _SRSE,
    "rc": _RECOMMENDED,
    "cc": _RECOMMENDED,
    "proden": _RECOMMENDED,
    "clsp": {**_RECOMMENDED, **_CLSP},
    "lws": merge(_RECOMMENDED, {"train": {"lr": 0.05, "floor": 5e-5}}),
    "crdpll": _WU,
    "pico": _PICO,
    "papi": _PENG_100,
    "plrc": {**_PENG_100, "method": {"warm_up": 200}},
    "pico+": _PICO_PLUS_100,
    "alim-scale": _LIAN,
    "alim-onehot": _LIAN,
    "irnet": _IRNET_100,
    "apl": _RECOMMENDED,
    "fredis": merge(
        _QIAO,
        {"method": {"consistency_weight": 1.0, "temperature": 0.8, "changes": 500, "remove_step": 0.1}},
    ),
    "upllrs": merge(_SHI, {"method": {"exclude": 0.005, "unreliable_weight": 0.3}}),
    "dividemix": _LI_100,
    "elr+": _LIU_100,
    "promix": _XIAO_100,
}

PUBLISHED: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "digits": {
        # ours: what was published for hundreds of epochs, in 60 of 22 steps
        "pico+": {
            "method": {"prototypes_from": 21, "neighbors_from": 41, "prototype_momentum": 0.9},
            "train": {"lr": 0.03},
        },
        "alim-scale": {"method": {"adjust_from": 20}},
        "alim-onehot": {"method": {"adjust_from": 20}},
        "irnet": {"method": {"correct_from": 21}},
        "plrc": {"method": {"warm_up": 20, "ramp": 20}},
        "upllrs": {"method": {"slow_momentum": 0.99}},  # ours: an epoch here is 18 steps
        "promix": _XIAO_DIGITS,
    },
    "cifar10": _ON_CIFAR10,
    "cifar100": _ON_CIFAR100,
    "cifar100h": _ON_CIFAR100,  # published for ALIM alone
    "cifar10n": {
        **_ON_CIFAR10,  # nothing else was published; what its authors chose by the rates is estimated
        "clsp": merge(_LV, {"method": {"features": "patches"}}),  # people may have missed the true label
        "pico+": _PICO,
        "alim-scale": _LIAN,
        "alim-onehot": _LIAN,
        "irnet": {**_LIAN, "method": {"loss": "symmetric"}},
        "pals": {"method": {"delta": 0.75}},  # as the authors for answers of real people
        "srse": {**_SRSE, "method": {"delta": 1.0}},  # likewise
        # as the authors for wrong labels that are not wrong at random
        "dividemix": {**_LI, "method": {"warm_up_penalty": 1.0, "unlabeled_weight": 0.0}},
        "elr+": {**_LIU, "method": {"memory_momentum": 0.9, "memory_weight": 1.0}},
    },
    "cub200": {
        "srse": _SRSE_FINE,
        "pico": _PICO_FINE,
        # published for PiCO alone; the neighbours are ours
        "pico+": merge(_PICO_FINE, {"method": {"neighbors": 5, "delta": 0.6}}),
        "alim-scale": _ALIM_FINE,
        "alim-onehot": _ALIM_FINE,
        "promix": _XIAO_FINE,
    },
    "treeversity": _CROWD_METHODS,
    "benthic": _CROWD_METHODS,
    "plankton": _CROWD_METHODS,
}
"""Per data set and method: what the method was published with there, where that differs from the above."""
