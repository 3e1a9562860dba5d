"""Whether to ask again: for every item of a finished run `enough`, `one more` or `expert`, and what further answers would come
to. What a fit holds of its items and people is kept in the run's folder, so that nothing is estimated again."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from pals.crowd.answer_forecast import Forecast, forecast
from pals.crowd.dawid_skene.annotators import confusion_matrices
from pals.crowd.fusion import Fusion
from pals.crowd.next_answer import (
    DECISIONS,
    ENOUGH,
    EXPERT_COST,
    EXPERT_RIGHT,
    WORTH,
    Decisions,
    Person,
    Source,
    Standing,
    as_sure_as,
    decide,
    expert,
    paid_for,
    standing_of,
    typical_person,
)
from pals.crowd.result import Result
from pals.pipeline.finished_run import read_table
from pals.pipeline.tables.result_tables import DIGITS
from pals.util.errors import InputError, unknown
from pals.util.files import replacing, without_advice
from pals.util.words import how_many

FILE_NAME = "standing.npz"
ANYBODY, AN_EXPERT = "anyone", "expert"
LARGEST = 4_000_000
"""Numbers in the confusion matrices that are kept: of those people who gave most answers."""
LEAST_RISE = 0.0005
"""Less than that is not seen in a share with one decimal: it is not called a rise."""


@dataclass(frozen=True)
class Kept:
    """What a fit holds of its items, in the order of labels.csv, and of people: of whoever answers next (`typical`), and of
    some (K) by name."""

    standing: Standing
    typical: Person
    names: tuple[str, ...]
    easy_KCC: np.ndarray

    @classmethod
    def of(cls, fusion: Fusion, result: Result, labels_wrong: float) -> Kept:
        """Numbers as they are kept, so that a run says the same whether it is in memory or read again. Of items that nobody
        answered for the classifier may say more than the answers to all others. Of the others as many labels are
        believed to be wrong as the fit estimates."""
        held, consensus = standing_of(fusion), fusion.consensus
        answers, decides_NC = consensus.answers, held.decides_NC
        if not answers.known_N.all():
            decides_NC = np.where(~answers.known_N[:, None], result.posterior_NC, decides_NC)
        judged = np.flatnonzero(answers.answered_N & (answers.gold_N < 0))
        wrong = labels_wrong * answers.known_N.sum() / max(len(judged), 1)
        held = as_sure_as(Standing(decides_NC, result.posterior_NC, held.hard_NC), 1 - wrong, judged)
        names, easy_KCC = _of_people(fusion, result)
        return cls(
            Standing(*(table_NC.astype(np.float32, copy=False) for table_NC in vars(held).values())),
            Person(*map(_short, typical_person(answers, consensus.annotators))),
            names,
            _short(easy_KCC),
        )

    def save(self, folder: Path) -> None:
        tables = {**vars(self.standing), **self.typical._asdict(), "easy_KCC": self.easy_KCC}
        short = {name: table.astype(np.float32, copy=False) for name, table in tables.items()}
        with replacing(folder / FILE_NAME) as file:  # not compressed: probabilities hardly become smaller
            np.savez(file, names=np.array(self.names, dtype=str), **short)

    @classmethod
    def load(cls, folder: Path) -> Kept:
        path = folder / FILE_NAME
        if not path.is_file():
            raise InputError(f"{folder} holds no {FILE_NAME}: the run is unfinished or too old. Run `pals fit` again.")
        try:
            with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                tables = {name: file[name] for name in file.files}
            names = tuple(map(str, tables.pop("names")))
            long = {name: table.astype(np.float64) for name, table in tables.items()}
            standing = Standing(**{name: long[name] for name in ("decides_NC", "belief_NC", "hard_NC")})
            return cls(standing, Person(long["easy_CC"], long["hard_CC"]), names, long["easy_KCC"])
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise InputError(f"Cannot read {path} ({without_advice(error)}). Run `pals fit` again to rewrite it.") from None


def _of_people(fusion: Fusion, result: Result) -> tuple[tuple[str, ...], np.ndarray]:
    answers, workers = fusion.consensus.answers, result.votes.workers
    given_W = np.bincount(result.worker_A[result.worker_A >= 0], minlength=len(workers))
    kept_K = np.sort(np.argsort(-given_W, kind="stable")[: LARGEST // answers.num_classes**2])
    easy_KCC = confusion_matrices(answers, fusion.consensus.annotators, kept_K)
    return tuple(workers[person] for person in kept_K), easy_KCC


def _short(table: np.ndarray) -> np.ndarray:
    """As float32 has it."""
    long: np.ndarray = table.astype(np.float32).astype(np.float64)
    return long


# ---- who can be asked


def sources_of(
    kept: Kept,
    answered_by: Mapping[str, np.ndarray],
    annotators: Sequence[str] = (),
    costs: Mapping[str, float] | None = None,
    expert_right: float = EXPERT_RIGHT,
) -> list[Source]:
    """The crowd, or these annotators as far as they have not answered yet; an expert; and whoever has a cost of their own.
    `answered_by`: for each person the items that they have answered, by number."""
    costs = {AN_EXPERT: EXPERT_COST, **(costs or {})}
    for name, cost in costs.items():
        if not (cost > 0 and math.isfinite(cost)):
            raise InputError(f"--cost {name}={cost:g}: a cost is a number above zero; an answer from the crowd costs 1.")
    if not 0 < expert_right <= 1:
        raise InputError(f"--expert-right {expert_right:g}: give the share of an expert's answers that are right, up to 1.")
    known = set(kept.names)
    for name in annotators:
        if name not in known:
            raise unknown("annotator", name, known)
    items, classes = kept.standing.belief_NC.shape
    special = [name for name in costs if name not in (ANYBODY, AN_EXPERT) or name in known]
    pool = [name for name in dict.fromkeys(annotators) if name not in special]
    usual = costs.get(ANYBODY, 1.0)
    if annotators:
        crowd = _those_left(kept, pool, answered_by, usual)
    else:
        crowd = Source.anybody(kept.typical, items, name=ANYBODY, cost=usual)
    people = []
    for name in special:
        if name not in known:
            raise unknown("annotator", name, {*known, AN_EXPERT, ANYBODY})
        people.append(_one_person(kept, name, answered_by, costs[name], expert=costs[name] > usual))
    if AN_EXPERT not in known:
        right = expert(classes, expert_right)
        once_N, who_N = np.ones(items, dtype=np.int64), np.zeros(items, dtype=np.int64)
        people.append(Source(AN_EXPERT, costs[AN_EXPERT], (right,), who_N, once_N, expert=True))
    return [crowd, *people]


def _one_person(kept: Kept, name: str, answered_by: Mapping[str, np.ndarray], cost: float, expert: bool) -> Source:
    """Somebody by name, of whom no item can be asked twice."""
    left_N = np.ones(len(kept.standing.belief_NC), dtype=np.int64)
    left_N[answered_by.get(name, [])] = 0
    person = Person(kept.easy_KCC[kept.names.index(name)], kept.typical.hard_CC)
    return Source(name, cost, (person,), left_N - 1, left_N, expert)


def _those_left(kept: Kept, names: Sequence[str], answered_by: Mapping[str, np.ndarray], cost: float) -> Source:
    """Of each item any of these people who has not answered it: their mean."""
    free_NK = np.ones((len(kept.standing.belief_NC), len(names)), dtype=bool)
    for column, name in enumerate(names):
        free_NK[answered_by.get(name, []), column] = False
    pattern_GK, group_N = np.unique(free_NK, axis=0, return_inverse=True)
    number = [kept.names.index(name) for name in names]
    people: list[Person] = []
    who_G = np.full(len(pattern_GK), -1)
    for group, free_K in enumerate(pattern_GK):
        if free_K.any():
            who_G[group] = len(people)
            people.append(Person(kept.easy_KCC[number][free_K].mean(axis=0), kept.typical.hard_CC))
    return Source(" or ".join(names), cost, tuple(people), who_G[group_N.ravel()], free_NK.sum(axis=1))


# ---- what is said


@dataclass(frozen=True)
class NextAnswers:
    """Whom to ask about which item, and what it would come to."""

    table: pd.DataFrame
    """One row per item: item, decision, who, gain (labels right for each answer), cost of an answer; with a budget, `asked`:
    whether it pays for that answer."""
    forecast: pd.DataFrame
    "Answers, their cost, and the share of all labels that is then expected to be right."

    @property
    def sentences(self) -> list[str]:
        """In words: how many items are in which state, and the forecast."""
        count = self.table["decision"].value_counts()
        enough, more, to_expert = (int(count.get(name, 0)) for name in DECISIONS)
        have = "has" if enough == 1 else "have"
        first = f"{how_many(enough, 'item').capitalize()} {have} enough answers; one more is worth asking for {more:,}"
        paid = f"; the budget pays for {int(self.table['asked'].sum()):,} of these" if "asked" in self.table else ""
        return [f"{first}, an expert for {to_expert:,}{paid}.", _in_words(self.forecast, more + to_expert > 0)]


def next_answers(
    run: Path | str,
    *,
    annotators: Sequence[str] = (),
    costs: Mapping[str, float] | None = None,
    budget: float | None = None,
    expert_right: float = EXPERT_RIGHT,
    worth: float = WORTH,
) -> NextAnswers:
    """Whether each item of a finished run has enough answers, judged by how many right labels one more is expected to add.

    The forecast is for the budget, or else for all answers worth asking for.

    Args:
        annotators: Who can be asked, each at most once per item; everybody by default.
        costs: The cost of an answer from `expert`, from a person by name, or from `anyone` (1).
        budget: How much can be spent. The best answers for it are chosen (`asked`), even those below `worth` if the budget
            allows; an item that it does not reach may still lack answers.
        expert_right: Share of an expert's answers that are right.
        worth: How many right labels an answer must add per unit of cost.
    """
    if budget is not None and not (budget > 0 and math.isfinite(budget)):
        raise InputError(f"--budget {budget:g}: give the most to spend, a number above zero; an answer from the crowd costs 1.")
    if not (worth >= 0 and math.isfinite(worth)):
        raise InputError(f"--worth {worth:g}: give how many more right labels an answer must bring, such as {WORTH:g}.")
    folder = Path(run)
    kept, labels, votes = Kept.load(folder), read_table(folder, "labels.csv"), read_table(folder, "votes.csv")
    if len(labels) != len(kept.standing.belief_NC):
        raise InputError(
            f"{folder / 'labels.csv'} and {FILE_NAME} are from different fits. Run `pals fit` again to rewrite them."
        )
    place = pd.Series(np.arange(len(labels)), index=labels["item"])
    answered = votes.assign(row=votes["item"].map(place)).dropna(subset=["row"]).groupby("annotator")["row"]
    answered_by = {str(name): rows.to_numpy(dtype=np.int64) for name, rows in answered}
    sources = sources_of(kept, answered_by, annotators, costs, expert_right)
    found = decide(kept.standing, sources, worth if budget is None else 0.0)
    asked_N = None if budget is None else _paid_for(found, sources, budget)
    if asked_N is not None:
        found = found._replace(kind_N=np.where(asked_N | (found.rate_N >= worth), found.kind_N, ENOUGH))
    table = next_table(labels["item"].tolist(), found, sources)
    table = table if asked_N is None else table.assign(asked=asked_N)
    curve = forecast(kept.standing, sources, float(table["cost"].sum()) if budget is None else budget)
    return NextAnswers(table, _forecast_table(curve))


def next_table(items: Sequence[str], found: Decisions, sources: Sequence[Source]) -> pd.DataFrame:
    """One row per item, in the order of labels.csv."""
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


def default_table(kept: Kept, items: Sequence[str]) -> pd.DataFrame:
    """What a fit itself says: anybody can be asked, and an expert."""
    sources = sources_of(kept, {})
    return next_table(items, decide(kept.standing, sources), sources)


def counts(table: pd.DataFrame) -> dict[str, int]:
    """How many items are in which state."""
    found = table["decision"].value_counts()
    return {name: int(found.get(name, 0)) for name in DECISIONS}


def _paid_for(found: Decisions, sources: Sequence[Source], budget: float) -> np.ndarray:
    """Whether an item's answer is one of the best, as many as can be paid for, N."""
    order = np.argsort(-found.rate_N, kind="stable")
    order = order[found.kind_N[order] != ENOUGH]
    cost = np.array([source.cost for source in sources])[found.source_N[order]]
    asked_N = np.zeros(len(found.kind_N), dtype=bool)
    asked_N[order[paid_for(cost, budget)]] = True
    return asked_N


def _forecast_table(curve: Forecast) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "answers": curve.answers_K.round().astype(np.int64),
            "cost": curve.cost_K.round(1),
            "right": curve.right_K.round(DIGITS),
        }
    )


def _in_words(table: pd.DataFrame, worth_asking: bool) -> str:
    first, last = table.iloc[0], table.iloc[-1]
    if not last["answers"]:
        why = "The budget pays for no answer" if worth_asking else "No further answer is worth its cost"
        return f"{why}; about {100 * first['right']:.1f}% of the labels are right."
    more = how_many(int(last["answers"]), "more answer")
    cost = f" (cost {last['cost']:,.0f})" if last["cost"] > last["answers"] else ""
    now, then = (f"{100 * row['right']:.1f}" for row in (first, last))
    s = "s" if last["answers"] == 1 else ""
    if last["right"] < first["right"] + LEAST_RISE:
        return f"{more}{cost} hardly change{s} labels right: about {now}% either way."
    return f"{more}{cost} raise{s} labels right from {now} to about {then}%."
