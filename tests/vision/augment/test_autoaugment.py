"""The AutoAugment tables, how they are drawn, and what they do to images, against Pillow."""

from __future__ import annotations

from itertools import permutations

import pytest
import torch
from pillow_reference import PILLOW, digits, from_pillow, photos, to_pillow
from torch import Tensor

from pals.vision.augment import pixel_ops, randaugment
from pals.vision.augment.apply_ops import apply_ops, uniform
from pals.vision.augment.autoaugment import (
    CIFAR10_POLICY,
    IMAGENET_POLICY,
    OPERATIONS,
    Policy,
    PolicyStep,
    apply_policy,
    draw_policy,
)

NONE = len(OPERATIONS)


def test_the_tables_have_the_authors_rows_and_magnitudes() -> None:
    assert len(CIFAR10_POLICY) == 97 and len(IMAGENET_POLICY) == 119
    assert CIFAR10_POLICY[20:25] == CIFAR10_POLICY[25:30] and len(set(CIFAR10_POLICY)) == 92
    assert len(set(IMAGENET_POLICY[:25])) == 20 and IMAGENET_POLICY[25:] == CIFAR10_POLICY[:94]
    for step in (step for pair in IMAGENET_POLICY + CIFAR10_POLICY for step in pair):
        assert step.op in OPERATIONS and 0 <= step.probability <= 1 and step.magnitude in range(10)
    nine = {op: (operation.center(9), operation.swing(9)) for op, operation in OPERATIONS.items()}
    assert nine["SX"] == nine["SY"] == pytest.approx((0, 0.3))
    assert nine["TX"] == nine["TY"] == pytest.approx((0, 150 / 331)) and nine["RO"] == (30, 0)
    for op in ("CO", "CN", "BR", "SH"):
        assert nine[op] == pytest.approx((1, 0.9))
    assert [OPERATIONS["PO"].center(m) for m in range(10)] == [8, 8, 7, 7, 6, 6, 5, 5, 4, 4]
    assert [OPERATIONS["SO"].center(m) for m in (0, 3, 9)] == pytest.approx([256, 256 * 2 / 3, 0])
    assert OPERATIONS["TX"].swing(1) == pytest.approx(0.0504, abs=1e-4)
    assert OPERATIONS["RO"].center(3) == pytest.approx(10)


@pytest.mark.parametrize(
    ("policy", "number", "first", "second"),
    [(CIFAR10_POLICY, 1, PolicyStep("IN", 0.1, 7), PolicyStep("CN", 0.2, 6)),
     (CIFAR10_POLICY, 15, PolicyStep("SO", 0.5, 2), PolicyStep("IN", 0.0, 3)),
     (CIFAR10_POLICY, 30, PolicyStep("TY", 0.7, 9), PolicyStep("AC", 0.9, 1)),
     (CIFAR10_POLICY, 69, PolicyStep("SY", 0.4, 2), PolicyStep("RO", 0.7, 0)),
     (CIFAR10_POLICY, 85, PolicyStep("SX", 0.0, 3), PolicyStep("PO", 0.0, 3)),
     (CIFAR10_POLICY, 97, PolicyStep("EQ", 0.6, 9), PolicyStep("EQ", 0.4, 4)),
     (IMAGENET_POLICY, 1, PolicyStep("PO", 0.4, 8), PolicyStep("RO", 0.6, 9)),
     (IMAGENET_POLICY, 16, PolicyStep("RO", 0.8, 8), PolicyStep("CO", 1.0, 2)),
     (IMAGENET_POLICY, 25, PolicyStep("EQ", 0.8, 8), PolicyStep("EQ", 0.6, 3)),
     (IMAGENET_POLICY, 119, PolicyStep("SO", 0.5, 5), PolicyStep("AC", 0.9, 5))],
)  # fmt: skip
def test_single_rows(policy: Policy, number: int, first: PolicyStep, second: PolicyStep) -> None:
    assert policy[number - 1] == (first, second)


@pytest.mark.parametrize("policy", [CIFAR10_POLICY, IMAGENET_POLICY], ids=["cifar", "imagenet"])
def test_operations_are_drawn_as_often_as_the_table_says(policy: Policy) -> None:
    count = 200_000
    op_B2, _ = draw_policy(count, policy, torch.Generator().manual_seed(1))
    for slot in (0, 1):
        for number, op in enumerate(OPERATIONS):
            expected = sum(pair[slot].probability for pair in policy if pair[slot].op == op) / len(policy)
            found = (op_B2[:, slot] == number).double().mean().item()
            assert found == pytest.approx(expected, abs=5 * (expected * (1 - expected) / count) ** 0.5)


