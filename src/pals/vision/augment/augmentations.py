"""Named views: what a method asks for (`weak`, `strong`, `eval`, or its own) as augmented, normalised float32 batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Literal, get_args

import torch
from torch import Generator, Tensor

from pals.util.errors import InputError, unknown
from pals.vision.augment import geometry, resample
from pals.vision.augment import image_steps as steps
from pals.vision.augment.autoaugment import CIFAR10_POLICY, IMAGENET_POLICY, apply_policy
from pals.vision.augment.image_steps import View

Strong = Literal["light", "cifar", "imagenet"]


@dataclass(frozen=True)
class ImageSteps:
    """The steps that make up a data set's image views. Methods build their own views from them."""

    flip: View
    "A random flip, or nothing if a mirror image may belong to another class."
    box: View
    "A random resized crop to the size that networks read."
    weak: View
    "The whole weak view."
    change: View
    "The strong view's changes of colour and shape, mostly an AutoAugment policy."
    square: View
    "One random black square, or nothing."


@dataclass(frozen=True)
class MethodView:
    """A view that a method defines."""

    images: Callable[[ImageSteps], View]
    vectors: str = "weak"
    "The view to use instead if items are vectors."


class Views:
    """The views of a data set by name. `finish` turns augmented inputs into what a network reads; `steps` are the building
    blocks for methods that define their own views (none if items are vectors)."""

    def __init__(self, table: Mapping[str, View], finish: Callable[[Tensor], Tensor], steps: ImageSteps | None = None) -> None:
        self.table = MappingProxyType(dict(table))
        self.finish, self.steps = finish, steps

    def including(self, own: Mapping[str, MethodView]) -> Views:
        """These views and a method's own."""
        taken = sorted(set(own) & set(self.table))
        if taken:
            raise InputError(
                f"The method defines a view {taken[0]!r}, but the data set has one of that name. Rename the method's view."
            )
        more = {name: view.images(self.steps) if self.steps else self._find(view.vectors) for name, view in own.items()}
        return Views({**self.table, **more}, self.finish, self.steps)

    def _find(self, name: str) -> View:
        if name not in self.table:
            raise unknown("view", name, self.names)
        return self.table[name]

    @property
    def mirror(self) -> bool:
        """Whether a mirror image keeps its class."""
        return self.steps is not None and self.steps.flip is steps.random_flip

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.table)

    def make(self, name: str, inputs: Tensor, generator: Generator) -> Tensor:
        """A fresh draw of the view, float32, normalised. The generator must be on the device of the inputs. On a GPU, pass as
        many images at once as fit: a policy costs about 600 kernel launches and one host read, however many there are."""
        return self.finish(self._find(name)(inputs, generator))


class Standardize:
    """(x - mean) / std as float32. The two constants are copied to each device once, so that no call waits for a copy."""

    def __init__(self, mean: Tensor, std: Tensor) -> None:
        self.scale = 1 / std.to(torch.float32)
        self.shift = -mean.to(torch.float32) * self.scale
        self._on_device: dict[torch.device, tuple[Tensor, Tensor]] = {}

    def __call__(self, inputs: Tensor) -> Tensor:
        if inputs.shape[1] != len(self.scale):
            raise InputError(
                f"Inputs of shape {tuple(inputs.shape)} have {inputs.shape[1]} channels or features; "
                f"the views were made for {len(self.scale)}."
            )
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
    """Views of uint8 images. `mean` and `std` are per channel, of pixels from 0 to 1.

    weak: flip, then a random crop of the image padded with its mirror by `pad` pixels. strong: the same, then an AutoAugment
    policy, then one black square of side `cutout`; "light", for toy images, changes brightness and contrast instead, and its
    square has a quarter of the image's side if not told otherwise. eval: nothing.

    `size` brings all views to size x size pixels. With `scale` weak and strong do so by a random resized crop (a box of that
    share of the area) and eval by a central crop (shorter side to 8/7 of the size, as 256 is to 224); else by resizing.
    """
    if strong not in get_args(Strong):
        raise unknown("strong view", strong, get_args(Strong))
    if scale is not None and size is None:
        raise InputError("A random resized crop (scale) needs a size to bring its boxes to.")
    mirror: View = steps.random_flip if flip else steps.chain()
    weak = steps.chain(
        mirror,
        *_fit(size, scale, training=True),
        *([partial(steps.random_crop, pad=pad)] if pad else []),
    )
    box = partial(steps.random_resized_crop, size=size, scale=scale or (0.2, 1.0))
    parts = ImageSteps(mirror, box, weak, change=_change(strong), square=_square(cutout, strong))
    table: dict[str, View] = {
        "weak": weak,
        "strong": steps.chain(weak, parts.change, parts.square),
        "eval": steps.chain(*_fit(size, scale, training=False)),
    }
    return Views(table, Standardize(255 * _per_channel(mean), 255 * _per_channel(std)), parts)


def _fit(size: int | None, scale: tuple[float, float] | None, *, training: bool) -> list[View]:
    """The step that brings images to the size wanted, if one is wanted."""
    if size is None:
        return []
    if scale is None:
        return [lambda images, _: resample.resize(images, size, size)]
    if training:
        return [partial(steps.random_resized_crop, size=size, scale=scale)]
    return [lambda images, _: geometry.center_crop(resample.resize_short(images, size * 8 // 7), size, size)]


def _change(strong: Strong) -> View:
    if strong == "light":
        return steps.random_light
    policy = CIFAR10_POLICY if strong == "cifar" else IMAGENET_POLICY
    return lambda images, generator: apply_policy(images, policy, generator)


def _square(cutout: int | None, strong: Strong) -> View:
    if cutout is None and strong == "light":
        return lambda images, generator: steps.random_cutout(images, generator, side=images.shape[3] // 4)
    return partial(steps.random_cutout, side=cutout) if cutout else steps.chain()


def _per_channel(values: Sequence[float]) -> Tensor:
    return torch.tensor(list(values), dtype=torch.float64)[:, None, None]


def vector_views(mean_D: Tensor, std_D: Tensor, *, noise: float = 0.1, dropout: float = 0.1) -> Views:
    """Views of float vectors, all standardised. weak: Gaussian noise of deviation `noise`. strong: twice that noise, then
    each feature set to its mean with probability `dropout`. eval: nothing. A feature that never varies is only centred."""
    standardize = Standardize(mean_D, torch.where(std_D > 0, std_D, 1.0))

    def weak(inputs: Tensor, generator: Generator) -> Tensor:
        return _add_noise(standardize(inputs), generator, noise)

    def strong(inputs: Tensor, generator: Generator) -> Tensor:
        noisy = _add_noise(standardize(inputs), generator, 2 * noise)
        kept = torch.rand(noisy.shape, generator=generator, device=noisy.device) >= dropout
        return noisy * kept

    table: dict[str, View] = {"weak": weak, "strong": strong, "eval": lambda inputs, _: standardize(inputs)}
    return Views(table, finish=lambda inputs: inputs)


def _add_noise(inputs: Tensor, generator: Generator, deviation: float) -> Tensor:
    return inputs + deviation * torch.randn(inputs.shape, generator=generator, device=inputs.device)
