"""None of these: items whose right class no annotator could name, because it is not among the classes.

Such items have in common that annotators' answers are not what the images let expect, and that the same holds of the images
around them. How far that is the mark of a missing class is learned without one: each class is hidden once. Its answers are
turned into others, as annotators give them who miss their word, everything is computed again without it, and a logistic
regression learns to distinguish its items from the rest. What share of the items is of a class that is really missing comes
from how many of them look so; where no more do than by chance, it is less than one item. How far that can be believed is
learned in the same way: of each hidden class, probabilities are found by what the others teach, and compared with what it
really was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize, minimize_scalar
from scipy.special import expit, logit, logsumexp
from torch import Tensor

from pals.crowd.answers import ratio, relative
from pals.crowd.closed_form import PENALTIES, spectrum_of
from pals.crowd.image_likelihood import DOUBT, MAX_SLOPE
from pals.crowd.linear_ridge import MAX_SIDE, Spectrum
from pals.readers import Votes

PROBABLE = 0.5
"""An item is called none of these if that is more likely than this."""
MAX_HIDDEN_CLASSES = 12
"""Classes that are hidden, at most; of more a random choice."""
MIN_CLASS_ITEMS = 5
"""Items of a class that can be hidden, at least."""
MAX_DISTANCE_AXES = 200
"""Principal axes along which distances are measured, at most; at least five items for each."""
MAX_DONT_KNOW = 0.5
"""Largest share of answers whose class is missing that are answered "don't know" instead, where there are such answers."""
NOVELTY_PENALTIES = PENALTIES[1::2]
"""Penalties of the regression of which the best is taken."""
REWEIGHTINGS = 8
"""The items that are probably of a missing class are left out of what the next round learns from."""
SHRINKAGE = 1.0
"""L2 penalty on the weights of the logistic regression, whose inputs have deviation one."""
TINY = 1e-12
MIN_DISTINCT_CHANCE = 1e-6
"""Probabilities nearer to 0 or 1 are not distinguished when it is learned how far they can be believed."""


@dataclass(frozen=True)
class Novelty:
    """How likely each item is of a class that is not among the classes, and the share of items that are."""

    probability_N: np.ndarray
    share: float


class Said(NamedTuple):
    """The rows (R) of the votes as this module needs them; where the right label is known it stands for all answers."""

    item_R: np.ndarray
    label_R: np.ndarray
    part_R: np.ndarray  # weight of the label
    unknown_N: np.ndarray  # number of "don't know"s

    def share_NC(self, classes: int) -> np.ndarray:
        """Of each item's answers; "don't know" names all classes alike. Zeros without answers."""
        items = len(self.unknown_N)
        count = np.bincount(self.item_R * classes + self.label_R, self.part_R, minlength=items * classes)
        count_NC = count.reshape(items, classes) + self.unknown_N[:, None] / classes
        return ratio(count_NC, count_NC.sum(axis=1, keepdims=True), otherwise=0.0)


def none_of_these(
    votes: Votes,
    features_ND: Tensor,
    label_N: np.ndarray,
    neighbor_NK: np.ndarray,
    *,
    seed: int = 0,
    spectrum: Spectrum | None = None,
) -> Novelty | None:
    """From the answers, frozen features, the result so far and each item's nearest neighbours in the features. `spectrum`: that
    of the closed form on the same features, which need not be decomposed again if the same items teach.

    Items whose right label is known have probability zero. None where it cannot be learned: fewer than two classes would be
    left, or have enough items, or the features are too many for an exact regression. Deterministic for a seed.
    """
    classes, said = len(votes.class_names), gather(votes, label_N)
    share_NC = said.share_NC(classes)
    counts_C = np.bincount(label_N[share_NC.any(axis=1)], minlength=classes)
    playing = np.flatnonzero(counts_C >= MIN_CLASS_ITEMS)
    if classes < 3 or len(playing) < 2 or min(features_ND.shape) > MAX_SIDE:
        return None
    rng = np.random.default_rng(seed)
    playing = np.sort(rng.permutation(playing)[:MAX_HIDDEN_CLASSES])
    look = Look.of(features_ND, share_NC, neighbor_NK, spectrum)
    score_NF, opinion_NC = look.scores(share_NC), look.opinion(share_NC)
    looks_P = rng.permutation((np.arange(len(playing)) + 0.5) / len(playing))
    worlds = zip(playing.tolist(), looks_P.tolist(), strict=True)
    played_PNF = np.stack([look.scores(hide(said, label_N, opinion_NC, *world, rng)) for world in worlds])
    open_N = votes.gold_I < 0
    probability_N, share = learn(score_NF, played_PNF, label_N == playing[:, None], open_N)
    return Novelty(np.where(open_N, probability_N, 0.0), share)


