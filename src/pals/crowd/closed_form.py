"""Labels from people's answers and frozen features of the pictures, in seconds and without training.

Two steps alternate. Ridge regression on the present labels says of every item what it looks like, by all other items. Dawid and
Skene's model takes that as the prior and the answers as evidence, and says what the labels are and who errs how. How far to
believe the pictures, and how much to regularise, is what predicts people's answers best, each from the picture and the other
answers to it: pictures that say nothing which people leave open get no weight.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.optimize import minimize_scalar
from scipy.sparse import csr_matrix
from torch import Tensor

from pals.crowd.answers import Answers, arrange, vote_shares
from pals.crowd.dawid_skene.annotators import Annotators, initial_annotators, m_step
from pals.crowd.dawid_skene.e_step import Chances, e_step, log_hard, log_sum
from pals.crowd.dawid_skene.em import Consensus, summarize
from pals.crowd.dawid_skene.posterior import ItemPosterior
from pals.crowd.fusion import Calibration, Fusion, combine
from pals.crowd.linear_ridge import Spectrum, decompose
from pals.readers import Votes
from pals.util.errors import InputError
from pals.vision.networks.small_networks import signed_root

PENALTIES = (3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
"""Of the regression, as shares of the sum of squares of the features."""
SEARCHED = 2
"""Rounds in which the penalty is chosen. Later the labels hold what the pictures said before, and would ask for less."""
STEEPEST = 40.0
"""Largest factor between scores and logits."""
DOUBT = 0.02
"""Share of the pictures' opinion that is spread evenly: nothing that they say is certain."""
DOUBTED = 1
"""With few pictures more of it is: as if so many of each class had told nothing."""
SHRINKAGE = 10
"""Pictures of each class with which the pictures are believed half as much as the answers suggest. The same few answers
choose this belief and are judged by it."""
UNNAMED = 2.0
"""Nats that a label which nobody gave has to make up for: people's errors are alike, and the regression repeats them."""
STRENGTH = 100.0
"""Answers per class that the prior of a person's confusion matrix weighs; as `Annotators.strength`."""
LARGEST = 2_000_000
"""Numbers in a table of answers by classes; where there are more, every second, third, ... item is looked at."""
FIRST = 300.0
"""Answers per class that stand for what people in general do before there are any: many more than without pictures. The
regression errs between the same classes as people do, and each would otherwise confirm the other."""
LEAST = 1e-6
"""Probability below which opinions are not told apart when they are compared."""
TOLERANCE, ITERATIONS = 5e-4, 30
"""It has converged when no more than this share of the probability moves; rounds at most."""


@dataclass(frozen=True)
class Vague:
    """Classes of an item that no answer tells apart, as everybody names a branch that they share: X of them, in groups. What
    the pictures make of such an item would teach the pictures: of a branch that most people leave undivided, the class that
    is ahead by a little would soon have all items, whatever the few say who name a class."""

    item_X: np.ndarray
    class_X: np.ndarray
    group_X: np.ndarray
    part_X: np.ndarray  # of its group, by the shares of the classes

    @classmethod
    def of(cls, answers: Answers, share_C: np.ndarray) -> Vague:
        given, several_N = answers.given_NK, np.zeros(answers.num_items, dtype=bool)
        several_N[answers.item_E[given.indices >= answers.num_classes]] = True
        rows = np.flatnonzero(several_N & (answers.gold_N < 0))
        marked_NK = given[rows].astype(np.int64)
        marked_NK.data = np.random.default_rng(0).integers(1, 2**40, size=marked_NK.nnz)  # whose sums tell who names a class
        named_NC = (marked_NK @ csr_matrix(answers.named_KC, dtype=np.int64)).tocoo()
        frame = pd.DataFrame({"row": named_NC.row, "named_by": named_NC.data, "class": named_NC.col})
        frame = frame[frame.duplicated(["row", "named_by"], keep=False)]
        class_X, group_X = frame["class"].to_numpy(), frame.groupby(["row", "named_by"]).ngroup().to_numpy()
        total_G = np.bincount(group_X, share_C[class_X])
        return cls(rows[frame["row"]], class_X, group_X, share_C[class_X] / total_G[group_X])

    def taught(self, posterior_NC: np.ndarray) -> np.ndarray:
        """What an item teaches the pictures: its probabilities, evened out within each group."""
        if not len(self.item_X):
            return posterior_NC
        mass_G = np.bincount(self.group_X, posterior_NC[self.item_X, self.class_X])
        taught_NC = posterior_NC.copy()
        taught_NC[self.item_X, self.class_X] = mass_G[self.group_X] * self.part_X
        return taught_NC


