"""The command line: parse, call, print."""

from __future__ import annotations

from pals.cli import about, crowd, research
from pals.cli.base import app, main

__all__ = ["about", "app", "crowd", "main", "research"]