def gather(votes: Votes, label_N: np.ndarray) -> Said:
    """Each answer's weight on the result, if it is among its labels, else split evenly over them: the answer "bird" about a
    gull contradicts neither the image nor the answer "gull"."""
    agrees_R = votes.label_R == label_N[votes.item_R]
    agrees_A = np.bincount(votes.answer_R, agrees_R, minlength=1) > 0
    size_R = np.bincount(votes.answer_R, minlength=1)[votes.answer_R]
    part_R = relative(votes.weight_R) * np.where(agrees_A[votes.answer_R], agrees_R, 1 / size_R)
    known, kept = np.flatnonzero(votes.gold_I >= 0), votes.gold_I[votes.item_R] < 0
    unknown_N = np.bincount(votes.unknown_item_U, minlength=len(votes.items)).astype(np.float64)
    unknown_N[known] = 0
    return Said(
        np.append(votes.item_R[kept], known),
        np.append(votes.label_R[kept], votes.gold_I[known]),
        np.append(part_R[kept], np.ones(len(known))),
        unknown_N,
    )


def hide(
    said: Said, label_N: np.ndarray, opinion_NC: np.ndarray, hidden: int, looks: float, rng: np.random.Generator
) -> np.ndarray:
    """N x (C - 1): the shares of the answers had this class been missing. A share `looks` of those who would have named it
    names a class that its images look like, half of them the first such class, a quarter the second, and so on; the others name
    what annotators take it for when they err. How often all take an item for the same is not known: each has its own share."""
    row, items, classes = np.flatnonzero(said.label_R == hidden), len(label_N), opinion_NC.shape[1]
    item, of_it_N = said.item_R[row], label_N == hidden
    mistaken_C = 1 / classes + np.bincount(said.label_R, said.part_R * of_it_N[said.item_R], minlength=classes)
    order_C = np.argsort(np.argsort(-_without(opinion_NC[of_it_N].sum(axis=0), hidden)))
    taken_C = looks * _without(0.5**order_C, hidden) + (1 - looks) * _without(mistaken_C, hidden)
    alike_N, habit_N = rng.choice(classes, items, p=taken_C), rng.random(items)
    label_R, part_R = said.label_R.copy(), said.part_R.copy()
    follows = rng.random(len(row)) < habit_N[item]
    label_R[row] = np.where(follows, alike_N[item], rng.choice(classes, len(row), p=taken_C))
    label_R -= label_R > hidden
    caution = MAX_DONT_KNOW * rng.random() if said.unknown_N.any() else 0.0
    silent = rng.random(len(row)) < caution
    part_R[row[silent]] = 0
    unknown_N = said.unknown_N + np.bincount(item[silent], said.part_R[row[silent]], minlength=items)
    return Said(said.item_R, label_R, part_R, unknown_N).share_NC(classes - 1)


def _without(weight_C: np.ndarray, hidden: int) -> np.ndarray:
    """Shares of the other classes."""
    others_C = np.where(np.arange(len(weight_C)) == hidden, 0.0, weight_C)
    share_C: np.ndarray = others_C / others_C.sum()
    return share_C


