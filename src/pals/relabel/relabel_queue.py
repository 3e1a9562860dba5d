"""The queue of `pals relabel`: the items of a finished run whose labels another answer is most likely to improve."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pandas as pd

from pals.labels.cells import join_labels
from pals.pipeline.finished_run import SEVERAL, read_table, separator_of, taxonomy_of
from pals.pipeline.item_answers import answers_of_rows, in_words, itself
from pals.pipeline.item_order import column_of_numbers, item_order
from pals.relabel.queue_reasons import queue_reason
from pals.util.errors import InputError
from pals.util.files import mark_as_text

QUEUE_COLUMNS = ("rank", "item", "suggestion", "confidence", "second", "reason", "said")
TO_FILL_IN = ("label", "annotator")
LABEL_COLUMNS = ("suggestion", "second")


def relabel_queue(run: Path | str, top: int = 200, paid: Collection[str] = ()) -> pd.DataFrame:
    """The `top` items in the order of `item_order`, and after them the items of `paid` that are not among them.

    Args:
        run: Folder of a finished `pals fit`.
        top: Number of items, at least 1. Gold items are left out.
        paid: Names of items whose next answer a budget pays for.

    Returns:
        Columns rank, item, suggestion (the label), confidence, second (the next likely class), reason (why the item is in
        the queue) and said (the answers in words).
    """
    if top < 1:
        raise InputError(f"A queue of {top} items: give at least 1.")
    labels, doubtful, votes = (read_table(Path(run), name) for name in ("labels.csv", "doubtful.csv", "votes.csv"))
    for table, column, missing in ((doubtful, "probability_wrong", None), (votes, "weight", 1.0)):
        column_of_numbers(table.to_dict("list"), column, missing)  # an error names the cell that is no number
    separator, tree = separator_of(run), taxonomy_of(run)
    order = item_order(labels.to_dict("list")).tolist()
    bought = set(paid)
    chosen = labels.iloc[order[:top] + [row for row in order[top:] if labels["item"][row] in bought]]
    rows_of = {item: rows.to_dict("records") for item, rows in votes[votes["item"].isin(set(chosen["item"]))].groupby("item")}
    doubt_of = doubtful.drop_duplicates("item").set_index("item").to_dict("index")  # the likeliest error comes first
    queue = []
    for rank, row in enumerate(chosen.to_dict("records"), start=1):
        answers = answers_of_rows(rows_of.get(row["item"], ()), separator)
        confidence, below = float(row["confidence"]), itself if tree is None else tree.below
        reason = queue_reason(row["label"], confidence, answers, doubt_of.get(row["item"]), below, row["status"])
        queue.append((rank, row["item"], row["label"], confidence, row["second"], reason, in_words(answers)))
    return pd.DataFrame(queue, columns=list(QUEUE_COLUMNS))


def to_fill_in(queue: pd.DataFrame, separator: str | None = SEVERAL) -> pd.DataFrame:
    """The queue with two blank columns, label and annotator. What is left blank is no answer; the file, saved as CSV, is read
    like any other with answers. No cell is one that a spreadsheet takes for a formula, and a label with the separator in its
    name is written as it has to be copied: "red\\|black"."""
    shown = {name: queue[name].map(lambda label: join_labels([label], separator)) for name in LABEL_COLUMNS if separator}
    queue = queue.assign(**shown)
    texts = {name: queue[name].map(mark_as_text) for name in ("item", *LABEL_COLUMNS, "reason", "said")}
    blank = queue.assign(**texts, **dict.fromkeys(TO_FILL_IN, ""))
    more = [name for name in queue.columns if name not in QUEUE_COLUMNS]
    return blank[["rank", "item", *TO_FILL_IN, *QUEUE_COLUMNS[2:], *more]]
