"""Items that look alike, in groups: proposals for new classes."""

from __future__ import annotations

import numpy as np

CLUSTER_AXES = 10
"""Principal axes along which items are compared: distances along many are all alike."""
MAX_CLUSTERS = 8
"""Groups, at most."""
MIN_SILHOUETTE = 0.2
"""Mean silhouette that a division must have. The images of one class stay below it, those of several do not."""
MAX_SILHOUETTE_ITEMS = 2000
"""Items by which divisions are judged, at most."""


def group_alike(features_MD: np.ndarray, seed: int = 0) -> list[np.ndarray]:
    """The rows of each group, the largest group first: k-means with as many groups as have the largest silhouette, or one."""
    from sklearn.cluster import KMeans
    from sklearn.metrics import silhouette_score

    rows = len(features_MD)
    centred_MD = features_MD - features_MD.mean(axis=0, keepdims=True)
    left_MR, length_R, _ = np.linalg.svd(centred_MD, full_matrices=False)
    place_MA = (left_MR * length_R)[:, :CLUSTER_AXES]
    best_M, best = np.zeros(rows, dtype=np.int64), MIN_SILHOUETTE
    different = len(np.unique(place_MA.round(9), axis=0))
    for groups in range(2, min(MAX_CLUSTERS, rows - 1, different) + 1):
        group_M = KMeans(groups, n_init=4, random_state=seed).fit_predict(place_MA)
        worth = silhouette_score(place_MA, group_M, sample_size=min(MAX_SILHOUETTE_ITEMS, rows), random_state=seed)
        if worth > best:
            best_M, best = group_M, float(worth)
    found = [np.flatnonzero(best_M == group) for group in np.unique(best_M)]
    return sorted(found, key=len, reverse=True)
