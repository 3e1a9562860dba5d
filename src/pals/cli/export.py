"""`pals export`: the labels of a run for other programs, or its classifier as ONNX."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from pals.cli.base import Plugin, app, say
from pals.cli.options import Run
from pals.util.errors import InputError

IMAGE_PANEL, STUDIO_PANEL, ONNX_PANEL = "Images", "Label Studio and Camtrap DP", "ONNX"


@app.command()
def export(
    run: Run,
    to: Annotated[
        str,
        typer.Option(
            help="folder (by class), csv, hf (Hugging Face), coco, label-studio, fiftyone, cleanlab, camtrap-dp: labels; "
            "onnx: the classifier."
        ),
    ] = "onnx",
    out: Annotated[Path | None, typer.Option(help="File or folder to write (default: RUN-FORMAT, beside the run).")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier export.")] = False,
    link: Annotated[
        bool, typer.Option("--link", rich_help_panel=IMAGE_PANEL, help="Link the images instead of copying them.")
    ] = False,
    prefix: Annotated[
        str | None, typer.Option(rich_help_panel=STUDIO_PANEL, help="URL prefix for image paths (default: local file storage).")
    ] = None,
    document_root: Annotated[
        Path | None,
        typer.Option(rich_help_panel=STUDIO_PANEL, help="Root of the local file storage (default: above the image folder)."),
    ] = None,
    package: Annotated[
        Path | None,
        typer.Option(rich_help_panel=STUDIO_PANEL, help="Camtrap DP: folder of the package that the images belong to."),
    ] = None,
    onnx: Annotated[Path | None, typer.Option(rich_help_panel=ONNX_PANEL, help="Short for --to onnx --out FILE.")] = None,
    numbers: Annotated[
        str, typer.Option(rich_help_panel=ONNX_PANEL, help="Input type of the exported network: uint8 (pixels) or float32.")
    ] = "uint8",
    plugin: Plugin = None,
) -> None:
    """Export a run's labels for other programs, or its classifier to ONNX (verified with onnxruntime).

    Labels are those of the newest update. Nothing that exists is replaced without --overwrite.

    Example:  pals export runs/ponds --to folder

    Example:  pals export runs/ponds --to hf --out ponds-dataset

    Example:  pals export runs/ponds --onnx ponds.onnx
    """
    given = {"--link": link, "--prefix": prefix, "--document-root": document_root, "--package": package}
    if to == "onnx" or onnx is not None:
        wrong = next((name for name, value in given.items() if value), None)
        if to != "onnx" or (onnx and out) or wrong:
            raise InputError(
                f"--onnx FILE (--to onnx) does not go with {wrong or ('--out' if to == 'onnx' else f'--to {to}')}."
            )
        _export_classifier(run, onnx or out or run.with_name(f"{run.name}.onnx"), numbers, overwrite or onnx is not None)
        return
    from pals.label_formats import export_labels

    more = {"link": link, "prefix": prefix, "document_root": document_root, "package": package}
    for line in export_labels(run, to, out, overwrite=overwrite, **more).sentences:  # type: ignore[arg-type]
        say(line)


def _export_classifier(run: Path, path: Path, numbers: str, overwrite: bool) -> None:
    if numbers not in ("uint8", "float32"):
        raise InputError(f"--numbers {numbers!r}: choose uint8 or float32.")
    if path.exists() and not overwrite:
        raise InputError(f"The file {path} exists. Choose another with --out, or replace it with --overwrite.")
    from pals.model import export_onnx

    kind: Literal["uint8", "float32"] = "uint8" if numbers == "uint8" else "float32"
    say(str(export_onnx(run, path, numbers=kind)))
