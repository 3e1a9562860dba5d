"""SRSE: the check values of its sheet worked by hand, slow loops beside the tables, every switch, and who is salvaged when."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from pals.labeling import agreement
from pals.methods.topology import (
    blended,
    kernel_weight,
    mixedness,
    model_share,
    own_quota,
    select_own,
    soft_vote,
    sureness,
    trust,
)
from pals.neighbors import nearest

# Six unit vectors in the plane, three classes, three neighbours with the item itself.
ANGLE_N = torch.tensor([0.0, 15.0, 30.0, 75.0, 90.0, 100.0]).deg2rad()
FEATURES_ND = torch.stack([ANGLE_N.cos(), ANGLE_N.sin()], dim=1)
SETS = [{0, 1}, {0}, {0, 2}, {1, 2}, {1}, {0}]
ALLOWED_NC = torch.tensor([[c in labels for c in range(3)] for labels in SETS])
Y_NC = ALLOWED_NC.float()
P_NC = torch.tensor([[0.7, 0.2, 0.1], [0.6, 0.3, 0.1], [0.2, 0.1, 0.7], [0.1, 0.6, 0.3], [0.1, 0.8, 0.1], [0.1, 0.85, 0.05]])
NEAR = nearest(FEATURES_ND, 2)


def near(actual: Tensor, expected: Any) -> None:
    torch.testing.assert_close(actual, torch.tensor(expected), atol=1.5e-6, rtol=0)


def first_vote() -> Tensor:
    return soft_vote(NEAR.index_NK, kernel_weight(*NEAR, Y_NC), Y_NC)


def second_vote() -> tuple[Tensor, Tensor]:
    """What goes into it and what comes out, in the sixth epoch of a ramp of ten."""
    blend_NC = blended(first_vote(), P_NC, Y_NC, model_share(6, 0.5, 10))
    return blend_NC, soft_vote(NEAR.index_NK, kernel_weight(*NEAR, blend_NC), blend_NC)


def test_a_trust_and_temperature() -> None:
    rows = [set(row) for row in ("012", "102", "210", "345", "453", "543")]
    assert [set(map(str, row)) for row in NEAR.index_NK.tolist()] == rows
    near(trust(*NEAR, Y_NC, 2.0), [0.579214, 1.0, 0.579214, 0.508188, 1.0, 1.0])
    near((-trust(*NEAR, Y_NC, 1.0).log()).clamp_min(0).sqrt(), [0.522534, 0.0, 0.522534, 0.581766, 0.0, 0.0])
    mixed_N = mixedness(*NEAR, Y_NC, 0.5)
    near(mixed_N, [0.660116, 0.665131, 0.660116, 0.890888, 0.911911, 0.921353])
    near(0.1 + 0.5 * mixed_N.square(), [0.317876, 0.321200, 0.317876, 0.496841, 0.515791, 0.524445])


def test_b_weights() -> None:
    weight_NK = kernel_weight(*NEAR, Y_NC)
    near(weight_NK[0], [0.579214, 0.809990, 0.263803])
    near(weight_NK[1], [1.0, 0.470181, 0.470181])
    near(weight_NK[5], [1.0, 0.944125, 0.361510])


def test_c_first_vote() -> None:
    vote_NC = first_vote()
    near(vote_NC[0], [0.628542, 0.214779, 0.156679])
    near(vote_NC[3], [0.262542, 0.520313, 0.217145])
    near(vote_NC[5], [0.346551, 0.470439, 0.183010])


def test_d_blend_second_vote_and_selection() -> None:
    assert model_share(6, 0.5, 10) == 0.25
    near(sureness(first_vote(), P_NC), [0.473107, 0.533089, 0.473107, 0.464435, 0.387892, 0.356275])
    blend_NC, belief_NC = second_vote()
    near(blend_NC[0], [0.694558, 0.231316, 0.074126])
    near(blend_NC[5], [0.767193, 0.167605, 0.065202])
    near(belief_NC[0], [0.624531, 0.192019, 0.183450])
    near(belief_NC[5], [0.310667, 0.464049, 0.225284])
    assert belief_NC.argmax(dim=1).tolist() == [0, 0, 0, 1, 1, 1]
    pool_C = agreement(belief_NC, ALLOWED_NC)
    assert pool_C.tolist() == [3, 2, 0]  # item 5 is not eligible: 1 is not in {0}
    assert [own_quota(pool_C, delta) for delta in (0.25, 0.5, 1.0)] == [1, 2, 3]
    for quota, most in [(0, 0), (1, 2), (2, 4), (3, 5), (9, 5)]:
        chosen_N = select_own(belief_NC, ALLOWED_NC, quota)
        assert int(chosen_N.sum()) == most
        assert not chosen_N[5]


def test_e_the_exponential_kernel_makes_the_vote_hard() -> None:
    weight_NK = kernel_weight(*NEAR, Y_NC, kernel="exp")
    assert float(weight_NK.max()) == pytest.approx(math.exp(10), rel=1e-5)
    near(soft_vote(NEAR.index_NK, weight_NK, Y_NC)[0], [1.0, 0.0, 0.0])
