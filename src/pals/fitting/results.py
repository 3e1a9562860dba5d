"""What a fit leaves in its folder: the classifier, the tables, the report, and at last `summary.json`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pals import __version__
from pals.fitting import novel, report_json
from pals.fitting.encode import encoder_name
from pals.fitting.findings import Findings
from pals.fitting.page.render import write_report
from pals.fitting.sentences import headline, still_wrong
from pals.fitting.tables import csv_text
from pals.fitting.trained import Trained
from pals.fitting.tree import report_tree
from pals.fitting.votes import TAXONOMY
from pals.model import FILE_NAME, Description, Model, Part
from pals.runs.folder import read_about
from pals.training.log import read_epochs
from pals.util.config import to_yaml
from pals.util.files import write_json, write_text


def write(findings: Findings) -> Path:
    """Write all files; gives the page. `summary.json` comes last: where it is, everything is."""
    folder, trained = findings.folder, findings.trained
    model_of(trained).save(folder / FILE_NAME)
    write_text(folder / "votes.csv", csv_text(trained.loaded.votes.to_frame(trained.plan.data.separator)))
    if trained.loaded.votes.taxonomy is not None:
        write_text(folder / TAXONOMY, trained.loaded.votes.taxonomy.to_csv())
    for name, table in findings.tables.items():
        write_text(folder / f"{name}.csv", csv_text(table))
    findings.kept.save(folder)
    novel.write_lists(findings, folder)
    write_json(folder / "report.json", report_data(findings))
    page = write_report(folder)
    write_json(folder / "summary.json", findings.numbers)
    return page


def model_of(trained: Trained) -> Model:
    """The classifier that was learned from all items, with all that is needed to ask it."""
    loaded, encoded = trained.loaded, trained.encoded
    encoder = None
    if encoded.encoder is not None:
        encoder = Part(encoder_name(trained.plan), loaded.items.shape, *loaded.statistics)
    names, resize = loaded.candidates.class_names, trained.plan.data.resize
    tree, sure = loaded.votes.taxonomy, trained.plan.data.sure
    about = Description(names, trained.part, encoder, trained.temperature, resize=resize, taxonomy=tree, sure=sure)
    return Model(about, trained.network, encoded.encoder, device="cpu")


def report_data(findings: Findings) -> dict[str, Any]:
    """Plain values for the page."""
    loaded, labels, tables = findings.trained.loaded, findings.labels, findings.tables
    votes = loaded.votes
    shown = report_json.gallery(
        findings.doubtful, labels, votes, findings.trained.said_NC, findings.neighbor_NK, findings.similarity_NK
    )
    easy, hard = report_json.examples(labels, votes)
    missing = novel.for_report(findings)
    names = report_json.names_shown(shown, easy, hard, *(group["items"] for group in missing))
    thumbs = report_json.pictures(names, votes, loaded.items.inputs)
    return {
        "format": 1,
        "title": f"Report on {findings.folder.resolve().name}",
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "version": __version__,
        "command": command_text(read_about(findings.folder).get("command") or sys.argv),
        "headline": [{"label": label, "value": value, "note": note} for label, value, note in headline(findings.numbers)],
        "summary": findings.summary,
        "warnings": loaded.warnings,
        "curves": _curves(findings.folder),
        "classes": list(votes.class_names),
        "confusion": report_json.confusion_matrix(tables["confusion"], votes.class_names),
        "thumbs": thumbs,
        "gallery": shown,
        "annotators": report_json.people(tables["annotators"], tables["confusion"], votes.class_names),
        "class_table": report_json.records(tables["classes"]),
        "agreement": report_json.records(tables["agreement"]),
        "easy": easy,
        "hard": hard,
        "noise": _noise(findings),
        "taxonomy": report_tree(findings.result, findings.confusion, findings.trained.plan.data.sure),
        "none_of_these": missing,
        "settings": to_yaml(findings.trained.plan.config.to_dict()),
    }


def command_text(argv: Sequence[object]) -> str:
    """What was typed: `pals fit ...`, or the Python program that called `pals.fit`."""
    program, *words = map(str, argv)
    ours = Path(program).stem == "pals" or Path(program).parts[-2:] == ("pals", "__main__.py")
    return shlex.join(["pals", *words] if ours else ["python", *filter(None, (program, *words))])


def _curves(folder: Path) -> list[dict[str, Any]]:
    return [
        {key: record.get(name) for key, name in report_json.CURVES.items() if record.get(name) is not None}
        for record in read_epochs(folder)
    ]


def _noise(findings: Findings) -> dict[str, Any]:
    noise = findings.noise
    shares = {"answers_wrong": noise.answers_wrong, "labels_wrong": noise.labels_wrong, "low": noise.low, "high": noise.high}
    return {**shares, "sentence": still_wrong(noise)}
