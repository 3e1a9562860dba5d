"""The table of export formats, and the function that writes one of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from pals.label_formats.export_target import new_target
from pals.label_formats.run_labels import RunLabels
from pals.pipeline.finished_run import run_folder
from pals.runs.rounds import run_of
from pals.util.errors import InputError
from pals.util.words import how_many

Writer = Callable[..., list[str]]
"""write(labels, target, **options): fills the target and returns sentences for the user."""


class LabelFormat(NamedTuple):
    """A format: `suffix` of its file ("" for a folder), the options that it has, what it is, and how it is opened."""

    module: str
    suffix: str
    options: tuple[str, ...]
    what: str
    opened: str


LABEL_FORMATS = {
    "folder": LabelFormat(
        "to_folder", "", ("link",), "images in one folder per class", "torchvision.datasets.ImageFolder({!r})"
    ),
    "csv": LabelFormat("to_csv", ".csv", (), "a table of labels and answers", "pandas.read_csv({!r})"),
    "hf": LabelFormat("to_hf", "", (), "a Hugging Face data set", "datasets.load_dataset({!r})"),
    "coco": LabelFormat("to_coco", ".json", (), "COCO annotations", "pycocotools.coco.COCO({!r})"),
    "label-studio": LabelFormat(
        "to_label_studio", "", ("prefix", "document_root"), "Label Studio tasks with predictions", "import {}/tasks.json"
    ),
    "fiftyone": LabelFormat(
        "to_fiftyone",
        "",
        ("link",),
        "a FiftyOne data set",
        "fiftyone.Dataset.from_dir({!r}, fiftyone.types.FiftyOneImageClassificationDataset)",
    ),
    "cleanlab": LabelFormat("to_cleanlab", "", (), "tables with cleanlab's columns", "pandas.read_csv('{}/label_issues.csv')"),
    "camtrap-dp": LabelFormat(
        "to_camtrap_dp", "", ("package",), "Camtrap DP observations", "frictionless.Package('{}/datapackage.json')"
    ),
}
"""Formats by the name that `pals export --to` takes."""


@dataclass(frozen=True)
class LabelExport:
    """A written export.

    Args:
        path: The file or folder.
        items: Number of items.
        sentences: What it is, what to know about it, and how it is opened.
    """

    path: Path
    items: int
    sentences: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(self.sentences)


def export_labels(
    run: Any,
    to: str,
    out: Path | str | None = None,
    *,
    overwrite: bool = False,
    link: bool = False,
    prefix: str | None = None,
    document_root: Path | str | None = None,
    package: Path | str | None = None,
) -> LabelExport:
    """Write the current labels of a run in the format of another program, like the command `pals export --to`.

    Args:
        run: Folder of a finished run, or the findings of `fit` or `update`.
        to: "folder", "csv", "hf", "coco", "label-studio", "fiftyone", "cleanlab" or "camtrap-dp".
        out: The file or folder to write; default: RUN-FORMAT beside the run.
        overwrite: Whether to replace an earlier export of that name.
        link: "folder" and "fiftyone": link the images and do not copy them.
        prefix: "label-studio": what stands before an item's path in the address of its image.
        document_root: "label-studio": the root of its local file storage.
        package: "camtrap-dp": the folder of the Camtrap DP that the images belong to.

    Returns:
        The path and what to know about it.

    Raises:
        InputError: The format is unknown, the run is not finished, an image is missing, or the target exists.

    Example:
        >>> rows = [(item, who, "ab"[item % 2 if who != "cy" else 0]) for item in range(20) for who in ("al", "bo", "cy")]
        >>> table = __import__("pandas").DataFrame(rows, columns=["item", "annotator", "label"])
        >>> found = pals.fit(None, table, out="run", no_images=True)
        >>> pals.export_labels(found, "csv").path
        PosixPath('run-csv.csv')
    """
    found = label_format(to)
    options = {"link": link, "prefix": prefix, "document_root": document_root, "package": package}
    for name, value in options.items():
        if value and name not in found.options:
            raise InputError(f"--{name.replace('_', '-')} does not go with --to {to}. Leave it out.")
    folder = run_folder(run)
    named = run_of(folder) or folder
    path = Path(out) if out is not None else named.with_name(f"{named.name}-{to}{found.suffix}")
    labels = RunLabels.read(folder)
    write: Writer = import_module(f"pals.label_formats.{found.module}").write
    with new_target(path, folder=not found.suffix, overwrite=overwrite) as target:
        sentences = write(labels, target, **{name: options[name] for name in found.options})
    count = how_many(len(labels.items), "label")
    return LabelExport(
        path,
        len(labels.items),
        (f"Wrote {path}: {count} as {found.what}.", *sentences, f"Open: {found.opened.format(str(path))}"),
    )


def label_format(name: str) -> LabelFormat:
    """The format with this name; an InputError lists all."""
    if name not in LABEL_FORMATS:
        raise InputError(f"There is no format {name!r}. Choose {', '.join(LABEL_FORMATS)}, or onnx for the classifier.")
    return LABEL_FORMATS[name]
