"""`pals rounds`: the rounds of a run, and which of them it shows."""

from __future__ import annotations

from typing import Annotated

import typer

from pals.cli.base import app, say
from pals.cli.options import Run
from pals.util.words import how_many


@app.command()
def rounds(
    run: Run, use: Annotated[int | None, typer.Option(min=0, help="Make this round current again; 0 is the first fit.")] = None
) -> None:
    """List the rounds of a run: the first fit, and each update with what it changed.

    RUN shows the current round: its labels, report and classifier. Nothing is lost by choosing another.

    Example:  pals rounds runs/ponds

    Example:  pals rounds runs/ponds --use 1
    """
    from pals.runs.rounds import complete_rounds, current_round, round_folder, use_round

    if use is not None:
        use_round(run, use)
    current = current_round(run).number
    for one in complete_rounds(run):
        changed = f"; {how_many(one.changed, 'label')} changed: {round_folder(run, one.number) / 'changes.csv'}"
        what = f"{one.news}{changed}" if one.number else "first fit"
        say(f"{'*' if one.number == current else ' '} {one.number}: {what}")
