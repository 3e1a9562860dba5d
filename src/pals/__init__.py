"""PALS: learn a classifier from ambiguous, noisy labels."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("pals-learn")
except PackageNotFoundError:  # run from a source tree that was not installed
    __version__ = "0+source"
