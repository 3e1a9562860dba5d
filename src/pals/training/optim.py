"""Training settings, the learning rate schedule, and the optimizer.

The rate after a share t of the phase's epochs (0 <= t <= 1), e = whole epochs done, with lr the rate at the start:

    cosine        floor + (lr - floor) (1 + cos(pi t)) / 2             at every step, or once an epoch (cosine-epoch)
    short-cosine  lr cos(7 pi t / 16)                                  FixMatch, arXiv:2001.07685
    linear        lr + (floor - lr) t
    exponential   lr factor^(e / period)
    step          lr factor^(number of milestones <= e)

Like a warm-up (times min(1, epochs / warmup)) it is a pure function of t: nothing has to be saved or restored.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import nn

from pals.methods import Method, Phase
from pals.training.engine import Engine
from pals.util.config import STRICT


@dataclass(frozen=True, config=STRICT)
class TrainConfig:
    epochs: int = Field(default=40, ge=1)
    "Length of the whole schedule."
    batch_size: int = Field(default=64, ge=1)
    "Items per step; with several processes, of all of them together."
    lr: float = Field(default=0.05, gt=0)
    "Learning rate at the start."
    momentum: float = Field(default=0.9, ge=0, lt=1)
    "Momentum of SGD."
    nesterov: bool = False
    "Nesterov momentum in SGD."
    weight_decay: float = Field(default=1e-3, ge=0)
    "Weight decay, as an L2 penalty in the gradient."
    decay: Literal["all", "weights"] = "all"
    "Weight decay on every parameter, or on none of the biases and normalisations."
    encoder_lr_scale: float = Field(default=1.0, ge=0)
    "Learning rate of everything before the classifier, as a share of `lr`."
    optimizer: Literal["sgd", "adam"] = "sgd"
    "How gradients become steps."
    schedule: Literal["cosine", "cosine-epoch", "short-cosine", "linear", "step", "exponential", "constant"] = "cosine"
    "How the learning rate falls; the cosine at every step, or once an epoch, or (short) at every step to a fifth."
    floor: float = Field(default=1e-4, ge=0)
    "Last learning rate of the cosine and of the line."
    warmup: float = Field(default=0.0, ge=0)
    "Epochs in which the learning rate first rises in a line, on top of any schedule."
    milestones: tuple[int, ...] = ()
    "Epochs after which the step schedule acts."
    factor: float = Field(default=0.2, gt=0)
    "What it multiplies the learning rate by; the exponential schedule does so in each `period`."
    period: int = Field(default=50, ge=1)
    "Epochs in which the exponential schedule multiplies by `factor`."
    tail: Literal["keep", "fill"] = "keep"
    "A last batch that is not full: keep it short, or fill it from the epoch's first draws, so that all steps are alike."
    feature_batch: int = Field(default=2000, ge=1)
    "Items per batch where no gradient is needed."
    checkpoint_every: int = Field(default=1, ge=1)
    "Epochs between checkpoints."


def learning_rate(config: TrainConfig, epochs_done: float, epochs: int, step: float = 0.0) -> float:
    """The learning rate at one point of a phase.

    Args:
        config: schedule and its numbers.
        epochs_done: epochs since the beginning of the phase; a fraction within an epoch.
        epochs: of the phase.
        step: length in epochs of the step that is made with this rate, so that a warm-up begins above zero.
    """
    rate = _scheduled(config, epochs_done, epochs)
    return rate * min(1.0, (epochs_done + step) / config.warmup) if config.warmup else rate


def _scheduled(config: TrainConfig, epochs_done: float, epochs: int) -> float:
    rate, floor, whole = config.lr, config.floor, int(epochs_done)
    done = (whole if config.schedule == "cosine-epoch" else epochs_done) / epochs
    match config.schedule:
        case "cosine" | "cosine-epoch":
            return floor + (rate - floor) * (1 + math.cos(math.pi * done)) / 2
        case "short-cosine":
            return rate * math.cos(math.pi * done * 7 / 16)
        case "linear":
            return rate + (floor - rate) * done
        case "exponential":
            return rate * math.pow(config.factor, whole / config.period)
        case "step":
            return rate * config.factor ** sum(whole >= milestone for milestone in config.milestones)
        case "constant":
            return rate


def make_optimizer(engine: Engine, method: Method, phase: Phase, config: TrainConfig) -> torch.optim.Optimizer:
    """The optimizer of a phase; parameters with the same rate and weight decay form one group.

    Args:
        engine: makes the optimizer for its device.
        method: whose parameters are trained.
        phase: names the modules to train; default: all of the method.
        config: kind of optimizer, weight decay, and the scale of the encoder's rate.
    """
    modules = phase.modules if phase.modules is not None else [method]
    wanted = {parameter for module in modules for parameter in module.parameters() if parameter.requires_grad}
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in method.named_parameters():  # by full names, because a phase may train a classifier alone
        if parameter in wanted:
            scale = 1.0 if "classifier" in name.split(".") else config.encoder_lr_scale
            decay = config.weight_decay if config.decay == "all" or parameter.ndim > 1 else 0.0
            groups.setdefault((scale, decay), []).append(parameter)
    treated = [{"params": found, "scale": scale, "weight_decay": decay} for (scale, decay), found in groups.items()]
    treated = treated or [{"params": [], "scale": 1.0, "weight_decay": 0.0}]  # a method may have nothing to train
    if config.optimizer == "adam":
        return engine.optimizer(torch.optim.Adam, treated)
    return engine.optimizer(torch.optim.SGD, treated, momentum=config.momentum, nesterov=config.nesterov)
