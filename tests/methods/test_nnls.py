from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import nnls
from torch import Tensor

from pals.methods.parts import nnls as module
from pals.methods.parts.nnls import solve_nnls


def problem(kind: str, count: int = 60, k: int = 10, width: int = 16, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Neighbours (M x K x D) and targets (M x D)."""
    generator = torch.Generator().manual_seed(seed)
    near_MKD = torch.randn(count, k, width, dtype=torch.float64, generator=generator)
    target_MD = torch.randn(count, width, dtype=torch.float64, generator=generator)
    if kind == "around the target":
        near_MKD = target_MD[:, None] + 0.3 * near_MKD
    if kind == "dependent":
        near_MKD, target_MD = near_MKD[:, :, :4], target_MD[:, :4]
    if kind == "duplicates":
        near_MKD[:, k // 2 :] = near_MKD[:, : k - k // 2]
    if kind == "almost duplicates":
        near_MKD[:, k // 2 :] = near_MKD[:, : k - k // 2] + 1e-7 * near_MKD[:, k // 2 :]
    if kind == "whole numbers":
        near_MKD, target_MD = near_MKD[:, :, :5].round(), target_MD[:, :5].round()
    if kind == "of all sizes":
        near_MKD = near_MKD * torch.logspace(-4, 4, k, dtype=torch.float64)[:, None]
    else:
        near_MKD, target_MD = F.normalize(near_MKD, dim=2), F.normalize(target_MD, dim=1)
    return near_MKD, target_MD


def products(near_MKD: Tensor, target_MD: Tensor) -> tuple[Tensor, Tensor]:
    return near_MKD @ near_MKD.mT, (near_MKD @ target_MD[:, :, None]).squeeze(2)


def assert_optimal(near_MKD: Tensor, target_MD: Tensor, weight_MK: Tensor) -> None:
    """w >= 0, gradient >= 0, w times gradient = 0; and as good as scipy's."""
    gram_MKK, product_MK = products(near_MKD, target_MD)
    gradient_MK = (gram_MKK @ weight_MK[:, :, None]).squeeze(2) - product_MK
    assert (weight_MK >= 0).all()
    assert (gradient_MK >= -1e-8).all()
    assert ((weight_MK * gradient_MK).abs() <= 1e-8).all()
    for near_KD, target_D, weight_K in zip(near_MKD, target_MD, weight_MK, strict=True):
        residual = float((target_D - weight_K @ near_KD).norm())
        assert residual <= nnls(near_KD.T.numpy(), target_D.numpy())[1] + 1e-8


KINDS = ("far", "around the target", "dependent", "duplicates", "almost duplicates", "whole numbers", "of all sizes")


@pytest.mark.parametrize("kind", KINDS)
def test_the_answer_is_optimal(kind: str) -> None:
    for k in (1, 2, 10, 25):
        near_MKD, target_MD = problem(kind, k=k, seed=k)
        assert_optimal(near_MKD, target_MD, solve_nnls(*products(near_MKD, target_MD)))


@pytest.mark.parametrize("kind", ["far", "around the target", "of all sizes"])
def test_where_there_is_one_answer_it_is_that_of_scipy(kind: str) -> None:
    near_MKD, target_MD = problem(kind)
    expected_MK = np.stack([nnls(near.T.numpy(), target.numpy())[0] for near, target in zip(near_MKD, target_MD, strict=True)])
    weight_MK = solve_nnls(*products(near_MKD, target_MD))
    torch.testing.assert_close(weight_MK, torch.from_numpy(expected_MK), atol=1e-9, rtol=1e-9)
    assert ((weight_MK > 0).sum(dim=1).unique() < 10).any()  # some weights are held at zero, some are not
    assert (weight_MK > 0).any()


@given(st.integers(1, 6), st.integers(1, 4), st.data())
def test_optimal_on_any_small_problem(k: int, width: int, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.integers(-3, 3), min_size=(k + 1) * width, max_size=(k + 1) * width))
    rows = torch.tensor(values, dtype=torch.float64).reshape(1, k + 1, width)
    near_MKD, target_MD = rows[:, :k], rows[:, k]
    assert_optimal(near_MKD, target_MD, solve_nnls(*products(near_MKD, target_MD)))


def test_a_problem_does_not_feel_the_others() -> None:
    near_MKD, target_MD = problem("around the target", count=20)
    gram_MKK, product_MK = products(near_MKD, target_MD)
    together_MK = solve_nnls(gram_MKK, product_MK)
    for row in range(20):
        torch.testing.assert_close(solve_nnls(gram_MKK[row : row + 1], product_MK[row : row + 1])[0], together_MK[row])


def test_zeros_and_nothing() -> None:
    assert solve_nnls(torch.zeros(2, 3, 3), torch.zeros(2, 3)).tolist() == [[0.0] * 3] * 2
    assert solve_nnls(torch.eye(3)[None], -torch.ones(1, 3)).tolist() == [[0.0] * 3]
    assert solve_nnls(torch.eye(2)[None].float(), torch.tensor([[3.0, -1.0]])).tolist() == [[3.0, 0.0]]
    assert solve_nnls(torch.zeros(0, 3, 3), torch.zeros(0, 3)).shape == (0, 3)


def test_input_is_left_alone() -> None:
    gram_MKK, product_MK = products(*problem("around the target", count=20))
    before = gram_MKK.clone(), product_MK.clone()
    solve_nnls(gram_MKK, product_MK)
    assert torch.equal(gram_MKK, before[0])
    assert torch.equal(product_MK, before[1])


@pytest.mark.parametrize("kind", KINDS)
def test_few_rounds_are_needed(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the y depend on each other, rounding makes some places come and go; that must end by itself."""
    rounds = []
    original = module._move

    def spy(*arguments: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        rounds.append(len(arguments[0]))
        return original(*arguments)

    monkeypatch.setattr(module, "_move", spy)
    for seed in range(8):
        rounds.clear()
        solve_nnls(*products(*problem(kind, k=25, seed=seed)))
        assert len(rounds) < 3 * 25
    assert kind != "around the target" or rounds[-1] < rounds[0]  # finished problems are not carried along


def test_lengths_only_scale_the_answer() -> None:
    near_MKD, target_MD = problem("around the target", count=20)
    scale_K = torch.logspace(-8, 8, 10, dtype=torch.float64)
    weight_MK = solve_nnls(*products(near_MKD * scale_K[:, None], target_MD))
    torch.testing.assert_close(weight_MK * scale_K, solve_nnls(*products(near_MKD, target_MD)), atol=1e-9, rtol=1e-9)
