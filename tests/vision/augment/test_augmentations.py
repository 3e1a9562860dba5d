"""Views: what they are made of, their statistics against views made with Pillow, and that they are reproducible."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from pillow_reference import digits, photos
from torch import Generator, Tensor

from _refused import refused
from pals.vision.augment import MethodView, Views, image_views, vector_views
from pals.vision.augment.augmentations import CRDPLL_VIEWS, FIXMATCH_VIEWS, PICO_VIEWS, PROMIX_VIEWS
from pals.vision.augment.randaugment import pico_randaugment

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
CIFAR = image_views(MEAN, STD, pad=4, flip=True, strong="cifar", cutout=16)
OWN = {**PICO_VIEWS, **CRDPLL_VIEWS, **FIXMATCH_VIEWS, **PROMIX_VIEWS}  # of the methods that bring some
PLAIN = {"mean": (0.0,) * 3, "std": (1 / 255,) * 3}  # views that keep pixels as they are


def seeded(seed: int = 0) -> Generator:
    return torch.Generator().manual_seed(seed)


EVERY = {
    "cifar": (CIFAR, lambda: photos(32, 32, 40)),
    "light": (image_views((0.3,), (0.4,), pad=1, flip=False), lambda: digits(40)),
    "imagenet": (
        image_views(MEAN, STD, pad=0, flip=True, strong="imagenet", size=56, scale=(0.08, 1.0)),
        lambda: photos(80, 70, 10),
    ),
    "vectors": (vector_views(torch.zeros(5), torch.ones(5)), lambda: torch.randn(40, 5, generator=seeded())),
}


@pytest.mark.parametrize("kind", EVERY)
def test_the_same_seed_gives_the_same_view_and_inputs_stay(kind: str) -> None:
    views, make_inputs = EVERY[kind][0].including(OWN), EVERY[kind][1]
    inputs = make_inputs()
    before = inputs.clone()
    for name in views.names:
        made = views.make(name, inputs, seeded(1))
        assert made.dtype == torch.float32 and torch.equal(made, views.make(name, inputs, seeded(1)))
        if name != "eval":
            assert not torch.equal(made, views.make(name, inputs, seeded(2)))
        made.zero_()
        assert torch.equal(inputs, before)


def test_weak_is_one_of_the_flips_and_crops() -> None:
    views = image_views(**PLAIN, pad=2, flip=True)
    images = photos(12, 10, 60)
    made = views.make("weak", images, seeded()).round().to(torch.uint8)
    seen = set()
    for image, out in zip(images.numpy(), made.numpy(), strict=True):
        matches = set()
        for flip in (False, True):
            padded = np.pad(image[..., ::-1] if flip else image, ((0, 0), (2, 2), (2, 2)), mode="reflect")
            matches |= {
                (flip, top, left)
                for top in range(5)
                for left in range(5)
                if np.array_equal(out, padded[:, top : top + 12, left : left + 10])
            }
        assert matches
        seen |= matches
    assert len({top for _, top, _ in seen}) == len({left for _, _, left in seen}) == 5
    assert {flip for flip, _, _ in seen} == {False, True}


def test_flips_offsets_and_cutout_are_even() -> None:
    count = 20_000
    place = torch.arange(64, dtype=torch.uint8).view(1, 1, 8, 8).expand(count, -1, -1, -1)
    made = image_views((0.0,), (1 / 255,), pad=1, flip=True).make("weak", place, seeded()).round()
    flipped_B = made[:, 0, 4, 4] < made[:, 0, 4, 3]
    assert flipped_B.double().mean().item() == pytest.approx(0.5, abs=0.02)
    row_B = made[:, 0, 4, 4].div(8, rounding_mode="floor")
    for row in (3, 4, 5):
        assert (row_B == row).double().mean().item() == pytest.approx(1 / 3, abs=0.02)
    views = image_views(**PLAIN, pad=0, flip=False, strong="light", cutout=6)
    made = views.make("strong", torch.full((4000, 3, 20, 20), 255, dtype=torch.uint8), seeded())
    black_BHW = (made == 0).all(dim=1)
    assert black_BHW.flatten(1).sum(dim=1).max() == 36
    rows_inside = sum(min(20, i + 3) - max(0, i - 3) for i in range(20)) / 20  # averaged over the row of the centre
    assert black_BHW.double().sum(dim=(1, 2)).mean().item() == pytest.approx(rows_inside**2, rel=0.02)


def has_black_square(made: Tensor) -> Tensor:
    """For each image, whether some square of side 16, clipped at the border, is all black."""
    black = (made == 0).all(dim=1, keepdim=True).float()
    return (
        (torch.nn.functional.avg_pool2d(torch.nn.functional.pad(black, (8,) * 4, value=1.0), 16, 1) == 1).flatten(1).any(dim=1)
    )


def test_squares_come_before_or_after_the_policy() -> None:
    images = photos(32, 32, 600).clamp_min(1)
    views = image_views(**PLAIN, pad=4, flip=True, strong="cifar", cutout=16)
    assert has_black_square(views.make("strong", images, seeded())).all()
    early = has_black_square(views.including(CRDPLL_VIEWS).make("crdpll_strong", images, seeded())).double().mean().item()
    assert 0.5 < early < 0.95  # inverted, brightened, moved
    images, generator = photos(32, 32, 64), seeded(3)
    views = image_views(**PLAIN, pad=4, flip=True)
    changed = pico_randaugment(images, generator)
    expected = views.make("weak", changed, generator)
    assert torch.equal(views.including(PROMIX_VIEWS).make("promix_strong", images, seeded(3)), expected)
    assert not torch.equal(expected, changed.float())
    white = torch.full((200, 1, 8, 8), 255, dtype=torch.uint8)
    for cutout, most in ((None, 4), (0, 0), (3, 9)):
        made = image_views((0.0,), (1.0,), pad=1, flip=False, cutout=cutout).make("strong", white, seeded())
        assert (made == 0).flatten(1).sum(dim=1).max() == most


def test_eval_is_the_image_standardised_and_sizes() -> None:
    images = photos(32, 32, 20)
    expected = (images.float() / 255 - torch.tensor(MEAN)[:, None, None]) / torch.tensor(STD)[:, None, None]
    torch.testing.assert_close(CIFAR.make("eval", images, seeded()), expected, atol=2e-6, rtol=0)
    images = photos(64, 90, 6)
    resized = image_views(MEAN, STD, pad=0, flip=True, strong="imagenet", size=48)
    cropped = image_views(MEAN, STD, pad=0, flip=True, strong="imagenet", size=56, scale=(0.08, 1.0))
    for views, size in ((resized, 48), (cropped, 56)):
        for name in views.including(OWN).names:
            assert views.including(OWN).make(name, images, seeded()).shape == (6, 3, size, size)
    plain = image_views(**PLAIN, pad=0, flip=False, size=56, scale=(0.08, 1.0)).make("eval", images, seeded())
    assert torch.equal(plain.round().to(torch.uint8), images[:, :, 4:60, 17:73])  # 64 is 8/7 of 56: only cut


def test_vector_views() -> None:
    mean_D, std_D = torch.tensor([1.0, -2.0, 5.0]), torch.tensor([2.0, 0.5, 0.0])
    inputs = torch.tensor([[3.0, -2.5, 5.0]]).repeat(40_000, 1)
    views = vector_views(mean_D, std_D, noise=0.3, dropout=0.2)
    assert views.make("eval", inputs[:1], seeded()).tolist() == [[1.0, -1.0, 0.0]]
    weak = views.make("weak", inputs, seeded()) - torch.tensor([1.0, -1.0, 0.0])
    assert weak.std().item() == pytest.approx(0.3, rel=0.02) and weak.mean().abs() < 0.01
    strong = views.make("strong", inputs, seeded())
    dropped = strong == 0
    assert dropped.double().mean().item() == pytest.approx(0.2, abs=0.01)
    assert strong[:, 0][~dropped[:, 0]].std().item() == pytest.approx(0.6, rel=0.02)


def test_what_cannot_be_done_is_said() -> None:
    for name, images, message in (("stron", photos(32, 32, 20), "did you mean 'strong'"), ("eval", digits(2), "the views 3")):
        refused(message, CIFAR.make, name, images, seeded())
    refused("Unknown strong view 'cifr'", image_views, MEAN, STD, pad=4, flip=True, strong="cifr")
    refused("needs a size", image_views, MEAN, STD, pad=0, flip=True, scale=(0.2, 1.0))
    table = {"weak": lambda inputs, _: inputs}
    views = Views(table, finish=lambda inputs: inputs)
    table["other"] = table["weak"]
    assert views.names == ("weak",)
    with pytest.raises(TypeError):
        views.table["other"] = table["weak"]  # type: ignore[index]


def test_a_method_brings_views_of_its_own() -> None:
    own = {"bare": MethodView(lambda steps: lambda images, generator: 255 - steps.flip(images, generator), vectors="strong")}
    images = photos(32, 32, 20)
    for flip in (True, False):
        plain = image_views(**PLAIN, pad=4, flip=flip)
        views = plain.including(own)
        made = 255 - views.make("bare", images, seeded()).round()
        mirrored = [torch.equal(one, image.flip(2).float()) for one, image in zip(made, images, strict=True)]
        assert (0 < sum(mirrored) < 20) is flip
        assert torch.equal(views.make("weak", images, seeded()), plain.make("weak", images, seeded()))
    own = {"bare": MethodView(lambda steps: steps.flip, vectors="strong")}
    views, inputs = vector_views(torch.zeros(5), torch.ones(5)).including(own), torch.randn(40, 5, generator=seeded())
    assert torch.equal(views.make("bare", inputs, seeded()), views.make("strong", inputs, seeded()))
    other, weak = MethodView(lambda steps: steps.flip, vectors="strnog"), MethodView(lambda steps: steps.flip)
    refused("Unknown view 'strnog': did you mean 'strong'", views.including, {"other": other})
    refused("both define a view 'weak'", views.including, {"weak": weak})


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "waits"), [("weak", 0), ("eval", 0), ("strong", 1), ("pico_weak", 1), ("pico_strong", 1)])
def test_views_wait_for_the_gpu_only_for_the_counts_of_a_policy(name: str, waits: int) -> None:
    images = photos(32, 32, 250).cuda()
    generator = torch.Generator("cuda").manual_seed(0)
    views = CIFAR.including(OWN)
    views.make(name, images, generator)  # constants are copied the first time
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            views.make(name, images, generator)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert sum("synchroniz" in str(warning.message) for warning in found) == waits
