"""What a taxonomy adds to a fit's results: labels rolled up, accuracy per level, and the tree of the report."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from pals.crowd.result import Result
from pals.crowd.taxonomy_results import AnswerLevels, answer_levels, node_counts
from pals.labels.taxonomy import NO_NODE, RolledUp, Taxonomy
from pals.pipeline.finished_run import UNNAMED
from pals.pipeline.tables.result_tables import DIGITS
from pals.util.words import how_many

MAX_TREE_PAIRS = 12  # confused pairs of each kind that the report lists


@dataclass(frozen=True)
class TaxonomyResult:
    """The result of a fit on the tree of classes: N items, A answers, L levels, T nodes.

    Args:
        tree: The taxonomy.
        sure: Probability above which a label is rolled up to a node.
        rolled: Node and probability of every item.
        levels: What each answer claims on each level, and whether that is right.
        accuracy_L: Share of right claims on each level; None where there are none.
        within: Confusions within a branch of the coarsest level, rows of confusion.csv.
        across: Confusions across branches.
    """

    tree: Taxonomy
    sure: float
    rolled: RolledUp
    levels: AnswerLevels
    accuracy_L: tuple[float | None, ...]
    within: pd.DataFrame
    across: pd.DataFrame

    @classmethod
    def of(cls, result: Result, confusion: pd.DataFrame, sure: float) -> TaxonomyResult | None:
        """Compute it once for tables, summary and report; None without a taxonomy."""
        tree = result.votes.taxonomy
        if tree is None:
            return None
        levels = answer_levels(result, tree)
        accuracy_L = levels.accuracy(np.zeros(len(result.first_A), dtype=np.int64), 1)[0].tolist()
        known_L = tuple(None if math.isnan(share) else share for share in accuracy_L)
        return cls(tree, sure, tree.roll_up(result.posterior_NC, sure), levels, known_L, *_by_branch(confusion, tree))


def with_taxonomy(tables: dict[str, pd.DataFrame], result: Result, found: TaxonomyResult) -> dict[str, pd.DataFrame]:
    """The tables with the columns that a taxonomy adds: `rolled_up` and its probability for each item, and for each annotator
    the accuracy on each level."""
    labels = tables["labels"].assign(
        rolled_up=found.tree.names_of(found.rolled.node_N), rolled_up_probability=found.rolled.probability_N.round(DIGITS)
    )
    names = (*result.votes.annotators, UNNAMED)
    annotator_A = result.annotator_A % len(names)  # -1 is the last
    accuracy_WL = found.levels.accuracy(annotator_A, len(names)).round(DIGITS)
    place = {name: number for number, name in enumerate(names)}
    annotators, row_X = tables["annotators"].copy(), [place[name] for name in tables["annotators"]["annotator"]]
    for level, accuracy_W in enumerate(accuracy_WL.T, start=1):
        annotators.insert(annotators.columns.get_loc("confused"), f"accuracy_level_{level}", accuracy_W[row_X])
    return {**tables, "labels": labels, "annotators": annotators}


def mistakes(confusion: pd.DataFrame, tree: Taxonomy | None) -> pd.DataFrame:
    """The rows of confusion.csv in which the answer is neither the result nor a node above it."""
    wrong = confusion[confusion["result"] != confusion["answer"]]
    if tree is None or not len(wrong):
        return wrong
    span_X2 = tree.span_T2[wrong["answer"].map(tree.number).to_numpy()]
    class_X = tree.span_T2[wrong["result"].map(tree.number).to_numpy(), 0]
    return wrong[~((span_X2[:, 0] <= class_X) & (class_X < span_X2[:, 1]))]


def taxonomy_numbers(found: TaxonomyResult, result: Result) -> dict[str, Any]:
    """The values of `taxonomy` in summary.json."""
    tree, node_N = found.tree, found.rolled.node_N
    leaf_N = np.isin(node_N, tree.leaf_C)
    return {
        "nodes": len(tree.nodes),
        "levels": tree.num_levels,
        "sure": found.sure,
        "coarse_answers": int((result.node_A >= 0).sum()),
        "accuracy_per_level": list(found.accuracy_L),
        "rolled_up": {
            "to_class": int(leaf_N.sum()),
            "to_inner_node": int((~leaf_N & (node_N >= 0)).sum()),
            "to_nothing": int((node_N == NO_NODE).sum()),
        },
        "mistakes_within_branches": float(found.within["count"].sum()),
        "mistakes_across_branches": float(found.across["count"].sum()),
    }


def taxonomy_sentence(found: Mapping[str, Any]) -> str:
    """Accuracy per level and the number of labels rolled up, from `taxonomy_numbers`."""
    rolled, sure = found["rolled_up"], f"{100 * found['sure']:g}%"
    shares = [f"{100 * (share or 0):.1f}%" for share in found["accuracy_per_level"]]
    levels = f"{shares[0]} of the answers name the right branch, and {shares[-1]} of those that name a class name the right one"
    labels = how_many(rolled["to_class"], "label is", "labels are")
    items = how_many(rolled["to_inner_node"], "item is", "items are")
    sureness = f"{labels} more than {sure} sure, {items} rolled up to a coarser one."
    return f"{levels}; {sureness}" if found["levels"] > 1 else sureness


def report_tree(found: TaxonomyResult, result: Result, confusion: pd.DataFrame) -> dict[str, Any]:
    """The values of `taxonomy` in report.json."""
    tree = found.tree
    counts, leaves = node_counts(result, tree, found.sure), set(tree.leaf_C.tolist())
    total = confusion.groupby("result")["count"].sum()
    below_T = np.zeros(len(tree.nodes), dtype=np.int64)
    for node in range(len(tree.nodes) - 1, -1, -1):
        below_T[node] += counts.answers_T[node]
        if tree.parents[node] >= 0:
            below_T[tree.parents[node]] += below_T[node]
    return {
        "sure": found.sure,
        "levels": [
            {"level": level, "nodes": len(np.unique(row_C)), "accuracy": accuracy}
            for level, (row_C, accuracy) in enumerate(zip(tree.level_LC, found.accuracy_L, strict=True), start=1)
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
        "within": _pairs(found.within, total),
        "across": _pairs(found.across, total),
    }


def _by_branch(confusion: pd.DataFrame, tree: Taxonomy) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Mistakes within a branch of the coarsest level, and across branches."""
    wrong = mistakes(confusion, tree)
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
            for (result, answer), count in pairs.head(MAX_TREE_PAIRS).items()
        ],
    }
