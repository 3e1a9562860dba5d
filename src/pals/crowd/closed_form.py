"""Labels from people's answers and frozen features of the pictures, in seconds and without training.

Two steps alternate. Ridge regression on the present labels says of every item what it looks like, by all other items. Dawid and
Skene's model takes that as the prior and the answers as evidence, and says what the labels are and who errs how. How far to
believe the pictures, and how much to regularise, is what makes people's answers likeliest: those of an item are predicted
from all others, so pictures that say nothing get no weight.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from pals.crowd.annotators import Annotators, Weighed, beginners, learn, log_sum, weigh
from pals.crowd.answers import Answers, arrange, vote_shares
from pals.crowd.consensus import Consensus, summarize
from pals.crowd.fusion import Calibration, Fusion, combine
from pals.crowd.linear import Spectrum, decompose
from pals.readers import Votes
from pals.util.errors import InputError

PENALTIES = (3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
"""Of the regression, as shares of the sum of squares of the features."""
SEARCHED = 2
"""Rounds in which the penalty is chosen. Later the labels hold what the pictures said before, and would ask for less."""
STEEPEST = 40.0
"""Largest factor between scores and logits."""
DOUBT = 0.02
"""Share of the pictures' opinion that is spread evenly: nothing that they say is certain."""
DOUBTED = 3
"""With few pictures more of it is: as if so many of each class had been seen and told nothing."""
SHRINKAGE = 10
"""Pictures of each class with which the pictures are believed half as much as the answers suggest. The same few answers
choose this belief and are judged by it."""
UNNAMED = 3.0
"""Nats that a label which nobody gave has to make up for: people's errors are alike, and the regression repeats them."""
STRENGTH = 100.0
"""Answers per class that the prior of a person's confusion matrix weighs; as `Annotators.strength`."""
TOLERANCE, ITERATIONS = 5e-4, 30
"""It has converged when no more than this share of the probability moves; rounds at most."""


@dataclass(frozen=True)
class Setting:
    """What stays the same while labels and annotators change."""

    answers: Answers
    share_C: np.ndarray  # of the classes among the answers: it does not move, so no class can swallow another
    unnamed_NC: np.ndarray  # log-prior of labels that nobody gave
    spread: float
    shrink: float

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


def closed_form(votes: Votes, features_ND: Tensor, *, strength: float = STRENGTH) -> Fusion:
    """The labels of all items by their answers and features (N x D, any scale, the same encoder for all).

    Features that do not help to predict answers get no weight; then the result is that of the answers alone. Deterministic.
    Time grows with N x D^2, memory with N x D.
    """
    if len(votes.class_names) < 2:
        raise InputError(f"The votes name {len(votes.class_names)} class; there is nothing to tell apart. Name at least two.")
    setting = _setting(votes)
    people, _ = _alternate(setting, None, strength)
    if not setting.answers.known_N.any():
        return combine(people, people, np.exp(setting.log_prior(None, 0.0)), None, 0.0)
    spectrum = decompose(root(features_ND), setting.answers.known_N)
    both, opinion = _alternate(setting, spectrum, strength)
    if opinion.slope == 0:
        return combine(people, people, np.exp(setting.log_prior(None, 0.0)), None, opinion.gain)
    said_NC = np.exp(setting.log_prior(opinion.score_NC, opinion.slope))
    calibration = Calibration(np.array([opinion.slope]), np.log(setting.share_C))
    return combine(people, both, said_NC, calibration, opinion.gain)


def root(features_ND: Tensor) -> Tensor:
    """The square root of each feature, with its sign: a few large activations would otherwise decide every comparison."""
    return features_ND.detach().to(torch.float32).abs().sqrt() * features_ND.sign()


