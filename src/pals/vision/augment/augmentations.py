"""Named views of a batch (`weak`, `strong`, `eval`, or those of a method): augmented, standardised float32 inputs.

A view is a chain of random steps (images, generator) -> images in which every image has a draw of its own. Besides the views of
a data set there are those that methods were published with (`Method.own_views`): PiCO (Wang et al. 2022, arXiv:2201.08984),
FixMatch (Sohn et al. 2020, arXiv:2001.07685), CR-DPLL (Wu et al. 2022) and ProMix (Xiao et al. 2023, arXiv:2207.10276).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Literal, get_args

import torch
from torch import Generator, Tensor

from pals.util.errors import InputError, unknown
from pals.vision.augment import geometry, pixel_ops
from pals.vision.augment.apply_ops import draw_centers, integers, uniform
from pals.vision.augment.autoaugment import CIFAR10_POLICY, IMAGENET_POLICY, apply_policy
from pals.vision.augment.randaugment import color_jitter, fixmatch_randaugment, pico_randaugment, random_gray

Strong = Literal["light", "cifar", "imagenet"]
View = Callable[[Tensor, Generator], Tensor]
"""Raw inputs to augmented raw inputs: uint8 images to uint8 images, or float vectors to float vectors. Never in place."""


@dataclass(frozen=True)
class ImageSteps:
    """The steps of a data set's image views, from which methods build their own: each (images, generator) -> images.

    Args:
        flip: A random flip, or nothing if a mirror image may belong to another class.
        box: A random resized crop to the size that networks read.
        weak: The whole weak view.
        change: The strong view's changes of colour and shape, mostly an AutoAugment policy.
        square: One random black square, or nothing.

    >>> from pals import image_views
    >>> sorted(vars(image_views((0.5,), (0.2,), pad=1, flip=False).steps))
    ['box', 'change', 'flip', 'square', 'weak']
    """

    flip: View
    box: View
    weak: View
    change: View
    square: View


@dataclass(frozen=True)
class MethodView:
    """A view that a method defines (`Method.own_views`).

    Args:
        images: Builds it from the data set's `ImageSteps`.
        vectors: Name of the view that takes its place if items are vectors; default "weak".

    >>> from pals import MethodView, image_views
    >>> views = image_views((0.5,), (0.2,), pad=1, flip=False)
    >>> views.including({"flipped": MethodView(lambda steps: steps.flip)}).names
    ('weak', 'strong', 'eval', 'flipped')
    """

    images: Callable[[ImageSteps], View]
    vectors: str = "weak"


class Views:
    """The views of a data set by name.

    Args:
        table: The views: functions (inputs, generator) -> inputs of the same kind.
        finish: Turns augmented inputs into what a network reads, usually by standardising them.
        steps: Building blocks for methods that define their own views; None if items are vectors.

    >>> import torch
    >>> from pals import Views
    >>> views = Views({"weak": lambda x, generator: x, "eval": lambda x, generator: x}, finish=lambda x: x / 255)
    >>> views.make("eval", torch.tensor([[0.0, 255.0]]), torch.Generator())
    tensor([[0., 1.]])
    """

    def __init__(self, table: Mapping[str, View], finish: Callable[[Tensor], Tensor], steps: ImageSteps | None = None) -> None:
        self.table = MappingProxyType(dict(table))
        self.finish, self.steps = finish, steps

    def including(self, own: Mapping[str, MethodView]) -> Views:
        """These views and a method's own. Raises `InputError` if two have the same name."""
        taken = sorted(set(own) & set(self.table))
        if taken:
            raise InputError(f"The method and the data set both define a view {taken[0]!r}. Rename the method's.")
        more = {name: view.images(self.steps) if self.steps else self._find(view.vectors) for name, view in own.items()}
        return Views({**self.table, **more}, self.finish, self.steps)

    def _find(self, name: str) -> View:
        if name not in self.table:
            raise unknown("view", name, self.names)
        return self.table[name]

    @property
    def mirror(self) -> bool:
        """Whether a mirror image keeps its class."""
        return self.steps is not None and self.steps.flip is random_flip

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.table)

    def make(self, name: str, inputs: Tensor, generator: Generator) -> Tensor:
        """A new draw of the view `name` of these inputs: float32, standardised. Raises `InputError` if there is no such view.

        The generator must be on the device of the inputs. On a GPU, pass as many images at once as fit: a policy costs about
        600 kernel launches and one host read, for any number of images.
        """
        return self.finish(self._find(name)(inputs, generator))


