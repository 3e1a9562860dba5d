"""From readers' tables to votes: names cleaned, blanks and repeats left out and counted, classes put in order."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from pals.labels.cells import MISSING, split_labels
from pals.labels.taxonomy import Taxonomy
from pals.readers.column_types import WHOLE
from pals.readers.matching import is_plain, one_spelling
from pals.readers.read_summary import ReadSummary
from pals.readers.reader_table import Coded, Table, Tally
from pals.readers.unsure_answers import Marks
from pals.readers.votes import COLUMNS, Votes
from pals.readers.warnings import remarks, silent_people
from pals.util.errors import InputError, unknown
from pals.util.words import how_many, quoted

SPOKEN = frozenset({"None", "N/A", "n/a", "null", "NULL"})
"""Those among them that a person may have meant."""

NO_LABEL = "no answer (blank)"
NO_ITEM = "no item is named"
REPEATED = "the same person's same answer again"
ANSWERED = '"don\'t know" of a person who does give an answer'
GOLD_UNCLEAR = "a gold answer with several labels, or against another one for the same item"
GOLD_UNSURE = "a gold answer that is marked as unsure"
TIMES_OF_ITEMS = "Times are not read: all answers to an item have the same one, as if it were the item's"


def build(
    tables: Sequence[Table],
    format_name: str,
    *,
    class_names: Sequence[str] | None,
    no_answer: Collection[str],
    separator: str | None,
    taxonomy: Taxonomy | None = None,
) -> Votes:
    """All tables together. With a taxonomy its leaves are the classes, and a label may be any node."""
    skipped = Tally()
    for table in tables:
        skipped.merge(table.skipped)
    rows = sum(len(table.place_R) for table in tables) + sum(count for count, _ in skipped.found.values())
    declared = [*(class_names or ()), *(name for table in tables for name in table.classes or ())]
    declared += taxonomy.nodes if taxonomy is not None else ()
    given = frozenset(declared)
    parts = [[_split(cell, table, separator) for cell in table.label.names] for table in tables]
    ours = {name for table, found in zip(tables, parts, strict=True) if table.as_written for names in found for name in names}
    blank = MISSING - (given | ours) | {""}  # a class may be called so if it is declared
    written = [
        [_pieces(cell, names, given, blank) for cell, names in zip(table.label.names, found, strict=True)]
        for table, found in zip(tables, parts, strict=True)
    ]
    spoken = sorted({name for found in parts for names in found for name in names} & SPOKEN & blank)
    if taxonomy is not None:
        written = [[[taxonomy.by_path.get(name, name) for name in pieces] for pieces in cells] for cells in written]
    for table, cells in zip(tables, written, strict=True):
        declared += [name for pieces in cells for name in pieces] if table.as_written else []
    marks = Marks((name for cells in written for pieces in cells for name in pieces), declared, no_answer, taxonomy)
    _refuse_unknown_as_class(taxonomy.leaves if taxonomy is not None else class_names or (), marks)
    kept = frozenset(declared)
    clean = [_with_labels(_with_names(table), cells, marks, blank, kept) for table, cells in zip(tables, written, strict=True)]
    item, items = _union([table.item for table in clean], [name for table in tables for name in _lone(table)])
    worker, workers = _union([table.worker for table in clean])
    label, labels = _union([table.label for table in clean])
    classes, class_of = _classes(clean, item, label, labels, class_names, taxonomy)
    joined = _Joined(clean, item, worker, [np.append(class_of, -1)[code_R] for code_R in label])
    joined.drop(joined.item_R < 0, NO_ITEM, skipped)
    no_label = f"no answer (blank or {', '.join(map(repr, spoken))})" if spoken else NO_LABEL
    joined.drop((joined.label_R < 0) & ~joined.unknown_R, no_label, skipped)
    workers, silent = joined.number_workers(workers)
    unknown_U2 = joined.take_unknown(skipped)
    of_items = joined.drop_times_of_items()
    gold_I = joined.take_gold(len(items), len(classes), skipped)
    joined.drop_repeats(len(classes), skipped)
    files = tuple(str(table.path) for table in tables)
    if not len(joined.item_R) and not (gold_I >= 0).any():
        silent = [f'{how_many(len(unknown_U2), "time")} "don\'t know"'] if len(unknown_U2) else []
        reasons = "; ".join([*map(str, skipped.done()), *silent]) or "it names no answer"
        raise InputError(f"{', '.join(files)}: nothing to learn from was found: {reasons}. Check the file and its format.")
    answer_R = pd.factorize(joined.answer_R)[0]
    notes = [note for table in tables for note in table.notes]
    notes += [*silent_people(silent), *marks.notes(), *([TIMES_OF_ITEMS] if of_items else [])]
    if spoken:
        notes.append(f"{', '.join(map(repr, spoken))}: read as no answer; if it is a class, name all classes with --classes")
    summary = ReadSummary(
        files=files,
        format=format_name,
        rows=rows,
        answers=int(answer_R.max(initial=-1)) + 1,
        items=len(items),
        workers=len(workers),
        classes=len(classes),
        gold=int((gold_I >= 0).sum()),
        skipped=skipped.done(),
        notes=(*notes, *remarks(joined, items, workers, classes, gold_I)),
        unsure=len(np.unique(answer_R[~joined.sure_R])),
        unknown=len(unknown_U2),
    )
    columns = (joined.item_R, joined.worker_R, joined.label_R, answer_R, joined.weight_R, gold_I)
    marked = (joined.sure_R, *unknown_U2.T, joined.time_R, joined.seconds_R)
    return Votes(tuple(items), tuple(workers), classes, *columns, summary, taxonomy, *marked)


def _refuse_unknown_as_class(classes: Sequence[str], marks: Marks) -> None:
    """Its answers would count as "don't know"."""
    found = next((name for name in classes if marks.is_unknown(name)), None)
    if found is not None:
        raise InputError(
            f'The class {quoted(found)} is one of the words for "don\'t know", which is no class. Leave it out of --classes '
            f"(class_names) or the taxonomy, or rename it there and in the answers (in Python, no_answer replaces these words)."
        )


# ---- one table


def _with_names(table: Table) -> Table:
    """Items and annotators without blanks around their names, paths in one spelling. A person may be called "None"."""
    items = [name.strip() for name in table.item.names]
    if not is_plain("\n".join(items)):
        items = [one_spelling(name) for name in items]
    workers = [name.strip() for name in table.worker.names]
    return replace(table, item=_recoded(table.item, items), worker=_recoded(table.worker, workers, frozenset({""})))


def _lone(table: Table) -> list[str]:
    names = [one_spelling(name.strip()) for name in table.lone_items]
    return [name for name in names if name not in MISSING]


def _recoded(column: Coded, names: Sequence[str], blank: frozenset[str] = MISSING) -> Coded:
    """The column with other names, of which several may be the same and some nothing."""
    if blank.isdisjoint(names) and len(set(names)) == len(names):
        return Coded(column.code_R, _objects(names))
    number, unique = pd.factorize(_objects([None if name in blank else name for name in names]))
    return Coded(np.append(number, -1)[column.code_R], unique)


def _split(cell: str, table: Table, separator: str | None) -> list[str]:
    return [name.strip() for name in (split_labels(cell, separator) if separator and table.splits else [cell])]


def _pieces(cell: str, names: Sequence[str], given: Collection[str], blank: Collection[str]) -> list[str]:
    """What a cell names, of which these are the parts. One that is the name of a given class, separator and all, is that class,
    unless its parts are given classes, too."""
    if len(names) > 1 and cell.strip() in given and not all(name in given for name in names):
        names = [cell.strip()]
    return [name for name in names if name not in blank]


def _with_labels(
    table: Table, written: Sequence[Sequence[str]], marks: Marks, blank: frozenset[str], kept: Collection[str]
) -> Table:
    """Single labels, without their marks; a cell that holds several becomes several rows of one answer, and so does a node.
    Names in `kept` stay as they are."""
    named_L = [[name for name in pieces if not marks.is_unknown(name)] for pieces in written]
    doubt_L = np.array([len(named) < len(pieces) for named, pieces in zip(named_L, written, strict=True)] + [False])
    parts_L = [marks.leaves(named) for named in named_L]
    table = replace(table, answer_R=_answers(table), grouped=table.answer_R is None or bool((table.answer_R < 0).all()))
    count_L = np.array([len(labels) for labels in parts_L], dtype=np.int64)
    code_R = table.label.code_R
    if (count_L > 1).any():
        times_R = np.maximum(np.append(count_L, 0)[code_R], 1)
        row_E = np.repeat(np.arange(len(code_R)), times_R)
        nth_E = np.arange(len(row_E)) - np.repeat(np.cumsum(times_R) - times_R, times_R)
        start_L = np.cumsum(count_L) - count_L
        answered_E = np.append(count_L, 0)[code_R[row_E]] > 0
        label_E = np.where(answered_E, np.append(start_L, 0)[code_R[row_E]] + nth_E, -1)
        table = table.take(row_E, Coded(label_E, _objects([label for labels in parts_L for label in labels])))
    else:
        row_E = np.arange(len(table.label.code_R))
        label = Coded(table.label.code_R, _objects([labels[0] if labels else "" for labels in parts_L]))
        table = replace(table, label=label)
    doubt_E, label_E = doubt_L[code_R[row_E]], table.label.code_R
    sure_E = ~doubt_E & np.array([*(name not in marks.bare for name in table.label.names), True])[label_E]
    table = replace(
        table,
        sure_R=sure_E if table.sure_R is None else sure_E & table.sure_R,
        unknown_R=doubt_E & ~np.append(count_L, 0)[code_R[row_E]].astype(bool),
    )
    names = [str(marks.bare.get(name, name)) for name in table.label.names]
    numbers = [WHOLE.sub(r"\1", name) for name in names]
    if all(re.fullmatch("[0-9]+", number) for number in numbers if number):
        names = [name if name in kept else number for name, number in zip(names, numbers, strict=True)]
    return replace(table, label=_recoded(table.label, names, blank), classes=marks.classes(table.classes))


def _answers(table: Table) -> np.ndarray:
    """The number of each row's answer: the reader's, or one for each item and annotator; the unnamed answer once each."""
    if table.answer_R is not None and not (table.answer_R < 0).any():
        return table.answer_R
    item_R, worker_R = table.item.code_R, table.worker.code_R
    alone_R = (worker_R < 0) | (item_R < 0)
    key_R = item_R * (len(table.worker.names) + 1) + worker_R
    key_R = np.where(alone_R, -1 - np.arange(len(key_R)), key_R)
    if table.gold_R is not None:  # what a person knows to be right is not part of what the person thought
        key_R = key_R * 2 + table.gold_R
    joined_R = np.asarray(pd.factorize(key_R)[0], dtype=np.int64)
    if table.answer_R is None:
        return joined_R
    return np.where(table.answer_R < 0, joined_R + table.answer_R.max() + 1, table.answer_R)


# ---- all tables


def _union(columns: Sequence[Coded], more: Sequence[str] = ()) -> tuple[list[np.ndarray], list[str]]:
    """The columns' numbers for one common list of names."""
    if len(columns) == 1 and not more:
        return [columns[0].code_R], columns[0].names.tolist()
    number, names = pd.factorize(np.concatenate([column.names for column in columns] + [_objects(more)]).astype(object))
    codes, start = [], 0
    for column in columns:
        codes.append(np.append(number[start : start + len(column.names)], -1)[column.code_R])
        start += len(column.names)
    return codes, names.tolist()


