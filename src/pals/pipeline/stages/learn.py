"""Stage 4, learning: a classifier in closed form, by training, or, from the answers alone, no classifier.

The closed form (`pals.crowd.closed_form`) alternates ridge regression on frozen features and the annotator model, each fitted
to the other's result. Without features the annotator model is fitted to the answers alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from pals.crowd import Fusion
from pals.crowd.closed_form import Solution, replicates_alone, solve
from pals.model import Part, fit_temperature
from pals.pipeline.progress import Monitor
from pals.pipeline.stages.encode import Encoded
from pals.pipeline.stages.networks import train_networks
from pals.pipeline.stages.trained import Trained
from pals.training.engine import Engine
from pals.vision.networks.small_networks import RootLinear

HEAD = "linear"
NO_HELP = "The images hardly help here: they add next to nothing to the answers, so the answers alone decide."


def train(encoded: Encoded, monitor: Monitor | None = None) -> Trained:
    """Learn in the way that was planned.

    Args:
        encoded: Stage 3.
        monitor: Receives progress of training.
    """
    if encoded.plan.data.answers_only:
        return fit_answers(encoded)
    return solve_labels(encoded) if encoded.plan.solved else train_networks(encoded, monitor or Monitor())


def solve_labels(encoded: Encoded) -> Trained:
    """Fit the closed form; the prediction for each item comes from a regression on all others."""
    loaded, strength = encoded.loaded, encoded.plan.config.method.strength
    found = solve(loaded.votes, encoded.vectors_ND, strength=strength, alone=loaded.consensus)
    width = encoded.vectors_ND.shape[1]
    return Trained(
        encoded=encoded,
        network=network_of(found),
        part=Part(HEAD, (width,), (0.0,) * width, (1.0,) * width),
        temperature=temperature_of(found),
        features_ND=encoded.vectors_ND - encoded.vectors_ND.mean(dim=0),
        fusion=found.fusion,
        predicted_NC=found.fusion.prediction_NC,
        device=torch.device("cpu"),
        training=describe(encoded),
        spectrum=found.spectrum,
        remarks=() if found.fusion.calibration is not None else (NO_HELP,),
    )


def fit_answers(encoded: Encoded) -> Trained:
    """The annotator model of the answers alone, with replicates for its uncertainty."""
    alone, strength = encoded.loaded.consensus, encoded.plan.config.method.strength
    answers = alone.answers
    shares_NC = np.tile(answers.class_share_C, (answers.num_items, 1))
    fusion = Fusion.of(replicates_alone(alone, strength), alone, shares_NC, None, 0.0)
    return Trained(
        encoded=encoded,
        network=None,
        part=None,
        temperature=1.0,
        features_ND=encoded.vectors_ND,
        fusion=fusion,
        predicted_NC=fusion.prediction_NC,
        device=torch.device("cpu"),
        training=describe(encoded),
    )


def describe(encoded: Encoded) -> dict[str, Any]:
    """What was run, with the keys of a run that trains."""
    config, sets = encoded.plan.config, encoded.loaded.candidates
    return {
        "method": config.method_name,
        "data": config.data.name,
        "seed": config.seed,
        "items": len(sets),
        "mean_set_size": sets.statistics().mean_size,
        "engine": Engine(config.engine).describe(),
        "epochs": 0,
    }


def network_of(found: Solution) -> RootLinear:
    """The regression as a network."""
    network = RootLinear(*found.weight_DC.shape)
    with torch.no_grad():
        network.classifier.weight.copy_(torch.from_numpy(found.weight_DC.T.copy()))
        network.classifier.bias.copy_(torch.from_numpy(np.array(found.bias_C)))
    return network


def temperature_of(found: Solution) -> float:
    """The softmax temperature at which leave-one-out predictions fit the labels of answers and predictions together."""
    consensus = found.fusion.consensus
    known_N = torch.from_numpy(consensus.answers.known_N)
    return fit_temperature(torch.from_numpy(found.logit_NC)[known_N], torch.from_numpy(consensus.posterior_NC)[known_N])
