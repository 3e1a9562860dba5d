"""Commands for people with pictures and answers: a classifier, cleaned labels, doubtful answers, a report."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pals.cli import completion
from pals.cli.base import Device, Plugin, Set, app, check_files, console, say, stopping_after_epoch
from pals.cli.options import (
    AllProbabilities,
    AnnotatorColumn,
    Cache,
    Encoding,
    Format,
    ItemColumn,
    LabelColumn,
    Run,
    SkipBad,
    Stream,
    Sure,
    TaxonomyFile,
    Trust,
    TruthFile,
)
from pals.pipeline.progress import AfterEpoch, Count, Monitor, selected_words
from pals.util.display import Reporter, showing_count
from pals.util.errors import InputError
from pals.util.files import refuse_unwritable
from pals.util.words import duration, how_many

if TYPE_CHECKING:
    from pals.pipeline import Findings
    from pals.runs.run import Run as TrainingRun

EXAMPLE = Path("runs/example")
"""Where the results of the example go if nobody says otherwise."""


@app.command()
def fit(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="IMAGES VOTES...",
            help="Folder of pictures or shards, then one or more answer files. With --no-images: answer files only.",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Output folder. Run the same command again to resume.")] = None,
    example: Annotated[
        bool, typer.Option("--example", help="Try it on the sixty bundled pictures with simulated answers.")
    ] = False,
    format_: Format = None,
    item_column: ItemColumn = None,
    annotator_column: AnnotatorColumn = None,
    label_column: LabelColumn = None,
    classes: Annotated[
        str | None, typer.Option(help="All classes, separated by commas, including any that nobody chose.")
    ] = None,
    features: Annotated[Path | None, typer.Option(help="Feature vectors (.npy) instead of pictures.")] = None,
    names: Annotated[Path | None, typer.Option(help="With --features: text file that names the item of each row.")] = None,
    encoder: Annotated[
        str | None,
        typer.Option(
            help="Image encoder: auto, a name from `pals encoders`, timm:NAME, or a weights file.",
            autocompletion=completion.fit_encoders,
        ),
    ] = None,
    network: Annotated[
        str | None, typer.Option(help="Network to train, by name or timm:NAME (default: chosen by data and device).")
    ] = None,
    weights: Annotated[Path | None, typer.Option(help="Pretrained weights to start from (.pt, .pth, .safetensors).")] = None,
    frozen: Annotated[
        bool | None, typer.Option("--frozen/--no-frozen", help="Keep --weights frozen and learn from their features.")
    ] = None,
    size: Annotated[int | None, typer.Option(help="Resize pictures to this many pixels per side.")] = None,
    mirror: Annotated[
        bool | None,
        typer.Option(
            "--mirror/--no-mirror", help="Whether mirrored pictures keep their class; turn off for letters and digits."
        ),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(help="closed-form, or a method from `pals methods` to train.", autocompletion=completion.fit_methods),
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Training epochs.")] = None,
    folds: Annotated[
        int | None, typer.Option(help="Cross-fitting folds; 0 turns it off, which is faster but less reliable.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed.")] = None,
    device: Device = None,
    skip_bad: SkipBad = False,
    cache: Cache = None,
    stream: Stream = None,
    truth: TruthFile = None,
    no_images: Annotated[
        bool, typer.Option("--no-images", help="Work without pictures: labels from the answers alone, no classifier.")
    ] = False,
    all_probabilities: AllProbabilities = False,
    encoding: Encoding = None,
    trust: Trust = None,
    taxonomy: TaxonomyFile = None,
    sure: Sure = None,
    set_: Set = None,
    plugin: Plugin = None,
) -> None:
    """Turn pictures and several people's answers into cleaned labels, a classifier and a report.

    Pictures and a file of answers are all you need. Other settings are chosen for you and shown.

    Example:  pals fit photos/ answers.csv --out runs/ponds

    Example:  pals fit --example
    """
    from pals.util.config import merge, override

    started = time.perf_counter()
    if example:
        from pals.data.example import example as example_

        if paths or features or no_images or truth:
            raise InputError("--example brings its own pictures, answers and truth: do not name others.")
        images_of_it, answers_of_it, truth = example_()
        paths, out, mirror = [images_of_it, answers_of_it], out or EXAMPLE, False if mirror is None else mirror
    images, votes = _sources(paths or [], features, no_images)
    if out is None:
        raise InputError("Name a folder for the results, e.g. --out runs/ponds.")
    settings = override({}, set_ or [])
    check_files(votes, images=images, features=features, names=names, truth=truth, taxonomy=taxonomy)
    refuse_unwritable(out)
    from pals.pipeline import fit as fit_  # loads torch: slips in the command are told before

    flags = {
        "data": {
            **_data_settings(item_column, annotator_column, label_column, classes, encoding, trust, sure, skip_bad),
            **_given_only({"format": format_, "size": size, "mirror": mirror, "folds": folds}),
        },
        "network": _given_only({"name": network, "weights": None if weights is None else str(weights), "frozen": frozen}),
        "train": _given_only({"epochs": epochs}),
        "engine": _given_only({"device": device}),
        "files": {"cache": cache, "stream": stream, "all_probabilities": all_probabilities},
        **_given_only({"seed": seed}),
    }
    findings = fit_(
        images,
        votes,
        out=out,
        features=features,
        names=names,
        taxonomy=taxonomy,
        truth=truth,
        encoder=encoder,
        method=method,
        no_images=no_images,
        settings=merge(flags, settings),
        progress=Terminal(),
    )
    _tell(findings, started)


@app.command()
def update(
    run: Run,
    votes: Annotated[list[Path] | None, typer.Argument(help="Files with new answers.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the new run (default: RUN-updated).")] = None,
    item_column: ItemColumn = None,
    annotator_column: AnnotatorColumn = None,
    label_column: LabelColumn = None,
    epochs: Annotated[
        int | None, typer.Option(help="Additional training epochs (default: a third of the first run's).")
    ] = None,
    classes: Annotated[str | None, typer.Option(help="All classes, separated by commas (default: those of the run).")] = None,
    device: Device = None,
    skip_bad: SkipBad = False,
    cache: Cache = None,
    stream: Stream = None,
    truth: TruthFile = None,
    all_probabilities: AllProbabilities = False,
    encoding: Encoding = None,
    trust: Trust = None,
    taxonomy: TaxonomyFile = None,
    sure: Sure = None,
    add_class: Annotated[str | None, typer.Option("--add-class", help="Add a class; requires --items.")] = None,
    items: Annotated[Path | None, typer.Option(help="With --add-class: text file with its items, one per line.")] = None,
    plugin: Plugin = None,
) -> None:
    """Update a finished run with new answers or a new class. The old run is left untouched.

    The answers given in `pals review` are always taken in; without files, they alone. Run the same command again to resume.

    Example:  pals update runs/ponds second_round.csv --out runs/ponds-2

    Example:  pals update runs/ponds --add-class otter --items runs/ponds/none_of_these/group-1.txt
    """
    started = time.perf_counter()
    check_files(votes or [], run=run, items=items, truth=truth, taxonomy=taxonomy)
    from pals.pipeline import update as update_
    from pals.review.rounds import has_answers

    options: dict[str, Any] = {
        "taxonomy": taxonomy,
        "truth": truth,
        "settings": {
            "data": _data_settings(item_column, annotator_column, label_column, classes, encoding, trust, sure, skip_bad),
            "train": _given_only({"epochs": epochs}),
            "engine": _given_only({"device": device}),
            "files": {"cache": cache, "stream": stream, "all_probabilities": all_probabilities},
        },
        "progress": Terminal(),
    }
    if not (votes or add_class or items or out) and has_answers(run):
        from pals.review.apply import update_from_review

        findings = update_from_review(run, **options)
    else:
        findings = update_(run, votes or (), out=out, add_class=add_class, items=items, **options)
    _tell(findings, started)


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
        with stopping_after_epoch(self.reporter) as asked:
            shown = self.reporter.begin(title, run.config.train.epochs, run.resumed_at, selected_words)
            for record in run.epochs(None, asked):
                shown.record(record)
                after_epoch(record)


def _tell(findings: Findings, started: float) -> None:
    for line in findings.summary:
        say(line)
    say(f"Finished in {duration(time.perf_counter() - started)}.")
    say(f"Everything is in {findings.folder}; open {findings.folder / 'report.html'}")


@app.command()
def predict(
    run: Run,
    items: Annotated[
        list[str],
        typer.Argument(
            metavar="ITEMS...",
            help="A folder of pictures, one picture, vectors (.npy), or shards: WebDataset .tar files, .parquet files with "
            "pictures, a folder of these, one that Hugging Face datasets saved, or a pattern ('shards-{000..009}.tar').",
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
    skip_bad: Annotated[
        bool,
        typer.Option("--skip-bad", help="Skip pictures and shards that cannot be read."),
    ] = False,
    plugin: Plugin = None,
) -> None:
    """Classify new pictures with a run's classifier. Handles any number; rows are written as they are ready.

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
            shard=_share(shard),
            progress=progress,
        )
    tally = written.counts
    for name, reason in tally.first_bad:
        say(f"Left out: {name}: {reason}")
    without = f"; {tally.abstained:,} without a label" if threshold is not None else ""
    bad = f"; {tally.bad:,} left out, listed in {written.bad_file}" if tally.bad else ""
    before = f"; {written.resumed:,} were done before" if written.resumed else ""
    say(f"{how_many(tally.items, 'prediction')} in {out}{without}{bad}{before}")


