"""The 1,797 handwritten digits of scikit-learn: real data, 8 x 8 pixels, no download."""

from __future__ import annotations

import numpy as np
import torch

from pals.data.dataset import Dataset, Items
from pals.labels.candidates import Truth, default_names
from pals.vision.augment import image_views

TEST_SHARE = 0.2
SPLIT_SEED = 0  # constant, so that runs of all seeds are tested on the same digits


def load_digits_data(**_: object) -> Dataset:
    """The digits, a fifth of each class as the test set. A folder or a seed has no effect."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    source = load_digits()
    image_N1HW = (source.images[:, None] * 15).astype(np.uint8)  # grey levels 0..16 to 0..240
    number = np.arange(len(source.target))
    train, test = (
        np.sort(part)
        for part in train_test_split(number, test_size=TEST_SHARE, random_state=SPLIT_SEED, stratify=source.target)
    )
    names = default_names(10)
    train_x = image_N1HW[train] / 255
    return Dataset(
        name="digits",
        class_names=names,
        train=_items(image_N1HW, train),
        truth=Truth.of(source.target[train], names),
        test=_items(image_N1HW, test),
        test_truth=Truth.of(source.target[test], names),
        views=image_views((float(train_x.mean()),), (float(train_x.std()),), pad=1, flip=False, strong="light", cutout=0),
    )


def _items(image_N1HW: np.ndarray, rows: np.ndarray) -> Items:
    return Items(torch.from_numpy(image_N1HW[rows]), tuple(f"digit-{i + 1:04d}" for i in rows.tolist()))
