"""When to stop asking: what one more answer is worth, item by item.

An answer is worth what it is expected to add to the labels right. That is an expectation over the possible answers
under the annotator model: for each of them it is known what the label would become, and how probable it would then be.

One answer alone may be unable to turn a label that two would turn. So the worth of asking is that of the best plan of up to
`AHEAD` answers, which goes on or stops depending on the answers: the most labels right for each answer that it takes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq

from pals.crowd.blocks import row_blocks
from pals.crowd.fusion import Fusion
from pals.crowd.uncertainty import raised

AHEAD = 3
"""Answers that a plan looks ahead."""
MAX_EXACT_CLASSES, MAX_PLAN_CLASSES = 20, 3
"""Classes of an item, the likeliest, that are considered for a single answer and for a plan of several."""
MAX_PATH_NUMBERS = 4_000_000
"""Numbers in a table of items by classes by answers in memory at once."""
WORTH = 0.01
"""Labels right for each unit of cost below which no answer is asked for: one label for a hundred answers."""
EXPERT_RIGHT, EXPERT_COST = 0.98, 5.0
"""How often an expert is right, and what an expert's answer costs where an answer of the crowd costs 1."""
UNLIMITED = 1_000_000
"""Answers to one item that a crowd can give."""
DECISIONS = ("enough", "one more", "expert")
ENOUGH, ONE_MORE, EXPERT = range(3)
MAX_LOG_POWER = 2.0
"""Logarithm of the largest power that beliefs are raised to, so as to agree with an estimate."""
MIN_PROBABILITY = 1e-300
MAX_RATE_ROUNDS = 8
"""Rounds in which the best plan is sought, at most; it is nearly always found in three or four."""


@dataclass(frozen=True)
class Standing:
    """The posterior of the items before anything is asked.

    Args:
        decides_NC: Its likeliest class is the label.
        belief_NC: How probable each class is, allowing for shared mistakes.
    """

    decides_NC: np.ndarray
    belief_NC: np.ndarray

    @property
    def label_N(self) -> np.ndarray:
        label_N: np.ndarray = self.decides_NC.argmax(axis=1)
        return label_N

    @property
    def right_N(self) -> np.ndarray:
        """Probability that the label is right."""
        return np.take_along_axis(self.belief_NC, self.label_N[:, None], axis=1)[:, 0]

    def __getitem__(self, rows: np.ndarray | slice) -> Standing:
        return Standing(self.decides_NC[rows], self.belief_NC[rows])

    def after(self, answer_N: np.ndarray, chance_CC: np.ndarray) -> Standing:
        """The posterior after these answers by such an annotator."""
        chance_NC = chance_CC[:, answer_N].T
        return Standing(_shares(self.decides_NC * chance_NC), _shares(self.belief_NC * chance_NC))


def standing_of(fusion: Fusion) -> Standing:
    """The posterior after a fit."""
    return Standing(fusion.mean_NC, fusion.posterior_NC)


def as_sure_as(standing: Standing, right: float, rows: np.ndarray) -> Standing:
    """The same, with all beliefs raised to the power at which this share of the labels of these items is right: what a fit
    believes of its items one by one does not add up to what it estimates for all together."""

    def surplus(log_power: float) -> float:
        power, top_M = np.array(math.exp(log_power)), np.empty(len(rows))
        for part in row_blocks(np.arange(len(rows) + 1), standing.belief_NC.shape[1]):
            belief_BC = standing.belief_NC[rows[part]]
            top_M[part] = raised(belief_BC, power).max(axis=1)
        return float(top_M.mean()) - right

    if not len(rows):
        return standing
    ends = surplus(-MAX_LOG_POWER), surplus(MAX_LOG_POWER)
    if ends[0] < 0 < ends[1]:
        power = float(brentq(surplus, -MAX_LOG_POWER, MAX_LOG_POWER, xtol=1e-4))
    else:
        power = MAX_LOG_POWER if ends[1] <= 0 else -MAX_LOG_POWER
    return replace(standing, belief_NC=raised(standing.belief_NC, np.array(math.exp(power))))


