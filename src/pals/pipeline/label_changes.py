"""Which labels an update changed, and why: `changes.csv` of a round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType

import pandas as pd

from pals.pipeline.finished_run import UNNAMED, read_columns

CHANGE_COLUMNS = ("item", "before", "after", "why")
LEARNED = "no new answer to this item: the answers to others changed the estimates"
MAX_NAMED_ANSWERS = 4
NOTHING: Mapping[str, str] = MappingProxyType({})


def label_changes(before: Path, after: Path, final: Mapping[str, str] = NOTHING) -> pd.DataFrame:
    """Compare the labels of two rounds.

    Args:
        before: Folder of the earlier round.
        after: Folder of the later one.
        final: Item to who gave final answers to it: votes.csv has only the label on which these agree.

    Returns:
        The columns item, before, after and why, one row per item whose label differs, those with new answers first; `before`
        is blank for a new item.
    """
    old, new = (read_columns(folder, "labels.csv") for folder in (before, after))
    label_of = dict(zip(old["item"], old["label"], strict=True))
    pairs = zip(new["item"], new["label"], strict=True)
    changed = {item: (label_of.get(item, ""), label) for item, label in pairs if label_of.get(item) != label}
    given = [_answers(folder, changed, final) for folder in (before, after)]
    rows = [(item, *labels, _why(given[0].get(item), given[1].get(item))) for item, labels in changed.items()]
    table = pd.DataFrame(rows, columns=pd.Index(CHANGE_COLUMNS))
    return table.sort_values("why", key=lambda why: why == LEARNED, kind="stable", ignore_index=True)


def _answers(run: Path, items: Collection[str], final: Mapping[str, str]) -> dict[str, Counter[str]]:
    """The answers to these items in words, each with the number of times it was given."""
    votes = read_columns(run, "votes.csv")
    found: dict[str, Counter[str]] = {}
    for item, who, label, gold in zip(*(votes[name] for name in ("item", "annotator", "label", "is_gold")), strict=True):
        if item in items:
            who = who or (final.get(item, "") if gold.casefold() in ("true", "1") else UNNAMED)
            words = f"{label} by {who}" if who else f"{label} (known)"
            found.setdefault(item, Counter())[words] += 1
    return found


def _why(before: Counter[str] | None, after: Counter[str] | None) -> str:
    """The answers that are new, and those that no longer count."""
    before, after = before or Counter(), after or Counter()
    news, gone = (sorted((one - other).elements()) for one, other in ((after, before), (before, after)))
    parts = [(f"new: {words}" if words in news else f"gone: {words}") for words in [*news, *gone][:MAX_NAMED_ANSWERS]]
    return "; ".join(parts) or LEARNED
