"""Augmented views of batches of images or vectors, made on the device that holds them.

Operations, policies of them, and `Views`, which puts them together. Random numbers come from the generator that is given;
nothing here knows labels.
"""

from __future__ import annotations

from pals.vision.augment.augmentations import ImageSteps, MethodView, Views, image_views, vector_views
from pals.vision.augment.image_steps import View

__all__ = ["ImageSteps", "MethodView", "View", "Views", "image_views", "vector_views"]
