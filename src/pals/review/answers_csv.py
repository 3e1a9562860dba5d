"""The answers of a review as a table that PALS reads like any file of answers."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from pals.labels.cells import DONT_KNOW, join_labels
from pals.review.answer_log import ReviewAnswer

ANSWER_COLUMNS = ("item", "annotator", "label", "sure", "time", "audit", "remark")
NONE_OF_THESE_REMARK = "none of these"


def answers_csv(answers: Iterable[ReviewAnswer], separator: str | None) -> str:
    """One row per answer: item, annotator, label ("newt|frog" for several, "don't know"), sure, time.

    Without a separator the candidates of one answer are rows with the same answer_id. "None of these" has no label, so that it
    makes no class, and stands in `remark`; `audit` marks items that were drawn at random. Unused columns are left out, as are
    skipped items.

    Args:
        answers: The standing answers.
        separator: Text between the candidates in a cell, or None.
    """
    import pandas as pd  # slow to import; only the file needs it

    from pals.util.csv_text import csv_text

    rows = [row for answer in answers if answer.kind != "skip" for row in _rows(answer, separator)]
    table = pd.DataFrame(rows, columns=pd.Index([*ANSWER_COLUMNS, "answer_id"]))
    used = {"remark": table["remark"].any(), "audit": table["audit"].any(), "answer_id": separator is None}
    unused = [name for name in used if not used[name]]
    return csv_text(table.drop(columns=unused))


def none_of_these(answers: Iterable[ReviewAnswer]) -> list[str]:
    """The items marked as none of the classes, each once."""
    return list(dict.fromkeys(answer.item for answer in answers if answer.kind == "none-of-these"))


def _rows(answer: ReviewAnswer, separator: str | None) -> list[tuple[object, ...]]:
    when = datetime.fromtimestamp(answer.at, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    remark = NONE_OF_THESE_REMARK if answer.kind == "none-of-these" else ""
    rest = (answer.sure, when, answer.audit, remark, str(answer.id))
    if answer.kind != "label":
        cells: tuple[str, ...] = (DONT_KNOW if answer.kind == "dont-know" else "",)
    else:
        cells = answer.labels if separator is None else (join_labels(answer.labels, separator),)
    return [(answer.item, answer.annotator, cell, *rest) for cell in cells]
