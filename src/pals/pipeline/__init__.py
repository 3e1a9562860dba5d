"""From images and answers to a classifier, cleaned labels, doubtful answers and a report, in five stages.

Plan, Loaded, Encoded, Trained, Findings (`stages`): frozen, each a function of the one before; `api.fit` runs them in order and
`write_results` writes the files, whose tables are made in `tables`. The science is not here: statistics of answers are in
`crowd`, training is in `training`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pals.util.lazy import lazily

if TYPE_CHECKING:
    from pals.pipeline.api import fit, update
    from pals.pipeline.progress import Monitor
    from pals.pipeline.stages.findings import Findings

__all__ = ["Findings", "Monitor", "fit", "update"]

__getattr__ = lazily(__name__, {"api": ("fit", "update"), "progress": ("Monitor",), "stages.findings": ("Findings",)})
