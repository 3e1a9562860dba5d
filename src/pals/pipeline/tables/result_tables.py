"""The result as tables: one data frame per CSV file of a run, with a fixed order of rows and columns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pals.crowd.agreement import Agreement
from pals.crowd.annotator_flags import confidence_limits, pace
from pals.crowd.answers import ratio
from pals.crowd.blocks import row_blocks
from pals.crowd.dawid_skene.em import Consensus
from pals.crowd.doubtful_answers import Arguing, Doubts, rank_doubts
from pals.crowd.guideline_items import GuidelineItems
from pals.crowd.result import CORRECTED, STATUS, UNSURE, Result
from pals.pipeline.finished_run import UNNAMED
from pals.pipeline.item_answers import TOGETHER, answers_of_votes, others_in_words
from pals.pipeline.tables.flag_columns import flagged_annotators
from pals.util.csv_text import csv_text as csv_text
from pals.util.csv_text import write_csv as write_csv

DIGITS = 6

ROWS = 50_000
"""Items that are put in order, or answers that are put into words, at once."""


def labels_table(
    result: Result, consensus: Consensus | None = None, interval: tuple[np.ndarray, np.ndarray] | None = None
) -> pd.DataFrame:
    """One row per item, in the order of the votes' items: the result with the next likely classes, and what the answers come to
    by themselves, counted (`majority`; several where they are even) and weighed (`dawid_skene`, of the consensus given). The
    interval is that of each label's probability."""
    names_C = _text(result.votes.class_names)
    weighed, between = {}, {}
    if interval is not None:
        ends = zip(("confidence_low", "confidence_high"), (np.minimum, np.maximum), interval, strict=True)
        between = {name: bound(end_N, result.confidence_N).round(DIGITS) for name, bound, end_N in ends}
    if consensus is not None:
        weighed["dawid_skene"] = np.where(consensus.answers.known_N, names_C[consensus.label_N], "")
    return pd.DataFrame(
        {
            "item": _text(result.votes.items),
            "label": names_C[result.label_N],
            "confidence": result.confidence_N.round(DIGITS),
            **between,
            **_next_likely(result),
            "majority": _majorities(result),
            **weighed,
            "votes": result.answers_N,
            "agreement": result.agreement_N.round(DIGITS),
            "in_votes": result.said_N,
            "status": _text(STATUS)[result.status_N],
            "none_of_these": np.full(len(result.label_N), np.nan) if result.none_N is None else result.none_N.round(DIGITS),
        }
    )


def probabilities_table(result: Result) -> pd.DataFrame:
    """One row per item with the probability of every class."""
    columns = [f"probability: {name}" for name in result.votes.class_names]
    table = pd.DataFrame(result.posterior_NC.round(DIGITS), columns=columns)
    table.insert(0, "item", _text(result.votes.items))
    return table


def _next_likely(result: Result) -> dict[str, Any]:
    """The second and third choice with their probabilities; of two classes there is no third."""
    order_NK = _likeliest(result.posterior_NC, 3)
    columns: dict[str, Any] = {}
    for place, rank in enumerate(("second", "third"), start=1):
        label_N1 = order_NK[:, place : place + 1]
        there = label_N1.shape[1] > 0
        columns[rank] = _text(result.votes.class_names)[label_N1[:, 0]] if there else ""
        share_N1 = np.take_along_axis(result.posterior_NC, label_N1, axis=1).round(DIGITS)
        columns[f"{rank}_probability"] = share_N1[:, 0] if there else np.nan
    return columns


def _likeliest(posterior_NC: np.ndarray, most: int) -> np.ndarray:
    """The likeliest classes of each item, the first of several that are as likely; in parts, as there may be many items."""
    parts = [_largest(posterior_NC[start : start + ROWS], most) for start in range(0, max(len(posterior_NC), 1), ROWS)]
    return np.concatenate(parts)


def _largest(value_BC: np.ndarray, most: int) -> np.ndarray:
    """The places of the largest values of each row, the first of several that are as large."""
    left_BC, places = value_BC.copy(), []
    for _ in range(min(most, value_BC.shape[1])):
        place_B1 = left_BC.argmax(axis=1, keepdims=True)
        np.put_along_axis(left_BC, place_B1, -np.inf, axis=1)
        places.append(place_B1)
    return np.concatenate(places, axis=1)


def _majorities(result: Result) -> np.ndarray:
    """The most frequent label of each item, "newt|toad" in a tie; "" without answers."""
    names_C, leads_N = _text(result.votes.class_names), result.leads_NC.sum(axis=1)
    found_N = np.where(leads_N > 0, names_C[result.leads_NC.argmax(axis=1)], "")
    even = np.flatnonzero(leads_N > 1)
    names_L = names_C[np.nonzero(result.leads_NC[even])[1]].tolist()
    ends = np.cumsum(leads_N[even]).tolist()
    found_N[even] = _text(["|".join(names_L[start:end]) for start, end in pairwise([0, *ends])])
    return found_N


