from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from _refused import refused
from pals.data import load_dataset
from pals.data.digits import load_digits_data


@pytest.fixture(scope="module")
def digits():
    return load_digits_data()


def test_shapes_types_split_and_views(digits) -> None:
    assert len(digits.train) == 1437 and len(digits.test) == 360
    assert digits.train.shape == digits.test.shape == (1, 8, 8)
    for items in (digits.train, digits.test):
        assert items.inputs.dtype == torch.uint8 and items.inputs.is_contiguous()
        assert int(items.inputs.max()) == 240  # 16 grey steps of 15
        assert (items.inputs % 15 == 0).all()
    assert digits.class_names == tuple("0123456789") and digits.group_C is None
    train_C, test_C = (torch.bincount(truth.label_N, minlength=10) for truth in (digits.truth, digits.test_truth))
    assert ((test_C - 0.2 * (train_C + test_C)).abs() <= 1).all()  # a fifth of each class is held out
    assert load_dataset("digits").train.ids == digits.train.ids
    refused("did you mean 'digits'", load_dataset, "digit")
    torch.manual_seed(7)
    again = load_digits_data(seed=7)
    assert again.test.ids == digits.test.ids and torch.equal(again.train.inputs, digits.train.inputs)
    view = digits.views.make("eval", digits.train.inputs, torch.Generator())
    assert view.mean().abs() < 1e-5 and (view.std(correction=0) - 1).abs() < 1e-5
    assert digits.views.make("eval", digits.test.inputs, torch.Generator()).mean().abs() > 1e-5


def test_every_digit_is_used_once_with_its_own_label(digits):
    source = load_digits()
    ids = digits.train.ids + digits.test.ids
    assert sorted(ids) == [f"digit-{i:04d}" for i in range(1, 1798)]
    for items, truth in ((digits.train, digits.truth), (digits.test, digits.test_truth)):
        number = np.array([int(name.removeprefix("digit-")) - 1 for name in items.ids])
        np.testing.assert_array_equal(truth.label_N.numpy(), source.target[number])
        np.testing.assert_array_equal(items.inputs[:, 0].numpy(), source.images[number] * 15)
