"""What several people's answers come to: who errs how, what a classifier adds, which are doubtful, what is still wrong."""

from __future__ import annotations

from pals.crowd.consensus import Consensus, dawid_skene, majority_vote
from pals.crowd.doubt import Arguing, Doubts, arguing_neighbors, named_labels, rank_doubts
from pals.crowd.estimate import NoiseEstimate, approximate_accuracy, covering_rate, estimate_noise
from pals.crowd.fusion import Calibration, Fusion, fuse
from pals.crowd.result import STATUS, Result
from pals.crowd.ridge import LANDMARKS, leave_one_out
from pals.crowd.tables import (
    UNNAMED,
    annotators_table,
    classes_table,
    confusion_table,
    csv_text,
    doubtful_table,
    labels_table,
    tally,
)

__all__ = [
    "LANDMARKS",
    "STATUS",
    "UNNAMED",
    "Arguing",
    "Calibration",
    "Consensus",
    "Doubts",
    "Fusion",
    "NoiseEstimate",
    "Result",
    "annotators_table",
    "approximate_accuracy",
    "arguing_neighbors",
    "classes_table",
    "confusion_table",
    "covering_rate",
    "csv_text",
    "dawid_skene",
    "doubtful_table",
    "estimate_noise",
    "fuse",
    "labels_table",
    "leave_one_out",
    "majority_vote",
    "named_labels",
    "rank_doubts",
    "tally",
]
