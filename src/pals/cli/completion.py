"""Values that the shell completes after an option. Names are loaded when Tab is pressed, so that commands start quickly."""

from __future__ import annotations

from collections.abc import Iterable

import typer


def methods(incomplete: str) -> list[str]:
    from pals.methods import METHODS

    return _beginning(METHODS, incomplete)


def fit_methods(incomplete: str) -> list[str]:
    return _beginning(("closed-form", *methods("")), incomplete)


def presets(ctx: typer.Context, incomplete: str) -> list[str]:
    """The presets of the method on the command line, by default of PALS."""
    from pals.methods import METHODS

    method = ctx.params.get("method") or "pals"
    return _beginning(METHODS[method].PRESETS if method in METHODS else (), incomplete)


def encoders(incomplete: str) -> list[str]:
    from pals.vision.pretrained import ENCODERS

    return _beginning(ENCODERS, incomplete)


def fit_encoders(incomplete: str) -> list[str]:
    return _beginning(("auto", *encoders("")), incomplete)


def data_sets(incomplete: str) -> list[str]:
    from pals.data import DATASETS

    return _beginning(DATASETS, incomplete)


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
