"""Unsure answers and "don't know" in the tables of a run: columns that exist only if there are such answers.

Shape letters: F forms of answers.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from pals.crowd.answers import ratio
from pals.crowd.dawid_skene.annotator_model import information
from pals.crowd.dawid_skene.em import Consensus
from pals.crowd.result import Result
from pals.pipeline.tables.result_tables import DIGITS, people_of
from pals.util.words import how_many


def with_marks(tables: Mapping[str, pd.DataFrame], result: Result, consensus: Consensus) -> dict[str, pd.DataFrame]:
    """The tables with `dont_know` beside the votes of every item, and with the share of each annotator's answers that are
    unsure (`unsure`), the weight of these relative to sure ones (`unsure_weight`), and the share of "don't know"
    (`dont_know`)."""
    votes, more = result.votes, dict(tables)
    if len(votes.unknown_item_U):
        unknown_N = np.bincount(votes.unknown_item_U, minlength=len(votes.items))
        more["labels"] = _beside(tables["labels"], "votes", dont_know=unknown_N)
    if votes.marked:
        more["annotators"] = _people(tables["annotators"], result, consensus)
    return more


def _people(table: pd.DataFrame, result: Result, consensus: Consensus) -> pd.DataFrame:
    votes, people = result.votes, len(result.votes.annotators) + 1
    number = {name: person for person, name in enumerate(people_of(result).tolist())}
    answers_W = np.bincount(result.annotator_A % people, minlength=people)
    unsure_W = np.bincount(result.annotator_A[unsure_answers(result)] % people, minlength=people)
    unknown_W = np.bincount(votes.unknown_annotator_U % people, minlength=people)
    silent = np.flatnonzero((answers_W == 0) & (unknown_W > 0))
    more = pd.DataFrame({"annotator": people_of(result)[silent], "answers": 0, "flags": "", "evidence": "", "confused": ""})
    table = pd.concat([table, more], ignore_index=True) if len(more) else table
    person = table["annotator"].map(number).to_numpy(dtype=np.int64)
    columns: dict[str, np.ndarray] = {}
    if unsure_W.any():
        columns["unsure"] = ratio(unsure_W, answers_W)[person]
        columns["unsure_weight"] = np.where(unsure_W > 0, unsure_weight(result, consensus), np.nan)[person]
    if len(votes.unknown_item_U):
        columns["dont_know"] = ratio(unknown_W, answers_W + unknown_W)[person]
    return _beside(table, "answers", **{name: values.round(DIGITS) for name, values in columns.items()})


def _beside(table: pd.DataFrame, column: str, **more: np.ndarray) -> pd.DataFrame:
    """The table with more columns right of this one."""
    table, place = table.copy(), table.columns.get_loc(column)
    for number, (name, values) in enumerate(more.items(), start=1):
        table.insert(int(place) + number, name, values)
    return table


def unsure_answers(result: Result) -> np.ndarray:
    """Which answers have no label that is not marked as unsure, A bools."""
    unsure_A: np.ndarray = np.bincount(result.answer_R, result.votes.sure_R, minlength=len(result.first_A)) == 0
    return unsure_A


def unsure_weight(result: Result, consensus: Consensus) -> float:
    """What an unsure answer tells, relative to a sure one: the ratio of their mean log-odds above guessing."""
    unsure_A, table = unsure_answers(result), consensus.answers
    told_F = information(consensus.annotators.hit_F, table.num_classes)
    mean = (told_F[table.form_A[part_A]].mean() if part_A.any() else np.nan for part_A in (unsure_A, ~unsure_A))
    unsure, sure = mean
    return float(np.clip(unsure / sure, 0.0, 1.0)) if sure > 0 else float("nan")


def unsure_sentence(result: Result, consensus: Consensus) -> list[str]:
    """Number and weight of the unsure answers, and number of "don't know"; empty if there are none."""
    parts = []
    unsure_A, unknown = unsure_answers(result), len(result.votes.unknown_item_U)
    if unsure_A.any():
        weight = unsure_weight(result, consensus)
        one = unsure_A.sum() == 1
        count = f"{how_many(int(unsure_A.sum()), 'answer')} {'is' if one else 'are'} unsure"
        parts.append(f"{count}, worth {100 * weight:.0f}% of a sure one{'' if one else ' each, on average'}")
    if unknown:
        items = how_many(len(np.unique(result.votes.unknown_item_U)), "item")
        parts.append(f'annotators answered "don\'t know" {how_many(unknown, "time")}, about {items}')
    text = "; ".join(parts)
    return [f"{text[0].upper()}{text[1:]}."] if parts else []
