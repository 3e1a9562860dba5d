"""The content of the report as plain values (`report.json`), built from the findings of a fit."""

from __future__ import annotations

import math
import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pals import __version__
from pals.pipeline.item_answers import answers_of_votes
from pals.pipeline.item_order import DISAGREEMENT, item_order
from pals.pipeline.none_of_these import group_file
from pals.pipeline.stages.findings import Findings
from pals.pipeline.summary import headline
from pals.pipeline.tables.taxonomy_columns import report_tree
from pals.pipeline.thumbnails import thumbnails
from pals.readers import Votes
from pals.report.format import REPORT_FORMAT
from pals.runs.rounds import name_of
from pals.runs.run_json import read_about
from pals.training.run_log import read_epochs
from pals.util.config import to_yaml

MAX_GALLERY_ITEMS = 200
MAX_GROUP_ITEMS = 24  # of a group that may be a missing class
MAX_EXAMPLES = 24  # easy and hard items, each
MAX_CONFUSIONS = 200  # annotators with a confusion matrix of their own
NUM_NEIGHBORS = 5
MAX_PROBABILITY = 0.999999  # an estimate is never certain
SHOWN_STATUSES = ("corrected", "unsure", DISAGREEMENT)  # items of the gallery, with those that have a doubtful answer
CURVES = {"epoch": "total_epoch", "loss": "loss", "selected": "selected", "covering": "covering", "approximate": "approximate"}
"""Lines of the training charts: key in report.json, and name in the log of the run."""


def report_data(findings: Findings) -> dict[str, Any]:
    """Build the content of the report.

    Args:
        findings: The result of a fit, with its run folder.

    Returns:
        Plain values for `report.json`: numbers that are not finite are None, and every key is always there.
    """
    loaded, result, noise = findings.trained.loaded, findings.result, findings.noise
    votes, config, tree = result.votes, findings.trained.plan.config, findings.taxonomy
    order = gallery_rows(findings.labels, findings.doubtful)
    gallery = gallery_entries(order[:MAX_GALLERY_ITEMS], findings)
    groups = none_of_these_groups(findings)
    guideline = guideline_entries(findings.tables["guideline"], votes)
    easy, hard = easy_and_hard(findings.labels, votes)
    shown = [
        entry["item"] for part in (gallery, guideline, easy, hard, *(group["items"] for group in groups)) for entry in part
    ]
    shown += [other["item"] for entry in gallery for other in entry["neighbors"]]
    epochs = read_epochs(findings.folder)
    data = {
        "format": REPORT_FORMAT,
        "title": f"Report on {name_of(findings.folder)}",
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "version": __version__,
        "classes": list(votes.class_names),
        "headline": [{"label": label, "value": value, "note": note} for label, value, note in headline(findings.numbers)],
        "summary": findings.page_summary,
        "warnings": [*findings.warnings, *loaded.warnings],
        "noise": {
            "answers_wrong": noise.answers_wrong,
            "labels_wrong": noise.labels_wrong,
            "low": noise.low,
            "high": noise.high,
            "sentence": "It cannot see mistakes that most annotators share.",
        },
        "gallery": gallery,
        "gallery_of": len(order),
        "guideline": guideline,
        "guideline_of": len(findings.tables["guideline"]),
        "none_of_these": groups,
        "taxonomy": tree and report_tree(tree, result, findings.confusion),
        "confusion": confusion_cells(findings.confusion, votes.class_names),
        "annotators": annotator_rows(findings.annotators, findings.confusion, votes.class_names),
        "annotators_of": len(findings.annotators),
        "agreement": findings.agreement.to_dict("records"),
        "class_table": findings.classes.to_dict("records"),
        "easy": easy,
        "hard": hard,
        "examples_of": int((findings.labels["votes"] > 0).sum()),
        "curves": [{key: epoch[name] for key, name in CURVES.items() if epoch.get(name) is not None} for epoch in epochs],
        "command": command_text(read_about(findings.folder).get("command") or sys.argv),
        "settings": to_yaml(config.to_dict()),
        "thumbs": thumbnails(shown, loaded.votes, loaded.items.inputs),
    }
    plain: dict[str, Any] = plain_value(data)
    return plain


