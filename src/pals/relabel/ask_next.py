"""Which answers to ask for next, for a budget or until none is worth its cost; computed from a finished run's folder alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from pals.crowd.answer_forecast import forecast
from pals.crowd.next_answer import ENOUGH, EXPERT_COST, WORTH, decide, paid_for
from pals.pipeline.asking_state import STATE_FILE, AskingState, count_decisions, next_table
from pals.pipeline.finished_run import read_table
from pals.pipeline.tables.result_tables import DIGITS
from pals.util.errors import InputError
from pals.util.words import how_many

MIN_RISE = 0.0005
"""Smallest rise of the share of right labels that a percentage with one decimal shows."""


@dataclass(frozen=True)
class NextAnswers:
    """Which items to ask about, and the expected effect.

    Args:
        table: One row per item: item, decision (`enough`, `one more`, `expert`), who, gain (right labels per answer), cost of
            the answer; with a budget also asked, whether it pays for that answer.
        forecast: Columns answers, cost and right: the expected share of right labels after that many answers.
    """

    table: pd.DataFrame
    forecast: pd.DataFrame

    @property
    def sentences(self) -> list[str]:
        """Two sentences: how many items need what, and what the answers would change."""
        enough, more, expert = count_decisions(self.table).values()
        have = "has" if enough == 1 else "have"
        paid = f"; the budget pays for {int(self.table['asked'].sum()):,} of these" if "asked" in self.table else ""
        count = f"{how_many(enough, 'item').capitalize()} {have} enough answers; one more is worth asking for {more:,}"
        return [f"{count}, an expert for {expert:,}{paid}.", forecast_sentence(self.forecast, more + expert > 0)]


def next_answers(
    run: Path | str, *, budget: float | None = None, expert_cost: float = EXPERT_COST, worth: float = WORTH
) -> NextAnswers:
    """Whether each item of a finished run has enough answers, judged by how many right labels another is expected to add.

    Args:
        run: Folder of a finished `pals fit`.
        budget: How much can be spent, where an answer costs 1; None: everything that is worth its cost. The best answers for
            it are chosen, even those below `worth` if the budget allows.
        expert_cost: Cost of an expert's answer; an expert is right for 98% of the items.
        worth: Number of right labels that an answer must add per unit of cost.

    Returns:
        The decision for every item and a forecast of the share of right labels (`NextAnswers`).

    Raises:
        InputError: If a number is out of range, or the folder is no finished run.

    Example:
        >>> rows = [(item, who, "ab"[item % 2 if who != "cy" else 0]) for item in range(20) for who in ("al", "bo", "cy")]
        >>> table = __import__("pandas").DataFrame(rows, columns=["item", "annotator", "label"])
        >>> _ = pals.fit(None, table, out="run", no_images=True)
        >>> found = pals.next_answers("run", budget=5)
        >>> int(found.table["asked"].sum()) <= 5
        True
    """
    for option, value, least in (("budget", budget, 0), ("expert-cost", expert_cost, 0), ("worth", worth, -1e-300)):
        if value is not None and not (value > least and math.isfinite(value)):
            raise InputError(f"--{option} {value:g}: give a number above zero; an answer costs 1.")
    folder = Path(run)
    state, labels = AskingState.load(folder), read_table(folder, "labels.csv")
    if len(labels) != len(state.standing.belief_NC):
        raise InputError(f"{folder / 'labels.csv'} and {STATE_FILE} are from different fits. Run `pals fit` again.")
    sources = state.sources(expert_cost)
    found = decide(state.standing, sources, worth if budget is None else 0.0)
    if budget is None:
        table = next_table(labels["item"].tolist(), found, sources)
    else:
        order = np.argsort(-found.rate_N, kind="stable")
        order = order[found.kind_N[order] != ENOUGH]
        cost = np.array([source.cost for source in sources])[found.source_N[order]]
        asked_N = np.zeros(len(found.kind_N), dtype=bool)
        asked_N[order[paid_for(cost, budget)]] = True
        found = found._replace(kind_N=np.where(asked_N | (found.rate_N >= worth), found.kind_N, ENOUGH))
        table = next_table(labels["item"].tolist(), found, sources).assign(asked=asked_N)
    curve = forecast(state.standing, sources, float(table["cost"].sum()) if budget is None else budget)
    columns = {
        "answers": curve.answers_K.round().astype(np.int64),
        "cost": curve.cost_K.round(1),
        "right": curve.right_K.round(DIGITS),
    }
    return NextAnswers(table, pd.DataFrame(columns))


def forecast_sentence(table: pd.DataFrame, worth_asking: bool) -> str:
    """The first and the last row of a forecast."""
    first, last = table.iloc[0], table.iloc[-1]
    now, then = (f"{100 * row['right']:.1f}" for row in (first, last))
    if not last["answers"]:
        why = "The budget pays for no answer" if worth_asking else "No further answer is worth its cost"
        return f"{why}; about {now}% of the labels are right."
    more = how_many(int(last["answers"]), "more answer")
    cost = f" (cost {last['cost']:,.0f})" if last["cost"] > last["answers"] else ""
    if last["right"] < first["right"] + MIN_RISE:
        return f"{more}{cost} would hardly change the labels: about {now}% are right either way."
    return f"{more}{cost} should raise the share of right labels from {now} to about {then}%."
