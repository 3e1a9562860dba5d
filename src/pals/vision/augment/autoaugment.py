"""The two AutoAugment policies as the authors of PALS use them: lists of sub-policies, each a pair of operations.

Every image draws one sub-policy (o_1, o_2) uniformly; o_j with magnitude M_j is applied with probability p_j, independently:
    x -> o_2(o_1(x)),   o(x) = op(x, centre(M) +- swing(M)) with probability p, else x
The lists are longer than the published ones, and some sub-policies occur twice or can never fire: both are kept,
because they change how often the others are drawn.

Reference: Cubuk et al. 2019, arXiv:1805.09501 (operations and magnitudes: its appendix).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from pals.vision.augment import geometry, pixel_ops
from pals.vision.augment.apply_ops import Op, apply_ops, without_value


class PolicyStep(NamedTuple):
    """One operation of a sub-policy."""

    op: str  # a key of OPERATIONS
    probability: float
    magnitude: int  # 0 to 9


Policy = tuple[tuple[PolicyStep, PolicyStep], ...]


class Operation(NamedTuple):
    """An operation and what a magnitude from 0 to 9 means to it: its value is center + swing or center - swing."""

    apply: Op
    center: Callable[[int], float]
    swing: Callable[[int], float] = lambda _: 0.0


def _factor(apply: Op) -> Operation:
    return Operation(apply, lambda _: 1.0, lambda magnitude: 0.1 * magnitude)


def _shear(apply: Op) -> Operation:
    return Operation(apply, lambda _: 0.0, lambda magnitude: 0.3 * magnitude / 9)


def _translate(apply: Op) -> Operation:
    return Operation(apply, lambda _: 0.0, lambda magnitude: 150 / 331 * magnitude / 9)


OPERATIONS: dict[str, Operation] = {
    "SX": _shear(geometry.shear_x),
    "SY": _shear(geometry.shear_y),
    "TX": _translate(geometry.translate_x),
    "TY": _translate(geometry.translate_y),
    "RO": Operation(geometry.rotate, lambda magnitude: 30 * magnitude / 9),  # counter-clockwise, never the other way
    "CO": _factor(pixel_ops.color),
    "CN": _factor(pixel_ops.contrast),
    "BR": _factor(pixel_ops.brightness),
    "SH": _factor(pixel_ops.sharpness),
    "PO": Operation(pixel_ops.posterize, lambda magnitude: 8 - magnitude // 2),
    "SO": Operation(pixel_ops.solarize, lambda magnitude: 256 * (1 - magnitude / 9)),
    "AC": Operation(without_value(pixel_ops.autocontrast), lambda _: 0.0),
    "EQ": Operation(without_value(pixel_ops.equalize), lambda _: 0.0),
    "IN": Operation(without_value(pixel_ops.invert), lambda _: 0.0),
}


def _parse(table: str) -> Policy:
    """Sub-policies `OP probability magnitude > OP probability magnitude`, separated by bars and line ends."""

    def step(text: str) -> PolicyStep:
        op, probability, magnitude = text.split()
        return PolicyStep(op, float(probability), int(magnitude))

    def pair(text: str) -> tuple[PolicyStep, PolicyStep]:
        first, second = text.split(">")
        return step(first), step(second)

    return tuple(pair(text) for line in table.split("\n") for text in line.split("|") if text.strip())


CIFAR10_POLICY = _parse("""
IN 0.1 7 > CN 0.2 6 | RO 0.7 2 > TX 0.3 9 | SH 0.8 1 > SH 0.9 3 | SY 0.5 8 > TY 0.7 9 | AC 0.5 8 > EQ 0.9 2
SY 0.2 7 > PO 0.3 7 | CO 0.4 3 > BR 0.6 7 | SH 0.3 9 > BR 0.7 9 | EQ 0.6 5 > EQ 0.5 1 | CN 0.6 7 > SH 0.6 5
CO 0.7 7 > TX 0.5 8 | EQ 0.3 7 > AC 0.4 8 | TY 0.4 3 > SH 0.2 6 | BR 0.9 6 > CO 0.2 8 | SO 0.5 2 > IN 0.0 3
EQ 0.2 0 > AC 0.6 0 | EQ 0.2 8 > EQ 0.8 4 | CO 0.9 9 > EQ 0.6 6 | AC 0.8 4 > SO 0.2 8 | BR 0.1 3 > CO 0.7 0
SO 0.4 5 > AC 0.9 3 | TY 0.9 9 > TY 0.7 9 | AC 0.9 2 > SO 0.8 3 | EQ 0.8 8 > IN 0.1 3 | TY 0.7 9 > AC 0.9 1
SO 0.4 5 > AC 0.9 3 | TY 0.9 9 > TY 0.7 9 | AC 0.9 2 > SO 0.8 3 | EQ 0.8 8 > IN 0.1 3 | TY 0.7 9 > AC 0.9 1
SO 0.4 5 > AC 0.9 1 | TY 0.8 9 > TY 0.9 9 | AC 0.8 0 > TY 0.7 9 | TY 0.2 7 > CO 0.9 6 | EQ 0.7 6 > CO 0.4 9
BR 0.3 7 > AC 0.5 8 | AC 0.9 4 > AC 0.5 6 | SO 0.3 5 > EQ 0.6 5 | TY 0.2 4 > SH 0.3 3 | BR 0.0 8 > CO 0.8 8
SO 0.2 6 > CO 0.8 6 | SO 0.2 6 > AC 0.8 1 | SO 0.4 1 > EQ 0.6 5 | BR 0.0 0 > SO 0.5 2 | AC 0.9 5 > BR 0.5 3
CN 0.7 5 > BR 0.0 2 | SO 0.2 8 > SO 0.1 5 | CN 0.5 1 > TY 0.2 9 | AC 0.6 5 > TY 0.0 9 | AC 0.9 4 > EQ 0.8 4
BR 0.0 7 > EQ 0.4 7 | SO 0.2 5 > EQ 0.7 5 | EQ 0.6 8 > CO 0.6 2 | CO 0.3 7 > CO 0.2 4 | AC 0.5 2 > SO 0.7 2
AC 0.2 0 > EQ 0.1 0 | SY 0.6 5 > EQ 0.6 5 | BR 0.9 3 > AC 0.4 1 | EQ 0.8 8 > EQ 0.7 7 | EQ 0.7 7 > SO 0.5 0
EQ 0.8 4 > TY 0.8 9 | TY 0.8 9 > TY 0.6 9 | TY 0.9 0 > TY 0.5 9 | AC 0.5 3 > SO 0.3 4 | SO 0.5 3 > EQ 0.4 4
AC 0.1 5 > BR 0.0 0 | EQ 0.7 7 > AC 0.6 4 | CO 0.1 8 > SY 0.2 3 | SY 0.4 2 > RO 0.7 0 | SY 0.1 3 > AC 0.9 5
EQ 0.5 0 > SO 0.6 6 | AC 0.3 5 > RO 0.2 7 | EQ 0.8 2 > IN 0.4 0 | EQ 0.9 5 > CO 0.7 0 | EQ 0.1 1 > SY 0.1 3
AC 0.7 3 > EQ 0.7 0 | BR 0.5 1 > CN 0.1 7 | CN 0.1 4 > SO 0.6 5 | SO 0.2 3 > SX 0.0 0 | TX 0.3 0 > TX 0.6 0
EQ 0.5 9 > TY 0.6 7 | SX 0.1 0 > SH 0.5 1 | EQ 0.8 6 > IN 0.3 6 | SX 0.4 4 > AC 0.9 2 | SX 0.0 3 > PO 0.0 3
SO 0.4 3 > CO 0.2 4 | EQ 0.1 4 > EQ 0.7 6 | EQ 0.3 8 > AC 0.4 3 | SO 0.6 4 > AC 0.7 6 | AC 0.2 9 > BR 0.4 8
EQ 0.1 0 > EQ 0.0 6 | EQ 0.8 4 > EQ 0.0 4 | EQ 0.5 5 > AC 0.1 2 | SO 0.5 5 > AC 0.9 5 | AC 0.6 1 > AC 0.7 8
EQ 0.2 0 > AC 0.1 2 | EQ 0.6 9 > EQ 0.4 4
""")
"""97 sub-policies; 26 to 30 repeat 21 to 25."""

IMAGENET_POLICY = (
    _parse("""
