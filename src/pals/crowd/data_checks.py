"""Whether some items have the answers of others, as where names of files were mixed up.

Where annotators agree about an item they outweigh any classifier, so the label is theirs, and no estimate of what is wrong sees
that they saw another image. But a classifier that has not seen these answers finds them no likelier than the share of their
class. Such items are distinguished from those of a classifier that knows little, which is unsure of all, by a mixture: labels
follow the classifier, to a power, or the shares of the classes. Labels are those of the result: where a few annotators were
wrong together and the classifier has set it right, nothing is mixed up."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from pals.crowd.fusion import Fusion

AGREED = 0.95
"""Confidence by the answers alone from which annotators agree about an item."""
MIN_CHECKED_ITEMS, MAX_CHECKED_ITEMS = 100, 20_000
"""Items that show it, and those that are used; of more every second, third and so on."""
SHARE, EVIDENCE = 0.03, 6.0
"""From which share of mixed-up items on, and how much likelier in logarithms than none at all, it is reported."""
KNOWS = 0.5
"""Share of the items that annotators agree on whose label the classifier must predict; one that knows less does not count."""
SLOPES = np.exp(np.linspace(-2.0, 2.0, 33))
SHARES = np.array([0.0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5])


class MixUp(NamedTuple):
    """The share of the items on which annotators agree whose answers have nothing to do with them, and the items of which that
    is most probable, the surest first."""

    share: float
    items: np.ndarray


def find_mix_up(fusion: Fusion) -> MixUp | None:
    """None where there is no classifier, too little to go by, or nothing to be found."""
    answers, alone = fusion.consensus.answers, fusion.alone
    if fusion.calibration is None:
        return None
    item_M = np.flatnonzero(answers.answered_N & (answers.gold_N < 0) & (alone.confidence_N >= AGREED))
    if len(item_M) < MIN_CHECKED_ITEMS:
        return None
    item_M = item_M[:: -(-len(item_M) // MAX_CHECKED_ITEMS)]
    label_M = fusion.label_N[item_M]
    class_C = np.bincount(label_M, minlength=answers.num_classes) / len(label_M)
    log_predicted_MC = np.log(np.maximum(fusion.prediction_NC[item_M], np.finfo(float).tiny))
    fits_LM = np.stack([_chances(slope * log_predicted_MC, label_M) for slope in SLOPES])
    evidence_LS = np.stack([np.log((1 - share) * fits_LM + share * class_C[label_M]).sum(axis=1) for share in SHARES], axis=1)
    slope, share = np.unravel_index(evidence_LS.argmax(), evidence_LS.shape)
    if SHARES[share] < SHARE or evidence_LS.max() - evidence_LS[:, 0].max() < EVIDENCE:
        return None
    if (log_predicted_MC.argmax(axis=1) == label_M).mean() < KNOWS:
        return None
    return MixUp(float(SHARES[share]), item_M[np.argsort(fits_LM[slope] / class_C[label_M], kind="stable")])


def _chances(log_MC: np.ndarray, label_M: np.ndarray) -> np.ndarray:
    """Of these labels, by probabilities known up to a factor."""
    chance_M: np.ndarray = np.exp(log_MC[np.arange(len(label_M)), label_M] - logsumexp(log_MC, axis=1))
    return chance_M
