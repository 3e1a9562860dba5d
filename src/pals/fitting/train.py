"""Stage 4, a classifier: networks are trained, or it is solved for in closed form. Either leaves a `Trained`."""

from __future__ import annotations

from pals.fitting.encode import Encoded
from pals.fitting.monitor import Monitor
from pals.fitting.networks import train_networks
from pals.fitting.solve import solve_labels
from pals.fitting.trained import Trained


def train(encoded: Encoded, monitor: Monitor | None = None) -> Trained:
    """Learn from all items with answers."""
    learn = solve_labels if encoded.plan.solved else train_networks
    return learn(encoded, monitor or Monitor())