class Standardize:
    """(x - mean) / std as float32. The two constants are copied to each device once, so that no call waits for a copy."""

    def __init__(self, mean: Tensor, std: Tensor) -> None:
        self.scale = 1 / std.to(torch.float32)
        self.shift = -mean.to(torch.float32) * self.scale
        self._on_device: dict[torch.device, tuple[Tensor, Tensor]] = {}

    def __call__(self, inputs: Tensor) -> Tensor:
        if inputs.shape[1] != len(self.scale):
            raise InputError(f"Inputs {tuple(inputs.shape)} have {inputs.shape[1]} channels, the views {len(self.scale)}.")
        device = inputs.device
        if device not in self._on_device:
            self._on_device[device] = self.scale.to(device), self.shift.to(device)
        scale, shift = self._on_device[device]
        return torch.addcmul(shift, inputs.to(torch.float32), scale)


def image_views(
    mean: Sequence[float],
    std: Sequence[float],
    *,
    pad: int,
    flip: bool,
    strong: Strong = "light",
    cutout: int | None = None,
    size: int | None = None,
    scale: tuple[float, float] | None = None,
) -> Views:
    """Views of uint8 images, N x channels x height x width.

    weak: flip, then a random crop of the image padded with its mirror image. strong: weak, then an AutoAugment policy, then one
    black square ("light", for toy images, changes brightness and contrast instead). eval: neither. With a `size` and a `scale`,
    weak and strong start with a random resized crop and eval with a central one (shorter side to 8/7 of the size, as 256 is to
    224); with a `size` alone all are resized.

    Args:
        mean: Per channel, of pixels from 0 to 1.
        std: Likewise.
        pad: Pixels by which images are padded before the random crop; 0: no random crop.
        flip: Whether a mirror image keeps its class.
        strong: "light", "cifar" or "imagenet" (AutoAugment policies).
        cutout: Side of the black square in pixels; None: none, or a quarter of the image's side for "light"; 0: none.
        size: Side in pixels to which all views are brought; None: that of the images.
        scale: Smallest and largest share of the area that a random resized crop covers; needs a `size`.

    Returns:
        `Views` with the names weak, strong and eval.

    Raises:
        InputError: Unknown `strong`, or a `scale` without `size`.

    >>> import torch
    >>> from pals import image_views
    >>> views = image_views((0.5,), (0.25,), pad=2, flip=True)
    >>> views.make("weak", torch.zeros(4, 1, 8, 8, dtype=torch.uint8), torch.Generator())[0, 0, 0, 0].item()
    -2.0
    """
    if strong not in get_args(Strong):
        raise unknown("strong view", strong, get_args(Strong))
    if scale is not None and size is None:
        raise InputError("A random resized crop (scale) needs a size to bring its boxes to.")
    mirror: View = random_flip if flip else chain()
    weak = chain(mirror, *_fit(size, scale, training=True), *([partial(random_crop, pad=pad)] if pad else []))
    box = partial(random_resized_crop, size=size, scale=scale or (0.2, 1.0))
    parts = ImageSteps(mirror, box, weak, change=_change(strong), square=_square(cutout, strong))
    table: dict[str, View] = {
        "weak": weak,
        "strong": chain(weak, parts.change, parts.square),
        "eval": chain(*_fit(size, scale, training=False)),
    }
    mean_C11, std_C11 = (255 * torch.tensor(list(values), dtype=torch.float64)[:, None, None] for values in (mean, std))
    return Views(table, Standardize(mean_C11, std_C11), parts)