def _share(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    found = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text.strip())
    number, of = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1 <= number <= of:
        raise InputError(f"--shard {text}: give i/n with i from 1 to n, such as 2/8.")
    return number, of


@app.command()
def export(
    run: Run,
    onnx: Annotated[Path, typer.Option(help="File to write.")],
    numbers: Annotated[str, typer.Option(help="Input type of the exported network: uint8 (pixels) or float32.")] = "uint8",
    plugin: Plugin = None,
) -> None:
    """Export a run's classifier to ONNX and verify it with onnxruntime.

    Example:  pals export runs/ponds --onnx ponds.onnx
    """
    from pals.model import export_onnx

    if numbers not in ("uint8", "float32"):
        raise InputError(f"--numbers {numbers!r}: choose uint8 or float32.")
    kind: Literal["uint8", "float32"] = "uint8" if numbers == "uint8" else "float32"
    say(str(export_onnx(run, onnx, numbers=kind)))


@app.command()
def report(run: Run) -> None:
    """Rebuild the report of a finished run.

    Example:  pals report runs/ponds
    """
    from pals.report.render import write_report

    say(str(write_report(run)))


def _sources(paths: list[Path], features: Path | None, no_images: bool) -> tuple[Path | None, list[Path]]:
    if paths and (features is not None or no_images):
        return None, paths
    if len(paths) < 2:
        named = f"Only {paths[0]} is named" if paths else "No file is named"
        raise InputError(
            f"{named}. Give the folder of pictures, then the file with the answers; --no-images if there are no pictures; "
            f"--example for the bundled pictures and answers."
        )
    return paths[0], paths[1:]


def _names(classes: str | None) -> tuple[str, ...] | None:
    return tuple(name.strip() for name in classes.split(",")) if classes else None


def _data_settings(
    item: str | None,
    annotator: str | None,
    label: str | None,
    classes: str | None,
    encoding: str | None,
    trust: list[str] | None,
    sure: float | None,
    skip_bad: bool,
) -> dict[str, Any]:
    """The options on answers that `fit` and `update` share, as settings of the section `data`."""
    given = {
        "columns": _given_only({"item": item, "annotator": annotator, "label": label}) or None,
        "class_names": _names(classes),
        "encoding": encoding,
        "trusted": trust or None,
        "sure": sure,
        "skip_bad": skip_bad or None,
    }
    return _given_only(given)


def _given_only(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}
