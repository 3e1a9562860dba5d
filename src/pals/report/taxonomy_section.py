"""The section on the taxonomy: nodes with counts, what people know on each level, mix-ups within and across branches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from pals.report.charts import bar
from pals.report.format import count, isolated, number, percent, rows, text
from pals.report.sections import link

DEEPEST = 12  # levels that are indented; what is deeper stands on the last of them
OPEN = 40  # nodes up to which all of them are shown at once


def tree(data: Mapping[str, Any], pairs: Counter[tuple[str, str]]) -> dict[str, Any] | None:
    """What the template writes down; None where the run had no taxonomy. `pairs`: how many items of the gallery there are for
    each result and answer."""
    found = data.get("taxonomy")
    if not isinstance(found, Mapping):
        return None
    nodes = [_node(row) for row in rows(found.get("nodes"))]
    used = [node for node in nodes if node["items"] or node["answers_below"]]
    return {
        "sure": percent(number(found.get("sure"))),
        "levels": [_level(row) for row in rows(found.get("levels"))],
        "roots": _nested(used),
        "open": len(used) <= OPEN,
        "unused": len(nodes) - len(used),
        "kinds": [
            {"title": title, **_mix_ups(found.get(key), pairs)}
            for key, title in (("within", "Mix-ups within a branch"), ("across", "Mix-ups across branches"))
        ],
    }


def _node(row: Mapping[str, Any]) -> dict[str, Any]:
    counts = {key: number(row.get(key)) or 0 for key in ("items", "rolled_up", "answers", "answers_below")}
    name, accuracy, leaf = text(row.get("name")), number(row.get("accuracy")), bool(row.get("leaf"))
    words = [_of(counts["items"], "item"), _of(counts["answers"], "answer") + ("" if leaf else " at this level")]
    if counts["rolled_up"] and not leaf:
        words.append(f"{count(counts['rolled_up'])} rolled up to here")
    right = f"{percent(accuracy)} of the answers to {isolated(name)} are right"
    return {
        **counts,
        "name": name,
        "depth": min(max(int(number(row.get("depth")) or 1), 1), DEEPEST),
        "words": ", ".join(words),
        "accuracy": accuracy,
        "bar": bar(accuracy, right),
        "below": [],
    }


def _of(value: float, thing: str) -> str:
    return f"{count(value)} {thing}{'' if value == 1 else 's'}"


def _nested(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Depth-first rows as a tree."""
    roots: list[dict[str, Any]] = []
    above: list[dict[str, Any]] = []
    for node in nodes:
        while above and above[-1]["depth"] >= node["depth"]:
            above.pop()
        (above[-1]["below"] if above else roots).append(node)
        above.append(node)
    return roots


def _level(row: Mapping[str, Any]) -> dict[str, Any]:
    accuracy = number(row.get("accuracy"))
    level = count(number(row.get("level")))
    return {
        "level": level,
        "nodes": number(row.get("nodes")),
        "accuracy": accuracy,
        "bar": bar(accuracy, f"{percent(accuracy)} of the answers are right at level {level}"),
    }


def _mix_ups(value: object, reviewed: Counter[tuple[str, str]]) -> dict[str, Any]:
    found = value if isinstance(value, Mapping) else {}
    pairs = rows(found.get("pairs"))
    largest = max((number(pair.get("count")) or 0.0 for pair in pairs), default=0.0) or 1.0
    drawn = []
    for pair in pairs:
        times, total = number(pair.get("count")) or 0.0, number(pair.get("total")) or 0.0
        words = f"{count(times)} of {count(total)} answers"
        share = percent(times / total if total else None)
        chart = bar(times / largest, words, kind="weak")
        names = {"result": text(pair.get("result")), "answer": text(pair.get("answer"))}
        look = {"review": reviewed[names["result"], names["answer"]], "href": link("doubtful", **names)}
        drawn.append({**names, "words": words, "share": share, "chart": chart, **look})
    return {"answers": number(found.get("answers")), "of": max(number(found.get("of")) or 0, len(drawn)), "pairs": drawn}
