"""The labelling step once more, slowly, item by item; and small random problems to try it on."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor


def slow_beliefs(features_ND: Tensor, allowed_NC: Tensor, options: dict[str, Any]) -> tuple[list[int], list[list[float]]]:
    items, classes = allowed_NC.shape
    unit = torch.nn.functional.normalize(features_ND.double(), dim=1)
    cosine = (unit @ unit.T).tolist()
    prior = options["prior_NC"].tolist() if "prior_NC" in options else [[1.0] * classes] * items
    near, weights = [], []
    for i in range(items):
        order = sorted((j for j in range(items) if j != i or options["include_self"]), key=lambda j: -cosine[i][j])
        near.append(order[: options["neighbors"] + options["include_self"]])
        if options["weighting"] == "exp":
            weights.append([math.exp(cosine[i][j] / options["temperature"]) for j in near[i]])
        else:
            weights.append([max(0.0, cosine[i][j]) for j in near[i]])
    votes = [[0.0] * classes for _ in range(items)]
    for i in range(items):
        for j, w in zip(near[i], weights[i], strict=True):
            for c in range(classes):
                votes[i][c] += w * float(allowed_NC[j, c]) * prior[j][c]
    pseudo = [row.index(max(row)) for row in votes]
    if options["vote_on"] == "pseudo":
        votes = [[0.0] * classes for _ in range(items)]
        for i in range(items):
            for j, w in zip(near[i], weights[i], strict=True):
                votes[i][pseudo[j]] += w
    return pseudo, [[v / sum(row) if sum(row) > 0 else 1 / classes for v in row] for row in votes]


def slow_selection(beliefs: list[list[float]], allowed_NC: Tensor, quantile: float) -> tuple[int, list[int]]:
    items, classes = allowed_NC.shape
    best = [row.index(max(row)) for row in beliefs]
    counts = sorted(sum(best[i] == c and bool(allowed_NC[i, c]) for i in range(items)) for c in range(classes))
    place = quantile * (classes - 1)
    low, high = counts[math.floor(place)], counts[math.ceil(place)]
    quota = low if quantile == 0.5 else int(low + (high - low) * (place - math.floor(place)))
    quota = max(quota, 1)
    takers: list[list[int]] = [[] for _ in range(items)]
    for c in range(classes):
        pool = [i for i in range(items) if allowed_NC[i, c]]
        for i in sorted(pool, key=lambda i: (-beliefs[i][c], i))[:quota]:
            takers[i].append(c)
    return quota, [max(found, key=lambda c: (beliefs[i][c], -c)) if found else -1 for i, found in enumerate(takers)]


def random_problem(seed: int, items: int, classes: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features, candidates with at least one per row, vote frequencies (some on other classes), predictions."""
    generator = torch.Generator().manual_seed(seed)
    truth_N = torch.randint(0, classes, (items,), generator=generator)
    center_CD = torch.randn(classes, 6, generator=generator)
    features_ND = center_CD[truth_N] + 0.7 * torch.randn(items, 6, generator=generator)
    allowed_NC = torch.rand(items, classes, generator=generator) < 0.3
    allowed_NC |= torch.nn.functional.one_hot(truth_N, classes).bool() & (torch.rand(items, 1, generator=generator) < 0.8)
    allowed_NC[:, 0] |= ~allowed_NC.any(dim=1)
    voted_NC = allowed_NC | (torch.rand(items, classes, generator=generator) < 0.2)
    prior_NC = voted_NC * torch.rand(items, classes, generator=generator)
    predicted_NC = (2 * torch.randn(items, classes, generator=generator)).softmax(dim=1)
    return features_ND, allowed_NC, prior_NC / prior_NC.sum(dim=1, keepdim=True), predicted_NC
