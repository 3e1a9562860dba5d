"""From pictures and votes to a classifier, cleaned labels, doubtful answers and a report, in five stages.

Plan (`plan`), Loaded (`load`), Encoded (`encode`), Trained (`train`), Findings (`findings`): frozen, each a function of the one
before; `api.fit` runs them in order and `results` writes the files. Also the tables for people, the queue to relabel, whether
to ask again (`asking`, `replay`), and (`page`) the report. The science is not here: statistics of answers are in `crowd`,
training is in `training`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pals.util.lazy import lazily

if TYPE_CHECKING:
    from pals.fitting.api import fit, update
    from pals.fitting.asking import next_answers
    from pals.fitting.findings import Findings
    from pals.fitting.monitor import Monitor

__all__ = ["Findings", "Monitor", "fit", "next_answers", "update"]

__getattr__ = lazily(
    __name__, {"api": ("fit", "update"), "asking": ("next_answers",), "findings": ("Findings",), "monitor": ("Monitor",)}
)
