"""Annotators who click without looking, as far as answers show it: the same answer again and again whatever the item, agreement
with others that is no better than chance, or, where times are known, far less time than others take for worse answers.

The first two are tests against what an honest annotator would do, each with one chance in a hundred (`FALSE_ALARMS`) that
any annotator is flagged in a crowd of honest annotators, however large. A flag is a reason to check, not a verdict."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from scipy.sparse import csr_matrix
from scipy.stats import beta, pearson3

from pals.crowd.agreement import single_answers
from pals.crowd.answers import ratio
from pals.crowd.blocks import values_at
from pals.readers import Votes

FALSE_ALARMS = 0.01
"""Chance that an annotator in an honest crowd is flagged, for each of the two tests; by Bonferroni over all annotators."""
MIN_TESTED_ANSWERS = 20
"""Answers from which on an annotator is tested."""
EXCESS = 0.1
"""Share of an annotator's answers that must repeat the one before beyond what the items explain: animals come in series,
too."""
AGREEMENT_SHARE = 0.5
"""Of the agreement beyond chance that the whole crowd reaches: who surely reaches less, and perhaps none, is flagged."""
CONFIDENCE = 0.99
"""With which agreement above chance counts as such."""
MIN_AGREEMENT = 0.1
"""Agreement of a crowd below which no annotator can be distinguished from chance."""
PERMUTATIONS, MAX_PERMUTED_ANSWERS = 1000, 4000
"""Permutations of an annotator's answers, and how many of these are used."""
FAST = 0.25
"""Of the seconds that others take for an answer: who takes less is fast."""
WORSE = 0.85
"""Of the agreement beyond chance that the whole crowd reaches: who is fast and surely reaches less is flagged."""
PAUSE = 300.0
"""Seconds for one answer beyond which an annotator did something else meanwhile."""
MIN_OTHERS = 2
"""Other annotators whose time is known, for an annotator to be faster than they are."""


@dataclass(frozen=True)
class Repeats:
    """How often annotators (W) gave the same answer as the one before, by their times or in the order of the votes."""

    steps_W: np.ndarray  # answers that have one before
    same_W: np.ndarray  # share that repeat it
    expected_W: np.ndarray  # by the results of the items, in their order
    flagged_W: np.ndarray


@dataclass(frozen=True)
class AmongOthers:
    """How far annotators (W) agree with all others who answered for the same items; the result is not asked."""

    answers_W: np.ndarray  # to items that others answered for
    agree_W: np.ndarray
    chance_W: np.ndarray
    crowd: float  # agreement beyond chance of all together
    most_W: np.ndarray  # upper confidence limit of agreement beyond chance; NaN for fewer than `MIN_TESTED_ANSWERS` answers
    flagged_W: np.ndarray

    def below(self, share: float) -> np.ndarray:
        """Who surely reaches less than this share of the crowd's agreement, W bools. None where the crowd does not agree."""
        below_W: np.ndarray = (self.most_W < share * self.crowd) & (self.crowd > MIN_AGREEMENT)
        return below_W


@dataclass(frozen=True)
class Pace:
    """How long annotators (W) take for an answer, as is known or follows from the times at which they gave them."""

    answers_W: np.ndarray  # for which it is known, pauses left out
    seconds_W: np.ndarray  # the median; NaN where it is not known for any
    others_W: np.ndarray  # median of the other annotators with `MIN_TESTED_ANSWERS` answers or more; NaN if there are none

    @property
    def fast_W(self) -> np.ndarray:
        fast_W: np.ndarray = self.seconds_W < FAST * self.others_W
        return fast_W


def repeated_answers(votes: Votes, label_N: np.ndarray, *, false_alarms: float = FALSE_ALARMS, seed: int = 0) -> Repeats:
    """Whether annotators repeat themselves more than the items do. `label_N` is the result: if answers depend on the item
    alone, those to items of one result may change places, and that is what a permutation test does. Where the results
    themselves come in series, as in a file in the order of the classes, their errors do, too: so much more an annotator must
    repeat."""
    item_T, annotator_T, label_T = _in_order(votes)
    people, labels = len(votes.annotators), len(votes.class_names)
    steps = np.flatnonzero(annotator_T[1:] == annotator_T[:-1])
    who_S = annotator_T[steps]
    steps_W = np.bincount(who_S, minlength=people)
    same_W = np.bincount(who_S, label_T[steps] == label_T[steps + 1], minlength=people)
    kind_T = annotator_T * labels + label_N[item_T]
    expected_W = np.bincount(who_S, _chance_of_repeat(kind_T, label_T, steps, labels), minlength=people)
    tested_W = steps_W + 1 >= MIN_TESTED_ANSWERS
    level = false_alarms / max(int(tested_W.sum()), 1)
    flagged_W = np.zeros(people, dtype=bool)
    rng = np.random.default_rng(seed)
    begin_W = np.searchsorted(annotator_T, np.arange(people + 1))
    enough_W = EXCESS * steps_W + _series(kind_T, steps, annotator_T, people)
    for person in np.flatnonzero(tested_W & (same_W - expected_W >= enough_W)).tolist():
        own = slice(begin_W[person], min(begin_W[person + 1], begin_W[person] + MAX_PERMUTED_ANSWERS))
        flagged_W[person] = _permutation_p(label_T[own], kind_T[own], rng) <= level
    return Repeats(steps_W, ratio(same_W, steps_W), ratio(expected_W, steps_W), flagged_W)


