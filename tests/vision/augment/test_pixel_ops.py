"""Batched operations against Pillow, one image at a time, and against slow loops."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from pillow_reference import PILLOW, digits, from_pillow, one_by_one, photos, to_pillow
from torch import Tensor

from _refused import refused
from pals.vision.augment import augmentations, geometry, pixel_ops
from pals.vision.augment.autoaugment import OPERATIONS

IMAGES = {
    "photos 32": lambda: photos(32, 32, 60), "photos 31 x 45": lambda: photos(31, 45, 30),
    "grey 20 x 64": lambda: photos(20, 64, 30, channels=1), "photos 224": lambda: photos(224, 224, 4),
    "digits 8": lambda: digits(60),
}  # fmt: skip
LIMITS = {"SX": 0.3, "SY": 0.3, "TX": 0.46, "TY": 0.46, "RO": 45.0}


def values_for(op: str, count: int) -> Tensor:
    """A value per image: all ten magnitudes of the policies with both signs, then random ones."""
    operation = OPERATIONS[op]
    table = [operation.center(m) + sign * operation.swing(m) for m in range(10) for sign in (1, -1)]
    rng = np.random.default_rng(0)
    if op in LIMITS:
        free = rng.uniform(-LIMITS[op], LIMITS[op], count)
    elif op == "PO":
        free = rng.integers(1, 9, count)
    else:
        free = rng.uniform(0, 256 if op == "SO" else 2.5, count)
    return torch.tensor([*table, *free], dtype=torch.float64)[:count]


@pytest.mark.parametrize("kind", IMAGES)
@pytest.mark.parametrize("op", OPERATIONS)
def test_every_operation_equals_pillow_bit_for_bit(op: str, kind: str) -> None:
    images = IMAGES[kind]()
    values_B = values_for(op, len(images))
    before = images.clone()
    made = OPERATIONS[op].apply(images, values_B)
    assert made.dtype == torch.uint8 and torch.equal(made, one_by_one(images, PILLOW[op], values_B.tolist()))
    assert torch.equal(images, before)


@pytest.mark.parametrize("op", ["AC", "EQ", "CN"])
def test_images_of_one_or_two_levels(op: str) -> None:
    even = torch.full((3, 3, 32, 32), 77, dtype=torch.uint8)
    even[1, :, :5] = 200
    even[2, 1, 3, 4] = 78
    values_B = torch.full((3,), 1.7, dtype=torch.float64)
    assert torch.equal(OPERATIONS[op].apply(even, values_B), one_by_one(even, PILLOW[op], values_B.tolist()))


def test_hand_worked_values_and_hue() -> None:
    images = torch.tensor([[[[0, 10], [100, 255]]]], dtype=torch.uint8)
    one = torch.ones(1, dtype=torch.float64)
    assert pixel_ops.solarize(images, 100 * one).flatten().tolist() == [0, 10, 155, 0]
    assert pixel_ops.posterize(images, 4 * one).flatten().tolist() == [0, 0, 96, 240]
    assert pixel_ops.brightness(images, 1.5 * one).flatten().tolist() == [0, 15, 150, 255]
    assert pixel_ops.contrast(images, 0 * one).flatten().tolist() == [91] * 4  # (0 + 10 + 100 + 255) / 4 = 91.25
    assert pixel_ops.autocontrast(images[..., 1:]).flatten().tolist() == [0, 255]
    # 100 * (255 / 100) falls short of 255, as in Pillow
    assert pixel_ops.autocontrast(images[..., :1]).flatten().tolist() == [0, 254]
    assert geometry.translate_x(images, 0.5 * one).flatten().tolist() == [10, 128, 255, 128]
    assert geometry.rotate(images, 90 * one).flatten().tolist() == [10, 255, 0, 100]  # counter-clockwise
    images = photos(64, 64, 40)
    every = torch.cartesian_prod(*[torch.arange(0, 256, 15)] * 3).to(torch.uint8)  # 18 levels per channel
    images = torch.cat([images, every[:4096].T.reshape(1, 3, 64, 64), every[-4096:].T.reshape(1, 3, 64, 64)])
    turn_B = torch.linspace(-0.5, 0.5, len(images), dtype=torch.float64)
    assert torch.equal(pixel_ops.hue(images, turn_B), one_by_one(images, hue_in_pillow, turn_B.tolist()))
    assert torch.equal(pixel_ops.hue(images[:, :1], turn_B), images[:, :1])


def hue_in_pillow(image: Image.Image, turn: float) -> Image.Image:
    hue, saturation, value = image.convert("HSV").split()
    turned = (np.asarray(hue).astype(int) + int(turn * 255)) % 256
    return Image.merge("HSV", (Image.fromarray(turned.astype(np.uint8)), saturation, value)).convert("RGB")


@pytest.mark.parametrize("across", [True, False])
def test_shear_to_the_nearest_pixel_equals_pillow(across: bool) -> None:
    images = photos(31, 45, 30)
    slope_B = torch.linspace(-0.3, 0.3, 30, dtype=torch.float64)

    def in_pillow(image: Image.Image, slope: float) -> Image.Image:
        return image.transform(image.size, Image.Transform.AFFINE, (1, slope, 0, 0, 1, 0) if across else (1, 0, 0, slope, 1, 0))

    made = (geometry.shear_x if across else geometry.shear_y)(images, slope_B, fill=0, bicubic=False)
    assert torch.equal(made, one_by_one(images, in_pillow, slope_B.tolist()))


@given(st.integers(0, 2**31), st.integers(1, 40), st.integers(1, 40))
@settings(max_examples=25, deadline=None)
def test_histogram_counts_every_pixel(seed: int, height: int, width: int) -> None:
    images = torch.randint(256, (2, 3, height, width), generator=torch.Generator().manual_seed(seed)).to(torch.uint8)
    expected = torch.stack([torch.bincount(plane.flatten(), minlength=256) for plane in images.flatten(0, 1)])
    assert torch.equal(pixel_ops.histogram(images).flatten(0, 1), expected.to(torch.int32))


@pytest.mark.parametrize("shape", [(32, 32), (9, 14)])
def test_flip_and_crop_against_a_loop(shape: tuple[int, int]) -> None:
    images, pad = photos(*shape, 24), 4
    generator = torch.Generator().manual_seed(0)
    top_B, left_B = (torch.randint(2 * pad + 1, (24,), generator=generator) for _ in range(2))
    flip_B = torch.arange(24) % 3 == 0
    made = geometry.reflect_crop(geometry.flip(images, flip_B), pad, top_B, left_B)
    for image, out, flip, top, left in zip(images.numpy(), made, flip_B, top_B, left_B, strict=True):
        padded = np.pad(image[..., ::-1] if flip else image, ((0, 0), (pad, pad), (pad, pad)), mode="reflect")
        expected = padded[:, top : top + shape[0], left : left + shape[1]]
        assert torch.equal(out, torch.from_numpy(expected.copy()))


@given(st.integers(0, 8), st.integers(0, 11), st.integers(0, 16))
@settings(max_examples=40, deadline=None)
def test_cutout_against_a_loop(row: int, column: int, side: int) -> None:
    images = torch.full((1, 3, 9, 12), 7, dtype=torch.uint8)
    made = geometry.cutout(images, torch.tensor([row]), torch.tensor([column]), side)
    expected = images.clone()
    for y in range(row - side // 2, row - side // 2 + side):
        for x in range(column - side // 2, column - side // 2 + side):
            if 0 <= y < 9 and 0 <= x < 12:
                expected[0, :, y, x] = 0
    assert torch.equal(made, expected)


def resize_in_pillow(image: Image.Image, height: int, width: int) -> Image.Image:
    """Width first: the order older versions of Pillow always take."""
    image = image.resize((width, image.size[1]), Image.Resampling.BILINEAR)
    return image.resize((width, height), Image.Resampling.BILINEAR)


@pytest.mark.parametrize(("shape", "size"), [((32, 32), 32), ((40, 64), 24), ((100, 80), 32), ((30, 20), 56), ((8, 8), 8)])
def test_resized_crop_equals_pillow(shape: tuple[int, int], size: int) -> None:
    images = photos(*shape, 30)
    rng = np.random.default_rng(0)
    height_B, width_B = rng.integers(1, shape[0] + 1, 30), rng.integers(1, shape[1] + 1, 30)
    top_B, left_B = rng.integers(0, shape[0] - height_B + 1), rng.integers(0, shape[1] - width_B + 1)
    boxes = [torch.from_numpy(side) for side in (top_B, left_B, height_B, width_B)]
    made = geometry.resized_crop(images, *boxes, size, size)
    for image, out, top, left, height, width in zip(images, made, top_B, left_B, height_B, width_B, strict=True):
        cut = to_pillow(image).crop((left, top, left + width, top + height))
        assert torch.equal(out, from_pillow(resize_in_pillow(cut, size, size)))


def test_resize_crop_squares_and_sizes_at_their_limits() -> None:
    images = photos(50, 75, 6)
    small = geometry.resize_short(images, 28)
    assert small.shape == (6, 3, 28, 42)
    assert torch.equal(small, one_by_one(images, lambda image, _: resize_in_pillow(image, 28, 42), range(6)))
    assert geometry.resize_short(images.transpose(2, 3), 28).shape == (6, 3, 42, 28)
    assert torch.equal(geometry.resize(images, 50, 75), images)
    assert torch.equal(geometry.center_crop(images, 20, 25), images[:, :, 15:35, 25:50])
    images = torch.ones(3, 1, 8, 8, dtype=torch.uint8)
    middle_B = torch.full((3,), 4)
    made = geometry.cutout(images, middle_B, middle_B, torch.tensor([0, 2, 3]), fill=9)
    assert (made == 9).sum(dim=(1, 2, 3)).tolist() == [0, 4, 9]
    images = torch.zeros(5, 1, 10, 100, dtype=torch.uint8)
    boxes = torch.stack(augmentations.draw_boxes(images, torch.Generator().manual_seed(0), (1.0, 1.0)), dim=1)
    assert boxes.tolist() == [[0, 43, 10, 13]] * 5
    images, zero_B = digits(2), torch.zeros(2, dtype=torch.int64)
    refused("pad below 8", geometry.reflect_crop, images, 8, zero_B, zero_B)
    refused("resize them first", geometry.center_crop, images, 9, 8)


def box_by_torchvision_rule(H: int, W: int, scale: tuple[float, float], rng: random.Random) -> tuple[int, int, int, int]:
    for _ in range(10):
        area = H * W * rng.uniform(*scale)
        ratio = math.exp(rng.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= W and 0 < h <= H:
            return rng.randint(0, H - h), rng.randint(0, W - w), h, w
    h, w = (H, W) if 3 / 4 <= W / H <= 4 / 3 else (round(W / (3 / 4)), W) if W / H < 3 / 4 else (H, round(H * 4 / 3))
    return (H - h) // 2, (W - w) // 2, h, w


@pytest.mark.parametrize(("H", "W", "scale"), [(32, 32, (0.2, 1.0)), (20, 60, (0.2, 1.0)), (60, 25, (0.08, 1.0))])
def test_boxes_follow_the_torchvision_rule(H: int, W: int, scale: tuple[float, float]) -> None:
    count = 8000
    images = torch.zeros(count, 1, H, W, dtype=torch.uint8)
    made = torch.stack(augmentations.draw_boxes(images, torch.Generator().manual_seed(0), scale), dim=1).double()
    rng = random.Random(0)
    expected = torch.tensor([box_by_torchvision_rule(H, W, scale, rng) for _ in range(count)]).double()
    error = (made.var(dim=0) / count + expected.var(dim=0) / count).sqrt()
    assert (((made.mean(dim=0) - expected.mean(dim=0)) / error).abs() < 4).all()
    torch.testing.assert_close(made.std(dim=0), expected.std(dim=0), rtol=0.05, atol=0.05)
    top_B, left_B, height_B, width_B = made.unbind(dim=1)
    assert min(top_B.min(), left_B.min()) >= 0 and (top_B + height_B).max() <= H and (left_B + width_B).max() <= W


@pytest.mark.gpu
@pytest.mark.parametrize("kind", IMAGES)
@pytest.mark.parametrize("op", OPERATIONS)
def test_operations_are_the_same_on_the_gpu(op: str, kind: str) -> None:
    images = IMAGES[kind]()
    values_B = values_for(op, len(images))
    made = OPERATIONS[op].apply(images.cuda(), values_B.cuda())
    assert torch.equal(made.cpu(), OPERATIONS[op].apply(images, values_B))


@pytest.mark.gpu
def test_geometry_is_the_same_on_the_gpu() -> None:
    images = photos(40, 64, 30)
    row_B, column_B, side_B = (torch.arange(30) % bound for bound in (9, 8, 20))
    boxes = row_B, column_B, 5 + row_B * 2, 7 + column_B * 3

    def all_of_them(images: Tensor, *numbers: Tensor) -> list[Tensor]:
        row_B, column_B, side_B, *boxes = numbers
        return [
            geometry.flip(images, row_B > 4),
            geometry.reflect_crop(images, 4, row_B, column_B),
            geometry.cutout(images, row_B, column_B, side_B),
            geometry.resized_crop(images, *boxes, 24, 24),
            geometry.resize_short(images, 28),
        ]

    numbers = (row_B, column_B, side_B, *boxes)
    on_gpu = all_of_them(images.cuda(), *(number.cuda() for number in numbers))
    for made, expected in zip(on_gpu, all_of_them(images, *numbers), strict=True):
        assert torch.equal(made.cpu(), expected)