def test_coins_are_independent_and_signs_random_but_for_rotation() -> None:
    count = 100_000
    policy = ((PolicyStep("RO", 0.5, 9), PolicyStep("SO", 0.5, 9)), *[(PolicyStep("IN", 1.0, 0),) * 2] * 3)
    op_B2, _ = draw_policy(count, policy, torch.Generator().manual_seed(2))
    rotate, solarize, invert = (list(OPERATIONS).index(op) for op in ("RO", "SO", "IN"))
    apart = [(first, second) for first in (rotate, NONE) for second in (solarize, NONE)]
    for pair, share in (*((pair, 1) for pair in apart), ((invert, invert), 12)):
        found = (op_B2 == torch.tensor(pair)).all(dim=1).double().mean().item()
        assert found == pytest.approx(share / 16, abs=0.004)
    policy = tuple((PolicyStep(op, 1.0, 9), PolicyStep("SX", 1.0, 5)) for op in ("RO", "TX", "BR"))
    op_B2, value_B2 = draw_policy(30_000, policy, torch.Generator().manual_seed(3))
    found = {op: value_B2[op_B2[:, 0] == number, 0] for number, op in enumerate(OPERATIONS)}
    assert found["RO"].unique().tolist() == [30.0]
    torch.testing.assert_close(found["TX"].unique(), torch.tensor([-150 / 331, 150 / 331], dtype=torch.float64))
    torch.testing.assert_close(found["BR"].unique(), torch.tensor([0.1, 1.9], dtype=torch.float64))
    assert (found["TX"] > 0).double().mean().item() == pytest.approx(0.5, abs=0.02)
    same = (found["BR"] > 1) == (value_B2[op_B2[:, 0] == list(OPERATIONS).index("BR"), 1] > 0)
    assert same.double().mean().item() == pytest.approx(0.5, abs=0.02)  # the two slots have signs of their own


def in_pillow(images: Tensor, op_B2: Tensor, value_B2: Tensor) -> Tensor:
    names = list(OPERATIONS)
    out = []
    for image, numbers, values in zip(images, op_B2.tolist(), value_B2.tolist(), strict=True):
        picture = to_pillow(image)
        for number, value in zip(numbers, values, strict=True):
            picture = picture if number == NONE else PILLOW[names[number]](picture, value)
        out.append(from_pillow(picture))
    return torch.stack(out)


@pytest.mark.parametrize(
    ("images", "policy"),
    [(photos(32, 32, 600), CIFAR10_POLICY), (photos(48, 36, 300), IMAGENET_POLICY), (digits(200), CIFAR10_POLICY),
     (photos(224, 224, 12), IMAGENET_POLICY)],
    ids=["photos 32", "photos 48 x 36", "digits 8", "photos 224"],
)  # fmt: skip
def test_policies_equal_pillow_image_by_image(images: Tensor, policy: Policy) -> None:
    before = images.clone()
    made = apply_policy(images, policy, torch.Generator().manual_seed(4))
    op_B2, value_B2 = draw_policy(len(images), policy, torch.Generator().manual_seed(4))
    assert torch.equal(made, in_pillow(images, op_B2, value_B2)) and torch.equal(images, before)


def test_operations_run_in_the_order_of_the_rounds() -> None:
    images = torch.full((3, 1, 2, 2), 3, dtype=torch.uint8)

    def double(images: Tensor, _: Tensor) -> Tensor:
        return images * 2

    def add(images: Tensor, value_B: Tensor) -> Tensor:
        return images + value_B[:, None, None, None].to(torch.uint8)

    op_BS = torch.tensor([[0, 1], [1, 0], [2, 1]])
    value_BS = torch.tensor([[9.0, 1.0], [2.0, 9.0], [9.0, 4.0]])
    made = apply_ops(images, [double, add], op_BS, value_BS)
    assert made[:, 0, 0, 0].tolist() == [7, 10, 7]
    assert apply_ops(images[:0], [double, add], op_BS[:0], value_BS[:0]).shape == (0, 1, 2, 2)


