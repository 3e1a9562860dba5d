"""A relabelling queue as a Label Studio project: tasks to import, each with the result as a prediction, and the labelling
settings. The answers come back as its export, which `pals.readers.formats.label_studio` reads."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd

from pals.labels.cells import DONT_KNOW
from pals.labels.taxonomy import Taxonomy
from pals.pipeline.finished_run import data_of, read_table, taxonomy_of
from pals.readers.formats.label_studio import ITEM, OURS, QUESTION
from pals.util.errors import InputError
from pals.util.words import quoted

LOCAL_FILES = "/data/local-files/?d="
"""Where Label Studio serves a file of its document root."""
SURENESS, UNSURE = "sure", "unsure"
"""The second question, and its only choice."""
MAX_CHOICE_BUTTONS = 20
"""Classes up to which the choices are buttons; more are a list that can be searched."""
NOT_SHOWN = re.compile("^\\$|[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""In a class: a dollar sign in front, which makes it the name of an entry of the data, and what XML cannot hold."""


@dataclass(frozen=True)
class Project:
    """What is given to Label Studio."""

    tasks: list[dict[str, Any]]
    config: str
    "Its labelling settings, XML."
    sentences: tuple[str, ...]
    "What has to be set there."


def label_studio_project(
    run: Path | str, queue: pd.DataFrame, *, prefix: str | None = None, document_root: Path | str | None = None
) -> Project:
    """The queue of a run (`relabel_queue`) for Label Studio.

    prefix: what stands before an item's path to make the address of its image, such as "https://host/photos/". By default
    the images are local files below `document_root`, the folder that LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT names there (by
    default the one that holds the folder of images). A run without images shows the names of its items.
    """
    folder, sentences = Path(run), list[str]()
    images = data_of(folder).get("images")
    if prefix is not None and document_root is not None:
        raise InputError("Give either --prefix or --document-root, not both: a document root makes the prefix.")
    if document_root is not None and images is None:
        raise InputError(f"--document-root: {folder} has no images. Leave it out, or say where they are with --prefix.")
    if prefix is None and images is not None:
        pictures = Path(images).resolve()
        root = pictures.parent if document_root is None else Path(document_root).resolve()
        prefix = _local(pictures, root)
        sentences.append(_to_be_set(pictures, root))
    tree = taxonomy_of(folder)
    classes = read_table(folder, "classes.csv")["class"].tolist()
    version = f"pals {folder.resolve().name}"
    return Project(
        label_studio_tasks(queue, prefix=prefix, tree=tree, version=version),
        labelling_config(classes, tree, pictures=prefix is not None),
        tuple(sentences),
    )


def _local(pictures: Path, root: Path) -> str:
    if root not in pictures.parents:  # Label Studio refuses a storage that is the document root itself
        raise InputError(f"--document-root {root} is not above the images' folder, {pictures}. Give a folder that holds it.")
    return f"{LOCAL_FILES}{quote(pictures.relative_to(root).as_posix())}/"


def _to_be_set(pictures: Path, root: Path) -> str:
    return (
        f"Start Label Studio with LABEL_STUDIO_LOCAL_FILES_SERVING_ENABLED=true and "
        f"LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT={root}, and add {pictures} to the project as a source storage (local files)"
    )


def label_studio_tasks(
    queue: pd.DataFrame, *, prefix: str | None = LOCAL_FILES, tree: Taxonomy | None = None, version: str = "pals"
) -> list[dict[str, Any]]:
    """Tasks to import, in the order of the queue, each with the suggestion as a prediction and the item's name in data and
    meta. `pals_rank` sorts as text, too, as Label Studio does. Without a prefix there is no image; "" leaves the path as it
    is."""
    digits = max(4, len(str(len(queue))))
    return [_task(row, digits, prefix, tree, version) for row in queue.to_dict("records")]


def _task(row: dict[Any, Any], digits: int, prefix: str | None, tree: Taxonomy | None, version: str) -> dict[str, Any]:
    item, score = row["item"], round(float(row["confidence"]), 4)
    type_, choice = ("choices", row["suggestion"]) if tree is None else ("taxonomy", list(tree.path(row["suggestion"])))
    result = {
        "id": f"pals-{row['rank']}",
        "from_name": QUESTION,
        "to_name": _shown(prefix is not None),
        "type": type_,
        "value": {type_: [choice]},
        "score": score,
    }
    about = {name: row[name] for name in ("reason", "said", "decision") if isinstance(row.get(name), str)}
    picture = {} if prefix is None else {"image": f"{prefix}{quote(item) if prefix else item}"}
    return {
        "data": {
            **picture,
            ITEM: item,
            f"{OURS}rank": f"{row['rank']:0{digits}}",
            **{f"{OURS}{name}": text for name, text in about.items()},
        },
        "meta": {ITEM: item},
        "predictions": [{"model_version": version, "score": score, "result": [result]}],
    }


def _shown(pictures: bool) -> str:
    """The name of what is shown to be labelled."""
    return "image" if pictures else "item"


def labelling_config(classes: Sequence[str], tree: Taxonomy | None = None, *, pictures: bool = True) -> str:
    """Label Studio's settings: the classes or the whole tree with "don't know", whether the answer is unsure, and below them,
    where it may be large, the image (or the item's name)."""
    shown = _shown(pictures)
    view = ET.Element("View")
    if tree is None:
        layout = {"layout": "select" if len(classes) > MAX_CHOICE_BUTTONS else "inline"}
        asked = {"name": QUESTION, "toName": shown, "choice": "single", "required": "true", **layout}
        question = ET.SubElement(view, "Choices", asked)
        for name in classes:
            _choice(question, name)
    else:
        question = ET.SubElement(view, "Taxonomy", name=QUESTION, toName=shown, required="true")
        nodes: list[ET.Element] = []
        for name, parent in zip(tree.nodes, tree.parents, strict=True):
            nodes.append(_choice(nodes[parent] if parent >= 0 else question, name))
    if DONT_KNOW not in (classes if tree is None else tree.nodes):
        _choice(question, DONT_KNOW)
    _choice(ET.SubElement(view, "Choices", name=SURENESS, toName=shown, choice="multiple"), UNSURE)
    if pictures:
        ET.SubElement(view, "Image", name=shown, value="$image", zoom="true", zoomControl="true")
    else:
        ET.SubElement(view, "Text", name=shown, value=f"${ITEM}")
    ET.indent(view)
    return ET.tostring(view, encoding="unicode") + "\n"


def _choice(parent: ET.Element, name: str) -> ET.Element:
    if NOT_SHOWN.search(name):
        why = "it begins with $ or has a control character"
        raise InputError(f"Label Studio cannot show the class {quoted(name)}: {why}. Rename it.")
    return ET.SubElement(parent, "Choice", value=name)
