"""Commands about further answers: which items to ask about next, and what a rule for that would have saved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pals.cli.base import app, say
from pals.cli.fit import Terminal
from pals.cli.options import Cache, Run, TruthFile
from pals.util.errors import InputError
from pals.util.words import how_many

if TYPE_CHECKING:
    import pandas as pd

    from pals.relabel.decide import NextAnswers

Worth = Annotated[
    float, typer.Option(help="Expected gain in correct labels that justifies an answer of cost 1; below it, stop asking.")
]


@app.command()
def relabel(
    run: Run,
    out: Annotated[Path, typer.Option(help="File to write: .csv, or .json for Label Studio.")],
    top: Annotated[
        int, typer.Option(min=1, help="Number of items to list; with --budget, all that it pays for besides.")
    ] = 200,
    to: Annotated[str, typer.Option(help="Output format: csv or label-studio.")] = "csv",
    prefix: Annotated[
        str | None,
        typer.Option(help="Label Studio: URL prefix for picture paths (default: its local file storage)."),
    ] = None,
    document_root: Annotated[
        Path | None,
        typer.Option(help="Label Studio: root of its local file storage (default: the parent of the picture folder)."),
    ] = None,
    annotators: Annotated[
        str | None, typer.Option(help="People you can ask, separated by commas (default: people like those who answered).")
    ] = None,
    cost: Annotated[
        list[str] | None,
        typer.Option("--cost", help="Cost of a person's answer, e.g. expert=5; any other answer costs 1. Repeatable."),
    ] = None,
    expert_right: Annotated[float, typer.Option(help="Share of an expert's answers that are correct.")] = 0.98,
    budget: Annotated[
        float | None, typer.Option(help="Budget to spend: choose the most useful answers and forecast their effect.")
    ] = None,
    worth: Worth = 0.01,
) -> None:
    """List the items that most need another answer, each with a suggested label.

    Also writes NAME-next.csv, which says for every item whether it has enough answers, needs one more, or needs an expert, and
    NAME-forecast.csv, which predicts how many labels further answers would correct.

    Fill in the columns label and annotator, then run: pals update RUN queue.csv

    Example:  pals relabel runs/ponds --top 200 --out queue.csv

    Example:  pals relabel runs/ponds --out queue.csv --budget 400 --cost expert=5 --annotators ana,ben

    Example:  pals relabel runs/ponds --to label-studio --out tasks.json  (then: pals update runs/ponds export.json)
    """
    from pals.pipeline.finished_run import separator_of
    from pals.relabel.decide import FILE_NAME, next_answers
    from pals.relabel.relabel_queue import relabel_queue, to_fill_in
    from pals.util.files import write_text

    if to not in ("csv", "label-studio"):
        raise InputError(f"--to {to!r}: choose csv or label-studio.")
    if to == "label-studio" and out.suffix.lower() != ".json":
        raise InputError(f"--out {out}: Label Studio imports tasks from a .json file; choose a name that ends in .json.")
    people = () if annotators is None else tuple(name.strip() for name in annotators.split(",") if name.strip())
    if annotators is not None and not people:
        raise InputError("--annotators names nobody. Give names as in the answers, separated by commas.")
    asked = annotators is not None or bool(cost) or budget is not None
    found, paid = None, list[str]()
    if asked or (run / FILE_NAME).is_file():
        found = next_answers(
            run, annotators=people, costs=_costs(cost or []), budget=budget, expert_right=expert_right, worth=worth
        )
        if budget is not None:
            paid = found.table.loc[found.table["asked"], "item"].tolist()
    queue = relabel_queue(run, top, paid)
    if found is not None:
        shown = [name for name in ("item", "decision", "gain", "asked") if name in found.table]
        queue = queue.merge(found.table[shown], on="item", how="left")
    if to == "csv":
        text = to_fill_in(queue, separator_of(run)).to_csv(index=False)
        # Without the mark Excel takes UTF-8 for its own encoding, and what it saves then names other pictures.
        write_text(out, text if text.isascii() else f"\ufeff{text}")
    else:
        _write_project(run, queue, out, prefix, document_root)
    say(f"{how_many(len(queue), 'item')} to look at in {out}")
    if found is None:
        say(f"{run} does not say which items have enough answers: an earlier version made it. Run `pals fit` again.")
    else:
        _tell_next(found, out)


@app.command()
def replay(
    run: Run,
    truth: TruthFile = None,
    out: Annotated[
        Path | None, typer.Option(help="Table to write (.csv); the plot is saved next to it as .png (default: in RUN).")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of random answer orders to average over.")] = 1,
    step: Annotated[float, typer.Option(help="Answers per item between two estimates.")] = 0.1,
    worth: Worth = 0.01,
    answers_only: Annotated[bool, typer.Option("--answers-only", help="Ignore the pictures.")] = False,
    cache: Cache = None,
) -> None:
    """Replay a finished run: how many answers would the stopping rule of `pals relabel` have saved?

    Answers arrive in random order: first one per item, then wherever the rule asks next.

    Example:  pals replay runs/ponds --truth truth.csv

    Example:  pals replay runs/ponds --seeds 3 --answers-only --out replay.csv
    """
    from pals.pipeline.tables.result_tables import csv_text
    from pals.relabel.replay import replay as replay_
    from pals.util.files import refuse_unwritable, write_text

    out = out or run / "replay.csv"
    if out.suffix.lower() != ".csv":
        raise InputError(f"--out {out}: the table is a CSV file; choose a name that ends in .csv.")
    refuse_unwritable(out.parent)
    found = replay_(
        run,
        truth=truth,
        seeds=seeds,
        step=step,
        worth=worth,
        answers_only=answers_only,
        cache=cache,
        monitor=Terminal(),
    )
    write_text(out, csv_text(found.table))
    write_text(out.with_name(f"{out.stem}-saved.csv"), csv_text(found.saved))
    found.draw(out.with_suffix(".png"))
    for line in found.sentences:
        say(line)
    say(f"The curves are in {out} and {out.with_suffix('.png').name}, the savings in {out.stem}-saved.csv")


def _write_project(run: Path, queue: pd.DataFrame, out: Path, prefix: str | None, document_root: Path | None) -> None:
    """The tasks, and beside them the labelling settings."""
    from pals.relabel.label_studio_tasks import label_studio_project
    from pals.util.files import write_text

    project = label_studio_project(run, queue, prefix=prefix, document_root=document_root)
    config = out.with_name(f"{out.stem}-config.xml")
    write_text(out, json.dumps(project.tasks, ensure_ascii=False, indent=1))
    write_text(config, project.config)
    say(f"Labelling settings (Settings, Labeling Interface, Code): {config.name}")
    for line in project.sentences:
        say(line)


def _tell_next(found: NextAnswers, out: Path) -> None:
    """Beside the queue: the decision for every item, and the forecast."""
    from pals.pipeline.tables.result_tables import csv_text
    from pals.util.files import write_text

    for line in found.sentences:
        say(line)
    for name, table in (("next", found.table), ("forecast", found.forecast)):
        write_text(out.with_name(f"{out.stem}-{name}.csv"), csv_text(table))
    say(f"All items: {out.stem}-next.csv; the forecast, step by step: {out.stem}-forecast.csv")


def _costs(given: list[str]) -> dict[str, float]:
    costs: dict[str, float] = {}
    for text in given:
        name, equals, number = text.rpartition("=")
        try:
            costs[name.strip()] = float(number)
        except ValueError:
            equals = ""
        if not equals or not name.strip():
            raise InputError(f"--cost {text!r}: write NAME=COST, such as expert=5.")
    return costs