def typical_annotator(fusion: Fusion) -> np.ndarray:
    """How the next annotator answers, C x C: rows are the true class, columns the answer. One more answer tells less the
    more the answers to an item share their mistakes (the design effect of one more answer)."""
    answers, confusion_CC = fusion.consensus.answers, fusion.consensus.confusion_CC
    asked = answers.count_N[answers.answered_N].mean() if answers.answered_N.any() else 0.0
    chance_CC = np.maximum(confusion_CC, MIN_PROBABILITY) ** (1 / (1 + fusion.consensus.correlation * asked))
    return _shares(chance_CC)


def expert(classes: int, right: float) -> np.ndarray:
    """An annotator who is right this often and otherwise gives any other label, C x C."""
    chance_CC = np.full((classes, classes), (1 - right) / max(classes - 1, 1))
    np.fill_diagonal(chance_CC, right)
    return chance_CC


@dataclass(frozen=True)
class Answerer:
    """A source of answers: for item n the annotator `people[who_N[n]]`, none where that is -1, and of each item no more
    often than `left_N`. An expert has the last word: of that item no answer is asked for again."""

    name: str
    cost: float
    people: tuple[np.ndarray, ...]
    who_N: np.ndarray
    left_N: np.ndarray
    expert: bool = False

    @classmethod
    def anybody(cls, person: np.ndarray, items: int, *, name: str = "", cost: float = 1.0) -> Answerer:
        """One of many alike, about every item as often as one likes."""
        return cls(name, cost, (person,), np.zeros(items, dtype=np.int64), np.full(items, UNLIMITED))

    def __getitem__(self, rows: np.ndarray) -> Answerer:
        return replace(self, who_N=self.who_N[rows], left_N=self.left_N[rows])


class Decisions(NamedTuple):
    """Whom to ask about each item (N)."""

    kind_N: np.ndarray  # numbers of `DECISIONS`
    source_N: np.ndarray  # the best source, by labels right for each unit of cost
    gain_N: np.ndarray  # labels right for each answer of that source
    rate_N: np.ndarray  # and for each unit of cost


def decide(standing: Standing, sources: Sequence[Answerer], worth: float = WORTH) -> Decisions:
    """The best source for each item, and whether it is worth its cost."""
    gain_VN = np.stack([gain_from(standing, source) for source in sources])
    rate_VN = gain_VN / np.array([source.cost for source in sources])[:, None]
    best_N = rate_VN.argmax(axis=0)
    gain_N, rate_N = (np.take_along_axis(table_VN, best_N[None], axis=0)[0] for table_VN in (gain_VN, rate_VN))
    kind_V = np.where([source.expert for source in sources], EXPERT, ONE_MORE)
    return Decisions(np.where((rate_N >= worth) & (rate_N > 0), kind_V[best_N], ENOUGH), best_N, gain_N, rate_N)


def gain_from(standing: Standing, source: Answerer) -> np.ndarray:
    """Expected labels right for each answer of a source, per item (N); zero where no annotator is left to ask."""
    gain_N = np.zeros(len(source.who_N))
    for number, person in enumerate(source.people):
        for ahead in range(1, AHEAD + 1):  # no plan of more answers than there are to be had
            rows = np.flatnonzero((source.who_N == number) & (np.minimum(source.left_N, AHEAD) == ahead))
            about = standing if len(rows) == len(gain_N) else standing[rows]  # all of very many items are not copied
            gain_N[rows] = gain_per_answer(about, person, ahead)
    return gain_N


def paid_for(cost_M: np.ndarray, money: float) -> np.ndarray:
    """Which of these answers, in this order, the money pays for, M bools: each that can still be paid when its turn comes."""
    paid_M, left = np.zeros(len(cost_M), dtype=bool), money + 1e-9
    open_ = np.flatnonzero(cost_M <= left)
    while len(open_):  # once for each time that an answer is too dear
        total = np.cumsum(cost_M[open_])
        count = int(np.searchsorted(total, left, side="right"))
        paid_M[open_[:count]] = True
        left -= total[count - 1]
        open_ = open_[count:][cost_M[open_[count:]] <= left]
    return paid_M


# ---- what an answer is worth


