"""What people said on the page, as a table that PALS reads like any other with answers."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from pals.labels.cells import DONT_KNOW, join_labels
from pals.review.store import Answer

COLUMNS = ("item", "annotator", "label", "sure", "time", "remark")
NONE_OF_THESE = "none of these"


def answers_csv(answers: Iterable[Answer], separator: str | None) -> str:
    """One row per answer: item, worker, label ("newt|frog" where several are possible, "don't know"), sure, time, remark.

    Without a separator the candidates of one answer stand in rows of their own, with the same answer_id. "None of these" has no
    label, so that it makes no class; it stands in `remark`, which is there only where anybody said so. Who skipped an item gave
    no answer."""
    import pandas as pd  # not before somebody wants the file

    from pals.util.csv_text import csv_text

    rows = [row for answer in answers if answer.kind != "skip" for row in _rows(answer, separator)]
    table = pd.DataFrame(rows, columns=pd.Index([*COLUMNS, "answer_id"]))
    unused = [name for name, used in (("remark", table["remark"].any()), ("answer_id", separator is None)) if not used]
    return csv_text(table.drop(columns=unused))


def none_of_these(answers: Iterable[Answer]) -> list[str]:
    """The items of which somebody said that their class is missing: a list for `pals update --add-class`."""
    return list(dict.fromkeys(answer.item for answer in answers if answer.kind == "none-of-these"))


def _rows(answer: Answer, separator: str | None) -> list[tuple[object, ...]]:
    when = datetime.fromtimestamp(answer.at, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    remark = NONE_OF_THESE if answer.kind == "none-of-these" else ""
    rest = (answer.sure, when, remark, str(answer.id))
    return [(answer.item, answer.person, cell, *rest) for cell in _cells(answer, separator)]


def _cells(answer: Answer, separator: str | None) -> tuple[str, ...]:
    if answer.kind != "label":
        return (DONT_KNOW if answer.kind == "dont-know" else "",)
    return answer.labels if separator is None else (join_labels(answer.labels, separator),)
