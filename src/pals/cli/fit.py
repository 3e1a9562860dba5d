"""Commands from images and answers to a classifier: `fit`, `update`, `predict`, `report`."""

from __future__ import annotations

import os
import re
import time
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pals.cli.base import Device, Plugin, Set, app, check_files, console, say, stopping_after_epoch
from pals.cli.expand_options import expand_options
from pals.cli.options import FitOptions, Run, Sure, UpdateOptions, run_settings
from pals.pipeline.progress import AfterEpoch, Count, Monitor, selected_words
from pals.util.display import Reporter, showing_count
from pals.util.errors import InputError
from pals.util.files import PATTERN, refuse_unwritable
from pals.util.words import how_many

if TYPE_CHECKING:
    from pals.pipeline import Findings
    from pals.runs.run import Run as TrainingRun

RUNS = Path("runs")
"""Folder of all runs that are given none."""
OPENMP_SPINS = "1000"
"""How often a thread of torch looks for work before it sleeps; by default small tensors take twice the processor time."""
EXAMPLE_RUN = RUNS / "example"
"""Default folder of the results of `pals fit --example`."""


@app.command()
@expand_options
def fit(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="IMAGES ANSWERS",
            help="Required: the folder of images or shards, then one or more files of answers. With --no-images or --features: "
            "files of answers only.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Output folder (default: runs/NAME, of the folder of images or else of the answers). Run the same command "
            "again to resume."
        ),
    ] = None,
    example: Annotated[bool, typer.Option("--example", help="Try it on bundled photographs with real answers.")] = False,
    *,
    options: FitOptions,
    set_: Set = None,
    plugin: Plugin = None,
) -> None:
    """Turn images and several annotators' answers into cleaned labels, a classifier and a report.

    Images and a file of answers are all you need. Other settings are chosen for you and shown.

    Example:  pals fit photos/ answers.csv

    Example:  pals fit photos/ answers.csv --out runs/ponds --trust ana

    Example:  pals fit --example
    """
    from pals.util.config import merge, override

    started = _start()
    if example:
        from pals.data.example import EXAMPLE_ENCODER
        from pals.data.example import example as example_

        if paths or options.features or options.no_images or options.truth:
            raise InputError("--example brings its own images, answers and truth: do not name others.")
        *paths, truth = example_()
        options = replace(options, truth=truth, encoder=options.encoder or EXAMPLE_ENCODER)
        out = out or EXAMPLE_RUN
    images, votes = _sources(paths or [], options)
    out = out or _default_folder(images or votes[0])
    settings = merge(run_settings(options), override({}, set_ or []))
    files = {name: getattr(options, name) for name in ("features", "names", "truth", "taxonomy")}
    check_files(votes, images=images, **files)
    refuse_unwritable(out)
    from pals.pipeline import fit as fit_  # loads torch, after the checks of the command

    findings = fit_(
        images,
        votes,
        out=out,
        **files,
        encoder=options.encoder,
        method=options.method,
        no_images=options.no_images,
        settings=settings,
        progress=Terminal(),
    )
    _show(findings, started)


@app.command()
@expand_options
def update(
    run: Run,
    votes: Annotated[list[Path] | None, typer.Argument(metavar="ANSWERS", help="Files with new answers.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for a separate run (default: the next round of RUN).")] = None,
    *,
    options: UpdateOptions,
    plugin: Plugin = None,
) -> None:
    """Update a finished run with new answers or a new class.

    The result is the next round: RUN shows it, and `pals rounds RUN` the rounds before. The answers given in `pals review` are
    always used; without files, they alone.

    Example:  pals update runs/ponds second_round.csv

    Example:  pals update runs/ponds --add-class otter --items runs/ponds/none_of_these/group-1.txt
    """
    started = _start()
    files = {"taxonomy": options.taxonomy, "truth": options.truth}
    check_files(votes or [], run=run, items=options.items, **files)
    from pals.pipeline import update as update_

    findings = update_(
        run,
        votes or (),
        out=out,
        **files,
        add_class=options.add_class,
        items=options.items,
        settings=run_settings(options),
        progress=Terminal(),
    )
    _show(findings, started)


def _start() -> float:
    """The time. Threads of torch, which is loaded later, sleep soon: without training they have little to do."""
    os.environ.setdefault("GOMP_SPINCOUNT", OPENMP_SPINS)
    return time.perf_counter()


