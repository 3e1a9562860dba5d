"""Commands for people with pictures and answers: a classifier, cleaned labels, doubtful answers, a report."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from pals.cli.base import Device, Plugin, Set, app, console, follow, say
from pals.util.errors import InputError
from pals.util.words import how_many

Run = Annotated[Path, typer.Argument(help="Folder that `pals fit` wrote.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Go on without pictures that cannot be read.")]
Cache = Annotated[Path | None, typer.Option(help="Where decoded pictures are kept (default: $PALS_CACHE or ~/.cache/pals).")]
Format = Annotated[str | None, typer.Option("--format", help="Of the answers, e.g. long, label-studio; default: look inside.")]
ItemColumn = Annotated[str | None, typer.Option(help="Column that names the picture.")]
WorkerColumn = Annotated[str | None, typer.Option(help="Column that names the person.")]
TruthFile = Annotated[
    Path | None, typer.Option("--truth", help="True labels (item, label) of all items or some, only to grade the result with.")
]
Encoding = Annotated[str | None, typer.Option(help="Of the answers, if not UTF-8, e.g. cp1252.")]
LabelColumn = Annotated[str | None, typer.Option(help="Column with the answer.")]


@app.command()
def fit(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="IMAGES VOTES...", help="Folder of pictures, then one or more files with the answers."),
    ],
    out: Annotated[Path, typer.Option(help="Folder for everything that comes of it; the same command continues it.")],
    format_: Format = None,
    item_column: ItemColumn = None,
    worker_column: WorkerColumn = None,
    label_column: LabelColumn = None,
    classes: Annotated[str | None, typer.Option(help="All classes, separated by commas, also those nobody chose.")] = None,
    features: Annotated[Path | None, typer.Option(help="Feature vectors (.npy) instead of pictures.")] = None,
    names: Annotated[Path | None, typer.Option(help="For --features: a text file with the item of each row.")] = None,
    network: Annotated[
        str | None, typer.Option(help="A network by name, or timm:NAME; default: by the data and device.")
    ] = None,
    weights: Annotated[Path | None, typer.Option(help="Trained weights to start from (.pt, .pth, .safetensors).")] = None,
    frozen: Annotated[
        bool | None, typer.Option("--frozen/--no-frozen", help="Learn from the features of --weights as they are.")
    ] = None,
    size: Annotated[int | None, typer.Option(help="Pixels a side that pictures are brought to.")] = None,
    method: Annotated[str | None, typer.Option(help="See `pals methods`.")] = None,
    epochs: Annotated[int | None, typer.Option(help="How long to train.")] = None,
    folds: Annotated[int | None, typer.Option(help="Networks for cross-fitting; 0 for none: quicker, less sure.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of everything random.")] = None,
    device: Device = None,
    skip_bad: SkipBad = False,
    cache: Cache = None,
    truth: TruthFile = None,
    encoding: Encoding = None,
    set_: Set = None,
    plugin: Plugin = None,
) -> None:
    """Learn from pictures and the answers of several people: a classifier, cleaned labels, doubtful answers, a report.

    Nothing but the pictures and a file of answers is needed; what is not given is chosen and said aloud.

    Example:  pals fit photos/ answers.csv --out runs/ponds
    """
    from pals.util.config import override

    images, votes = _sources(paths, features)
    columns = {"item": item_column, "worker": worker_column, "label": label_column}
    given = _given(
        data={
            "images": images,
            "features": features,
            "names": names,
            "votes": tuple(str(path.resolve()) for path in votes),
            "format": format_,
            "columns": _given_only(columns) or None,
            "class_names": _names(classes),
            "size": size,
            "skip_bad": skip_bad or None,
            "encoding": encoding,
            "folds": folds,
        },
        network={"name": network, "weights": weights, "frozen": frozen},
        method={"name": method},
        train={"epochs": epochs},
        engine={"device": device},
        seed=seed,
    )
    _work(override(given, set_ or []), out, truth, cache)


@app.command()
def update(
    run: Run,
    votes: Annotated[list[Path], typer.Argument(help="Files with further answers.")],
    out: Annotated[Path | None, typer.Option(help="Folder for the new run (default: RUN-updated).")] = None,
    item_column: ItemColumn = None,
    worker_column: WorkerColumn = None,
    label_column: LabelColumn = None,
    epochs: Annotated[int | None, typer.Option(help="How long to train further (default: a third of the first time).")] = None,
    classes: Annotated[str | None, typer.Option(help="All classes, separated by commas (default: as in the run).")] = None,
    device: Device = None,
    skip_bad: SkipBad = False,
    cache: Cache = None,
    truth: TruthFile = None,
    encoding: Encoding = None,
    plugin: Plugin = None,
) -> None:
    """Go on from a finished run with further answers. The old run stays as it is.

    Example:  pals update runs/ponds second_round.csv --out runs/ponds-2
    """
    from pals.fitting import continued

    columns = _given_only({"item": item_column, "worker": worker_column, "label": label_column})
    given = continued(
        run,
        votes,
        columns=columns,
        epochs=epochs,
        device=device,
        skip_bad=skip_bad or None,
        encoding=encoding,
        class_names=_names(classes),
    )
    _work(given, out or run.with_name(f"{run.name}-updated"), truth, cache)


def _work(given: Mapping[str, Any], out: Path, truth: Path | None, cache: Path | None) -> None:
    from pals.fitting import Work, finish, in_words
    from pals.util.display import Reporter, showing_count

    started = time.perf_counter()
    work = Work.plan(given, out, truth=truth, cache=cache)
    for line in (*work.answers.lines, *work.reasons):
        say(line)
    forecast = work.forecast()
    say(f"{work.describe()}: {'goes on; from the beginning it takes' if work.begun else 'takes'} {forecast}.")
    with showing_count(console, "pictures") as progress:
        inputs = work.load(progress)
    for line in inputs.bad:
        say(f"Left out: {line}")
    with showing_count(console, "features") as progress:
        work.encode(progress)
    with Reporter(console).showing() as reporter:
        for part in work.parts():
            follow(reporter, part.title, part.run)
            work.keep(part)
    *summary, place = finish(work)
    for line in summary:
        say(line)
    expected = "" if work.begun else f"; {in_words(forecast.seconds)} had been expected"
    say(f"It took {in_words(time.perf_counter() - started)}{expected}.")
    say(place)


@app.command()
def predict(
    run: Run,
    images: Annotated[Path, typer.Argument(help="A folder of pictures, one picture, or vectors (.npy).")],
    out: Annotated[Path, typer.Option(help="Table to write (.csv).")],
    top: Annotated[int, typer.Option(min=1, help="How many of the likeliest classes to name.")] = 3,
    threshold: Annotated[float | None, typer.Option(help="Give no label below this confidence.")] = None,
    device: Device = None,
    skip_bad: SkipBad = False,
    plugin: Plugin = None,
) -> None:
    """Classify new pictures with the classifier of a run.

    Example:  pals predict runs/ponds new_photos/ --out predictions.csv --threshold 0.6
    """
    from pals.model import predict_folder
    from pals.util.display import showing_count
    from pals.util.files import write_text

    with showing_count(console, "items") as progress:
        frame = predict_folder(
            run, images, top=top, threshold=threshold, device=device or "auto", skip_bad=skip_bad, progress=progress
        )
    write_text(out, frame.to_csv(index=False))
    for name, reason in frame.attrs["bad"]:
        say(f"Left out: {name}: {reason}")
    held_back = int(frame["abstained"].sum())
    without = f"; {held_back:,} without a label" if threshold is not None else ""
    say(f"{how_many(len(frame), 'prediction')} in {out}{without}")


@app.command()
def export(
    run: Run,
    onnx: Annotated[Path, typer.Option(help="File to write.")],
    numbers: Annotated[str, typer.Option(help="What the exported network reads: uint8 (pixels) or float32.")] = "uint8",
    plugin: Plugin = None,
) -> None:
    """Write the classifier of a run as ONNX, checked against onnxruntime.

    Example:  pals export runs/ponds --onnx ponds.onnx
    """
    from pals.model import export_onnx

    if numbers not in ("uint8", "float32"):
        raise InputError(f"--numbers {numbers!r}: choose uint8 or float32.")
    kind: Literal["uint8", "float32"] = "uint8" if numbers == "uint8" else "float32"
    say(str(export_onnx(run, onnx, numbers=kind)))


@app.command()
def relabel(
    run: Run,
    out: Annotated[Path, typer.Option(help="File to write: .csv, or .json for Label Studio.")],
    top: Annotated[int, typer.Option(min=1, help="How many items.")] = 200,
    to: Annotated[str, typer.Option(help="csv or label-studio.")] = "csv",
    prefix: Annotated[
        str, typer.Option(help="For Label Studio: what stands before a picture's path.")
    ] = "/data/local-files/?d=",
) -> None:
    """The items that a person should look at next, most useful first, with a suggestion for each.

    Fill in the columns label and annotator, then: pals update RUN queue.csv

    Example:  pals relabel runs/ponds --top 200 --out queue.csv
    """
    from pals.fitting.relabel import relabel_queue, to_fill_in, to_label_studio
    from pals.util.files import write_text

    if to not in ("csv", "label-studio"):
        raise InputError(f"--to {to!r}: choose csv or label-studio.")
    queue = relabel_queue(run, top)
    if to == "csv":
        text = to_fill_in(queue).to_csv(index=False)
        # Without the mark Excel takes UTF-8 for its own encoding, and what it saves then names other pictures.
        write_text(out, text if text.isascii() else f"\ufeff{text}")
    else:
        write_text(out, json.dumps(to_label_studio(queue, prefix=prefix), ensure_ascii=False, indent=1))
    say(f"{how_many(len(queue), 'item')} to look at in {out}")


@app.command()
def report(run: Run) -> None:
    """Write the report of a finished run again.

    Example:  pals report runs/ponds
    """
    from pals.fitting.page.render import write_report

    say(str(write_report(run)))


def _sources(paths: list[Path], features: Path | None) -> tuple[Path | None, list[Path]]:
    if features is not None:
        return None, paths
    if len(paths) < 2:
        raise InputError(f"Only {paths[0]} is named. Give the folder of pictures, then the file with the answers.")
    return paths[0], paths[1:]


def _names(classes: str | None) -> tuple[str, ...] | None:
    return tuple(name.strip() for name in classes.split(",")) if classes else None


def _given_only(values: Mapping[str, Any]) -> dict[str, Any]:
    """What was given; a path as text, from the root on, so that the settings hold wherever the command is repeated."""
    return {
        key: str(value.resolve()) if isinstance(value, Path) else value for key, value in values.items() if value is not None
    }


def _given(*, seed: int | None, **sections: Mapping[str, Any]) -> dict[str, Any]:
    given: dict[str, Any] = {name: _given_only(section) for name, section in sections.items()}
    given = {name: section for name, section in given.items() if section}
    return given if seed is None else {**given, "seed": seed}
