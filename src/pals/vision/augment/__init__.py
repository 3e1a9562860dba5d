"""Augmented views of batches of images or vectors, made on the device that holds them.

Operations, policies of them, and `Views`, which puts them together. Random numbers come from the generator that is given;
nothing here knows labels.
"""

from __future__ import annotations

from pals.vision.augment.steps import View
from pals.vision.augment.views import ImageSteps, MethodView, Views, image_views, vector_views

__all__ = ["ImageSteps", "MethodView", "View", "Views", "image_views", "vector_views"]