class Terminal(Monitor):
    """Lines and bars on the console. Ctrl-C ends training after the epoch under way, which is saved."""

    def __init__(self) -> None:
        self.reporter = Reporter(console)

    def say(self, line: str) -> None:
        say(line)

    def counting(self, what: str) -> AbstractContextManager[Count]:
        return showing_count(console, what)

    def training(self) -> AbstractContextManager[object]:
        return self.reporter.showing()

    def follow(self, title: str, run: TrainingRun, after_epoch: AfterEpoch) -> None:
        with stopping_after_epoch(self.reporter) as stop_requested:
            shown = self.reporter.begin(title, run.config.train.epochs, run.resumed_at, selected_words)
            for record in run.epochs(None, stop_requested):
                shown.record(record)
                after_epoch(record)


def _show(findings: Findings, started: float) -> None:
    from pals.pipeline.short_summary import short_summary

    for line in short_summary(findings, time.perf_counter() - started):
        say(line)


@app.command()
def predict(
    run: Run,
    items: Annotated[
        list[str],
        typer.Argument(
            metavar="ITEMS...",
            help="A folder of images, one image, vectors (.npy), or shards: WebDataset .tar files, .parquet files with "
            "images, a folder of these, one that Hugging Face datasets saved, or a pattern ('shards-{000..009}.tar').",
        ),
    ],
    out: Annotated[Path, typer.Option(help="Table to write (.csv, .parquet). Run the same command again to resume.")],
    top: Annotated[int, typer.Option(min=1, help="Number of most likely classes to report.")] = 3,
    threshold: Annotated[float | None, typer.Option(help="Abstain below this confidence.")] = None,
    sure: Sure = None,
    shard: Annotated[
        str | None, typer.Option(help="i/n: process only part i of n (from 1), to split the work over machines.")
    ] = None,
    device: Device = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Skip images and shards that cannot be read.")] = False,
    plugin: Plugin = None,
) -> None:
    """Classify new images with a run's classifier. Handles any number; rows are written as they are ready.

    Example:  pals predict runs/ponds new_photos/ --out predictions.csv --threshold 0.6

    Example:  pals predict runs/ponds 'shards-{000..009}.tar' --out labels.parquet --skip-bad

    Example:  pals predict runs/ponds shards/ --shard 2/8 --out labels-2.parquet
    """
    from pals.model import predict_to_file

    with showing_count(console, "items", rate=True) as progress:
        written = predict_to_file(
            run,
            items,
            out,
            top=top,
            threshold=threshold,
            sure=sure,
            device=device or "auto",
            skip_bad=skip_bad,
            shard=_shard(shard),
            progress=progress,
        )
    tally = written.counts
    for name, reason in tally.first_bad:
        say(f"Left out: {name}: {reason}")
    without = f"; {tally.abstained:,} without a label" if threshold is not None else ""
    bad = f"; {tally.bad:,} left out, listed in {written.bad_file}" if tally.bad else ""
    before = f"; {written.resumed:,} were done before" if written.resumed else ""
    say(f"{how_many(tally.items, 'prediction')} in {out}{without}{bad}{before}")


def _shard(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    found = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text.strip())
    number, of = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1 <= number <= of:
        raise InputError(f"--shard {text}: give i/n with i from 1 to n, such as 2/8.")
    return number, of


@app.command()
def report(run: Run) -> None:
    """Rebuild the report of a finished run.

    Example:  pals report runs/ponds
    """
    from pals.report.render import write_report

    say(str(write_report(run)))


def _default_folder(source: Path) -> Path:
    """`runs/NAME` for a folder NAME, a file NAME.csv, or a pattern of files in a folder NAME."""
    place = source.resolve()
    name = place.parent.name if PATTERN.search(place.name) else place.name if source.is_dir() else place.stem
    return RUNS / name


def _sources(paths: list[Path], options: FitOptions) -> tuple[Path | None, list[Path]]:
    """The folder of images, if there is one, and the files of answers."""
    if paths and (options.features is not None or options.no_images):
        return None, paths
    if len(paths) < 2:
        named = f"Only {paths[0]} is named" if paths else "No file is named"
        raise InputError(
            f"{named}. Give the folder of images, then the file with the answers; --no-images if there are no images; "
            f"--example for the bundled images and answers."
        )
    return paths[0], paths[1:]
