"""Tables with an answer per row (CSV, TSV, Parquet). Long: columns for item, annotator and label; crowd-kit's form, too.
Candidates: all possible labels of an item in one cell, "newt|frog"."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from pals.readers.column_types import flags_in, names_in, places, refuse_joined, times_in, weights_in
from pals.readers.columns import KNOWN, Columns, find, is_queue, require
from pals.readers.graded_columns import SETS, Choices, choice_columns, choices_not_read, ranks_in, with_choices
from pals.readers.reader_table import Coded, Table, no_annotators
from pals.readers.source import Source
from pals.readers.unsure_answers import SURE_ROLES, sure_in

UNNAMED_NOTE = "No column names the annotators: every row counts as another person's answer"


def read_long(source: Source, columns: Columns) -> Table:
    """Rows of the same item and annotator are one answer with several labels; so is a cell "newt|frog". A column `answer_id`
    shows which rows are one answer where that is not so. With columns of further choices, of possible or of impossible labels,
    each row is an answer."""
    choices, columns = choice_columns(columns, source.names, source)
    table, found = _rows(source, columns, "label", ("is_gold", "answer_id", "rank", "audit"), choices)
    gold_R = flags_in(source, found["is_gold"]) if "is_gold" in found else None
    audit_R = flags_in(source, found["audit"]) if "audit" in found else None
    notes = table.notes + (() if "annotator" in found else (UNNAMED_NOTE,))
    table = replace(table, gold_R=gold_R, audit_R=audit_R, notes=notes)
    if "answer_id" in found:
        table = replace(table, answer_R=_numbered(table, names_in(source, found["answer_id"])))
    if "rank" in found:
        table = replace(table, rank_R=ranks_in(source, found["rank"]))
    return _with_gold(with_choices(table, source, found.get("label"), choices), table, source, found)


def read_candidates(source: Source, columns: Columns) -> Table:
    """Every row is one answer; an item in two rows has two."""
    table, found = _rows(source, columns, "candidates")
    return _with_gold(replace(table, answer_R=np.arange(len(table.place_R))), table, source, found)


def _numbered(table: Table, ids: Coded) -> np.ndarray:
    """The number of each row's answer, one for each item, annotator and id; -1 where the id is blank."""
    blank_R = ids.flags((not str(name).strip() for name in ids.names), empty=True)
    frame = pd.DataFrame({"item": table.item.code_R, "annotator": table.annotator.code_R, "id": ids.code_R})
    return np.where(blank_R, -1, frame.groupby(list(frame)).ngroup().to_numpy())


def _rows(
    source: Source, columns: Columns, label: str, more: tuple[str, ...] = (), choices: Choices | None = None
) -> tuple[Table, dict[str, str]]:
    """The rows, with their answers in the column of the role `label`, and the column of each role.

    Args:
        source: The file.
        columns: Columns that the user names.
        label: Role of the answer: "label" or "candidates".
        more: Further roles.
        choices: Columns beside the answer; those of our own tables are added.
    """
    names, choices = source.names, {} if choices is None else choices
    ours = {"weight", "is_gold"} <= set(names)
    as_written = ours and "sure" in names  # as `Votes.to_frame` writes it
    if as_written and "percent" in names:
        choices.setdefault("percent", ["percent"])
    beside = {name for role in choices.values() for name in role}
    known = {"rank": as_written, "audit": ours or is_queue(names)}
    more = tuple(role for role in more if role in columns or known.get(role, True))
    roles = ("item", "annotator", label, "weight", *SURE_ROLES, "time", "seconds", *more, "gold")
    found = find([name for name in names if name not in beside], columns, roles, source)
    needed = ("item",) if choices.keys() & set(SETS) else ("item", label)
    require(found, needed, names, source)
    refuse_joined(source, {found[role]: KNOWN[role] for role in ("item", label) if role in found})
    sure_R = sure_in(source, found, columns)
    time_R, time_notes = times_in(source, found, columns)
    seconds_R, seconds_notes = times_in(source, found, columns, "seconds")
    table = Table(
        path=source.path,
        unit="row",
        place_R=places(source),
        item=names_in(source, found["item"]),
        annotator=names_in(source, found["annotator"]) if "annotator" in found else no_annotators(source.rows),
        label=names_in(source, found[label]) if label in found else no_annotators(source.rows),
        weight_R=weights_in(source, found["weight"]) if "weight" in found else None,
        sure_R=sure_R,
        time_R=time_R,
        seconds_R=seconds_R,
        splits=True,
        as_written=as_written,
        notes=(*choices_not_read(names, {*found.values(), *beside}), *time_notes, *seconds_notes),
    )
    return table, found


def _with_gold(table: Table, rows: Table, source: Source, found: dict[str, str]) -> Table:
    """With a column of right labels, of the rows of the file."""
    return table.with_gold(rows.item, names_in(source, found["gold"]), rows.place_R) if "gold" in found else table
