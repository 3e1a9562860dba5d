"""Fits whose estimate of wrong labels is quick. How good it is, `tests/crowd/test_error_estimate.py` asks."""

from __future__ import annotations

from _replicates import few_replicates as few_replicates
