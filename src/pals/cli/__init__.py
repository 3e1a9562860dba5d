"""The command line: parse, call, print."""

from __future__ import annotations

from pals.cli import about, bench, crowd, recipes, research, tables
from pals.cli.base import app, main

__all__ = ["about", "app", "bench", "crowd", "main", "recipes", "research", "tables"]