def gain_of_one(standing: Standing, person: np.ndarray) -> np.ndarray:
    """Expected labels right that one answer adds, per item (N): exact, over all answers (of more than
    `MAX_EXACT_CLASSES` classes, over the likeliest). Never below zero."""
    items, classes = standing.belief_NC.shape
    kept, gain_N = min(MAX_EXACT_CLASSES, classes), np.zeros(items)
    for rows in _blocks(items, 2 * kept * (kept + 1)):
        _, (now_N, then_NA) = _paths(standing[rows], person, kept, ahead=1)
        gain_N[rows] = then_NA.sum(axis=1) - now_N
    return gain_N.clip(min=0)


def gain_per_answer(standing: Standing, person: np.ndarray, ahead: int = AHEAD) -> np.ndarray:
    """Expected labels right for each answer of the best plan that begins with asking once, per item (N)."""
    gain_N = gain_of_one(standing, person)
    if ahead < 2:
        return gain_N
    kept = min(MAX_PLAN_CLASSES, standing.belief_NC.shape[1])
    for rows in _blocks(len(gain_N), 2 * kept * (kept + 1) ** ahead):
        gain_N[rows] = np.maximum(gain_N[rows], _best_rate(*_paths(standing[rows], person, kept, ahead)))
    return gain_N


def _paths(standing: Standing, person: np.ndarray, kept: int, ahead: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """For all sequences of 0, 1, ... `ahead` answers (N x A x A ...): how probable they are, and how probable together with
    the label then being right. Of the likeliest classes; all other labels are one answer that tells little."""
    top_NM = np.argsort(-standing.belief_NC, axis=1, kind="stable")[:, :kept]
    belief_NM, decides_NM = (
        np.take_along_axis(table_NC, top_NM, axis=1).astype(np.float64, copy=False)
        for table_NC in (standing.belief_NC, standing.decides_NC)
    )
    belief_NM = _shares(belief_NM)
    chance_NMA = _with_others(person[top_NM[:, :, None], top_NM[:, None, :]])
    chance = np.ones_like(belief_NM)
    probable, right = [], []
    for depth in range(ahead + 1):
        if depth:
            wide = (*chance_NMA.shape[:2], *(1,) * (depth - 1), chance_NMA.shape[2])
            chance = chance[..., None] * chance_NMA.reshape(wide)
        wide = (*belief_NM.shape, *(1,) * depth)
        mass = belief_NM.reshape(wide) * chance
        label = (decides_NM.reshape(wide) * chance).argmax(axis=1)
        probable.append(mass.sum(axis=1))
        right.append(np.take_along_axis(mass, label[:, None], axis=1)[:, 0])
    return probable, right


def _best_rate(probable: list[np.ndarray], right: list[np.ndarray]) -> np.ndarray:
    """Gain per answer of the best plan, N: at a price per answer the best plan follows from the last answer backwards; its own
    rate is the next price, until nothing is left to win (Dinkelbach)."""
    rate_N = np.zeros(len(right[0]))
    for _ in range(MAX_RATE_ROUNDS):
        value, count = right[-1], np.zeros_like(right[-1])
        for depth in reversed(range(len(right) - 1)):
            price = rate_N.reshape(-1, *(1,) * depth)
            value, count = value.sum(axis=-1), probable[depth] + count.sum(axis=-1)
            if depth:  # the first is asked in any case
                going_on = value - price * count > right[depth]
                value, count = np.where(going_on, value, right[depth]), np.where(going_on, count, 0.0)
        before, rate_N = rate_N, np.maximum((value - right[0]) / count, rate_N)
        if np.abs(rate_N - before).max(initial=0.0) < 1e-9:
            break
    return rate_N


def _with_others(table_NMM: np.ndarray) -> np.ndarray:
    """With one more answer, which stands for all labels that are not listed."""
    return np.concatenate([table_NMM, (1 - table_NMM.sum(axis=2, keepdims=True)).clip(min=0)], axis=2)


def _shares(value_NC: np.ndarray) -> np.ndarray:
    share_NC: np.ndarray = value_NC / value_NC.sum(axis=1, keepdims=True).clip(min=MIN_PROBABILITY)
    return share_NC


def _blocks(items: int, numbers: int) -> list[slice]:
    step = max(1, MAX_PATH_NUMBERS // numbers)
    return [slice(start, start + step) for start in range(0, items, step)]