def among_others(votes: Votes, *, false_alarms: float = FALSE_ALARMS) -> AmongOthers:
    """Whether annotators agree with others beyond chance. Confidence limits (Clopper and Pearson) decide: the lower one must
    not be above chance, the upper one below half of what the crowd reaches. So few answers flag no annotator, and in a hard
    task, where all agree little, more of them are needed. False alarms are counted among those who reach at least that half."""
    item_A, annotator_A, label_A, _ = single_answers(votes)
    people, classes = len(votes.annotators), len(votes.class_names)
    count_NC = csr_matrix((np.ones(len(item_A)), (item_A, label_A)), shape=(len(votes.items), classes))
    others_A = np.bincount(item_A, minlength=len(votes.items))[item_A] - 1
    use = np.flatnonzero((others_A > 0) & (annotator_A >= 0))
    item_A, annotator_A, label_A, others_A = item_A[use], annotator_A[use], label_A[use], others_A[use]
    answers_W = np.bincount(annotator_A, minlength=people)
    match_W = np.bincount(annotator_A, (values_at(count_NC, item_A, label_A) - 1) / others_A, minlength=people)
    code_A = annotator_A * classes + label_A
    own_WC, own_weight_WC = (
        np.bincount(code_A, weight_A, minlength=people * classes).reshape(people, classes) for weight_A in (None, 1 / others_A)
    )
    beside_WN = csr_matrix((1 / others_A, (annotator_A, item_A)), shape=(people, len(votes.items)))
    said_WC = (beside_WN @ count_NC).toarray() - own_weight_WC
    agree_W, chance_W = ratio(match_W, answers_W), ratio((own_WC * said_WC).sum(axis=1), answers_W**2)
    left_W = answers_W * (1 - chance_W)
    crowd = float(ratio(np.nansum(match_W - answers_W * chance_W), np.nansum(left_W)))
    tested_W = answers_W >= MIN_TESTED_ANSWERS
    level = false_alarms / max(int(tested_W.sum()), 1)
    low_W, _ = confidence_limits(match_W, answers_W, 1 - CONFIDENCE)
    _, high_W = confidence_limits(match_W, answers_W, level)
    most_W = np.where(tested_W, ratio(high_W - chance_W, 1 - chance_W), np.nan)
    found = AmongOthers(answers_W, agree_W, chance_W, crowd, most_W, np.zeros(people, dtype=bool))
    return replace(found, flagged_W=found.below(AGREEMENT_SHARE) & (low_W <= chance_W))


def pace(votes: Votes) -> Pace:
    """How long annotators take for an answer: the seconds that it took, or where these are not known, the time since their
    answer before. Answers that were handed in together, or in the same tick of a clock, share that time evenly. Pauses, of more
    than five minutes for an answer, are left out."""
    _, first_A, answer_R = np.unique(votes.answer_R, return_index=True, return_inverse=True)
    annotator_A, people = votes.annotator_R[first_A], len(votes.annotators)
    time_A, seconds_A = (np.full(len(first_A), -np.inf) for _ in range(2))
    np.fmax.at(time_A, answer_R, votes.time_R)  # an answer is given with the last of its labels
    np.fmax.at(seconds_A, answer_R, votes.seconds_R)
    seconds_A = np.where(np.isfinite(seconds_A), seconds_A, _since_the_one_before(annotator_A, time_A))
    kept = np.flatnonzero((annotator_A >= 0) & (seconds_A <= PAUSE))
    answers_W = np.bincount(annotator_A[kept], minlength=people)
    seconds_W = pd.Series(seconds_A[kept]).groupby(annotator_A[kept]).median().reindex(range(people)).to_numpy(dtype=np.float64)
    return Pace(answers_W, seconds_W, _medians_of_others(np.where(answers_W >= MIN_TESTED_ANSWERS, seconds_W, np.nan)))


def _since_the_one_before(annotator_A: np.ndarray, time_A: np.ndarray) -> np.ndarray:
    """The seconds since the annotator's answer before, by the times of answers (-inf: not known); NaN for a first one. Those of
    one time share it evenly."""
    frame = pd.DataFrame({"worker": annotator_A, "time": time_A})[np.isfinite(time_A) & (annotator_A >= 0)]
    together = frame.groupby(["worker", "time"])  # sorted by annotator, then by time
    size_B = together.size()
    who_B, time_B = (size_B.index.get_level_values(name).to_numpy() for name in ("worker", "time"))
    follows_B = np.append(False, who_B[1:] == who_B[:-1])[: len(size_B)]
    each_B = np.where(follows_B, np.diff(time_B, prepend=0.0) / size_B.to_numpy(), np.nan)
    seconds_A = np.full(len(annotator_A), np.nan)
    seconds_A[frame.index] = each_B[together.ngroup()]
    return seconds_A


