"""The section on the taxonomy: nodes with counts, accuracy on each level, confusions within and across branches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pals.report.charts import bar
from pals.report.format import count, isolated, percent

MAX_INDENTED_LEVELS = 12
MAX_OPEN_NODES = 40  # up to this number all nodes are shown at once

PairLink = Callable[[tuple[str, str]], dict[str, Any]]


def taxonomy_tree(found: Mapping[str, Any], pair_link: PairLink) -> dict[str, Any]:
    """What the template shows.

    Args:
        found: The taxonomy in report.json: nodes depth first, levels, and the confusions `within` and `across` branches.
        pair_link: The link to the items of a result and an answer.
    """
    nodes = [_node(row) for row in found["nodes"]]
    used = [node for node in nodes if node["items"] or node["answers_below"]]
    return {
        "sure": percent(found["sure"]),
        "levels": [
            {**row, "bar": bar(row["accuracy"], f"{percent(row['accuracy'])} of the answers are right at level {row['level']}")}
            for row in found["levels"]
        ],
        "roots": _nested(used),
        "open": len(used) <= MAX_OPEN_NODES,
        "unused": len(nodes) - len(used),
        "kinds": [
            {**found[key], "title": f"Mix-ups {words}", "pairs": _pairs(found[key]["pairs"], pair_link)}
            for key, words in (("within", "within a branch"), ("across", "across branches"))
        ],
    }


def _node(row: Mapping[str, Any]) -> dict[str, Any]:
    words = [_number_of(row["items"], "item"), _number_of(row["answers"], "answer") + ("" if row["leaf"] else " at this level")]
    if row["rolled_up"] and not row["leaf"]:
        words.append(f"{count(row['rolled_up'])} rolled up to here")
    right = f"{percent(row['accuracy'])} of the answers to {isolated(row['name'])} are right"
    depth = min(row["depth"], MAX_INDENTED_LEVELS)
    return {**row, "depth": depth, "words": ", ".join(words), "bar": bar(row["accuracy"], right), "below": []}


def _number_of(value: float, thing: str) -> str:
    return f"{count(value)} {thing}{'' if value == 1 else 's'}"


def _nested(nodes: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Depth-first rows as a tree."""
    roots: list[dict[str, Any]] = []
    above: list[dict[str, Any]] = []
    for node in nodes:
        while above and above[-1]["depth"] >= node["depth"]:
            above.pop()
        (above[-1]["below"] if above else roots).append(node)
        above.append(node)
    return roots


def _pairs(pairs: Sequence[Mapping[str, Any]], pair_link: PairLink) -> list[dict[str, Any]]:
    largest = max((pair["count"] for pair in pairs), default=1.0)
    drawn = []
    for pair in pairs:
        words = f"{count(pair['count'])} of {count(pair['total'])} answers"
        added = {"words": words, "share": percent(pair["count"] / pair["total"] if pair["total"] else None)}
        chart = bar(pair["count"] / largest, words, kind="weak")
        drawn.append({**pair, **added, "chart": chart, **pair_link((pair["result"], pair["answer"]))})
    return drawn