def _classes(
    tables: Sequence[Table],
    item: Sequence[np.ndarray],
    label: Sequence[np.ndarray],
    labels: Sequence[str],
    wanted: Sequence[str] | None,
    taxonomy: Taxonomy | None,
) -> tuple[tuple[str, ...], np.ndarray]:
    """The class names, in order, and the class of each label, or -1. A label that stands at no item makes no class."""
    used_L = np.zeros(len(labels) + 1, dtype=bool)
    for item_R, code_R in zip(item, label, strict=True):
        used_L[code_R[item_R >= 0]] = True  # -1 is the last
    found = [labels[code] for code in np.flatnonzero(used_L[:-1]).tolist()]
    if taxonomy is not None:
        names, declared_numbers = taxonomy.leaves, False
    elif wanted is None:
        declared = [name for table in tables for name in table.classes or ()]
        names = tuple(dict.fromkeys([*declared, *sorted(found, key=_number_or_name(found))]))
        declared_numbers = False
    else:
        names = tuple(wanted)
        declared_numbers = not set(found) & set(names) and all(re.fullmatch("[0-9]{1,9}", name) for name in found)
    number_of = {str(c): c for c in range(len(names))} if declared_numbers else {name: c for c, name in enumerate(names)}
    for name in found:
        if name not in number_of:
            code = labels.index(name)
            table, code_R = next((t, code_R) for t, code_R in zip(tables, label, strict=True) if (code_R == code).any())
            place = table.place(int((code_R == code).argmax()))
            known, where = (number_of, "--classes (class_names)") if taxonomy is None else (taxonomy.nodes, "the taxonomy")
            raise InputError(f"{place}: {unknown('label', name, known, most=4)} Fix it, or add it to {where}.")
    return names, np.array([number_of.get(name, -1) for name in labels], dtype=np.int64)


