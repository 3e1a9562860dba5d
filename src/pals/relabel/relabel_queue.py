"""The queue of `pals relabel`: the items of a finished run whose labels another answer is most likely to improve."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import numpy as np
import pandas as pd

from pals.labels.cells import join_labels
from pals.pipeline.finished_run import SEVERAL, read_table, separator_of, taxonomy_of
from pals.pipeline.item_answers import answers_of_rows, in_words, itself
from pals.pipeline.item_order import DISAGREEMENT, RANDOM_CHECK, column_of_numbers, item_order, with_audit
from pals.relabel.queue_reasons import queue_reason
from pals.runs.rounds import current_round
from pals.util.errors import InputError
from pals.util.files import mark_as_text

QUEUE_COLUMNS = ("rank", "item", "suggestion", "confidence", "second", "reason", "said", "audit")
TO_FILL_IN = ("label", "annotator")
LABEL_COLUMNS = ("suggestion", "second")


def relabel_queue(run: Path | str, top: int = 200, paid: Collection[str] = (), audit: float = 0.0) -> pd.DataFrame:
    """The `top` items in the order of `item_order`, a share of them drawn at random, and after them the items of `paid` that
    are not among them.

    Args:
        run: Folder of a finished `pals fit`.
        top: Number of items, at least 1. Gold items are left out.
        paid: Names of items whose next answer a budget pays for.
        audit: Share of the items that is drawn at random from all but gold ones, by the number of the round.

    Returns:
        Columns rank, item, suggestion (the label), confidence, second (the next likely class), reason (why the item is in
        the queue), said (the answers in words) and audit (whether the item was drawn at random).
    """
    if top < 1:
        raise InputError(f"A queue of {top} items: give at least 1.")
    if not 0 <= audit < 1:
        raise InputError(f"--audit {audit:g}: give a share from 0 to less than 1.")
    labels, doubtful, votes = (read_table(Path(run), name) for name in ("labels.csv", "doubtful.csv", "votes.csv"))
    for table, column, missing in ((doubtful, "probability_wrong", None), (votes, "weight", 1.0)):
        column_of_numbers(table.to_dict("list"), column, missing)  # an error names the cell that is no number
    separator, tree = separator_of(run), taxonomy_of(run)
    order, fixed = item_order(labels.to_dict("list")), int((labels["status"] == DISAGREEMENT).sum())
    first, audit_M = with_audit(order, order, top, audit, current_round(Path(run)).number, fixed)
    bought, listed = set(paid), set(first.tolist())
    more = [row for row in order.tolist() if labels["item"][row] in bought and row not in listed]
    chosen = labels.iloc[first.tolist() + more].assign(audit=np.concatenate([audit_M, np.zeros(len(more), dtype=bool)]))
    rows_of = {item: rows.to_dict("records") for item, rows in votes[votes["item"].isin(set(chosen["item"]))].groupby("item")}
    doubt_of = doubtful.drop_duplicates("item").set_index("item").to_dict("index")  # the likeliest error comes first
    queue = []
    for rank, row in enumerate(chosen.to_dict("records"), start=1):
        answers = answers_of_rows(rows_of.get(row["item"], ()), separator)
        confidence, below = float(row["confidence"]), itself if tree is None else tree.below
        reason = queue_reason(row["label"], confidence, answers, doubt_of.get(row["item"]), below, row["status"])
        reason = RANDOM_CHECK if row["audit"] and row["status"] != DISAGREEMENT else reason
        queue.append((rank, row["item"], row["label"], confidence, row["second"], reason, in_words(answers), row["audit"]))
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
