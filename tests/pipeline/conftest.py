"""Fits whose estimate of wrong labels is quick. How good it is, `tests/crowd/test_error_estimate.py` asks."""

from __future__ import annotations

from _sweeps import few_sweeps as few_sweeps
