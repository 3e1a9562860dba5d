"""Features cut from the pictures themselves."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from _refused import refused
from pals.vision.networks import patch_features


def learned(x: torch.Tensor, seed: int = 0) -> patch_features.PatchNetwork:
    network = patch_features.PatchNetwork(x.shape[1], 3, filters=16).eval()
    patch_features.learn_patches(network, x, torch.Generator().manual_seed(seed), samples=2000)
    return network


@pytest.fixture(scope="module")
def pictures() -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return F.avg_pool2d(torch.randn(40, 3, 26, 26, generator=generator), 3, 1)  # neighbours are alike, as in photographs


def test_responses_against_a_loop_and_in_a_graph(pictures: torch.Tensor) -> None:
    """One picture, place by place: normalise, whiten, compare, both signs, rectify, average over the fields."""
    network = learned(pictures)
    x = pictures[3]
    places = 24 - patch_features.PATCH + 1
    whiten_DD = network.whiten.flatten(1)
    response = torch.empty(32, places, places)
    for row in range(places):
        for column in range(places):
            patch = x[:, row : row + patch_features.PATCH, column : column + patch_features.PATCH].flatten()
            normal = (patch - patch.mean()) / (patch.std(correction=0) + patch_features.CONTRAST)
            white = F.normalize(whiten_DD @ normal - network.centre, dim=0)
            alike = network.patches[:, :, 0, 0] @ white
            response[:, row, column] = torch.cat(
                [alike - patch_features.MIN_COSINE, -alike - patch_features.MIN_COSINE]
            ).clamp_min(0)
    expected = F.adaptive_avg_pool2d(response, patch_features.POOL_GRID).flatten()
    torch.testing.assert_close(network._responses(x[None])[0], expected, atol=1e-4, rtol=1e-4)
    network = learned(pictures)
    graph = torch.export.export(network, (pictures[:2],), dynamic_shapes=({0: torch.export.Dim("N")},)).module()
    for count in (1, 5, 40):
        torch.testing.assert_close(graph(pictures[:count]).features, network(pictures[:count]).features)


def test_how_many_at_a_time_changes_nothing(pictures: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    network = learned(pictures)
    together = network.responses(pictures)
    monkeypatch.setattr("pals.vision.networks.patch_features.RESPONSE_BYTES", 1)
    torch.testing.assert_close(network.responses(pictures), together, atol=1e-7, rtol=0)
    whole = patch_features.Responses(network)(pictures).features  # the features are components of all responses
    assert whole.shape == (len(pictures), 2 * 16 * patch_features.POOL_GRID**2)
    torch.testing.assert_close(network.reduced(whole), network(pictures).features)


def test_whitened_patches_have_no_correlation_left(pictures: torch.Tensor) -> None:
    network = learned(pictures)
    patch = (
        pictures.unfold(2, patch_features.PATCH, 1)
        .unfold(3, patch_features.PATCH, 1)
        .permute(0, 2, 3, 1, 4, 5)
        .reshape(-1, 3 * patch_features.PATCH**2)
    )
    patch = patch - patch.mean(dim=1, keepdim=True)
    patch = patch / (patch.square().mean(dim=1, keepdim=True).sqrt() + patch_features.CONTRAST)
    white = patch @ network.whiten.flatten(1).T - network.centre
    covariance = torch.cov(white.T)
    before = torch.cov(patch.T)

    def off_diagonal(matrix: torch.Tensor) -> torch.Tensor:
        return (matrix - torch.diag(matrix.diagonal())).square().sum() / matrix.square().sum()

    assert off_diagonal(covariance) < 0.2 * off_diagonal(before) and 0 < patch_features.RIDGE < float(before.diagonal().min())


def test_components_mirror_images_and_seeds(pictures: torch.Tensor) -> None:
    """Centred, uncorrelated, in falling order; with fewer pictures than components the rest is zero."""
    features_ND = learned(pictures)(pictures).features
    assert features_ND.shape == (40, 512) and float(features_ND.mean(dim=0).abs().max()) < 1e-3
    spread_D = features_ND.var(dim=0)
    assert bool((spread_D[:38].diff() <= 1e-4).all()) and float(features_ND[:, 40:].abs().max()) == 0.0
    covariance = torch.cov(features_ND[:, :10].T)
    assert float((covariance - torch.diag(covariance.diagonal())).abs().max()) < 1e-2 * float(covariance.max())
    network = learned(pictures)
    torch.testing.assert_close(network(pictures).features, network(pictures.flip(-1)).features, atol=1e-4, rtol=1e-3)
    first, again, other = (learned(pictures, seed).patches for seed in (1, 1, 2))
    assert torch.equal(first, again) and not torch.equal(first, other)
    refused("8 x 8 pixels are too small", learned, torch.randn(10, 3, 8, 8))