def doubtful_table(result: Result, doubts: Doubts, arguing: Arguing | None = None) -> pd.DataFrame:
    """One row per answer that is probably wrong, in the order of `doubts`."""
    item_M = result.item_A[doubts.answer_M]
    names_C = _text(result.votes.class_names)
    answer, others = _answers_in_words(result, doubts.answer_M)
    return pd.DataFrame(
        {
            "rank": np.arange(1, len(item_M) + 1),
            "item": _text(result.votes.items)[item_M],
            "annotator": people_of(result)[result.annotator_A[doubts.answer_M]],
            "answer": answer,
            "suggestion": names_C[doubts.suggestion_M],
            "probability_wrong": doubts.wrong_M.round(DIGITS),
            "confidence": result.confidence_N[item_M].round(DIGITS),
            "others": others,
            "neighbors": _neighbors_in_words(result, len(item_M), arguing),
        }
    )


def annotators_table(result: Result, counts: ConfusionCounts | None = None) -> pd.DataFrame:
    """One row per annotator who answered: those with a flag first, then those who surely agree least with the result."""
    annotator_A, item_A = result.annotator_A % (len(result.votes.annotators) + 1), result.item_A  # -1 is the last
    people, classes = len(result.votes.annotators) + 1, result.posterior_NC.shape[1]
    answers_W = np.bincount(annotator_A, minlength=people)
    size_W = np.maximum(answers_W, 1)
    agreement_W = np.bincount(annotator_A, result.agrees_A, minlength=people) / size_W
    result_WC, right_WC = (
        np.bincount(annotator_A * classes + result.label_N[item_A], value, minlength=people * classes).reshape(people, classes)
        for value in (None, result.agrees_A)
    )
    said_R = annotator_A[result.answer_R] * classes + result.votes.label_R
    said_WC = np.bincount(said_R, minlength=people * classes).reshape(people, classes)
    chance_W = (said_WC * result_WC).sum(axis=1) / size_W**2
    above_W = ratio(agreement_W - chance_W, (1 - chance_W).clip(min=0).round(12))
    low_W, high_W = confidence_limits(agreement_W * answers_W, answers_W, 0.025)
    flags, evidence = flagged_annotators(result)
    seconds = {"seconds": np.append(pace(result.votes).seconds_W, np.nan).round(3)} if result.votes.timed else {}
    counts = counts or confusion_counts(result)
    table = pd.DataFrame(
        {
            "annotator": people_of(result),
            "answers": answers_W,
            **seconds,
            "agreement": agreement_W.round(DIGITS),
            "agreement_low": low_W.round(DIGITS),
            "agreement_high": high_W.round(DIGITS),
            "by_chance": chance_W.round(DIGITS),
            "above_chance": above_W.round(DIGITS),
            "flags": flags,
            "evidence": evidence,
            "confused": _worst_mistakes(result, counts.annotator_X, people, counts),
        }
    )
    share_WC = ratio(right_WC, result_WC).round(DIGITS)
    rights = pd.DataFrame(share_WC, columns=[f"right: {name}" for name in result.votes.class_names])
    table = pd.concat([table, rights], axis=1)[answers_W > 0]
    order = table.assign(unsuspected=table["flags"] == "").sort_values(
        ["unsuspected", "agreement_high", "annotator"], kind="stable"
    )
    return table.loc[order.index].reset_index(drop=True)


def confusion_table(result: Result, counts: ConfusionCounts | None = None) -> pd.DataFrame:
    """What each annotator answered (`answer`) where the result is `result`: counts above zero, in the order of the
    annotators and classes. An answer with several labels counts as a part for each; one that names a node of a taxonomy is
    that node."""
    counts = counts or confusion_counts(result)
    names_C, names_Y = _text(result.votes.class_names), _said_names(result)
    count_X = counts.count_X.round(DIGITS)
    return pd.DataFrame(
        {
            "annotator": people_of(result)[counts.annotator_X],
            "result": names_C[counts.result_X],
            "answer": names_Y[counts.answer_X],
            "count": count_X.astype(np.int64) if (count_X == count_X.round()).all() else count_X,
        }
    )


