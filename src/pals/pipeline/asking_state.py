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
    Decisions,
    Person,
    Source,
    Standing,
    as_sure_as,
    decide,
    expert,
    standing_of,
    typical_person,
)
from pals.crowd.result import Result
from pals.pipeline.run_arrays import read_arrays, write_arrays
from pals.pipeline.tables.result_tables import DIGITS
from pals.util.errors import InputError
from pals.util.words import in_brief

STATE_FILE = "standing.npz"
STATE_TABLES = ("decides_NC", "belief_NC", "hard_NC")
ANYONE = "anyone"


@dataclass(frozen=True)
class AskingState:
    """The items of a run in the order of labels.csv, and the annotator who answers next.

    Args:
        standing: Class probabilities of the items and how likely each is hard.
        typical: How a typical annotator answers: confusion matrices of easy and of hard items.
    """

    standing: Standing
    typical: Person

    __repr__ = in_brief

    @classmethod
    def of(cls, fusion: Fusion, result: Result, labels_wrong: float) -> AskingState:
        """The state after a fit. Items without an answer have the result's probabilities; those of all answered items are
        raised to the power at which as many labels are wrong as the fit estimates (`labels_wrong`, a share)."""
        standing, consensus = standing_of(fusion), fusion.consensus
        answers, decides_NC = consensus.answers, standing.decides_NC
        if not answers.known_N.all():
            decides_NC = np.where(~answers.known_N[:, None], result.posterior_NC, decides_NC)
        judged = np.flatnonzero(answers.answered_N & (answers.gold_N < 0))
        wrong = labels_wrong * answers.known_N.sum() / max(len(judged), 1)
        standing = as_sure_as(Standing(decides_NC, result.posterior_NC, standing.hard_NC), 1 - wrong, judged)
        single = (table_NC.astype(np.float32, copy=False) for table_NC in vars(standing).values())
        typical = (
            table.astype(np.float32).astype(np.float64) for table in typical_person(answers, consensus.annotators)
        )  # rounded as it is stored: the same decisions in memory and read again
        return cls(Standing(*single), Person(*typical))

    def save(self, folder: Path) -> None:
        tables = {**vars(self.standing), **self.typical._asdict()}
        write_arrays(folder / STATE_FILE, {name: table.astype(np.float32, copy=False) for name, table in tables.items()})

    @classmethod
    def load(cls, folder: Path) -> AskingState:
        path = folder / STATE_FILE
        table = {name: array.astype(np.float64) for name, array in read_arrays(path).items() if array.dtype.kind == "f"}
        missing = {*STATE_TABLES, *Person._fields} - table.keys()
        if missing:
            raise InputError(f"Cannot read {path} (no {min(missing)}). Run `pals fit` again to rewrite it.")
        return cls(Standing(*(table[name] for name in STATE_TABLES)), Person(table["easy_CC"], table["hard_CC"]))

    def sources(self, expert_cost: float = EXPERT_COST) -> list[Source]:
        """Who can be asked: any annotator, at cost 1 and as often as needed, and an expert, once per item."""
        items, classes = self.standing.belief_NC.shape
        once_N, who_N = np.ones(items, dtype=np.int64), np.zeros(items, dtype=np.int64)
        right = expert(classes, EXPERT_RIGHT)
        return [
            Source.anybody(self.typical, items, name=ANYONE),
            Source("expert", expert_cost, (right,), who_N, once_N, expert=True),
        ]


def next_table(items: Sequence[str], found: Decisions, sources: Sequence[Source]) -> pd.DataFrame:
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
