"""Options that several commands for people with pictures and answers have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Run = Annotated[Path, typer.Argument(help="Run folder written by `pals fit`.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Skip pictures that cannot be read.")]
Stream = Annotated[
    bool | None,
    typer.Option(
        "--stream/--no-stream",
        help="Decode pictures on the fly instead of caching them (default: only if the disk is too full).",
    ),
]
Cache = Annotated[Path | None, typer.Option(help="Cache folder for decoded pictures (default: $PALS_CACHE or ~/.cache/pals).")]
Format = Annotated[
    str | None, typer.Option("--format", help="Format of the answers, e.g. long or label-studio (default: detected).")
]
ItemColumn = Annotated[str | None, typer.Option(help="Column with the picture's name.")]
AnnotatorColumn = Annotated[
    str | None, typer.Option("--annotator-column", "--worker-column", help="Column with the annotator's name.")
]
TruthFile = Annotated[
    Path | None,
    typer.Option("--truth", help="File of true labels (item, label), for all items or some. Used only to grade the result."),
]
Encoding = Annotated[str | None, typer.Option(help="Text encoding of the answers if not UTF-8, e.g. cp1252.")]
Trust = Annotated[
    list[str] | None, typer.Option("--trust", help="Person whose answers are always taken as correct. Repeatable.")
]
TaxonomyFile = Annotated[
    Path | None,
    typer.Option("--taxonomy", help="Class hierarchy (label and parent, paths, or JSON); answers may name any node."),
]
Sure = Annotated[
    float | None, typer.Option(help="With a taxonomy: report the deepest node above this probability (default: 0.9).")
]
AllProbabilities = Annotated[
    bool, typer.Option("--all-probabilities", help="Also write probabilities.csv, with every class of every item.")
]
LabelColumn = Annotated[str | None, typer.Option(help="Column with the answer.")]
