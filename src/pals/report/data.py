"""What `report.json` holds, part by part: a function of the findings for each section of the page, in a list."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pals import __version__
from pals.pipeline import none_of_these
from pals.pipeline.fit_warnings import warnings
from pals.pipeline.stages.findings import Findings
from pals.pipeline.summary import contradiction, for_the_page, headline
from pals.pipeline.tables.taxonomy_columns import report_tree
from pals.report import data_parts
from pals.runs.run_json import read_about
from pals.training.run_log import read_epochs
from pals.util.config import to_yaml

FORMAT = 1


def report_data(findings: Findings) -> dict[str, Any]:
    """Plain values for the page."""
    data: dict[str, Any] = {"format": FORMAT}
    for part in PARTS:
        data |= part(findings)
    groups = [group["items"] for group in data["none_of_these"]]
    shown = data_parts.names_shown(data["gallery"], data["easy"], data["hard"], *groups)
    loaded = findings.trained.loaded
    return data | {"thumbs": data_parts.pictures(shown, loaded.votes, loaded.items.inputs)}


def about(findings: Findings) -> dict[str, Any]:
    return {
        "title": f"Report on {findings.folder.resolve().name}",
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "version": __version__,
        "classes": list(findings.result.votes.class_names),
    }


def overview(findings: Findings) -> dict[str, Any]:
    noise = findings.noise
    shares = {"answers_wrong": noise.answers_wrong, "labels_wrong": noise.labels_wrong, "low": noise.low, "high": noise.high}
    return {
        "headline": [{"label": label, "value": value, "note": note} for label, value, note in headline(findings.numbers)],
        "summary": for_the_page(findings),
        "warnings": [*warnings(findings), *findings.trained.loaded.warnings],
        "noise": {**shares, "sentence": " ".join(contradiction(noise))},
    }


def review(findings: Findings) -> dict[str, Any]:
    """The items that are worth a look, of very many the first."""
    order = data_parts.to_review(findings.labels, findings.doubtful)
    trained = findings.trained
    shown = data_parts.gallery(
        order[: data_parts.GALLERY],
        findings.doubtful,
        findings.labels,
        trained.loaded.votes,
        None if trained.network is None else trained.said_NC,
        findings.neighbor_NK,
        findings.similarity_NK,
    )
    return {"gallery": shown, "gallery_of": len(order)}


def missing(findings: Findings) -> dict[str, Any]:
    return {"none_of_these": none_of_these.for_report(findings)}


def taxonomy(findings: Findings) -> dict[str, Any]:
    return {"taxonomy": report_tree(findings.result, findings.confusion, findings.trained.plan.data.sure)}


def mix_ups(findings: Findings) -> dict[str, Any]:
    return {"confusion": data_parts.confusion_cells(findings.confusion, findings.result.votes.class_names)}


def people(findings: Findings) -> dict[str, Any]:
    names = findings.result.votes.class_names
    return {
        "annotators": data_parts.people(findings.annotators, findings.confusion, names),
        "annotators_of": len(findings.annotators),
        "agreement": data_parts.records(findings.agreement),
    }


def classes(findings: Findings) -> dict[str, Any]:
    return {"class_table": data_parts.records(findings.classes)}


def examples(findings: Findings) -> dict[str, Any]:
    easy, hard = data_parts.examples(findings.labels, findings.result.votes)
    return {"easy": easy, "hard": hard, "examples_of": int((findings.labels["votes"] > 0).sum())}


def training(findings: Findings) -> dict[str, Any]:
    epochs = read_epochs(findings.folder)
    lines = data_parts.CURVES.items()
    return {
        "curves": [{key: record[name] for key, name in lines if record.get(name) is not None} for record in epochs],
    }


def repeat(findings: Findings) -> dict[str, Any]:
    return {
        "command": command_text(read_about(findings.folder).get("command") or sys.argv),
        "settings": to_yaml(findings.trained.plan.config.to_dict()),
    }


PARTS: tuple[Callable[[Findings], dict[str, Any]], ...] = (
    about, overview, review, missing, taxonomy, mix_ups, people, classes, examples, training, repeat,
)  # fmt: skip


def command_text(argv: Sequence[object]) -> str:
    """What was typed: `pals fit ...`, or the Python program that called `pals.fit`."""
    program, *words = map(str, argv)
    ours = Path(program).stem == "pals" or Path(program).parts[-2:] == ("pals", "__main__.py")
    return shlex.join(["pals", *words] if ours else ["python", *filter(None, (program, *words))])
