"""Stage 4, a classifier: networks are trained, or it is solved for in closed form, or there are only answers and none is made.
Each way leaves a `Trained`."""

from __future__ import annotations

from pals.pipeline.progress import Monitor
from pals.pipeline.stages.encode import Encoded
from pals.pipeline.stages.networks import train_networks
from pals.pipeline.stages.solve import fit_answers, solve_labels
from pals.pipeline.stages.trained import Trained


def train(encoded: Encoded, monitor: Monitor | None = None) -> Trained:
    """Learn from all items with answers."""
    if encoded.plan.data.answers_only:
        return fit_answers(encoded)
    learn = solve_labels if encoded.plan.solved else train_networks
    return learn(encoded, monitor or Monitor())