def classes_table(result: Result, doubts: Doubts | None = None, counts: ConfusionCounts | None = None) -> pd.DataFrame:
    """One row per class, in the order of the classes."""
    classes, label_N, status_N = result.posterior_NC.shape[1], result.label_N, result.status_N
    items_C = np.bincount(label_N, minlength=classes)
    shared_leads_C = ratio(np.ones(1), result.leads_NC.sum(axis=1), otherwise=0.0) @ result.leads_NC  # a tie is split evenly
    answered_N = result.leads_NC.any(axis=1)
    answered_C = np.bincount(label_N[answered_N], minlength=classes)
    agreement_C = np.bincount(label_N[answered_N], result.agreement_N[answered_N], minlength=classes)
    doubtful_A = np.zeros(len(result.first_A), dtype=bool)
    doubtful_A[(doubts or rank_doubts(result)).answer_M] = True
    counts, named_A = counts or confusion_counts(result), result.node_A < 0  # a node of a taxonomy is no class
    return pd.DataFrame(
        {
            "class": _text(result.votes.class_names),
            "items": items_C,
            "answers": np.bincount(result.votes.label_R[named_A[result.answer_R]], minlength=classes),
            "majority_items": shared_leads_C.round(DIGITS),
            "agreement": ratio(agreement_C, answered_C).round(DIGITS),
            "confidence": ratio(np.bincount(label_N, result.confidence_N, minlength=classes), items_C).round(DIGITS),
            "corrected": np.bincount(label_N[status_N == CORRECTED], minlength=classes),
            "unsure": np.bincount(label_N[status_N == UNSURE], minlength=classes),
            "doubtful_answers": np.bincount(result.votes.label_R[(doubtful_A & named_A)[result.answer_R]], minlength=classes),
            "confused": _worst_mistakes(result, counts.result_X, classes, counts),
        }
    )


def agreement_table(found: Agreement, result: Result) -> pd.DataFrame:
    """Agreement beyond chance: of all annotators, of each class against all others, and of pairs of annotators."""
    people, classes = result.votes.annotators, result.votes.class_names
    of_class = {"krippendorff_alpha": found.alpha_of_class, "fleiss_kappa": found.fleiss_of_class}
    rows = [
        ("everybody", "", "", found.items, "krippendorff_alpha", found.alpha),
        ("everybody", "", "", found.items, "fleiss_kappa", found.fleiss),
        ("everybody", "", "", found.items, "gwet_ac1", found.ac1),
        *(
            ("class", name, "", found.items, measure, of)
            for measure, found_C in of_class.items()
            for name, of in zip(classes, found_C, strict=True)
        ),
        *(("pair", people[one.one], people[one.other], one.items, "cohen_kappa", one.kappa) for one in found.pairs),
    ]
    table = pd.DataFrame(
        [(*row, measured.value, measured.low, measured.high) for *row, measured in rows],
        columns=["of", "name", "other", "items", "measure", "value", "low", "high"],
    )
    return table.round({"value": DIGITS, "low": DIGITS, "high": DIGITS})


def guideline_table(result: Result, found: GuidelineItems) -> pd.DataFrame:
    """One row per item that the best annotators, all of one mind, call otherwise than the crowd; frequent pairs first."""
    votes, names_C = result.votes, _text(result.votes.class_names)
    return pd.DataFrame(
        {
            "item": _text(votes.items)[found.item_M],
            "label": names_C[result.label_N[found.item_M]],
            "confidence": result.confidence_N[found.item_M].round(DIGITS),
            "best_answer": names_C[found.best_label_M],
            "crowd_answer": names_C[found.crowd_label_M],
            "best_annotators": [len(best) for best in found.best_M],
            "annotators": _text([", ".join(votes.annotators[person] for person in best) for best in found.best_M]),
        }
    )


class ConfusionCounts(NamedTuple):
    """How often an annotator gave an answer to items whose result is a class (X combinations)."""

    annotator_X: np.ndarray  # the unnamed are the last
    result_X: np.ndarray
    answer_X: np.ndarray  # a class, or beyond the classes a node of the taxonomy
    count_X: np.ndarray


