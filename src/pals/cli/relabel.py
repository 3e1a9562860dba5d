"""`pals relabel`: choose the items that need another answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pals.cli.base import app, say
from pals.cli.options import Run
from pals.util.errors import InputError
from pals.util.words import how_many

if TYPE_CHECKING:
    import pandas as pd


@app.command()
def relabel(
    run: Run,
    out: Annotated[Path, typer.Option(help="File to write: .csv, or .json for Label Studio.")],
    top: Annotated[
        int, typer.Option(min=1, help="Number of items to list; with --budget, also every item that it pays for.")
    ] = 200,
    to: Annotated[str, typer.Option(help="Output format: csv or label-studio.")] = "csv",
    prefix: Annotated[
        str | None, typer.Option(help="Label Studio: URL prefix for image paths (default: its local file storage).")
    ] = None,
    document_root: Annotated[
        Path | None,
        typer.Option(help="Label Studio: root of its local file storage (default: the parent of the image folder)."),
    ] = None,
    budget: Annotated[
        float | None, typer.Option(help="Budget to spend: choose the most useful answers and forecast their effect.")
    ] = None,
    expert_cost: Annotated[float, typer.Option(help="Cost of an expert's answer; any other answer costs 1.")] = 5.0,
    audit: Annotated[
        float, typer.Option(help="Share of the items that is drawn at random, to measure how many labels are wrong.")
    ] = 0.25,
    worth: Annotated[
        float, typer.Option(help="Expected gain in right labels that justifies an answer of cost 1; below it, stop asking.")
    ] = 0.01,
) -> None:
    """List the items that most need another answer, each with a suggested label.

    Also writes NAME-next.csv: whether an item has enough answers, needs one more, or needs an expert.

    Fill in the columns label and annotator, then run: pals update RUN queue.csv

    Example:  pals relabel runs/ponds --top 200 --out queue.csv

    Example:  pals relabel runs/ponds --out queue.csv --budget 400 --expert-cost 5

    Example:  pals relabel runs/ponds --to label-studio --out tasks.json  (then: pals update runs/ponds export.json)
    """
    from pals.pipeline.finished_run import separator_of
    from pals.relabel.ask_next import next_answers
    from pals.relabel.relabel_queue import relabel_queue, to_fill_in
    from pals.util.csv_text import csv_text
    from pals.util.files import write_text

    if to not in ("csv", "label-studio"):
        raise InputError(f"--to {to!r}: choose csv or label-studio.")
    if to == "label-studio" and out.suffix.lower() != ".json":
        raise InputError(f"--out {out}: Label Studio imports tasks from a .json file; choose a name that ends in .json.")
    found = next_answers(run, budget=budget, expert_cost=expert_cost, worth=worth)
    paid = [] if budget is None else found.table.loc[found.table["asked"], "item"].tolist()
    shown = [name for name in ("item", "decision", "gain", "asked") if name in found.table]
    queue = relabel_queue(run, top, paid, audit).merge(found.table[shown], on="item", how="left")
    if to == "csv":
        text = to_fill_in(queue, separator_of(run)).to_csv(index=False)
        # Without the byte order mark Excel reads UTF-8 in another encoding and saves other names of images.
        write_text(out, text if text.isascii() else f"\ufeff{text}")
    else:
        _write_project(run, queue, out, prefix, document_root)
    write_text(out.with_name(f"{out.stem}-next.csv"), csv_text(found.table))
    for line in found.sentences:
        say(line)
    say(f"{how_many(len(queue), 'item')} in {out}; all items: {out.stem}-next.csv")
    filled = out if to == "csv" else "EXPORT.json"
    say(f"Next: fill in {'label and annotator' if to == 'csv' else 'the answers'}, then: pals update {run} {filled}")


def _write_project(run: Path, queue: pd.DataFrame, out: Path, prefix: str | None, document_root: Path | None) -> None:
    """Write the tasks of Label Studio, and beside them its labelling settings."""
    from pals.relabel.label_studio_tasks import label_studio_project
    from pals.util.files import write_text

    project = label_studio_project(run, queue, prefix=prefix, document_root=document_root)
    config = out.with_name(f"{out.stem}-config.xml")
    write_text(out, json.dumps(project.tasks, ensure_ascii=False, indent=1))
    write_text(config, project.config)
    say(f"Labelling settings (Settings, Labeling Interface, Code): {config.name}")
    for line in project.sentences:
        say(line)