@dataclass(frozen=True)
class Look:
    """What of the images stays the same whichever class is missing."""

    spectrum: Spectrum
    axes_NA: np.ndarray  # the items along the leading principal axes
    common_N: np.ndarray  # squared distance from the mean of all items
    neighbor_NK: np.ndarray
    told_N: np.ndarray  # whether the item has an answer
    penalty: float

    @staticmethod
    def of(features_ND: Tensor, share_NC: np.ndarray, neighbor_NK: np.ndarray, spectrum: Spectrum | None = None) -> Look:
        told_N = share_NC.sum(axis=1) > 0
        if spectrum is None or not np.array_equal(spectrum.teach_N.cpu().numpy(), told_N):
            spectrum = spectrum_of(features_ND, told_N)
        axes = spectrum.value_R.argsort(descending=True)[: max(1, min(MAX_DISTANCE_AXES, int(told_N.sum()) // 5))]
        axes_NA = spectrum.code_NR[:, axes].double().cpu().numpy()
        common_N = (axes_NA**2 / ((axes_NA[told_N] ** 2).mean(axis=0) + TINY)).sum(axis=1)
        losses = [opinion(spectrum.left_out(share_NC, penalty), share_NC)[1] for penalty in NOVELTY_PENALTIES]
        return Look(spectrum, axes_NA, common_N, neighbor_NK, told_N, NOVELTY_PENALTIES[int(np.argmin(losses))])

    def scores(self, share_NC: np.ndarray) -> np.ndarray:
        """N x F: how far answers and images contradict each other for the item, around it, and for all images like it; how
        far annotators contradict each other; how far from all classes the images around it are."""
        opinion_NC = self.opinion(share_NC)
        surprise_N = self.filled(-np.log((share_NC * opinion_NC).sum(axis=1) + TINY))
        quarrel_N = self.filled(1 - (share_NC**2).sum(axis=1))
        around_N = self.around(surprise_N)
        alike_N = self.spectrum.left_out(around_N[:, None], self.penalty)[:, 0]
        far_N = self.around(self.around(self.distance(share_NC * opinion_NC)))
        return np.stack([surprise_N, self.around(around_N), alike_N, quarrel_N, far_N], axis=1)

    def opinion(self, share_NC: np.ndarray) -> np.ndarray:
        """What the image of each item looks like, by all others."""
        return opinion(self.spectrum.left_out(share_NC, self.penalty), share_NC)[0]

    def around(self, value_N: np.ndarray) -> np.ndarray:
        """The mean over the neighbours that have an answer."""
        told_NK = self.told_N[self.neighbor_NK]
        return ratio((value_N[self.neighbor_NK] * told_NK).sum(axis=1), told_NK.sum(axis=1), value_N[self.told_N].mean())

    def filled(self, value_N: np.ndarray) -> np.ndarray:
        """Items without an answer have the mean of their neighbours."""
        return np.where(self.told_N, value_N, self.around(value_N))

    def distance(self, weight_NC: np.ndarray) -> np.ndarray:
        """Relative Mahalanobis distance: squared, from the nearest class, less that from the mean of all items."""
        weight_NC = ratio(weight_NC, weight_NC.sum(axis=1, keepdims=True), otherwise=0.0)
        mean_CA = (weight_NC.T @ self.axes_NA) / (weight_NC.sum(axis=0)[:, None] + TINY)
        rest_MA = (self.axes_NA - weight_NC @ mean_CA)[self.told_N]
        spread_AA = rest_MA.T @ rest_MA / len(rest_MA)
        spread_AA += (1e-6 * np.trace(spread_AA) / len(spread_AA) + TINY) * np.eye(len(spread_AA))
        inverse_AA = np.linalg.inv(spread_AA)
        white_NA, white_CA = self.axes_NA @ inverse_AA, mean_CA @ inverse_AA
        square_NC = (white_NA * self.axes_NA).sum(axis=1)[:, None] - 2 * white_NA @ mean_CA.T + (white_CA * mean_CA).sum(axis=1)
        nearest_N: np.ndarray = square_NC.min(axis=1) - self.common_N
        return nearest_N


def opinion(score_NC: np.ndarray, share_NC: np.ndarray) -> tuple[np.ndarray, float]:
    """The probabilities, N x C, into which scores turn so that they predict the answers best, and the loss in nats."""
    told_N = share_NC.any(axis=1)
    share_C = (share_NC.sum(axis=0) + 1) / (share_NC.sum() + share_NC.shape[1])

    def said(slope: float, score_NC: np.ndarray) -> np.ndarray:
        logit_NC = slope * score_NC + np.log(share_C)
        said_NC: np.ndarray = (1 - DOUBT) * np.exp(logit_NC - logsumexp(logit_NC, axis=1, keepdims=True)) + DOUBT * share_C
        return said_NC

    def loss(slope: float) -> float:
        return -float(np.log((said(slope, score_NC[told_N]) * share_NC[told_N]).sum(axis=1) + TINY).sum())

    found = minimize_scalar(loss, bounds=(0.0, MAX_SLOPE), method="bounded", options={"xatol": 0.05})
    return said(float(found.x), score_NC), float(found.fun)


def learn(score_NF: np.ndarray, played_PNF: np.ndarray, hidden_PN: np.ndarray, open_N: np.ndarray) -> tuple[np.ndarray, float]:
    """Probabilities by the scores of the items, learned from their scores with each of P classes missing in turn. Items that
    are probably of a missing class would teach that the rest looks like one; they teach the less the likelier that is."""
    mean_F, std_F = played_PNF.mean(axis=(0, 1)), played_PNF.std(axis=(0, 1)) + TINY
    score_NF, played_PNF = (score_NF - mean_F) / std_F, (played_PNF - mean_F) / std_F
    probability_N = np.zeros(len(score_NF))
    for _ in range(REWEIGHTINGS):
        weight_PN = np.where(hidden_PN, *(_evenly(part_PN, 1 - probability_N) for part_PN in (hidden_PN, ~hidden_PN)))
        odds_N = _odds(score_NF, played_PNF, hidden_PN, weight_PN)
        # While it is learned, as many items as an average class has may be of a missing one. With the share that was found
        # instead, the odd items of a small set would leave ever less to compare them with, and ever more would look odd.
        probability_N = _posterior(odds_N, 1 / (len(hidden_PN) + 1)) * open_N
    share = missing_share(odds_N[open_N], parameters=score_NF.shape[1] + 1)
    posterior_N = _posterior(odds_N, share)
    if share * open_N.sum() < 1:
        return posterior_N, share
    weight_F1 = _experience(played_PNF, hidden_PN, weight_PN, open_N * (1 - probability_N))
    posterior_N = expit(_with_one(_logit(posterior_N)[:, None]) @ weight_F1)
    return posterior_N, float(posterior_N[open_N].mean())


def _odds(score_NF: np.ndarray, played_PNF: np.ndarray, hidden_PN: np.ndarray, weight_PN: np.ndarray) -> np.ndarray:
    """At equal shares, of being of the missing class."""
    weight_F1 = _logistic(_rows(played_PNF), hidden_PN.ravel(), weight_PN.ravel() / weight_PN.mean())
    odds_N: np.ndarray = np.exp(np.clip(_with_one(score_NF) @ weight_F1, -30, 30))
    return odds_N


def _experience(played_PNF: np.ndarray, hidden_PN: np.ndarray, weight_PN: np.ndarray, counts_N: np.ndarray) -> np.ndarray:
    """Slope and intercept that turn the log-odds of a probability into those of what was really so (Platt): for each hidden
    class, by what the others teach. `counts_N` is how far an item counts."""
    logit_PN = np.empty(hidden_PN.shape)
    for number in range(len(hidden_PN)):
        others = np.arange(len(hidden_PN)) != number
        odds_N = _odds(played_PNF[number], played_PNF[others], hidden_PN[others], weight_PN[others])
        share = missing_share(odds_N[counts_N > 0], parameters=played_PNF.shape[2] + 1)
        logit_PN[number] = _logit(_posterior(odds_N, share))
    count_PN = np.broadcast_to(counts_N, hidden_PN.shape)
    return _logistic(logit_PN.reshape(-1, 1), hidden_PN.ravel(), count_PN.ravel() / count_PN.mean())


def missing_share(odds_N: np.ndarray, parameters: int) -> float:
    """Of items of a missing class, the likeliest: the odds are those at equal shares. Unless it gains more than chance would,
    by Schwarz's criterion, less than one item. The items themselves influenced the parameters of the odds: all count."""
    found = minimize_scalar(lambda share: -np.log1p(share * (odds_N - 1)).sum(), bounds=(0.0, 1.0), method="bounded")
    chance = 0.5 * parameters * np.log(max(len(odds_N), 2))
    return float(found.x) if -found.fun > chance else 1 / (len(odds_N) + 2)


def _posterior(odds_N: np.ndarray, share: float) -> np.ndarray:
    posterior_N: np.ndarray = share * odds_N / (share * odds_N + 1 - share)
    return posterior_N


def _logit(probability_N: np.ndarray) -> np.ndarray:
    logit_N: np.ndarray = logit(probability_N.clip(MIN_DISTINCT_CHANCE, 1 - MIN_DISTINCT_CHANCE))
    return logit_N


def _rows(table_PNF: np.ndarray) -> np.ndarray:
    return table_PNF.reshape(-1, table_PNF.shape[-1])


def _evenly(part_PN: np.ndarray, weight_N: np.ndarray) -> np.ndarray:
    """Weights that sum to one for each hidden class."""
    weight_PN = part_PN * weight_N
    return ratio(weight_PN, weight_PN.sum(axis=1, keepdims=True), otherwise=0.0)


def _with_one(x_MF: np.ndarray) -> np.ndarray:
    return np.concatenate([x_MF, np.ones((len(x_MF), 1))], axis=1)


def _logistic(x_MF: np.ndarray, y_M: np.ndarray, weight_M: np.ndarray) -> np.ndarray:
    """Logistic regression in which no score speaks against a missing class: where two are alike, one would else make up for
    the other, and an item with much of both be judged by their difference. The intercept comes last and is free."""
    x_MF, sign_M = _with_one(x_MF), np.where(y_M, 1.0, -1.0)
    penalty_F = np.append(np.full(x_MF.shape[1] - 1, SHRINKAGE), 0.0)

    def loss(beta_F: np.ndarray) -> tuple[float, np.ndarray]:
        margin_M = sign_M * (x_MF @ beta_F)
        value = (weight_M * np.logaddexp(0, -margin_M)).sum() + 0.5 * (penalty_F * beta_F**2).sum()
        slope_M = -sign_M * weight_M / (1 + np.exp(np.clip(margin_M, -500, 500)))
        return float(value) / len(y_M), (x_MF.T @ slope_M + penalty_F * beta_F) / len(y_M)

    bounds = [(0.0, None)] * (x_MF.shape[1] - 1) + [(None, None)]
    beta_F: np.ndarray = minimize(loss, np.zeros(x_MF.shape[1]), jac=True, method="L-BFGS-B", bounds=bounds).x
    return beta_F
