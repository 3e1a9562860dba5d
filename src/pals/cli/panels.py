"""`pals --help`: which commands belong together, and in which order they are shown."""

from __future__ import annotations

import typer

PANELS = {
    "Clean labels and a classifier": ("fit", "review", "update", "predict", "export"),
    "More about your images": ("relabel", "rounds", "report"),
    "Research": ("train", "evaluate", "bench", "table", "figure", "recipes", "methods"),
    "Set-up": ("demo", "doctor", "encoders", "data"),
}
"""Commands by panel, in the order of `pals --help`: the first five are all that a practitioner needs."""
PLACES = {name: (place, panel) for place, (name, panel) in enumerate((n, p) for p, names in PANELS.items() for n in names)}


def arrange(app: typer.Typer) -> None:
    """Sort the registered commands into their panels. A command without a place comes last, outside the panels."""
    for found in (app.registered_commands, app.registered_groups):
        for info in found:
            if _name(info) in PLACES:
                info.rich_help_panel = PLACES[_name(info)][1]
        found.sort(key=lambda info: PLACES.get(_name(info), (len(PLACES), ""))[0])


def _name(info: typer.models.CommandInfo | typer.models.TyperInfo) -> str:
    callback = getattr(info.callback, "__name__", "")
    return info.name if isinstance(info.name, str) else callback