def plain_value(value: Any) -> Any:
    """JSON has no NumPy numbers, no NaN and no infinity: the last two become None, as missing cells of a table do."""
    if isinstance(value, dict):
        return {str(key): plain_value(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_value(inner) for inner in value]
    value = value.item() if isinstance(value, np.generic) else value
    return None if value is pd.NA or (isinstance(value, float) and not math.isfinite(value)) else value


def gallery_rows(labels: pd.DataFrame, doubtful: pd.DataFrame) -> list[int]:
    """Rows of labels.csv with a changed or unsure label or a doubtful answer, in the order of the queue (`item_order`)."""
    shown_N = labels["status"].isin(SHOWN_STATUSES) | labels["item"].isin(set(doubtful["item"]))
    order = item_order({name: column.tolist() for name, column in labels.fillna({"agreement": 0.0}).items()})
    rows: list[int] = order[shown_N.to_numpy()[order]].tolist()
    return rows


def answers_of(votes: Votes, items: Iterable[int]) -> dict[int, list[dict[str, Any]]]:
    """The answers to each of these items, a row for each label: annotator ("" if unknown), label, weight, and marks."""
    rows: dict[int, list[dict[str, Any]]] = {}
    for item, answers in answers_of_votes(votes, items).items():
        rows[item] = []
        for answer in answers.values():
            mark = {"unknown": True} if answer.unknown else {} if answer.sure else {"sure": False}
            row = {"annotator": answer.annotator, "weight": answer.weight, **mark}
            rows[item] += [{**row, "label": label} for label in answer.labels]
    return rows


def gallery_entries(item_M: Sequence[int], findings: Findings) -> list[dict[str, Any]]:
    """These items with their answers, the classifier's prediction (if there is a classifier) and the nearest neighbours."""
    votes, labels, doubtful = findings.trained.loaded.votes, findings.labels, findings.doubtful
    predicted_NC = None if findings.trained.network is None else findings.trained.predicted_NC
    place = {name: item for item, name in enumerate(votes.items)}
    answers = answers_of(votes, item_M)
    doubts: dict[int, list[dict[str, Any]]] = {item: [] for item in item_M}
    for doubt in doubtful[doubtful["item"].isin({votes.items[item] for item in item_M})].to_dict("records"):
        kept = {key: doubt[key] for key in ("rank", "annotator", "answer", "suggestion")}
        doubts[place[doubt["item"]]].append(kept | {"probability_wrong": min(doubt["probability_wrong"], MAX_PROBABILITY)})
    label_N, confidence_N, status_N = (labels[name].tolist() for name in ("label", "confidence", "status"))
    entries = []
    for item in item_M:
        neighbors = findings.neighbor_NK[item, :NUM_NEIGHBORS].tolist()
        similarities = findings.similarity_NK[item, :NUM_NEIGHBORS].tolist()
        model = []
        if predicted_NC is not None:
            top = np.argsort(-predicted_NC[item], kind="stable")[:3].tolist()
            model = [[votes.class_names[c], round(float(predicted_NC[item, c]), 4)] for c in top]
        entries.append(
            {
                "item": votes.items[item],
                "label": label_N[item],
                "confidence": confidence_N[item],
                "status": status_N[item],
                "votes": answers[item],
                "doubtful": doubts[item],
                "model": model,
                "neighbors": [
                    {"item": votes.items[other], "label": label_N[other], "similarity": round(similarity, 3)}
                    for other, similarity in zip(neighbors, similarities, strict=True)
                ],
            }
        )
    return entries


def none_of_these_groups(findings: Findings) -> list[dict[str, Any]]:
    """The groups of items that may belong to a missing class: file with the list, labels of the result, the class that
    annotators disagree about ("" if none), and the first items."""
    result, none_N = findings.result, findings.result.none_N
    names, found = result.votes.class_names, []
    for number, (item_G, disputed) in enumerate(findings.groups, start=1):
        answers = answers_of(result.votes, item_G.tolist())
        first = [
            {"item": result.votes.items[item], "none_of_these": float(none_N[item]), "votes": answers[item]}
            for item in item_G[:MAX_GROUP_ITEMS].tolist()
            if none_N is not None
        ]
        labels = Counter(names[label] for label in result.label_N[item_G].tolist()).most_common()
        group = {"size": len(item_G), "file": group_file(number), "labels": labels, "disputed": disputed, "items": first}
        found.append(group)
    return found


def guideline_entries(table: pd.DataFrame, votes: Votes) -> list[dict[str, Any]]:
    """The first items of guideline.csv, each with its answers."""
    rows = table.head(MAX_EXAMPLES).to_dict("records")
    place = {name: item for item, name in enumerate(votes.items)} if rows else {}
    answers = answers_of(votes, (place[row["item"]] for row in rows))
    return [{**row, "votes": answers[place[row["item"]]]} for row in rows]


def easy_and_hard(labels: pd.DataFrame, votes: Votes) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The items with the highest confidence, class by class in turn, and those with the lowest; answered items only."""
    ranked = labels[labels["votes"] > 0].sort_values("confidence", ascending=False, kind="stable")
    turn = ranked.groupby("label", sort=False).cumcount()
    columns = ["item", "label", "confidence"]
    easy = ranked.assign(turn=turn).sort_values(["turn", "label"], kind="stable").head(MAX_EXAMPLES)[columns]
    hard = ranked.iloc[::-1].head(MAX_EXAMPLES)[columns].to_dict("records")
    place = {name: item for item, name in enumerate(votes.items)}
    answers = answers_of(votes, (place[row["item"]] for row in hard))
    return easy.to_dict("records"), [{**row, "votes": answers[place[row["item"]]]} for row in hard]


def confusion_cells(confusion: pd.DataFrame, class_names: Sequence[str]) -> dict[str, list[Any]]:
    """The confusion matrix as a sparse table: class numbers of result and answer, and the count, for each cell that is not
    zero. Answers that name no class (but a node of the taxonomy) are left out."""
    number = pd.Series(range(len(class_names)), index=list(class_names))
    named = confusion[confusion["answer"].isin(number.index)]
    count = named.groupby([named["result"].map(number), named["answer"].map(number)])["count"].sum().round(3)
    result, answer = (count.index.get_level_values(level).tolist() for level in ("result", "answer"))
    return {"result": result, "answer": answer, "count": count.tolist()}


def annotator_rows(annotators: pd.DataFrame, confusion: pd.DataFrame, class_names: Sequence[str]) -> list[dict[str, Any]]:
    """Rows of annotators.csv, each with the annotator's own confusion matrix."""
    rows, empty = annotators.head(MAX_CONFUSIONS).to_dict("records"), confusion.iloc[:0]
    own = dict(list(confusion[confusion["annotator"].isin({row["annotator"] for row in rows})].groupby("annotator")))
    return [{**row, "confusion": confusion_cells(own.get(row["annotator"], empty), class_names)} for row in rows]


def command_text(argv: Sequence[object]) -> str:
    """The command line that made the run: `pals fit ...`, or the Python program that called `pals.fit`."""
    program, *words = map(str, argv)
    ours = Path(program).stem == "pals" or Path(program).parts[-2:] == ("pals", "__main__.py")
    return shlex.join(["pals", *words] if ours else ["python", *filter(None, (program, *words))])
