"""What a taxonomy adds to a fit's results: labels rolled up, accuracy per level, and the tree of the report."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from pals.crowd.result import Result
from pals.crowd.taxonomy_results import answer_levels, node_counts
from pals.labels.taxonomy import NO_NODE, Taxonomy
from pals.pipeline.finished_run import UNNAMED
from pals.pipeline.tables.result_tables import DIGITS
from pals.util.words import how_many

SHOWN = 12  # mix-ups of each kind that the report lists


def with_taxonomy(tables: dict[str, pd.DataFrame], result: Result, sure: float) -> dict[str, pd.DataFrame]:
    """The tables with the columns that a taxonomy brings: `rolled_up` and its probability for each item, and for each person
    the accuracy on each level."""
    tree = result.votes.taxonomy
    if tree is None:
        return tables
    rolled = tree.roll_up(result.posterior_NC, sure)
    labels = tables["labels"].assign(
        rolled_up=tree.names_of(rolled.node_N), rolled_up_probability=rolled.probability_N.round(DIGITS)
    )
    people = result.worker_A % (len(result.votes.workers) + 1)  # -1 is the last
    accuracy_WL = answer_levels(result, tree).accuracy(people, len(result.votes.workers) + 1).round(DIGITS)
    place = {name: number for number, name in enumerate((*result.votes.workers, UNNAMED))}
    annotators, row_X = tables["annotators"].copy(), [place[name] for name in tables["annotators"]["annotator"]]
    for level, accuracy_W in enumerate(accuracy_WL.T, start=1):
        annotators.insert(annotators.columns.get_loc("confused"), f"accuracy_level_{level}", accuracy_W[row_X])
    return {**tables, "labels": labels, "annotators": annotators}


def mistakes(confusion: pd.DataFrame, tree: Taxonomy | None) -> pd.DataFrame:
    """The rows of the table in which the answer is not the result, nor a node above it."""
    wrong = confusion[confusion["result"] != confusion["answer"]]
    if tree is None or not len(wrong):
        return wrong
    span_X2 = tree.span_T2[wrong["answer"].map(tree.number).to_numpy()]
    class_X = tree.span_T2[wrong["result"].map(tree.number).to_numpy(), 0]
    return wrong[~((span_X2[:, 0] <= class_X) & (class_X < span_X2[:, 1]))]


def numbers_of_tree(result: Result, confusion: pd.DataFrame, sure: float) -> dict[str, Any] | None:
    """For `summary.json`; None without a taxonomy."""
    tree = result.votes.taxonomy
    if tree is None:
        return None
    node_N = tree.roll_up(result.posterior_NC, sure).node_N
    leaf_N = np.isin(node_N, tree.leaf_C)
    within, across = _apart(mistakes(confusion, tree), tree)
    return {
        "nodes": len(tree.nodes),
        "levels": tree.num_levels,
        "sure": sure,
        "coarse_answers": int((result.node_A >= 0).sum()),
        "accuracy_per_level": _accuracy(result, tree),
        "rolled_up": {
            "to_class": int(leaf_N.sum()),
            "to_inner_node": int((~leaf_N & (node_N >= 0)).sum()),
            "to_nothing": int((node_N == NO_NODE).sum()),
        },
        "mistakes_within_branches": float(within["count"].sum()),
        "mistakes_across_branches": float(across["count"].sum()),
    }


def tree_in_words(found: Mapping[str, Any] | None) -> list[str]:
    """A sentence for the end of the run."""
    if found is None:
        return []
    rolled, sure = found["rolled_up"], f"{100 * found['sure']:g}%"
    shares = [f"{100 * (share or 0):.1f}%" for share in found["accuracy_per_level"]]
    levels = f"{shares[0]} of the answers name the right branch, and {shares[-1]} of those that name a class name the right one"
    labels, items = (
        how_many(rolled["to_class"], "label is", "labels are"),
        how_many(rolled["to_inner_node"], "item is", "items are"),
    )
    sureness = f"{labels} more than {sure} sure, {items} rolled up to a coarser one."
    return [f"{levels}; {sureness}" if found["levels"] > 1 else sureness]


def report_tree(result: Result, confusion: pd.DataFrame, sure: float) -> dict[str, Any] | None:
    """What the page shows of the tree, as plain values; None without a taxonomy."""
    tree = result.votes.taxonomy
    if tree is None:
        return None
    counts, leaves = node_counts(result, tree, sure), set(tree.leaf_C.tolist())
    within, across = _apart(mistakes(confusion, tree), tree)
    total = confusion.groupby("result")["count"].sum()
    below_T = np.zeros(len(tree.nodes), dtype=np.int64)
    for node in range(len(tree.nodes) - 1, -1, -1):
        below_T[node] += counts.answers_T[node]
        if tree.parents[node] >= 0:
            below_T[tree.parents[node]] += below_T[node]
    return {
        "sure": sure,
        "levels": [
            {"level": level, "nodes": len(np.unique(row_C)), "accuracy": accuracy}
            for level, (row_C, accuracy) in enumerate(zip(tree.level_LC, _accuracy(result, tree), strict=True), start=1)
        ],
        "nodes": [
            {
                "name": name,
                "depth": int(tree.depth_T[node]),
                "leaf": node in leaves,
                "items": int(counts.items_T[node]),
                "rolled_up": int(counts.rolled_up_T[node]),
                "answers": int(counts.answers_T[node]),
                "answers_below": int(below_T[node]),
                "accuracy": counts.right_T[node] / counts.claims_T[node] if counts.claims_T[node] else None,
            }
            for node, name in enumerate(tree.nodes)
        ],
        "within": _pairs(within, total),
        "across": _pairs(across, total),
    }


def _accuracy(result: Result, tree: Taxonomy) -> list[float | None]:
    accuracy_L = answer_levels(result, tree).accuracy(np.zeros(len(result.first_A), dtype=np.int64), 1)[0]
    return [None if math.isnan(share) else share for share in accuracy_L.tolist()]


def _apart(wrong: pd.DataFrame, tree: Taxonomy) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Mistakes within a branch of the coarsest level, and across branches."""
    branch = np.unique(tree.level_LC[0], return_inverse=True)[1]
    spans = (tree.span_T2[wrong[column].map(tree.number).to_numpy(dtype=np.int64)] for column in ("result", "answer"))
    (result_X, _), (first_X, last_X) = (span.T for span in spans)
    within_X = (branch[first_X] == branch[result_X]) & (branch[last_X - 1] == branch[result_X])
    return wrong[within_X], wrong[~within_X]


def _pairs(wrong: pd.DataFrame, total: pd.Series) -> dict[str, Any]:
    pairs = wrong.groupby(["result", "answer"], sort=True)["count"].sum().sort_values(ascending=False, kind="stable")
    return {
        "answers": round(float(pairs.sum()), 3),
        "of": len(pairs),
        "pairs": [
            {"result": result, "answer": answer, "count": round(float(count), 3), "total": round(float(total[result]), 3)}
            for (result, answer), count in pairs.head(SHOWN).items()
        ],
    }
