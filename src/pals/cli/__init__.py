"""The command line: parses options, calls the other packages, prints.

One function per command, which imports what it needs when it is called, so that `pals --help` is quick. No logic: what a
command computes can be had from Python without it.
"""

from __future__ import annotations

from pals.cli import bench, doctor, encoders, export, fit, recipes, relabel, review, run_rounds, table, train
from pals.cli.base import app, main
from pals.cli.panels import arrange

__all__ = [
    "app",
    "bench",
    "doctor",
    "encoders",
    "export",
    "fit",
    "main",
    "recipes",
    "relabel",
    "review",
    "run_rounds",
    "table",
    "train",
]

arrange(app)
