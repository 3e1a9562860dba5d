"""Views of images that methods were published with, beside the data set's weak and strong ones; for `Method.own_views`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from pals.vision.augment import ImageSteps, MethodView, View
from pals.vision.augment.image_steps import chain
from pals.vision.augment.randaugment import color_jitter, fixmatch_randaugment, pico_randaugment, random_gray


def _pico_weak(steps: ImageSteps) -> View:
    """A random resized crop, a flip, colour jitter, now and then no colour."""
    jitter = partial(color_jitter, spread=0.4, turn=0.1, probability=0.8)
    return chain(steps.box, steps.flip, jitter, partial(random_gray, probability=0.2))


def _pico_strong(steps: ImageSteps) -> View:
    """The same crop and flip, then three random operations and a square."""
    return chain(steps.box, steps.flip, pico_randaugment)


def _fixmatch_strong(steps: ImageSteps) -> View:
    """weak, then two random operations and a square."""
    return chain(steps.weak, fixmatch_randaugment)


def _crdpll_strong(steps: ImageSteps) -> View:
    """strong, with the square before the policy."""
    return chain(steps.weak, steps.square, steps.change)


def _promix_strong(steps: ImageSteps) -> View:
    """The operations and the square of pico_strong, then weak."""
    return chain(pico_randaugment, steps.weak)


PICO_VIEWS: Mapping[str, MethodView] = {
    "pico_weak": MethodView(_pico_weak, "weak"),
    "pico_strong": MethodView(_pico_strong, "strong"),
}
FIXMATCH_VIEWS: Mapping[str, MethodView] = {"fixmatch_strong": MethodView(_fixmatch_strong, "strong")}
CRDPLL_VIEWS: Mapping[str, MethodView] = {"crdpll_strong": MethodView(_crdpll_strong, "strong")}
PROMIX_VIEWS: Mapping[str, MethodView] = {"promix_strong": MethodView(_promix_strong, "strong")}
