"""Why an item is in the queue, in words, from its answers and its row of labels.csv."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pals.pipeline.finished_run import UNNAMED
from pals.pipeline.item_answers import Below, ItemAnswer, itself
from pals.pipeline.item_order import DISAGREEMENT


def queue_reason(
    label: str,
    confidence: float,
    answers: Sequence[ItemAnswer],
    doubt: Mapping[str, Any] | None = None,
    below: Below = itself,
    status: str = "",
) -> str:
    """Why another answer helps, the strongest reason first.

    Args:
        label: The item's label in the result.
        confidence: Its probability.
        answers: All answers to the item.
        doubt: The item's first row of doubtful.csv, if it has one.
        below: With a taxonomy, the classes below a node: an answer that names a node counts for each of them.
        status: The item's status in labels.csv.
    """
    if status == DISAGREEMENT:
        return "trusted answers differ"
    given = [answer for answer in answers if not (answer.gold or answer.unknown)]
    if not given:
        return "nobody answered"
    counted = [answer for answer in given if answer.counts > 0]
    if not counted:
        return "no answer counts any more"
    support: dict[str, float] = {}
    for answer in given:
        for name in {name for one in answer.labels for name in below(one)}:
            support[name] = round(support.get(name, 0.0) + answer.counts, 6)
    reasons, most = list[str](), max(support.values())
    others = sum(not any(label in below(name) for name in answer.labels) for answer in counted)
    if label in support and not any(label in answer.labels for answer in given):
        reasons.append(f"only coarser answers allow {label}")
    elif sum(weight == most for weight in support.values()) > 1:
        reasons.append("a tie")
    elif label not in support:
        reasons.append(f"nobody said {label}")
    elif support[label] < most:
        reasons.append("against what most said")
    elif others:
        reasons.append(f"{others} of {len(counted)} said something else")
    elif len(counted) == 1:
        reasons.append("one answer only")
    if confidence < 0.5:
        reasons.append("the result is unsure")
    if doubt is not None:
        who = "somebody" if doubt["annotator"] in ("", UNNAMED) else doubt["annotator"]
        reasons.append(f"{who}'s {doubt['answer']} is probably wrong ({100 * float(doubt['probability_wrong']):.0f}%)")
    return "; ".join(reasons) or "the least sure of those that are agreed on"