PO 0.4 8 > RO 0.6 9 | SO 0.6 5 > AC 0.6 5 | EQ 0.8 8 > EQ 0.6 3 | PO 0.6 7 > PO 0.6 6 | EQ 0.4 7 > SO 0.2 4
EQ 0.4 4 > RO 0.8 8 | SO 0.6 3 > EQ 0.6 7 | PO 0.8 5 > EQ 1.0 2 | RO 0.2 3 > SO 0.6 8 | EQ 0.6 8 > PO 0.4 6
RO 0.8 8 > CO 0.4 0 | RO 0.4 9 > EQ 0.6 2 | EQ 0.0 7 > EQ 0.8 8 | IN 0.6 4 > EQ 1.0 8 | CO 0.6 4 > CN 1.0 8
RO 0.8 8 > CO 1.0 2 | CO 0.8 8 > SO 0.8 7 | SH 0.4 7 > IN 0.6 8 | SX 0.6 5 > EQ 1.0 9 | CO 0.4 0 > EQ 0.6 3
EQ 0.4 7 > SO 0.2 4 | SO 0.6 5 > AC 0.6 5 | IN 0.6 4 > EQ 1.0 8 | CO 0.6 4 > CN 1.0 8 | EQ 0.8 8 > EQ 0.6 3
""")
    + CIFAR10_POLICY[:94]
)
"""119 sub-policies: 25 of ImageNet (20 distinct), then the first 94 of CIFAR-10."""


def apply_policy(images: Tensor, policy: Policy, generator: Generator) -> Tensor:
    """Every image through a sub-policy of its own. One host read per call: pass some thousand images at a time."""
    op_B2, value_B2 = draw_policy(len(images), policy, generator)
    return apply_ops(images, [operation.apply for operation in OPERATIONS.values()], op_B2, value_B2)


def draw_policy(count: int, policy: Policy, generator: Generator) -> tuple[Tensor, Tensor]:
    """For each of `count` images the two operations, as positions in OPERATIONS (its length: none), and their values."""
    columns = _columns(policy, generator.device)
    drawn_B = torch.randint(len(policy), (count,), generator=generator, device=generator.device)
    op_B2, probability_B2, center_B2, swing_B2 = (column_P2[drawn_B] for column_P2 in columns)
    fires_B2 = torch.rand(count, 2, generator=generator, device=generator.device) < probability_B2
    up_B2 = torch.rand(count, 2, generator=generator, device=generator.device) < 0.5
    value_B2 = center_B2 + torch.where(up_B2, swing_B2, -swing_B2)
    return torch.where(fires_B2, op_B2, len(OPERATIONS)), value_B2


@cache
def _columns(policy: Policy, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Operation, probability, center and swing of each step of a policy, each P x 2; cached for each device."""
    position = {op: number for number, op in enumerate(OPERATIONS)}

    def column(value: Callable[[PolicyStep], float], dtype: torch.dtype) -> Tensor:
        return torch.tensor([[value(step) for step in pair] for pair in policy], dtype=dtype).to(device)

    return (
        column(lambda step: position[step.op], torch.int64),
        column(lambda step: step.probability, torch.float32),
        column(lambda step: OPERATIONS[step.op].center(step.magnitude), torch.float64),
        column(lambda step: OPERATIONS[step.op].swing(step.magnitude), torch.float64),
    )