@dataclass(frozen=True)
class Setting:
    """What stays the same while labels and annotators change."""

    answers: Answers
    share_C: np.ndarray  # of the classes among the answers: it does not move, so no class can swallow another
    unnamed_NC: np.ndarray  # log-prior of labels that nobody gave
    spread: float
    shrink: float
    vague: Vague | None  # with a taxonomy; without, sets that differ tell more than each alone

    def taught(self, posterior_NC: np.ndarray) -> np.ndarray:
        return posterior_NC if self.vague is None else self.vague.taught(posterior_NC)

    def log_prior(self, score_NC: np.ndarray | None, slope: float) -> np.ndarray:
        """What the pictures say, N x C; without scores or with slope 0, the shares of the classes."""
        log_share_C = np.log(self.share_C)
        if score_NC is None or slope == 0:
            return np.broadcast_to(log_share_C, self.unnamed_NC.shape)
        logit_NC = slope * score_NC + log_share_C
        said_NC = np.exp(logit_NC - log_sum(logit_NC)[:, None])
        log_NC: np.ndarray = np.log((1 - self.spread) * said_NC + self.spread * self.share_C)
        return log_NC

    def with_unnamed(self, log_prior_NC: np.ndarray) -> np.ndarray:
        total_NC = log_prior_NC + self.unnamed_NC
        log_NC: np.ndarray = total_NC - log_sum(total_NC)[:, None]
        return log_NC


@dataclass(frozen=True)
class Opinion:
    """What the pictures say and how far they are believed."""

    score_NC: np.ndarray | None
    penalty: float
    slope: float
    gain: float  # of the log-likelihood of the answers, over classes that are equally frequent everywhere


@dataclass(frozen=True)
class Solution:
    """The labels, and the linear classifier on signed roots of features (`signed_root`) that goes with them."""

    fusion: Fusion
    logit_NC: np.ndarray  # of each item, by the classifier that all others make
    weight_DC: np.ndarray  # of the classifier that all items make
    bias_C: np.ndarray
    spectrum: Spectrum | None = None  # of the features, where they were looked at


def closed_form(votes: Votes, features_ND: Tensor, *, strength: float = STRENGTH) -> Fusion:
    """Labels of all items from their answers and features (N x D, any scale, from one encoder).

    Features that do not help to predict answers get no weight, so the result is that of the answers alone. Deterministic.
    Time grows with N x D^2, memory with N x D.
    """
    return solve(votes, features_ND, strength=strength).fusion


def solve(votes: Votes, features_ND: Tensor, *, strength: float = STRENGTH) -> Solution:
    """`closed_form`, with a classifier for features to come."""
    setting = _setting(votes)
    people, _ = _alternate(setting, None, strength)
    both, opinion, spectrum = people, Opinion(None, 0.0, 0.0, 0.0), None
    if setting.answers.known_N.any():
        spectrum = spectrum_of(features_ND, setting.answers.known_N)
        both, opinion = _alternate(setting, spectrum, strength)
    if spectrum is None or opinion.slope == 0:
        shares_NC = np.array(setting.log_prior(None, 0.0))
        fusion = combine(people, people, np.exp(shares_NC), None, opinion.gain)
        return Solution(
            fusion, shares_NC, np.zeros((features_ND.shape[1], shares_NC.shape[1])), np.log(setting.share_C), spectrum
        )
    said_NC = np.exp(setting.log_prior(opinion.score_NC, opinion.slope))
    calibration = Calibration(np.array([opinion.slope]), np.log(setting.share_C))
    taught_NC = setting.taught(both.posterior_NC)
    weight_DC, bias_C = spectrum.regression(taught_NC, opinion.penalty)
    return Solution(
        fusion=combine(people, both, said_NC, calibration, opinion.gain),
        logit_NC=opinion.slope * spectrum.left_out(taught_NC, opinion.penalty) + calibration.bias_C,
        weight_DC=opinion.slope * weight_DC,
        bias_C=opinion.slope * bias_C + calibration.bias_C,
        spectrum=spectrum,
    )


