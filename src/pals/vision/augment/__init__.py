"""Augmented views of batches of images or vectors, made on the device that holds them.

Operations (`pixel_ops`, `geometry`), random policies of them (`autoaugment`, `randaugment`) and the views made from these
(`augmentations`). Random numbers come from the generator that is passed; nothing here knows labels.
"""

from __future__ import annotations

from pals.vision.augment.augmentations import ImageSteps, MethodView, View, Views, image_views, vector_views

__all__ = ["ImageSteps", "MethodView", "View", "Views", "image_views", "vector_views"]
