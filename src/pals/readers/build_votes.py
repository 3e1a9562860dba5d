"""Readers' tables to `Votes`: names cleaned, blanks and repeats left out and counted, classes put in order."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from pals.labels.cells import MISSING, split_labels
from pals.labels.taxonomy import Taxonomy
from pals.readers.column_types import WHOLE
from pals.readers.graded_checks import settle_grades
from pals.readers.graded_notation import Notation
from pals.readers.joined_rows import JoinedRows
from pals.readers.matching import is_plain, one_spelling
from pals.readers.read_summary import ReadSummary, some
from pals.readers.reader_table import Coded, Grades, SkippedRows, Table, objects
from pals.readers.unsure_answers import UnsureMarks
from pals.readers.votes import ROW_COLUMNS, Votes
from pals.readers.warnings import input_warnings
from pals.util.errors import InputError, unknown
from pals.util.words import how_many, quoted

AMBIGUOUS_MISSING = frozenset({"None", "N/A", "n/a", "null", "NULL"})
"""Texts for an empty cell that an annotator may have written as a label."""

Label = tuple[str, bool, int, float, bool]
"""A label of a cell: its class, whether it is sure, its rank and probability, and whether others share the probability."""
NO_LABEL: Label = ("", True, 0, np.nan, False)
NO_ITEM = "no item is named"
TIMES_OF_ITEMS = "Times are not read: all answers to an item have the same one, as if it were the item's"


def build(
    tables: Sequence[Table],
    format_name: str,
    *,
    class_names: Sequence[str] | None,
    no_answer: Collection[str],
    separator: str | None,
    taxonomy: Taxonomy | None = None,
    notation: str | None = None,
) -> Votes:
    """Join all tables.

    Args:
        tables: The answers of each file.
        format_name: The formats, for the summary.
        class_names: All classes in order; None: those that the files declare, then the others in order of their names.
        no_answer: Words for "don't know".
        separator: Text between several labels in one cell; None: a cell is one label.
        taxonomy: Tree whose leaves are the classes; a label may be any node.
        notation: How ">" and ":" in labels are read (`Notation`).

    Raises:
        InputError: A label is not among the classes, or there is no answer.
    """
    skipped = SkippedRows()
    for table in tables:
        skipped.merge(table.skipped)
    rows = sum(len(table.place_R) for table in tables) + sum(count for count, _ in skipped.found.values())
    declared = [*(class_names or ()), *(name for table in tables for name in table.classes or ())]
    declared += taxonomy.nodes if taxonomy is not None else ()
    given = frozenset(declared)
    parts = [[_split(cell, table, separator) for cell in table.label.names] for table in tables]
    ours = {name for table, found in zip(tables, parts, strict=True) if table.as_written for names in found for name in names}
    blank = MISSING - (given | ours) | {""}  # a declared class may have such a name
    written = [
        [_pieces(cell, names, given, blank) for cell, names in zip(table.label.names, found, strict=True)]
        for table, found in zip(tables, parts, strict=True)
    ]
    ambiguous = sorted({name for found in parts for names in found for name in names} & AMBIGUOUS_MISSING & blank)
    plain = {
        name
        for table, cells in zip(tables, written, strict=True)
        if not _may_be_graded(table)
        for names in cells
        for name in names
    }
    open_cells = [names for table, cells in zip(tables, written, strict=True) if _may_be_graded(table) for names in cells]
    signs = Notation(open_cells, given | plain, notation)
    graded = [_graded(table, cells, signs) for table, cells in zip(tables, written, strict=True)]
    written = [[one.names for one in cells] for cells in graded]
    if taxonomy is not None:
        written = [[[taxonomy.by_path.get(name, name) for name in pieces] for pieces in cells] for cells in written]
    for table, cells in zip(tables, written, strict=True):
        declared += [name for pieces in cells for name in pieces] if table.as_written else []
    marks = UnsureMarks((name for cells in written for pieces in cells for name in pieces), declared, no_answer, taxonomy)
    _refuse_unknown_as_class(taxonomy.leaves if taxonomy is not None else class_names or (), marks)
    kept = frozenset(declared)
    clean = [
        _with_labels(
            _with_names(table),
            [one._replace(names=names) for one, names in zip(cells, pieces, strict=True)],
            marks,
            blank,
            kept,
        )
        for table, cells, pieces in zip(tables, graded, written, strict=True)
    ]
    item, items = _union([table.item for table in clean], [name for table in tables for name in _lone(table)])
    annotator, annotators = _union([table.annotator for table in clean])
    label, labels = _union([table.label for table in clean])
    classes, class_of = _classes(clean, item, label, labels, class_names, taxonomy)
    joined = JoinedRows(clean, item, annotator, [np.append(class_of, -1)[code_R] for code_R in label], skipped)
    joined.drop(joined.item_R < 0, NO_ITEM)
    audit_I = np.bincount(joined.item_R, joined.audit_R, minlength=len(items)) > 0
    words = f"blank or {', '.join(map(repr, ambiguous))}" if ambiguous else "blank"
    joined.drop((joined.label_R < 0) & ~joined.unknown_R, f"no answer ({words})")
    annotators, without_answers = joined.number_annotators(annotators)
    unknown_U2 = joined.take_unknown()
    settle_grades(joined, classes)
    times_dropped = joined.drop_times_of_items()
    gold_I = joined.take_gold(len(items), len(classes))
    joined.drop_repeats(len(classes))
    files = tuple(str(table.path) for table in tables)
    if not len(joined.item_R) and not (gold_I >= 0).any():
        unknowns = [f'{how_many(len(unknown_U2), "time")} "don\'t know"'] if len(unknown_U2) else []
        reasons = "; ".join([*map(str, skipped.done()), *unknowns]) or "it names no answer"
        raise InputError(f"{', '.join(files)}: nothing to learn from was found: {reasons}. Check the file and its format.")
    answer_R = pd.factorize(joined.answer_R)[0]
    notes = [note for table in tables for note in table.notes]
    if without_answers:
        names = some(without_answers, len(without_answers))
        notes.append(f"{how_many(len(without_answers), 'annotator')} without any answer, not counted ({names})")
    notes += [*signs.notes(), *marks.notes(), *([TIMES_OF_ITEMS] if times_dropped else [])]
    if ambiguous:
        notes.append(f"{', '.join(map(repr, ambiguous))}: read as no answer; if it is a class, name all classes with --classes")
    summary = ReadSummary(
        files=files,
        format=format_name,
        rows=rows,
        answers=int(answer_R.max(initial=-1)) + 1,
        items=len(items),
        annotators=len(annotators),
        classes=len(classes),
        gold=int((gold_I >= 0).sum()),
        skipped=skipped.done(),
        notes=(*notes, *input_warnings(joined, items, annotators, classes, gold_I)),
        unsure=len(np.unique(answer_R[~joined.sure_R])),
        unknown=len(unknown_U2),
    )
    return Votes(
        items=tuple(items),
        annotators=tuple(annotators),
        class_names=classes,
        gold_I=gold_I,
        audit_I=audit_I,
        summary=summary,
        taxonomy=taxonomy,
        unknown_item_U=unknown_U2[:, 0],
        unknown_annotator_U=unknown_U2[:, 1],
        **{name: getattr(joined, name) for name in ROW_COLUMNS} | {"answer_R": answer_R},
    )


def _refuse_unknown_as_class(classes: Sequence[str], marks: UnsureMarks) -> None:
    """Refuse a class whose answers would count as "don't know"."""
    found = next((name for name in classes if marks.is_unknown(name)), None)
    if found is not None:
        raise InputError(
            f'The class {quoted(found)} is one of the words for "don\'t know", which is no class. Leave it out of --classes '
            f"(class_names) or the taxonomy, or rename it there and in the answers (in Python, no_answer replaces these words)."
        )


# ---- one table


def _with_names(table: Table) -> Table:
    """Items and annotators without blanks around their names, paths in one spelling. An annotator may be called "None"."""
    items = [name.strip() for name in table.item.names]
    if not is_plain("\n".join(items)):
        items = [one_spelling(name) for name in items]
    annotators = [name.strip() for name in table.annotator.names]
    return replace(table, item=_recoded(table.item, items), annotator=_recoded(table.annotator, annotators, frozenset({""})))


def _lone(table: Table) -> list[str]:
    names = [one_spelling(name.strip()) for name in table.lone_items]
    return [name for name in names if name not in MISSING]


def _recoded(column: Coded, names: Sequence[str], blank: frozenset[str] = MISSING) -> Coded:
    """The column with other names: equal names get one number, and those in `blank` become -1."""
    if blank.isdisjoint(names) and len(set(names)) == len(names):
        return Coded(column.code_R, objects(names))
    number, unique = pd.factorize(objects([None if name in blank else name for name in names]))
    return Coded(np.append(number, -1)[column.code_R], unique)


def _split(cell: str, table: Table, separator: str | None) -> list[str]:
    return [name.strip() for name in (split_labels(cell, separator) if separator and table.splits else [cell])]


def _pieces(cell: str, names: Sequence[str], given: Collection[str], blank: Collection[str]) -> list[str]:
    """The labels in a cell whose parts are `names`. A cell that is the name of a given class with its separator is that class,
    unless all of its parts are given classes, too."""
    if len(names) > 1 and cell.strip() in given and not all(name in given for name in names):
        names = [cell.strip()]
    return [name for name in names if name not in blank]


def _may_be_graded(table: Table) -> bool:
    """Whether cells may rank their labels: not where columns do."""
    return not table.as_written and table.rank_R is None


def _graded(table: Table, cells: Sequence[list[str]], signs: Notation) -> list[Grades]:
    """The labels of each different cell with their ranks and percentages."""
    if not _may_be_graded(table) or not (signs.is_on("ranked") or signs.is_on("percent")):
        return [Grades(names, [0] * len(names), [np.nan] * len(names)) for names in cells]
    found = []
    for code, names in enumerate(cells):
        try:
            found.append(signs.read(names, percents=table.percent_R is None))
        except InputError as error:
            raise InputError(f"{table.place(table.label.first_row(code))}: {error}") from None
    return found


def _with_labels(
    table: Table, written: Sequence[Grades], marks: UnsureMarks, blank: frozenset[str], kept: Collection[str]
) -> Table:
    """With one label per row, without its mark: a cell of several labels becomes several rows of one answer, and so does a node
    of the taxonomy.

    Args:
        table: The answers as written.
        written: The labels in each different cell, with their grades.
        marks: The labels that are marked as unsure.
        blank: Names that are no label.
        kept: Names that stay as they are.
    """
    of_name = {
        name: None if marks.is_unknown(name) else marks.labels([name])
        for name in {name for cell in written for name in cell.names}
    }
    labels_L, doubt_L = [], np.zeros(len(written) + 1, dtype=bool)
    for code, cell in enumerate(written):
        labels: list[Label] = []
        for name, rank, percent in zip(*cell, strict=True):
            below = of_name[name]
            if below is None:
                doubt_L[code] = True
            elif percent != percent:
                labels += [(label, sure, rank, np.nan, False) for label, sure in below]
            else:
                labels += [(label, sure, rank, percent / len(below), len(below) > 1) for label, sure in below]
        labels_L.append(labels if marks.taxonomy is None else list(dict.fromkeys(labels)))
    table = replace(table, answer_R=_answers(table), grouped=table.answer_R is None or bool((table.answer_R < 0).all()))
    count_L = np.array([len(labels) for labels in labels_L] + [0], dtype=np.int64)
    code_R = table.label.code_R
    if (count_L > 1).any():
        times_R = np.maximum(count_L[code_R], 1)
        row_E = np.repeat(np.arange(len(code_R)), times_R)
        nth_E = np.arange(len(row_E)) - np.repeat(np.cumsum(times_R) - times_R, times_R)
        code_R = code_R[row_E]
        label_E = np.where(count_L[code_R] > 0, (np.cumsum(count_L) - count_L)[code_R] + nth_E, -1)
        labels = [label for labels in labels_L for label in labels]
        table = table.take(row_E)
    else:
        label_E = code_R
        labels = [labels[0] if labels else NO_LABEL for labels in labels_L]
    names = [label[0] for label in labels]
    _, sures, ranks, percents, shared = zip(*labels, NO_LABEL, strict=True)
    sure_E = ~doubt_L[code_R] & np.array(sures)[label_E]
    if any(ranks):
        table = replace(table, rank_R=np.array(ranks)[label_E])
    if table.percent_R is not None:  # of several labels in one cell, or of a node of the taxonomy
        table = replace(table, percent_R=table.percent_R / np.maximum(count_L[code_R], 1), joint_R=count_L[code_R] > 1)
    elif not np.isnan(percents).all():
        table = replace(table, percent_R=np.array(percents)[label_E], joint_R=np.array(shared)[label_E])
    numbers = [WHOLE.sub(r"\1", name) for name in names]
    if all(re.fullmatch("[0-9]+", number) for number in numbers if number):
        names = [name if name in kept else number for name, number in zip(names, numbers, strict=True)]
    return replace(
        table,
        sure_R=sure_E if table.sure_R is None else sure_E & table.sure_R,
        unknown_R=doubt_L[code_R] & (count_L[code_R] == 0),
        label=_recoded(Coded(label_E, objects(names)), names, blank),
        classes=None if table.classes is None else tuple(name for name in table.classes if not marks.is_unknown(name)),
    )


def _answers(table: Table) -> np.ndarray:
    """The number of each row's answer: the reader's, or one for each item and annotator; the unnamed answer once each."""
    if table.answer_R is not None and not (table.answer_R < 0).any():
        return table.answer_R
    item_R, annotator_R = table.item.code_R, table.annotator.code_R
    alone_R = (annotator_R < 0) | (item_R < 0)
    key_R = item_R * (len(table.annotator.names) + 1) + annotator_R
    key_R = np.where(alone_R, -1 - np.arange(len(key_R)), key_R)
    if table.gold_R is not None:  # a known right label is no part of an annotator's answer
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
    number, names = pd.factorize(np.concatenate([column.names for column in columns] + [objects(more)]).astype(object))
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
    class_names: Sequence[str] | None,
    taxonomy: Taxonomy | None,
) -> tuple[tuple[str, ...], np.ndarray]:
    """The class names, in order, and the class of each label, or -1. A label without an item makes no class."""
    used_L = np.zeros(len(labels) + 1, dtype=bool)
    for item_R, code_R in zip(item, label, strict=True):
        used_L[code_R[item_R >= 0]] = True  # -1 is the last
    found = [labels[code] for code in np.flatnonzero(used_L[:-1]).tolist()]
    declared_numbers = False
    if taxonomy is not None:
        names = taxonomy.leaves
    elif class_names is None:
        declared = [name for table in tables for name in table.classes or ()]
        names = tuple(dict.fromkeys([*declared, *sorted(found, key=_number_or_name(found))]))
    else:
        names = tuple(class_names)
        declared_numbers = not set(found) & set(names) and all(re.fullmatch("[0-9]{1,9}", name) for name in found)
    number_of = {str(c) if declared_numbers else name: c for c, name in enumerate(names)}
    for name in found:
        if name not in number_of:
            code = labels.index(name)
            table, code_R = next((t, code_R) for t, code_R in zip(tables, label, strict=True) if (code_R == code).any())
            place = table.place(int((code_R == code).argmax()))
            known, where = (number_of, "--classes (class_names)") if taxonomy is None else (taxonomy.nodes, "the taxonomy")
            raise InputError(f"{place}: {unknown('label', name, known, most=4)} Fix it, or add it to {where}.")
    return names, np.array([number_of.get(name, -1) for name in labels], dtype=np.int64)


def _number_or_name(found: Sequence[str]) -> Callable[[str], tuple[int, str]]:
    """A key that sorts by number if all names are numbers, else by name."""
    numbers = all(name.isascii() and name.isdigit() for name in found)
    return lambda name: (len(name.lstrip("0")) if numbers else 0, name.lstrip("0") if numbers else name)
