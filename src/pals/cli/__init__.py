"""The command line: parse, call, print."""

from __future__ import annotations

from pals.cli import about, research
from pals.cli.base import app, main

__all__ = ["about", "app", "main", "research"]