def _number_or_name(found: Sequence[str]) -> Callable[[str], tuple[int, str]]:
    numbers = all(name.isascii() and name.isdigit() for name in found)
    return lambda name: (len(name.lstrip("0")) if numbers else 0, name.lstrip("0") if numbers else name)


class _Joined:
    """The rows of all tables, with the way back to their places."""

    def __init__(
        self, tables: Sequence[Table], item: list[np.ndarray], worker: list[np.ndarray], label: list[np.ndarray]
    ) -> None:
        rows = [len(code_R) for code_R in item]
        answers = [table.answer_R for table in tables if table.answer_R is not None]
        first = np.cumsum([0, *(int(answer_R.max(initial=-1)) + 1 for answer_R in answers)])
        self.tables = tables
        self.item_R, self.worker_R, self.label_R = (np.concatenate(codes) for codes in (item, worker, label))
        self.answer_R = np.concatenate([answer_R + start for answer_R, start in zip(answers, first, strict=False)])
        self.weight_R = np.concatenate(
            [np.ones(n) if t.weight_R is None else t.weight_R for t, n in zip(tables, rows, strict=True)]
        )
        self.time_R = np.concatenate(
            [np.full(n, np.nan) if t.time_R is None else t.time_R for t, n in zip(tables, rows, strict=True)]
        )
        self.seconds_R = np.concatenate(
            [np.full(n, np.nan) if t.seconds_R is None else t.seconds_R for t, n in zip(tables, rows, strict=True)]
        )
        self.gold_R = np.concatenate(
            [np.zeros(n, dtype=bool) if t.gold_R is None else t.gold_R for t, n in zip(tables, rows, strict=True)]
        )
        self.sure_R, unknown_R = (
            np.concatenate([getattr(table, name) for table in tables]).astype(bool) for name in ("sure_R", "unknown_R")
        )
        self.unknown_R = unknown_R & ~self.gold_R
        self.table_R = np.repeat(np.arange(len(tables)), rows)
        self.row_R = np.concatenate([np.arange(n) for n in rows])
        self.may_repeat = len(tables) > 1 or not all(table.grouped for table in tables)

    def keep(self, mask_R: np.ndarray) -> None:
        for name in (*COLUMNS, "gold_R", "unknown_R", "table_R", "row_R"):
            setattr(self, name, getattr(self, name)[mask_R])

    def drop(self, mask_R: np.ndarray, reason: str, skipped: Tally) -> None:
        dropped = mask_R.nonzero()[0]
        if len(dropped):
            skipped.add(reason, len(dropped), (self.tables[self.table_R[i]].place(self.row_R[i]) for i in dropped))
            self.keep(~mask_R)

    def number_workers(self, workers: Sequence[str]) -> tuple[list[str], list[str]]:
        """Count those who say something, in their order; gives them, and those who say nothing at all."""
        said_W = np.bincount(self.worker_R[self.worker_R >= 0], minlength=len(workers)) > 0
        self.worker_R = np.append(np.cumsum(said_W) - 1, -1)[self.worker_R]
        names = np.array(workers, dtype=object)
        return names[said_W].tolist(), names[~said_W].tolist()

    def take_unknown(self, skipped: Tally) -> np.ndarray:
        """Item and person of everyone who does not know, U x 2. Those rows are no votes. Beside a label, in the same answer,
        such a word says that the label is unsure; and who answers for the item elsewhere does not count."""
        if not self.unknown_R.any():
            return np.empty((0, 2), dtype=np.int64)
        self.sure_R = self.sure_R & ~np.isin(self.answer_R, self.answer_R[self.unknown_R])
        self.keep(~(self.unknown_R & np.isin(self.answer_R, self.answer_R[~self.unknown_R])))
        self.drop(self.unknown_R & np.isin(self._person_R, self._person_R[~self.unknown_R]), ANSWERED, skipped)
        self.drop(self.unknown_R & pd.Series(self._person_R).duplicated().to_numpy(), REPEATED, skipped)
        unknown_U2: np.ndarray = np.stack([self.item_R, self.worker_R], axis=1)[self.unknown_R]
        self.keep(~self.unknown_R)
        return unknown_U2

    @property
    def _person_R(self) -> np.ndarray:
        """A number for each item and person; the unnamed are all different."""
        people = self.worker_R.max(initial=-1) + 1
        key_R: np.ndarray = np.where(self.worker_R < 0, -1 - np.arange(len(self.item_R)), self.item_R * people + self.worker_R)
        return key_R

    def drop_times_of_items(self) -> bool:
        """Whether the times were those of the items, as when a picture was taken: no two people answer at one instant, always.
        They say nothing about the answers, and are forgotten."""
        known = np.flatnonzero(~np.isnan(self.time_R) & (self.worker_R >= 0))
        by_item = pd.DataFrame({"annotator": self.worker_R[known], "time": self.time_R[known]}).groupby(self.item_R[known])
        found = by_item.nunique()
        shared = found.loc[found["annotator"] > 1, "time"]
        if not len(shared) or (shared > 1).any():
            return False
        self.time_R = np.full_like(self.time_R, np.nan)
        return True

    def take_gold(self, items: int, classes: int, skipped: Tally) -> np.ndarray:
        """The right label of each item, or -1. Those rows are no votes."""
        gold_I = np.full(items, -1, dtype=np.int64)
        if self.gold_R.any():
            self.drop(self.gold_R & ~self.sure_R, GOLD_UNSURE, skipped)
            gold = self.gold_R.nonzero()[0]
            pair = np.unique(self.item_R[gold] * classes + self.label_R[gold])
            labels_I = np.bincount(pair // classes, minlength=items)
            gold_I[pair // classes] = pair % classes
            gold_I[labels_I > 1] = -1
            self.drop(self.gold_R & (labels_I > 1)[self.item_R], GOLD_UNCLEAR, skipped)
            self.keep(~self.gold_R)
        return gold_I

    def drop_repeats(self, classes: int, skipped: Tally) -> None:
        """A label twice in one answer, or a person's whole answer twice; sure if it is once."""
        self.sure_R = self._sure_once(self.answer_R * classes + self.label_R)
        self.drop(pd.Series(self.answer_R * classes + self.label_R).duplicated().to_numpy(), REPEATED, skipped)
        if self.may_repeat and len(self.answer_R):
            _, first, answer_R = np.unique(self.answer_R, return_index=True, return_inverse=True)
            sign_A = np.zeros(len(first), dtype=np.uint64)
            np.add.at(sign_A, answer_R, _mixed(self.label_R))
            answers = pd.DataFrame({"item": self.item_R[first], "annotator": self.worker_R[first], "sign": sign_A})
            again_A = (answers.duplicated() & (answers["annotator"] >= 0)).to_numpy()
            group_A = np.where(answers["annotator"] < 0, -1 - np.arange(len(first)), answers.groupby(list(answers)).ngroup())
            self.sure_R = self._sure_once(group_A[answer_R] * classes + self.label_R)
            self.drop(again_A[answer_R], REPEATED, skipped)

    def _sure_once(self, key_R: np.ndarray) -> np.ndarray:
        """Per row, whether any with the same key is sure."""
        return self.sure_R if self.sure_R.all() else pd.Series(self.sure_R).groupby(key_R).transform("any").to_numpy()

    def several_answers(self) -> np.ndarray:
        """The items for which one person gave more than one, different answers."""
        if not self.may_repeat:
            return np.empty(0, dtype=np.int64)
        pairs = pd.DataFrame({"item": self.item_R, "annotator": self.worker_R, "answer": self.answer_R}).drop_duplicates()
        pairs = pairs[pairs["annotator"] >= 0]
        return np.unique(pairs.loc[pairs.duplicated(["item", "annotator"]), "item"].to_numpy())


def _mixed(label_R: np.ndarray) -> np.ndarray:
    """A number of 64 bits for each label, such that sums over sets of labels differ (splitmix64)."""
    z = (label_R.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _objects(values: Sequence[object]) -> np.ndarray:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array
