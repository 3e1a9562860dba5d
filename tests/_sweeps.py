"""Fits whose estimate of wrong labels is quick. How good it is, `tests/crowd/test_error_estimate.py` asks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def few_sweeps() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pals.crowd.error_estimate.SWEEPS", 20)
        patch.setattr("pals.crowd.error_estimate.COMPARED", 10)
        patch.setattr("pals.crowd.gibbs.BURN_IN", 5)
        yield
