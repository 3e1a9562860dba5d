"""Whether an item needs another answer: the state that a fit stores for `pals relabel`, and the decision for every item.

The expected number of right labels that an answer adds is computed in `crowd.next_answer`; here the state it starts from is
made consistent with the run's own estimate of wrong labels, rounded to single precision and stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from pals.crowd.fusion import Fusion
from pals.crowd.next_answer import (
    DECISIONS,
    ENOUGH,
    EXPERT_COST,
    EXPERT_RIGHT,
    Answerer,
    Decisions,
    Standing,
    as_sure_as,
    decide,
    expert,
    standing_of,
    typical_annotator,
)
from pals.crowd.result import Result
from pals.pipeline.run_arrays import read_arrays, write_arrays
from pals.pipeline.tables.result_tables import DIGITS
from pals.util.errors import InputError
from pals.util.words import in_brief

STATE_FILE = "standing.npz"
STATE_TABLES = ("decides_NC", "belief_NC", "typical_CC")
ANYONE = "anyone"


@dataclass(frozen=True)
class AskingState:
    """The items of a run in the order of labels.csv, and the annotator who answers next.

    Args:
        standing: Class probabilities of the items.
        typical_CC: How a typical annotator answers; rows are the true class.
    """

    standing: Standing
    typical_CC: np.ndarray

    __repr__ = in_brief

    @classmethod
    def of(cls, fusion: Fusion, result: Result, labels_wrong: float) -> AskingState:
        """The state after a fit. Items without an answer have the result's probabilities; those of all answered items are
        raised to the power at which as many labels are wrong as the fit estimates (`labels_wrong`, a share)."""
        answers, decides_NC = fusion.consensus.answers, standing_of(fusion).decides_NC
        if not answers.known_N.all():
            decides_NC = np.where(~answers.known_N[:, None], result.posterior_NC, decides_NC)
        judged = np.flatnonzero(answers.answered_N & (answers.gold_N < 0))
        wrong = labels_wrong * answers.known_N.sum() / max(len(judged), 1)
        standing = as_sure_as(Standing(decides_NC, result.posterior_NC), 1 - wrong, judged)
        single = (table_NC.astype(np.float32, copy=False) for table_NC in vars(standing).values())
        typical_CC = typical_annotator(fusion).astype(np.float32).astype(np.float64)  # as it is stored: the same decisions
        return cls(Standing(*single), typical_CC)

    def save(self, folder: Path) -> None:
        tables = {**vars(self.standing), "typical_CC": self.typical_CC}
        write_arrays(folder / STATE_FILE, {name: table.astype(np.float32, copy=False) for name, table in tables.items()})

    @classmethod
    def load(cls, folder: Path) -> AskingState:
        path = folder / STATE_FILE
        table = {name: array.astype(np.float64) for name, array in read_arrays(path).items() if array.dtype.kind == "f"}
        missing = set(STATE_TABLES) - table.keys()
        if missing:
            raise InputError(f"Cannot read {path} (no {min(missing)}). Run `pals fit` again to rewrite it.")
        return cls(Standing(table["decides_NC"], table["belief_NC"]), table["typical_CC"])

    def sources(self, expert_cost: float = EXPERT_COST) -> list[Answerer]:
        """Who can be asked: any annotator, at cost 1 and as often as needed, and an expert, once per item."""
        items, classes = self.standing.belief_NC.shape
        once_N, who_N = np.ones(items, dtype=np.int64), np.zeros(items, dtype=np.int64)
        right = expert(classes, EXPERT_RIGHT)
        return [
            Answerer.anybody(self.typical_CC, items, name=ANYONE),
            Answerer("expert", expert_cost, (right,), who_N, once_N, expert=True),
        ]


def next_table(items: Sequence[str], found: Decisions, sources: Sequence[Answerer]) -> pd.DataFrame:
    """next.csv: one row per item, in the order of labels.csv."""
    asked_N = found.kind_N != ENOUGH
    who_V, cost_V = np.array([source.name for source in sources], dtype=object), np.array([source.cost for source in sources])
    return pd.DataFrame(
        {
            "item": list(items),
            "decision": np.array(DECISIONS, dtype=object)[found.kind_N],
            "who": np.where(asked_N, who_V[found.source_N], ""),
            "gain": found.gain_N.round(DIGITS),
            "cost": np.where(asked_N, cost_V[found.source_N], 0.0),
        }
    )


def default_next_table(state: AskingState, items: Sequence[str]) -> pd.DataFrame:
    """next.csv of a fit: without a budget."""
    sources = state.sources()
    return next_table(items, decide(state.standing, sources), sources)


def count_decisions(table: pd.DataFrame) -> dict[str, int]:
    """Number of items by decision."""
    found = table["decision"].value_counts()
    return {name: int(found.get(name, 0)) for name in DECISIONS}