def spectrum_of(features_ND: Tensor, known_N: np.ndarray) -> Spectrum:
    """What the closed form regresses on, decomposed; items of which nothing is known teach nothing."""
    return decompose(signed_root(features_ND.detach().float()), known_N)


class Again:
    """The closed form for the same items time and again, with more and more answers to them: the features are decomposed once,
    and the penalty is that of the first time. `alone` of what it gives is not computed: it is the result itself."""

    def __init__(self, spectrum: Spectrum, *, strength: float = STRENGTH) -> None:
        self.spectrum, self.strength = spectrum, strength
        self.penalties: tuple[float, ...] = PENALTIES

    def __call__(self, votes: Votes) -> Fusion:
        setting = _setting(votes)
        both, opinion = _alternate(setting, self.spectrum, self.strength, self.penalties)
        self.penalties = (opinion.penalty,)
        said_NC = np.exp(setting.log_prior(opinion.score_NC, opinion.slope))
        calibration = Calibration(np.array([opinion.slope]), np.log(setting.share_C)) if opinion.slope else None
        return combine(both, both, said_NC, calibration, opinion.gain)


def _setting(votes: Votes) -> Setting:
    if len(votes.class_names) < 2:
        raise InputError(f"The votes name {len(votes.class_names)} class; there is nothing to tell apart. Name at least two.")
    answers, share_NC = arrange(votes), vote_shares(votes)
    items, classes = int(answers.known_N.sum()), answers.num_classes
    gold = np.flatnonzero(answers.gold_N >= 0)
    share_NC[gold] = np.eye(classes)[answers.gold_N[gold]]
    pseudo, share_C = DOUBTED * classes, (share_NC.sum(axis=0) + 1) / (share_NC.sum() + classes)
    return Setting(
        answers=answers,
        share_C=share_C,
        unnamed_NC=np.where((share_NC > 0) | ~answers.known_N[:, None], 0.0, -UNNAMED),
        spread=DOUBT + (1 - DOUBT) * pseudo / (items + pseudo),
        shrink=items / (items + SHRINKAGE * classes),
        vague=None if votes.taxonomy is None else Vague.of(answers, share_C),
    )


def _alternate(
    setting: Setting, spectrum: Spectrum | None, strength: float, penalties: tuple[float, ...] = PENALTIES
) -> tuple[Consensus, Opinion]:
    """To convergence, beginning with a majority vote. Without a spectrum the answers are alone."""
    answers, opinion = setting.answers, Opinion(None, 0.0, 0.0, 0.0)
    annotators = initial_annotators(answers, strength, hard=True, first=FIRST)
    found = e_step(answers, annotators, setting.with_unnamed(setting.log_prior(None, 0.0)))
    done, moved = 0, np.inf
    while done < ITERATIONS and moved > TOLERANCE:
        annotators = m_step(answers, found, annotators)
        if spectrum is not None and (done == 0 or opinion.slope > 0):
            tried = penalties if done < SEARCHED else (opinion.penalty,)
            opinion = _look(setting, spectrum, tried, gather(answers, annotators, found), setting.taught(found.posterior_NC))
        prior_NC = setting.with_unnamed(setting.log_prior(opinion.score_NC, opinion.slope))
        found = e_step(answers, annotators, prior_NC, found)
        done, moved = done + 1, found.moved
    return summarize(answers, annotators, found, done, moved <= TOLERANCE), opinion