def confusion_counts(result: Result) -> ConfusionCounts:
    classes, said = result.posterior_NC.shape[1], len(_said_names(result))
    node_R = result.node_A[result.answer_R]
    said_R = np.where(node_R < 0, result.votes.label_R, classes + node_R)
    annotator_R = result.votes.annotator_R % (len(result.votes.annotators) + 1)
    code_R = (annotator_R * classes + result.label_N[result.votes.item_R]) * said + said_R
    code_X, place_R = np.unique(code_R, return_inverse=True)
    count_X = np.bincount(place_R, result.part_R, minlength=len(code_X))
    return ConfusionCounts(code_X // said // classes, code_X // said % classes, code_X % said, count_X)


def _said_names(result: Result) -> np.ndarray:
    """What an answer may name: a class, or beyond the classes a node of the taxonomy."""
    tree = result.votes.taxonomy
    return _text((*result.votes.class_names, *(() if tree is None else tree.nodes)))


def _worst_mistakes(result: Result, group_X: np.ndarray, groups: int, counts: ConfusionCounts) -> list[str]:
    """Per group the most frequent mistake in words: "cat -> dog 31 of 120", of 120 answers where the result is cat."""
    classes, names_Y = result.posterior_NC.shape[1], _said_names(result)
    kind_X = (group_X * classes + counts.result_X) * len(names_Y) + counts.answer_X
    kind_Y, place_X = np.unique(kind_X, return_inverse=True)
    count_Y = np.bincount(place_X, counts.count_X, minlength=len(kind_Y)).round(DIGITS)
    case_Y, said_Y = kind_Y // len(names_Y), kind_Y % len(names_Y)
    total = np.bincount(case_Y, count_Y, minlength=groups * classes)
    wrong_Y = np.flatnonzero(~_includes(result, said_Y, case_Y % classes))
    order_Y = wrong_Y[np.lexsort((-count_Y[wrong_Y] / total[case_Y[wrong_Y]], -count_Y[wrong_Y]))]
    group, first = np.unique(case_Y[order_Y] // classes, return_index=True)
    names, words = result.votes.class_names, [""] * groups
    for g, y in zip(group.tolist(), order_Y[first].tolist(), strict=True):
        case = int(case_Y[y])
        words[g] = f"{names[case % classes]} -> {names_Y[said_Y[y]]} {count_Y[y]:g} of {total[case].round(DIGITS):g}"
    return words


def _includes(result: Result, said_Y: np.ndarray, class_Y: np.ndarray) -> np.ndarray:
    """Whether an answer (a class, or beyond the classes a node) is or includes the class."""
    tree, classes = result.votes.taxonomy, result.posterior_NC.shape[1]
    if tree is None:
        same_Y: np.ndarray = said_Y == class_Y
        return same_Y
    span_Y2 = tree.span_T2[np.where(said_Y < classes, tree.leaf_C[said_Y % classes], said_Y - classes)]
    includes_Y: np.ndarray = (span_Y2[:, 0] <= class_Y) & (class_Y < span_Y2[:, 1])
    return includes_Y


def _answers_in_words(result: Result, answer_M: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each of these answers in words ("cat", "cat + dog"), and the others to its item ("cat x2; dog?; don't know"). In blocks
    of items: their answers take far more memory than the words."""
    said_M, others_M = np.empty(len(answer_M), dtype=object), np.empty(len(answer_M), dtype=object)
    order_M = np.argsort(result.item_A[answer_M], kind="stable")
    first = np.flatnonzero(np.diff(result.item_A[answer_M[order_M]], prepend=-1))
    for items in row_blocks(np.append(first, len(order_M)), 1, ROWS):
        part = order_M[first[items.start] : first[items.stop] if items.stop < len(first) else None]
        said_M[part], others_M[part] = _words_of_items(result, answer_M[part])
    return said_M, others_M


def _words_of_items(result: Result, answer_M: np.ndarray) -> tuple[list[str], list[str]]:
    """The same, of all doubtful answers to some items."""
    item_M = result.item_A[answer_M]
    answers = answers_of_votes(result.votes, item_M.tolist(), result.answer_R)
    asked: dict[int, list[int]] = defaultdict(list)
    for answer, item in zip(answer_M.tolist(), item_M.tolist(), strict=True):
        asked[item].append(answer)
    others = {item: iter(others_in_words(answers[item], own)) for item, own in asked.items()}
    said = [
        TOGETHER.join(answers[item][answer].labels) for answer, item in zip(answer_M.tolist(), item_M.tolist(), strict=True)
    ]
    return said, [next(others[item]) for item in item_M.tolist()]


def _neighbors_in_words(result: Result, rows: int, arguing: Arguing | None) -> list[str]:
    """ "path (label 0.93); path (label 0.90)": the similar items with their results and similarities."""
    if arguing is None or not arguing.index_MK.shape[1]:
        return [""] * rows
    items, names, label_N = result.votes.items, result.votes.class_names, result.label_N
    return [
        "; ".join(f"{items[i]} ({names[label_N[i]]} {s:.2f})" for i, s in zip(near, similar, strict=True) if i >= 0)
        for near, similar in zip(arguing.index_MK.tolist(), arguing.similarity_MK.tolist(), strict=True)
    ]


def people_of(result: Result) -> np.ndarray:
    """Names by number; -1, which numpy takes for the last, has the last."""
    return _text((*result.votes.annotators, UNNAMED))


def _text(names: Sequence[str]) -> np.ndarray:
    array = np.empty(len(names), dtype=object)
    array[:] = names
    return array
