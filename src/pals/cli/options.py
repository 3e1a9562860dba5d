"""Options of `pals fit` and `pals update`: those with a key are settings of the run, by section."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from pals.util.option import Option, settings_from

SURE_HELP = "With a taxonomy: report the deepest node above this probability (default: 0.9)."
TRUST_HELP = "Annotator whose answers are always taken as correct. Repeatable."
TRUST_REVIEW_HELP = "Whether answers given in `pals review` are final (default: yes); the choice is kept."
TRUST_REVIEW_FLAG = "--trust-review/--no-trust"

Run = Annotated[Path, typer.Argument(help="Run folder written by `pals fit`.")]
Sure = Annotated[float | None, typer.Option(help=SURE_HELP)]
Trust = Annotated[list[str] | None, typer.Option(help=TRUST_HELP)]


ANSWERS, IMAGES, MODEL, OUTPUT = "Answers", "Images", "Model", "Output"
"""Panels of `--help` below the everyday options, in this order."""


@dataclass(frozen=True)
class AnswerOptions:
    """What `pals fit` and `pals update` share, the everyday options first; None: not given."""

    item_column: Annotated[str | None, Option("Column with the image's name.")] = None
    annotator_column: Annotated[
        str | None, Option("Column with the annotator's name.", flag="--annotator-column --worker-column")
    ] = None
    label_column: Annotated[str | None, Option("Column with the answer.")] = None
    trust: Annotated[list[str] | None, Option(TRUST_HELP, key="data.trusted")] = None
    truth: Annotated[
        Path | None, Option("File of true labels (item, label), for all items or some. Used only to grade the result.")
    ] = None
    device: Annotated[str | None, Option("Device to use: auto, cpu, cuda, cuda:1 or mps.", key="engine.device")] = None
    second_column: Annotated[str | None, Option("Column with the second choice, or several: second,third.", panel=ANSWERS)] = (
        None
    )
    percent_column: Annotated[
        str | None,
        Option("Column with the stated probability of the answer, or several: of the second choice, too.", panel=ANSWERS),
    ] = None
    possible_column: Annotated[str | None, Option("Column with all possible labels: newt|frog.", panel=ANSWERS)] = None
    impossible_column: Annotated[str | None, Option("Column with the impossible labels.", panel=ANSWERS)] = None
    notation: Annotated[
        str | None,
        Option(
            "How to read newt>frog and newt:70 in a cell: ranked, percent or plain (default: detected).",
            key="data.notation",
            panel=ANSWERS,
        ),
    ] = None
    encoding: Annotated[
        str | None, Option("Text encoding of the answers if not UTF-8, e.g. cp1252.", key="data.encoding", panel=ANSWERS)
    ] = None
    classes: Annotated[
        str | None,
        Option(
            "All classes, separated by commas, including any without an answer (default of an update: the run's).",
            panel=ANSWERS,
        ),
    ] = None
    taxonomy: Annotated[
        Path | None, Option("Class hierarchy (label and parent, paths, or JSON); answers may name any node.", panel=ANSWERS)
    ] = None
    sure: Annotated[float | None, Option(SURE_HELP, key="data.sure", panel=ANSWERS)] = None
    skip_bad: Annotated[
        bool | None, Option("Skip images that cannot be read.", key="data.skip_bad", flag="--skip-bad", panel=IMAGES)
    ] = None
    epochs: Annotated[
        int | None,
        Option("Training epochs (default of an update: a third of the first run's).", key="train.epochs", panel=MODEL),
    ] = None
    all_probabilities: Annotated[
        bool | None,
        Option(
            "Also write probabilities.csv, with every class of every item.",
            key="files.all_probabilities",
            flag="--all-probabilities",
            panel=OUTPUT,
        ),
    ] = None
    cache: Annotated[
        Path | None,
        Option("Cache folder for decoded images (default: $PALS_CACHE or ~/.cache/pals).", key="files.cache", panel=OUTPUT),
    ] = None
    stream: Annotated[
        bool | None,
        Option(
            "Decode images on the fly instead of caching them (default: if the disk is too full).",
            key="files.stream",
            panel=OUTPUT,
        ),
    ] = None


@dataclass(frozen=True)
class FitOptions(AnswerOptions):
    """What `pals fit` is given besides files and folders; None: not given."""

    no_images: Annotated[bool, Option("Work without images: labels from the answers alone, no classifier.")] = False
    encoder: Annotated[
        str | None,
        Option("Image encoder: auto, a name from `pals encoders`, timm:NAME, or a weights file.", complete="fit_encoders"),
    ] = None
    format: Annotated[
        str | None,
        Option("Format of the answers, e.g. long or label-studio (default: detected).", key="data.format", panel=ANSWERS),
    ] = None
    features: Annotated[Path | None, Option("Feature vectors (.npy) instead of images.", panel=IMAGES)] = None
    names: Annotated[Path | None, Option("With --features: text file that names the item of each row.", panel=IMAGES)] = None
    size: Annotated[int | None, Option("Resize images to this many pixels per side.", key="data.size", panel=IMAGES)] = None
    mirror: Annotated[
        bool | None,
        Option("Whether mirrored images keep their class; turn off for letters and digits.", key="data.mirror", panel=IMAGES),
    ] = None
    method: Annotated[
        str | None, Option("closed-form, or a method from `pals methods` to train.", complete="fit_methods", panel=MODEL)
    ] = None
    network: Annotated[
        str | None,
        Option("Network to train, by name or timm:NAME (default: chosen by data and device).", key="network.name", panel=MODEL),
    ] = None
    weights: Annotated[
        Path | None, Option("Pretrained weights to start from (.pt, .pth, .safetensors).", key="network.weights", panel=MODEL)
    ] = None
    frozen: Annotated[
        bool | None, Option("Keep --weights frozen and learn from their features.", key="network.frozen", panel=MODEL)
    ] = None
    folds: Annotated[
        int | None,
        Option("Cross-fitting folds; 0 turns it off, which is faster but less reliable.", key="data.folds", panel=MODEL),
    ] = None
    seed: Annotated[int | None, Option("Random seed.", key="seed", panel=MODEL)] = None


@dataclass(frozen=True)
class UpdateOptions(AnswerOptions):
    """What `pals update` is given besides files and folders; None: not given."""

    trust_review: Annotated[bool | None, Option(TRUST_REVIEW_HELP, key="data.trust_review", flag=TRUST_REVIEW_FLAG)] = None
    add_class: Annotated[str | None, Option("Add a class; requires --items.")] = None
    items: Annotated[Path | None, Option("With --add-class: text file with its items, one per line.")] = None


def run_settings(options: AnswerOptions) -> dict[str, Any]:
    """The options that were given, as `settings` of `pals.fit` and `pals.update`."""
    settings: dict[str, Any] = {"data": {}, **settings_from(options)}
    data = {key: value for key, value in settings["data"].items() if value != []}
    roles = ("item", "annotator", "label", "second", "percent", "possible", "impossible")
    columns = {role: name for role in roles if (name := getattr(options, f"{role}_column")) is not None}
    if any(columns.values()):
        data["columns"] = columns
    if options.classes:
        data["class_names"] = tuple(name.strip() for name in options.classes.split(","))
    network = {key: str(value) if isinstance(value, Path) else value for key, value in settings.get("network", {}).items()}
    return {**settings, "data": data, **({"network": network} if network else {})}
