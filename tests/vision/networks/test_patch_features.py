"""Features cut from the pictures themselves."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from pals.util.errors import InputError
from pals.vision.networks.patch_features import (
    CONTRAST,
    MIN_COSINE,
    PATCH,
    POOL_GRID,
    RIDGE,
    PatchNetwork,
    Responses,
    learn_patches,
)


def learned(x: torch.Tensor, seed: int = 0) -> PatchNetwork:
    network = PatchNetwork(x.shape[1], 3, filters=16).eval()
    learn_patches(network, x, torch.Generator().manual_seed(seed), samples=2000)
    return network


@pytest.fixture(scope="module")
def pictures() -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return F.avg_pool2d(torch.randn(40, 3, 26, 26, generator=generator), 3, 1)  # neighbours are alike, as in photographs


def test_responses_against_a_loop_over_places(pictures: torch.Tensor) -> None:
    """One picture, place by place: normalise, whiten, compare, both signs, rectify, average over the fields."""
    network = learned(pictures)
    x = pictures[3]
    places = 24 - PATCH + 1
    whiten_DD = network.whiten.flatten(1)
    response = torch.empty(32, places, places)
    for row in range(places):
        for column in range(places):
            patch = x[:, row : row + PATCH, column : column + PATCH].flatten()
            normal = (patch - patch.mean()) / (patch.std(correction=0) + CONTRAST)
            white = F.normalize(whiten_DD @ normal - network.centre, dim=0)
            alike = network.patches[:, :, 0, 0] @ white
            response[:, row, column] = torch.cat([alike - MIN_COSINE, -alike - MIN_COSINE]).clamp_min(0)
    expected = F.adaptive_avg_pool2d(response, POOL_GRID).flatten()
    torch.testing.assert_close(network._responses(x[None])[0], expected, atol=1e-4, rtol=1e-4)


def test_a_graph_of_it_holds_for_any_number_of_pictures(pictures: torch.Tensor) -> None:
    """Pictures are looked at a few at a time; a graph that was taken with two must not be bound to two."""
    network = learned(pictures)
    graph = torch.export.export(network, (pictures[:2],), dynamic_shapes=({0: torch.export.Dim("N")},)).module()
    for count in (1, 5, 40):
        torch.testing.assert_close(graph(pictures[:count]).features, network(pictures[:count]).features)


def test_how_many_at_a_time_changes_nothing(pictures: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    network = learned(pictures)
    together = network.responses(pictures)
    monkeypatch.setattr("pals.vision.networks.patch_features.RESPONSE_BYTES", 1)
    torch.testing.assert_close(network.responses(pictures), together, atol=1e-7, rtol=0)
    whole = Responses(network)(pictures).features  # the features are components of all responses
    assert whole.shape == (len(pictures), 2 * 16 * POOL_GRID**2)
    torch.testing.assert_close(network.reduced(whole), network(pictures).features)


def test_whitened_patches_have_no_correlation_left(pictures: torch.Tensor) -> None:
    network = learned(pictures)
    patch = pictures.unfold(2, PATCH, 1).unfold(3, PATCH, 1).permute(0, 2, 3, 1, 4, 5).reshape(-1, 3 * PATCH**2)
    patch = patch - patch.mean(dim=1, keepdim=True)
    patch = patch / (patch.square().mean(dim=1, keepdim=True).sqrt() + CONTRAST)
    white = patch @ network.whiten.flatten(1).T - network.centre
    covariance = torch.cov(white.T)
    before = torch.cov(patch.T)

    def off_diagonal(matrix: torch.Tensor) -> torch.Tensor:
        return (matrix - torch.diag(matrix.diagonal())).square().sum() / matrix.square().sum()

    assert off_diagonal(covariance) < 0.2 * off_diagonal(before)
    assert 0 < RIDGE < float(before.diagonal().min())


def test_a_picture_and_its_mirror_image_are_the_same(pictures: torch.Tensor) -> None:
    network = learned(pictures)
    torch.testing.assert_close(network(pictures).features, network(pictures.flip(-1)).features, atol=1e-4, rtol=1e-3)


def test_components_are_principal(pictures: torch.Tensor) -> None:
    """Centred, uncorrelated, in falling order; with fewer pictures than components the rest is zero."""
    features_ND = learned(pictures)(pictures).features
    assert features_ND.shape == (40, 512)
    assert float(features_ND.mean(dim=0).abs().max()) < 1e-3
    spread_D = features_ND.var(dim=0)
    assert bool((spread_D[:38].diff() <= 1e-4).all())
    assert float(features_ND[:, 40:].abs().max()) == 0.0
    covariance = torch.cov(features_ND[:, :10].T)
    assert float((covariance - torch.diag(covariance.diagonal())).abs().max()) < 1e-2 * float(covariance.max())


def test_the_same_seed_gives_the_same_patches(pictures: torch.Tensor) -> None:
    first, again, other = (learned(pictures, seed).patches for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_pictures_too_small_for_patches() -> None:
    with pytest.raises(InputError, match="8 x 8 pixels are too small"):
        learned(torch.randn(10, 3, 8, 8))