def _look(
    setting: Setting, spectrum: Spectrum, penalties: tuple[float, ...], evidence: Evidence, target_NC: np.ndarray
) -> Opinion:
    """The opinion of the pictures, with the penalty and the slope under which answers are predicted best. It must gain more
    than chance would, by Schwarz's criterion, or it has no weight."""
    opinions = []
    for penalty in penalties:
        score_NC = spectrum.left_out(target_NC, penalty)
        slope, gain = best_slope(setting, score_NC, evidence)
        opinions.append(Opinion(score_NC, penalty, slope * setting.shrink, gain))
    best = max(opinions, key=lambda opinion: opinion.gain)
    enough = best.gain > 0.5 * np.log(max(setting.answers.num_items, 2))
    return best if enough else Opinion(best.score_NC, best.penalty, 0.0, best.gain)


def best_slope(setting: Setting, score_NC: np.ndarray, evidence: Evidence) -> tuple[float, float]:
    """The factor between scores and logits, not negative, under which answers are predicted best, and by how much better than
    without the scores."""

    def loss(slope: float) -> float:
        return -evidence.log_predicted(setting.log_prior(score_NC, slope))  # what is unnamed would betray the answer

    if not len(evidence.item_E):
        return 0.0, 0.0
    found = minimize_scalar(loss, bounds=(0.0, STEEPEST), method="bounded", options={"xatol": 0.02})
    gain = loss(0.0) - float(found.fun)
    return (float(found.x), gain) if gain > 0 else (0.0, 0.0)


@dataclass(frozen=True)
class Evidence:
    """Answers (E), each to be predicted from the picture and all other answers to the same item. What counts is thus whether
    the pictures tell apart what people leave open, not what everybody sees. States (T) are class and difficulty."""

    item_E: np.ndarray
    own_ET: np.ndarray  # log-probability of the answer
    all_NT: np.ndarray  # of all answers to the item, and of its difficulty

    def log_predicted(self, log_prior_NC: np.ndarray) -> float:
        total_NT = np.tile(log_prior_NC, 2) + self.all_NT
        with_E = log_sum(total_NT)[self.item_E]
        return float((with_E - log_sum(total_NT[self.item_E] - self.own_ET)).sum())


def gather(answers: Answers, annotators: Annotators, found: ItemPosterior) -> Evidence:
    """By what is known of the people from all other answers. Items with a gold label have nothing to predict."""
    step = 1 + answers.given_NS.nnz * answers.num_classes // LARGEST
    entry = np.flatnonzero((answers.gold_N[answers.item_E] < 0) & (answers.item_E % step == 0))
    item_E, weight_E1 = answers.item_E[entry], answers.given_NS.data[entry, None]
    own_ET = weight_E1 * np.log(np.concatenate(Chances(answers, annotators, found)(entry), axis=1))
    with np.errstate(divide="ignore"):
        log_state_T = np.log(np.concatenate([1 - annotators.hard_C, annotators.hard_C]))
    all_NT = np.tile(log_state_T, (answers.num_items, 1))
    all_NT[:, answers.num_classes :] += log_hard(answers, annotators)
    np.add.at(all_NT, item_E, own_ET)
    return Evidence(item_E, own_ET, all_NT)


def picture_gain(votes: Votes, features_ND: Tensor) -> float:
    """Nats an answer by which these features help to predict people's answers, each from the picture and the other answers to
    it, the picture's own answers left out of the regression. To compare encoders; no more than chance is 0 or below."""
    setting = _setting(votes)
    people, _ = _alternate(setting, None, STRENGTH)
    answers = setting.answers
    spectrum = spectrum_of(features_ND, answers.known_N)
    evidence = gather(answers, people.annotators, people.found)
    best = _look(setting, spectrum, PENALTIES, evidence, setting.taught(people.posterior_NC))
    return best.gain / max(len(evidence.item_E), 1) if best.slope > 0 else 0.0


def mean_log_predicted(people: Consensus, opinion_NC: np.ndarray) -> float:
    """Nats an answer: how well each is predicted from the other answers to its item and an opinion about the item that has seen
    none of them. By what `people` says of the annotators, so that opinions can be compared."""
    evidence = gather(people.answers, people.annotators, people.found)
    return evidence.log_predicted(np.log(opinion_NC.clip(min=LEAST))) / max(len(evidence.item_E), 1)
