"""What follows from several annotators' answers: who errs how, what images add, which answers are doubtful, what is still
wrong.

`dawid_skene` is the annotator model; `closed_form` fits it together with images, `fusion` with given predictions.
Statistics of answers, as functions on `Votes` and tables of numbers: no networks, no training, no files.

Shape letters: J items whose answers are predicted, M answers that are.
"""

from __future__ import annotations

from pals.crowd.closed_form import closed_form
from pals.crowd.dawid_skene.em import Consensus, dawid_skene, majority_vote
from pals.crowd.doubtful_answers import Arguing, Doubts, arguing_neighbors, named_labels, rank_doubts
from pals.crowd.error_estimate import NoiseEstimate, estimate_noise
from pals.crowd.fusion import Calibration, Fusion, fuse
from pals.crowd.kernel_ridge import LANDMARKS, leave_one_out
from pals.crowd.result import STATUS, Result

__all__ = [
    "LANDMARKS",
    "STATUS",
    "Arguing",
    "Calibration",
    "Consensus",
    "Doubts",
    "Fusion",
    "NoiseEstimate",
    "Result",
    "arguing_neighbors",
    "closed_form",
    "dawid_skene",
    "estimate_noise",
    "fuse",
    "leave_one_out",
    "majority_vote",
    "named_labels",
    "rank_doubts",
]