def confidence_limits(success: np.ndarray, trials: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray]:
    """Clopper and Pearson's limits of a share, each wrong with at most this probability; 0 and 1 without trials."""
    failure = np.maximum(trials - success, 0)
    with np.errstate(invalid="ignore"):
        low = np.where(success > 0, beta.ppf(level, success, failure + 1), 0.0)
        high = np.where(failure > 0, beta.ppf(1 - level, success + 1, failure), 1.0)
    return low, high


def _medians_of_others(value_W: np.ndarray) -> np.ndarray:
    """The median of all others' values, for every annotator who has one (not NaN) beside at least `MIN_OTHERS`; else NaN."""
    order = np.argsort(value_W)[: np.count_nonzero(~np.isnan(value_W))]
    median_W, rest = np.full(len(value_W), np.nan), len(order) - 1
    if rest >= MIN_OTHERS:
        middle_2 = np.array([(rest - 1) // 2, rest // 2])  # places of the others' median among them
        median_W[order] = value_W[order][middle_2 + (middle_2 >= np.arange(len(order))[:, None])].mean(axis=1)
    return median_W


def _in_order(votes: Votes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Item, annotator and label of the answers that name an annotator and one label: annotator by annotator, in the order of
    their times where all are known, else in the order of the votes."""
    first_A, size_A = np.unique(votes.answer_R, return_index=True, return_counts=True)[1:]
    row_T = np.sort(first_A[size_A == 1])
    row_T = row_T[votes.annotator_R[row_T] >= 0]
    annotator_T, time_T = votes.annotator_R[row_T], votes.time_R[row_T]
    untimed_W = np.bincount(annotator_T, np.isnan(time_T), minlength=len(votes.annotators)) > 0
    row_T = row_T[np.lexsort((np.where(untimed_W[annotator_T], 0.0, time_T), annotator_T))]
    return votes.item_R[row_T], votes.annotator_R[row_T], votes.label_R[row_T]


def _chance_of_repeat(kind_T: np.ndarray, label_T: np.ndarray, steps: np.ndarray, labels: int) -> np.ndarray:
    """For each step, how likely its two answers are the same if answers to items of a kind (an annotator's items with one
    result) change places among each other."""
    size_K, kind_T = np.unique(kind_T, return_inverse=True, return_counts=True)[1:][::-1]
    count_KC = csr_matrix((np.ones(len(kind_T)), (kind_T, label_T)), shape=(len(size_K), labels))
    pair_P, place_S = np.unique(kind_T[steps] * len(size_K) + kind_T[steps + 1], return_inverse=True)
    one_P, other_P = pair_P // len(size_K), pair_P % len(size_K)
    alike_P = np.asarray(count_KC[one_P].multiply(count_KC[other_P]).sum(axis=1)).ravel()
    within_P = one_P == other_P
    chance_P = (alike_P - within_P * size_K[one_P]) / np.maximum(size_K[one_P] * (size_K[other_P] - within_P), 1)
    chance_S: np.ndarray = chance_P[place_S]
    return chance_S


def _series(kind_T: np.ndarray, steps: np.ndarray, annotator_T: np.ndarray, people: int) -> np.ndarray:
    """By how many steps more than by chance the results of an annotator's items repeat, W."""
    same_W = np.bincount(annotator_T[steps], kind_T[steps] == kind_T[steps + 1], minlength=people)
    first_K, size_K = np.unique(kind_T, return_index=True, return_counts=True)[1:]
    pairs_W = np.bincount(annotator_T[first_K], size_K * (size_K - 1), minlength=people)
    answers_W = np.bincount(annotator_T, minlength=people)
    series_W: np.ndarray = np.maximum(same_W - pairs_W / np.maximum(answers_W, 1), 0)
    return series_W


def _permutation_p(label_T: np.ndarray, kind_T: np.ndarray, rng: np.random.Generator) -> float:
    """Chance of as many repeats if answers to items of a kind change places. Permutations give the mean, the spread and the
    skewness of a Pearson distribution of type III, whose tail reaches further than a count of permutations would."""
    kind_T = np.unique(kind_T, return_inverse=True)[1]
    order_RT = np.argsort(kind_T + rng.random((PERMUTATIONS, len(kind_T))), axis=1)
    drawn_RT = np.empty_like(order_RT)
    drawn_RT[:, np.argsort(kind_T, kind="stable")] = label_T[order_RT]
    same_R = (drawn_RT[:, 1:] == drawn_RT[:, :-1]).sum(axis=1)
    spread = same_R.std()
    if spread == 0:
        return 1.0
    own = (label_T[1:] == label_T[:-1]).sum() - 0.5  # for continuity
    skewness = (((same_R - same_R.mean()) / spread) ** 3).mean()
    return float(pearson3.sf((own - same_R.mean()) / spread, skewness))
