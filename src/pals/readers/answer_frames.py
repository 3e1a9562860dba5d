"""Answers (`Votes`) as tables of one answer per row, which `read_votes` reads back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pals.labels.cells import DONT_KNOW, MISSING, join_labels, split_labels
from pals.readers.column_types import WHOLE
from pals.readers.graded_answers import percent_texts
from pals.readers.graded_notation import maybe_graded
from pals.readers.taxonomy_answers import node_of_groups
from pals.readers.times import written
from pals.readers.unsure_answers import unmarked

if TYPE_CHECKING:
    from pals.readers.votes import Votes


def answer_frames(votes: Votes, separator: str | None, rows: int | None) -> Iterator[pd.DataFrame]:
    """The parts of `Votes.frames`."""
    names, items = np.array(votes.class_names, dtype=object), np.array(votes.items, dtype=object)
    annotators = np.array([*votes.annotators, ""], dtype=object)  # the last for -1
    known = (votes.gold_I >= 0).nonzero()[0]
    gold = {"item": items[known], "annotator": "", "label": names[votes.gold_I[known]], "weight": 1.0, "is_gold": True}
    if separator is not None:
        gold["label"] = np.array([join_labels([name], separator) for name in gold["label"]], dtype=object)
    unknown = {
        **gold,
        "item": items[votes.unknown_item_U],
        "annotator": annotators[votes.unknown_annotator_U],
        "label": DONT_KNOW,
    }
    unknown["is_gold"] = False
    if votes.audit_I.any():
        gold["audit"], unknown["audit"] = votes.audit_I[known], votes.audit_I[votes.unknown_item_U]
    every, cells = _cells(votes, separator)
    # Columns that are written only if needed, with the value of the rows of gold labels and of "don't know".
    more: dict[str, tuple[np.ndarray, object]] = {}
    if _needs_ids(votes, every):
        more["answer_id"] = votes.answer_R, ""
    odd = (name in MISSING or unmarked(name) or WHOLE.match(name) or maybe_graded(name) for name in votes.class_names)
    if votes.graded or not votes.sure_R.all() or any(odd):
        more["sure"] = votes.sure_R, True
    if votes.trusted_R.any():
        more["trusted"] = votes.trusted_R, False
    for name, column_R, value in (("time", votes.time_R, ""), ("seconds", votes.seconds_R, np.nan)):
        if not np.isnan(column_R).all():
            more[name] = column_R, value
    if votes.rank_R.any():
        more["rank"] = votes.rank_R, 0
    if not np.isnan(votes.percent_R).all():
        more["percent"] = votes.percent_R, ""
    rows = rows or max(len(every), 1)
    for start in range(0, max(len(every), 1), rows):
        first = every[start : start + rows]
        columns = {
            "item": items[votes.item_R[first]],
            "annotator": annotators[votes.annotator_R[first]],
            "label": cells[start : start + rows],
            "weight": votes.weight_R[first],
            "is_gold": False,
        } | {name: column_R[first] for name, (column_R, _) in more.items()}
        if "answer_id" in columns:
            columns["answer_id"] = columns["answer_id"].astype(str).astype(object)
        if "time" in columns:
            columns["time"] = written(columns["time"])
        if "percent" in columns:
            columns["percent"] = percent_texts(columns["percent"])
        if "audit" in gold:
            columns["audit"] = votes.audit_I[votes.item_R[first]]
        yield pd.DataFrame(columns)
    for part in (unknown, gold):
        yield pd.DataFrame(part | {name: value for name, (_, value) in more.items()})


def _cells(votes: Votes, separator: str | None) -> tuple[np.ndarray, np.ndarray]:
    """The first row of each cell of labels, and the cells."""
    place_R = _places(votes, separator)
    _, first, size = np.unique(place_R, return_index=True, return_counts=True)
    node = node_of_groups(votes.taxonomy, votes.label_R, place_R, len(first))

    def alone(names: Sequence[str]) -> np.ndarray:
        return np.array([name if separator is None else join_labels([name], separator) for name in names], dtype=object)

    cells = alone(votes.class_names)[votes.label_R[first]]
    if votes.taxonomy is not None:
        cells = np.where(node >= 0, alone((*votes.taxonomy.nodes, ""))[node], cells)
    rest_R = (size > 1)[place_R] & (node < 0)[place_R]
    for place, labels in pd.Series(votes.label_R[rest_R]).groupby(place_R[rest_R]):
        cells[place] = join_labels([votes.class_names[label] for label in labels], separator or "")
    return first, cells


def _places(votes: Votes, separator: str | None) -> np.ndarray:
    """The number of each row's cell: that of its answer, unless the answer does not fit into one."""
    rows, answers = len(votes.item_R), int(votes.answer_R.max(initial=-1)) + 1
    apart_R = np.zeros(rows, dtype=bool)
    several = np.flatnonzero((np.bincount(votes.answer_R) > 1)[votes.answer_R])
    times = (np.nan_to_num(column_R, nan=-1) for column_R in (votes.time_R[several], votes.seconds_R[several]))
    for column in (votes.weight_R[several], votes.sure_R[several].astype(np.int64), votes.rank_R[several], *times):
        by_answer = pd.Series(column).groupby(votes.answer_R[several])
        apart_R[several] |= (by_answer.transform("max") > by_answer.transform("min")).to_numpy()
    apart_R |= (np.bincount(votes.answer_R, ~np.isnan(votes.percent_R)) > 0)[votes.answer_R]
    if separator is None:  # only the name of a node stands for several labels
        apart_R = apart_R | (node_of_groups(votes.taxonomy, votes.label_R, votes.answer_R, answers) < 0)[votes.answer_R]
        first = np.unique(votes.answer_R, return_index=True)[1]
        return np.unique(np.where(apart_R, np.arange(rows), first[votes.answer_R]), return_inverse=True)[1]
    if len(separator) > 1:  # "a|" and "b" with "||" between them would come back as "a" and "|b"
        labels = pd.Series([votes.class_names[label] for label in votes.label_R]).groupby(votes.answer_R).agg(list)
        odd = [split_labels(join_labels(found, separator), separator) != found for found in labels]
        apart_R = apart_R | pd.Series(odd, index=labels.index, dtype=bool)[votes.answer_R].to_numpy()
    key_R = np.where(apart_R, rows + np.arange(rows), votes.answer_R)
    return np.asarray(np.unique(key_R, return_inverse=True)[1], dtype=np.int64)


def _needs_ids(votes: Votes, first: np.ndarray) -> bool:
    """Whether, with one row for each of these, the rows of an item and annotator are not just those of one answer."""
    named = votes.annotator_R[first] >= 0
    if pd.Series(votes.answer_R[first[~named]]).duplicated().any():
        return True
    first = first[named]
    code, answer = votes.item_R[first] * len(votes.annotators) + votes.annotator_R[first], votes.answer_R[first]
    order = np.lexsort((answer, code))
    return bool(((np.diff(code[order]) == 0) & (np.diff(answer[order]) != 0)).any())
