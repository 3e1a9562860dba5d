"""Of many cases of one kind that take seconds each, the first few are enough for a quick run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def rest_slow(quick: int, cases: Iterable[Any]) -> list[Any]:
    """These cases, all but the first `quick` of them marked slow."""
    many = list(cases)
    late = (case if isinstance(case, tuple) else (case,) for case in many[quick:])
    return many[:quick] + [pytest.param(*case, marks=pytest.mark.slow) for case in late]
