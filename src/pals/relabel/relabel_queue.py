"""Which items should a person look at next? A queue from a finished run, for a spreadsheet."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from pals.labels.cells import join_labels, split_labels
from pals.pipeline.finished_run import NEEDED, SEVERAL, read_table, separator_of, taxonomy_of
from pals.pipeline.tables.unsure_columns import counted, said_in_words
from pals.relabel.queue import Given, Labels, in_order, itself, numbers, reason_of, single
from pals.util.errors import InputError
from pals.util.files import mark_as_text

COLUMNS = ("rank", "item", "suggestion", "confidence", "second", "reason", "said")
TO_FILL_IN = ("label", "annotator")
LABELS = ("suggestion", "second")


def relabel_queue(run: Path | str, top: int = 200, paid: Collection[str] = ()) -> pd.DataFrame:
    """The `top` items of a run whose result a person's answer is most likely to improve, first those to look at first; after
    them those for whose answer a budget pays (`paid`), as far as they are not among them.

    Columns: rank, item, suggestion (the result), confidence, second (the class that is likeliest after it), reason (why it is
    in the queue), said (what people answered). Items with a known right label are never in it.
    """
    if top < 1:
        raise InputError(f"A queue of {top} items: give at least 1.")
    labels, doubtful, votes = (read_table(Path(run), name) for name in ("labels.csv", "doubtful.csv", "votes.csv"))
    numbers(doubtful.to_dict("list"), "probability_wrong")  # refuses what is none
    separator, tree = separator_of(run), taxonomy_of(run)
    below = itself if tree is None else tree.below
    columns = labels[list(NEEDED["labels.csv"])].to_dict("list")
    rows = in_order(columns, top).tolist()
    if paid:
        first, bought = set(rows), set(paid)
        rows += [row for row in in_order(columns).tolist() if row not in first and columns["item"][row] in bought]
    chosen = labels.iloc[rows]
    given = _given(votes[votes["item"].isin(set(chosen["item"]))])
    said, words = _said(counted(given), separator), said_in_words(given, separator, SEVERAL)
    worst = doubtful.drop_duplicates("item").set_index("item").to_dict("index")  # the file has the most certain first
    queue = []
    for rank, row in enumerate(chosen.to_dict("records"), start=1):
        answers = said.get(row["item"], {})
        queue.append(
            {
                "rank": rank,
                "item": row["item"],
                "suggestion": row["label"],
                "confidence": float(row["confidence"]),
                "second": _second(row, answers),
                "reason": reason_of(row, answers, worst.get(row["item"]), below),
                "said": words.get(row["item"], ""),
            }
        )
    return pd.DataFrame(queue, columns=pd.Index(COLUMNS))


def _given(votes: pd.DataFrame) -> pd.DataFrame:
    """What people said, weights as numbers."""
    gold = votes["is_gold"].str.casefold().isin({"true", "1"})
    return votes[~gold].assign(weight=lambda frame: numbers(frame.to_dict("list"), "weight", missing=1.0))


def _said(votes: pd.DataFrame, separator: str | None) -> dict[str, dict[Labels, Given]]:
    """For each item its answers with what they weigh and how many people gave them, the most frequent first."""
    groups = votes.assign(counts=votes["weight"] > 0).groupby(["item", "label"], sort=True)[["weight", "counts"]].sum()
    found: dict[str, dict[Labels, Given]] = {}
    for (item, cell), weight, people in groups.sort_values("weight", ascending=False, kind="stable").itertuples():
        labels = tuple(split_labels(cell, separator)) if separator else (cell,)
        found.setdefault(item, {})[labels] = Given(round(float(weight), 6), int(people))
    return found


def _second(row: Mapping[str, Any], answers: dict[Labels, Given]) -> str:
    """The second choice; of a run of an earlier version, which does not name it, what most of the others said."""
    others = (label for label in single(answers) if label != row["label"])
    return str(row["second"]) if "second" in row else next(others, "")


# ---- what goes out


def to_fill_in(queue: pd.DataFrame, separator: str | None = SEVERAL) -> pd.DataFrame:
    """The queue with two blank columns, label and annotator, for a person to fill in. What is left blank is no answer; the
    file, saved as CSV, is read like any other with votes. No cell is one that a spreadsheet takes for a formula, and a label
    with the separator in its name is written as it has to be copied: "red\\|black"."""
    shown = {name: queue[name].map(lambda label: join_labels([label], separator)) for name in LABELS if separator}
    queue = queue.assign(**shown)
    texts = {name: queue[name].map(mark_as_text) for name in ("item", *LABELS, "reason", "said")}
    blank = queue.assign(**texts, **dict.fromkeys(TO_FILL_IN, ""))
    more = [name for name in queue.columns if name not in COLUMNS]
    return blank[["rank", "item", *TO_FILL_IN, *COLUMNS[2:], *more]]