def _fit(size: int | None, scale: tuple[float, float] | None, *, training: bool) -> list[View]:
    """The step that resizes or crops images to `size`; none if it is None."""
    if size is None:
        return []
    if scale is None:
        return [lambda images, _: geometry.resize(images, size, size)]
    if training:
        return [partial(random_resized_crop, size=size, scale=scale)]
    return [lambda images, _: geometry.center_crop(geometry.resize_short(images, size * 8 // 7), size, size)]


def _change(strong: Strong) -> View:
    if strong == "light":
        return random_light
    policy = CIFAR10_POLICY if strong == "cifar" else IMAGENET_POLICY
    return lambda images, generator: apply_policy(images, policy, generator)


def _square(cutout: int | None, strong: Strong) -> View:
    if cutout is None and strong == "light":
        return lambda images, generator: random_cutout(images, generator, side=images.shape[3] // 4)
    return partial(random_cutout, side=cutout) if cutout else chain()


def vector_views(mean_D: Tensor, std_D: Tensor, *, noise: float = 0.1, dropout: float = 0.1) -> Views:
    """Views of float vectors, N x D, all standardised; a feature that never varies is only centred.

    weak: Gaussian noise. strong: twice that noise, then each feature set to its mean with probability `dropout`. eval: neither.

    Args:
        mean_D: Mean of each feature.
        std_D: Standard deviation of each feature.
        noise: Standard deviation of the noise, in units of `std_D`; default 0.1.
        dropout: Probability; default 0.1.

    Returns:
        `Views` with the names weak, strong and eval.

    >>> import torch
    >>> from pals import vector_views
    >>> vector_views(torch.tensor([1.0]), torch.tensor([2.0])).make("eval", torch.tensor([[5.0]]), torch.Generator())
    tensor([[2.]])
    """
    standardize = Standardize(mean_D, torch.where(std_D > 0, std_D, 1.0))

    def weak(inputs: Tensor, generator: Generator) -> Tensor:
        return _add_noise(standardize(inputs), generator, noise)

    def strong(inputs: Tensor, generator: Generator) -> Tensor:
        noisy = _add_noise(standardize(inputs), generator, 2 * noise)
        return noisy * (torch.rand(noisy.shape, generator=generator, device=noisy.device) >= dropout)

    table: dict[str, View] = {"weak": weak, "strong": strong, "eval": lambda inputs, _: standardize(inputs)}
    return Views(table, finish=lambda inputs: inputs)


def _add_noise(inputs: Tensor, generator: Generator, deviation: float) -> Tensor:
    return inputs + deviation * torch.randn(inputs.shape, generator=generator, device=inputs.device)


# ---- steps


def chain(*steps: View) -> View:
    """One step after the other; without steps the images are unchanged."""

    def run(images: Tensor, generator: Generator) -> Tensor:
        for step in steps:
            images = step(images, generator)
        return images

    return run


def random_flip(images: Tensor, generator: Generator) -> Tensor:
    """Left and right exchanged in half of the images."""
    return geometry.flip(images, uniform(images, generator) < 0.5)


def random_crop(images: Tensor, generator: Generator, *, pad: int) -> Tensor:
    """Padded by the mirror image on all sides, then cut back to the old size at a random place."""
    top_B, left_B = integers(images, generator, 2 * pad + 1), integers(images, generator, 2 * pad + 1)
    return geometry.reflect_crop(images, pad, top_B, left_B)


def random_resized_crop(
    images: Tensor, generator: Generator, *, size: int | None = None, scale: tuple[float, float] = (0.08, 1.0)
) -> Tensor:
    """A box of random area (a share of the image from `scale`) and shape (3:4 to 4:3) at a random place, brought to
    size x size or, without a size, back to the size of the image."""
    height, width = images.shape[2:] if size is None else (size, size)
    return geometry.resized_crop(images, *draw_boxes(images, generator, scale), height, width)


def draw_boxes(
    images: Tensor,
    generator: Generator,
    scale: tuple[float, float],
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
    tries: int = 10,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Top, left, height and width of a box for each image, by torchvision's rule: area uniform, logarithm of the ratio
    uniform; the first of ten tries that fits into the image counts, and if none does, the largest central box of an
    allowed shape."""
    B, _, H, W = images.shape
    share_BT, shape_BT = torch.rand(2, B, tries, dtype=torch.float64, generator=generator, device=images.device)
    area_BT = H * W * (scale[0] + (scale[1] - scale[0]) * share_BT)
    ratio_BT = torch.exp(math.log(ratio[0]) + math.log(ratio[1] / ratio[0]) * shape_BT)
    width_BT = (area_BT * ratio_BT).sqrt().round().to(torch.int64)
    height_BT = (area_BT / ratio_BT).sqrt().round().to(torch.int64)
    fits_BT = (width_BT > 0) & (width_BT <= W) & (height_BT > 0) & (height_BT <= H)
    first_B1 = fits_BT.to(torch.uint8).argmax(dim=1, keepdim=True)  # of equal values argmax gives the first
    fits_B = fits_BT.any(dim=1)
    whole_height, whole_width = min(H, round(W / ratio[0])), min(W, round(H * ratio[1]))
    height_B = torch.where(fits_B, height_BT.gather(1, first_B1).squeeze(1), whole_height)
    width_B = torch.where(fits_B, width_BT.gather(1, first_B1).squeeze(1), whole_width)
    top_B = torch.where(fits_B, (uniform(images, generator) * (H - height_B + 1)).floor(), (H - whole_height) // 2)
    left_B = torch.where(fits_B, (uniform(images, generator) * (W - width_B + 1)).floor(), (W - whole_width) // 2)
    return top_B.to(torch.int64), left_B.to(torch.int64), height_B, width_B


def random_cutout(images: Tensor, generator: Generator, *, side: int) -> Tensor:
    """One black square; its centre may be any pixel, so near the border part of it falls outside."""
    return geometry.cutout(images, *draw_centers(images, generator), side)


def random_light(images: Tensor, generator: Generator, *, spread: float = 0.4) -> Tensor:
    """Brightness and contrast each times a factor within 1 ± spread."""
    images = pixel_ops.brightness(images, uniform(images, generator, 1 - spread, 1 + spread))
    return pixel_ops.contrast(images, uniform(images, generator, 1 - spread, 1 + spread))


# ---- views that methods were published with


def _pico_weak(steps: ImageSteps) -> View:
    """A random resized crop, a flip, colour jitter, and sometimes grey."""
    jitter = partial(color_jitter, spread=0.4, turn=0.1, probability=0.8)
    return chain(steps.box, steps.flip, jitter, partial(random_gray, probability=0.2))


PICO_VIEWS: Mapping[str, MethodView] = {
    "pico_weak": MethodView(_pico_weak, "weak"),
    "pico_strong": MethodView(lambda steps: chain(steps.box, steps.flip, pico_randaugment), "strong"),
}
FIXMATCH_VIEWS: Mapping[str, MethodView] = {
    "fixmatch_strong": MethodView(lambda steps: chain(steps.weak, fixmatch_randaugment), "strong")
}
CRDPLL_VIEWS: Mapping[str, MethodView] = {  # the square before the policy
    "crdpll_strong": MethodView(lambda steps: chain(steps.weak, steps.square, steps.change), "strong")
}
PROMIX_VIEWS: Mapping[str, MethodView] = {  # the operations of PiCO before the weak view
    "promix_strong": MethodView(lambda steps: chain(pico_randaugment, steps.weak), "strong")
}
