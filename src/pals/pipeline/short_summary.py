"""The end of `pals fit` and `pals update` on the terminal: result, warnings, files, next command, in at most eight lines.

All sentences of `summary` are in summary.json, and in the report or shown there in another form.
"""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from pals.pipeline.none_of_these import group_sentences
from pals.pipeline.summary import corrected_estimate
from pals.runs.rounds import current_round, run_of
from pals.util.words import duration, how_many, percent

if TYPE_CHECKING:
    from pals.pipeline.stages.findings import Findings

MAX_WARNINGS = 4
"""Lines of warnings; the last one counts those that are not shown."""


def short_summary(found: Findings, seconds: float) -> list[str]:
    """The last lines of a command.

    Args:
        found: The findings of a fit or an update.
        seconds: How long the command took.

    Returns:
        At most eight lines: the result, what to check, warnings, where the files are, and the next command.
    """
    folder = run_of(found.folder) or found.folder
    return [
        *result_lines(found),
        f"Wrote {folder}{_round(folder, found.folder)} in {duration(seconds)}; open {folder / 'report.html'}",
        f"Next: pals review {shlex.quote(str(folder))}",
    ]


def result_lines(found: Findings) -> list[str]:
    """The result, what to check, and warnings.

    Args:
        found: The findings of a fit or an update.

    Returns:
        At most six lines.
    """
    warnings = _marked([*found.warnings, *group_sentences(found.groups)])
    return [_right(found) if found.grades else _still_wrong(found), _to_check(found), *warnings]


def _round(run: Path, folder: Path) -> str:
    """Of an update of the run: which round it is, what was new, and where the changed labels are listed."""
    if folder == run:
        return ""
    done = current_round(run)
    changed = f"{how_many(done.changed, 'label')} changed ({run / 'changes.csv'})"
    return f", round {done.number} ({done.news or 'settings'}): {changed},"


def _right(found: Findings) -> str:
    """The share of labels that are right, where the truth is known."""
    grades, truth = found.grades, found.trained.loaded.truth
    items = int(grades["items"])
    of = "" if truth is None or truth.whole else f" of {how_many(items, 'item')} with a known label"
    of = of or (f" of the {items:,} items that are not final" if found.numbers["status"]["gold"] else "")
    width = 1.96 / math.sqrt(items)  # of the 95% interval of a share of one half
    labels, majority = (percent(grades[name], width) for name in ("labels", "majority"))
    return f"{labels} of the labels{of} are right (majority {majority})."


def _still_wrong(found: Findings) -> str:
    """The estimated share of labels that are wrong, with its interval, and in an update the share before, and the estimate
    made then if it was another."""
    noise = found.noise
    width = noise.high - noise.low
    wrong, low, high = (percent(share, width) for share in (noise.labels_wrong, noise.low, noise.high))
    before = "" if noise.earlier is None else f", {percent(noise.earlier[0], width)} before the update"
    then = corrected_estimate(found)
    before += "" if then is None else f" (estimated then: {percent(then, width)})"
    return (
        f"About {wrong} of the labels are still wrong ({low[:-1]} to {high[:-1]}){before}, not counting mistakes that most "
        f"annotators share."
    )


def _to_check(found: Findings) -> str:
    status, doubtful = found.numbers["status"], found.numbers["doubtful_answers"]
    return (
        f"Overruled the majority on {how_many(status['corrected'], 'item')} and broke {how_many(status['tie-broken'], 'tie')}. "
        f"To check: {how_many(status['unsure'], 'uncertain item')}, {how_many(doubtful, 'doubtful answer')}."
    )


def _marked(warnings: list[str]) -> list[str]:
    """The first warnings, marked as such, and how many more there are."""
    if len(warnings) > MAX_WARNINGS:
        rest = how_many(len(warnings) - MAX_WARNINGS + 1, "more warning")
        warnings = [*warnings[: MAX_WARNINGS - 1], f"{rest} in the report."]
    return [f"Warning: {line}" for line in warnings]
