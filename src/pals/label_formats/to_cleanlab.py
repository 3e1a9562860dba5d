"""Tables with the columns of cleanlab: label_issues.csv (one row per answer, as `CleanLearning.get_label_issues`),
label_quality.csv and annotator_stats.csv (as `get_label_quality_multiannotator`).

The quality of an answer is cleanlab's self-confidence, the probability of the given label:
    label_quality = sum over the answer's labels of p_ic
with p_ic of labels.csv, which lists three classes; the rest is spread evenly over the others.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from pals.label_formats.run_labels import LabelledItem, RunLabels
from pals.pipeline.finished_run import UNNAMED, read_columns, taxonomy_of
from pals.pipeline.item_answers import ItemAnswer, itself
from pals.util.csv_text import write_csv

ISSUE_COLUMNS = ("item", "annotator", "is_label_issue", "label_quality", "given_label", "predicted_label")
QUALITY_COLUMNS = ("item", "num_annotations", "consensus_label", "annotator_agreement", "consensus_quality_score")
ANNOTATOR_COLUMNS = ("annotator", "annotator_quality", "num_examples_labeled", "agreement_with_consensus", "worst_class")


def write(labels: RunLabels, target: Path) -> list[str]:
    """Fill the folder `target`."""
    tree, doubtful = taxonomy_of(labels.folder), read_columns(labels.folder, "doubtful.csv")
    below = itself if tree is None else tree.below
    issues = set(zip(doubtful["item"], doubtful["annotator"], doubtful["answer"], strict=True))
    answered, quality = list[tuple[object, ...]](), list[tuple[object, ...]]()
    for item in labels.items:
        given = [answer for answer in item.answers if not (answer.gold or answer.unknown)]
        share = _probabilities(item, labels.classes)
        agree = 0
        for answer in given:
            named = {name for label in answer.labels for name in below(label)}
            agree += item.label in named
            who, text = answer.annotator or UNNAMED, _said(answer)
            right = round(min(1.0, sum(share.get(name, 0.0) for name in named)), 6)
            answered.append((item.item, who, (item.item, who, text) in issues, right, text, item.label))
        agreement = round(agree / len(given), 6) if given else None
        quality.append((item.item, len(given), item.label, agreement, item.confidence))
    issue_table = pd.DataFrame(answered, columns=list(ISSUE_COLUMNS))
    write_csv(target / "label_issues.csv", issue_table)
    write_csv(target / "label_quality.csv", pd.DataFrame(quality, columns=list(QUALITY_COLUMNS)))
    write_csv(target / "annotator_stats.csv", _annotator_table(issue_table))
    return []


def _probabilities(item: LabelledItem, classes: tuple[str, ...]) -> dict[str, float]:
    """The probability of each class: of three as listed, of the others evenly what is left."""
    listed = {item.label: item.confidence}
    for rank in ("second", "third"):
        if item.row.get(rank):
            listed[item.row[rank]] = float(item.row[f"{rank}_probability"])
    others = [name for name in classes if name not in listed]
    left = max(0.0, 1 - sum(listed.values())) / max(len(others), 1)
    return listed | dict.fromkeys(others, left)


def _said(answer: ItemAnswer) -> str:
    """The answer as doubtful.csv has it: without marks of being unsure."""
    return " + ".join(answer.labels)


def _annotator_table(issues: pd.DataFrame) -> pd.DataFrame:
    """One row per annotator, the lowest quality first."""
    rows = []
    for name, own in issues.groupby("annotator", sort=True):
        right = own.apply(lambda row: row["predicted_label"] in row["given_label"].split(" + "), axis=1)
        worst = own.groupby("given_label")["label_quality"].mean().idxmin()
        rows.append((name, own["label_quality"].mean().round(6), len(own), right.mean().round(6), worst))
    table = pd.DataFrame(rows, columns=list(ANNOTATOR_COLUMNS))
    return table.sort_values(["annotator_quality", "annotator"], kind="stable").reset_index(drop=True)
