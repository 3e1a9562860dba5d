"""Fits whose uncertainty is quick. How good it is, tests/crowd asks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pals.crowd import uncertainty
from pals.crowd.dawid_skene import correlation


@pytest.fixture(autouse=True, scope="module")
def few_replicates() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uncertainty, "MAX_REPLICATES", 3)
        patch.setattr(correlation, "DRAWS", 1)
        patch.setattr(correlation, "GRID", (0.0, 0.4))
        yield