def _setting(votes: Votes) -> Setting:
    answers, share_NC = arrange(votes), vote_shares(votes)
    items, classes = int(answers.known_N.sum()), answers.num_classes
    gold = np.flatnonzero(answers.gold_N >= 0)
    share_NC[gold] = np.eye(classes)[answers.gold_N[gold]]
    pseudo = DOUBTED * classes
    return Setting(
        answers=answers,
        share_C=(share_NC.sum(axis=0) + 1) / (share_NC.sum() + classes),
        unnamed_NC=np.where((share_NC > 0) | ~answers.known_N[:, None], 0.0, -UNNAMED),
        spread=DOUBT + (1 - DOUBT) * pseudo / (items + pseudo),
        shrink=items / (items + SHRINKAGE * classes),
    )


def _alternate(setting: Setting, spectrum: Spectrum | None, strength: float) -> tuple[Consensus, Opinion]:
    """To convergence, beginning with a majority vote. Without a spectrum the answers are alone."""
    answers, opinion = setting.answers, Opinion(None, 0.0, 0.0, 0.0)
    annotators = beginners(answers, strength, hard=True)
    found = weigh(answers, annotators, setting.with_unnamed(setting.log_prior(None, 0.0)))
    done, change = 0, np.inf
    while done < ITERATIONS and change > TOLERANCE:
        annotators = learn(answers, found, annotators)
        if spectrum is not None and (done == 0 or opinion.slope > 0):
            tried = PENALTIES if done < SEARCHED else (opinion.penalty,)
            opinion = _look(setting, spectrum, tried, log_likelihood(answers, annotators, found), found)
        prior_NC = setting.with_unnamed(setting.log_prior(opinion.score_NC, opinion.slope))
        before, found = found, weigh(answers, annotators, prior_NC, found)
        change = 0.5 * np.abs(found.posterior_NC - before.posterior_NC).sum() / max(answers.num_items, 1)
        done += 1
    return summarize(answers, annotators, found, done, change <= TOLERANCE), opinion


def _look(
    setting: Setting, spectrum: Spectrum, penalties: tuple[float, ...], evidence_NC: np.ndarray, found: Weighed
) -> Opinion:
    """The opinion of the pictures, with the penalty and the slope under which the answers are likeliest. It must gain more
    than chance would, by Schwarz's criterion, or it has no weight."""
    rows = np.flatnonzero(setting.answers.answered_N & (setting.answers.gold_N < 0))
    opinions = []
    for penalty in penalties:
        score_NC = spectrum.left_out(found.posterior_NC, penalty)
        slope, gain = best_slope(setting, score_NC, evidence_NC, rows)
        opinions.append(Opinion(score_NC, penalty, slope * setting.shrink, gain))
    best = max(opinions, key=lambda opinion: opinion.gain)
    enough = best.gain > 0.5 * np.log(max(len(rows), 2))
    return best if enough else Opinion(best.score_NC, best.penalty, 0.0, best.gain)


def best_slope(setting: Setting, score_NC: np.ndarray, evidence_NC: np.ndarray, rows: np.ndarray) -> tuple[float, float]:
    """The factor between scores and logits, not negative, that makes the answers of these items likeliest, and by how much."""

    def loss(slope: float) -> float:
        return -float(log_sum(setting.log_prior(score_NC, slope)[rows] + evidence_NC[rows]).sum())

    if not len(rows):
        return 0.0, 0.0
    found = minimize_scalar(loss, bounds=(0.0, STEEPEST), method="bounded", options={"xatol": 0.02})
    gain = loss(0.0) - float(found.fun)
    return (float(found.x), gain) if gain > 0 else (0.0, 0.0)


def log_likelihood(answers: Answers, annotators: Annotators, found: Weighed) -> np.ndarray:
    """N x C: log-probability of each item's answers under each class, by what is known of the people from all other items."""
    flat_NC = np.zeros((answers.num_items, answers.num_classes))
    alike = weigh(answers, annotators, flat_NC, found)
    with np.errstate(divide="ignore"):
        log_NC: np.ndarray = np.log(alike.posterior_NC) + alike.evidence_N[:, None]
    return log_NC