def test_random_operations_and_levels_are_even_and_within_their_ranges() -> None:
    count, names = 60_000, list(randaugment.RANGES)
    op_BR, value_BR = randaugment.draw_operations(count, torch.Generator().manual_seed(5), rounds=3)
    for number, name in enumerate(names):
        entry, value = randaugment.RANGES[name], value_BR[op_BR == number]
        assert len(value) / (3 * count) == pytest.approx(1 / 14, abs=0.002)
        low, high = (-entry.high, entry.high) if entry.signed else (entry.low, entry.high)
        if high > low:
            shares = torch.histc(((value - low) / (high - low)).float(), bins=4, min=0, max=1) / len(value)
            assert shares.sum().item() == pytest.approx(1, abs=1e-5)  # none outside
            torch.testing.assert_close(shares, torch.full((4,), 0.25), atol=0.015, rtol=0)
    drawn = randaugment.draw_operations(60_000, torch.Generator().manual_seed(6), rounds=2, probability=0.5, levels=10)
    op_BR, value_BR = drawn
    assert (op_BR == len(randaugment.RANGES)).double().mean().item() == pytest.approx(0.5, abs=0.01)
    names = list(randaugment.RANGES)
    rotate = value_BR[op_BR == names.index("rotate")].unique()
    torch.testing.assert_close(rotate, torch.tensor([3.0 * k for k in range(-9, 10) if k], dtype=torch.float64))
    bits = value_BR[op_BR == names.index("posterize")].floor().unique()
    assert bits.tolist() == [4, 5, 6, 7]
    thresholds = value_BR[op_BR == names.index("solarize")].ceil().unique()
    assert thresholds.tolist() == [256 - int(25.6 * level) for level in range(9, 0, -1)]


def test_color_jitter_equals_pillow_in_one_of_its_orders() -> None:
    """Each image must come out as brightness, contrast and colour, in some order, with its own three factors make it."""
    images, generator = photos(16, 16, 60), torch.Generator().manual_seed(7)
    made = randaugment.color_jitter(images, generator, spread=0.4, turn=0.0, probability=0.8)
    generator = torch.Generator().manual_seed(7)
    factor_3B = [uniform(images, generator, 0.6, 1.4).tolist() for _ in range(3)]
    orders = []
    for number, (image, out) in enumerate(zip(images, made, strict=True)):
        found = "untouched" if torch.equal(image, out) else None
        for order in permutations(range(3)):
            picture = to_pillow(image)
            for step in order:
                picture = PILLOW[("BR", "CN", "CO")[step]](picture, factor_3B[step][number])
            # a hue turned by nothing still goes through 8-bit hue and saturation, which costs a few levels
            if (from_pillow(picture).int() - out.int()).abs().float().mean() < 1.5:
                found = found or str(order)
        assert found, number
        orders.append(found)
    assert len(set(orders)) >= 4 and 0.05 < orders.count("untouched") / 60 < 0.4


def test_random_gray_and_squares() -> None:
    images = photos(16, 16, 400)
    made = randaugment.random_gray(images, torch.Generator().manual_seed(8), probability=0.2)
    gray_B = (made == made[:, :1]).all(dim=(1, 2, 3))
    assert gray_B.double().mean().item() == pytest.approx(0.2, abs=0.06)
    assert torch.equal(made[~gray_B], images[~gray_B])
    expected = torch.stack([from_pillow(to_pillow(image).convert("L").convert("RGB")) for image in images[gray_B]])
    assert torch.equal(made[gray_B], expected)
    images = torch.zeros(3000, 3, 32, 32, dtype=torch.uint8)
    color = torch.tensor([125, 123, 114], dtype=torch.uint8)[:, None, None]
    made = randaugment.pico_randaugment(images, torch.Generator().manual_seed(9))
    # black stays black under every operation but solarising from 0, which no draw reaches
    assert ((made == color) | (made == 0)).all()
    side_B = (made == color).all(dim=1).any(dim=2).sum(dim=1)
    assert side_B.min() == 0 and side_B.max() == 15
    made = randaugment.fixmatch_randaugment(images, torch.Generator().manual_seed(9))
    assert set(made.unique().tolist()) == {0, 127}
    area_B = (made == 127).all(dim=1).sum(dim=(1, 2))
    assert area_B.min() == 8 * 8 and area_B.max() == 16 * 16


@pytest.mark.gpu
def test_policies_and_random_operations_are_the_same_on_the_gpu() -> None:
    images, generator = photos(32, 32, 600), torch.Generator().manual_seed(5)
    of_policies, of_random = ([one.apply for one in table.values()] for table in (OPERATIONS, randaugment.RANGES))
    drawn = [(of_policies, draw_policy(len(images), policy, generator)) for policy in (CIFAR10_POLICY, IMAGENET_POLICY)]
    for applied, (op_BS, value_BS) in (*drawn, (of_random, randaugment.draw_operations(len(images), generator, rounds=3))):
        made = apply_ops(images.cuda(), applied, op_BS.cuda(), value_BS.cuda())
        assert torch.equal(made.cpu(), apply_ops(images, applied, op_BS, value_BS))
    turn_B = torch.linspace(-0.5, 0.5, len(images), dtype=torch.float64)
    assert torch.equal(pixel_ops.hue(images.cuda(), turn_B.cuda()).cpu(), pixel_ops.hue(images, turn_B))
