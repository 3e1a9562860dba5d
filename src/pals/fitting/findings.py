"""Stage 5, the findings: labels, doubtful answers, tables of people and classes, what is still wrong. Nothing is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from pals.crowd import (
    Arguing,
    Doubts,
    Fusion,
    NoiseEstimate,
    Result,
    arguing_neighbors,
    estimate_noise,
    fuse,
    leave_one_out,
    rank_doubts,
)
from pals.fitting.grading import grade
from pals.fitting.sentences import in_sentences, numbers
from pals.fitting.tables import annotators_table, classes_table, confusion_table, doubtful_table, labels_table
from pals.fitting.train import Trained
from pals.labeling.neighbors import nearest
from pals.labels.metrics import agreement, read_agreement
from pals.model import Model, fit_temperature

NEIGHBORS = 15


@dataclass(frozen=True)
class Findings:
    """What a fit comes to. Everything here is in the run's folder as well, in files of the same names.

    `labels`, `doubtful`, `annotators`, `classes` and `confusion` are tables; `summary` is the result in a few sentences and
    `numbers` the same in numbers; `model` is the classifier.
    """

    trained: Trained
    result: Result
    model_NC: np.ndarray
    "The classifiers' own calibrated probabilities; of an item of a fold those of the network that left it out."
    temperature: float
    "Of the saved classifier."
    neighbor_NK: np.ndarray
    similarity_NK: np.ndarray
    noise: NoiseEstimate
    tables: Mapping[str, pd.DataFrame]
    grades: Mapping[str, float]
    "How right the result is, where the truth is known."
    held_out: Mapping[str, float]

    @property
    def labels(self) -> pd.DataFrame:
        """One row per item: its label, how sure that is, and how it came about."""
        return self.tables["labels"]

    @property
    def doubtful(self) -> pd.DataFrame:
        """One row per answer that is probably wrong, the surest first."""
        return self.tables["doubtful"]

    @property
    def annotators(self) -> pd.DataFrame:
        """One row per person."""
        return self.tables["annotators"]

    @property
    def classes(self) -> pd.DataFrame:
        """One row per class."""
        return self.tables["classes"]

    @property
    def confusion(self) -> pd.DataFrame:
        """What each person answered where the result is which class."""
        return self.tables["confusion"]

    @property
    def summary(self) -> list[str]:
        """The result in a few sentences."""
        return in_sentences(self)

    @property
    def numbers(self) -> dict[str, Any]:
        """The result in numbers: what `summary.json` holds."""
        return numbers(self)

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return self.trained.plan.folder

    @property
    def model(self) -> Model:
        """The classifier, read from the run's folder."""
        return Model.load(self.folder)


def find(trained: Trained) -> Findings:
    """Weigh answers and classifiers against each other, and draw up all tables."""
    votes, consensus = trained.loaded.votes, trained.loaded.consensus
    fusion = fuse(votes, opinions(trained), strength=consensus.annotators.strength)
    model_NC = calibrated(trained, fusion)
    posterior_NC = fusion.posterior_NC.copy()
    if fusion.calibration is None:
        unknown_N = ~fusion.consensus.answers.known_N
        posterior_NC[unknown_N] = model_NC[unknown_N]
    result = Result(votes, posterior_NC)
    neighbor_NK, similarity_NK = _neighbors(trained)
    doubts = rank_doubts(result)
    truth = trained.loaded.truth
    return Findings(
        trained=trained,
        result=result,
        model_NC=model_NC,
        temperature=_temperature(trained, trained.output.logits[trained.loaded.trained_M], fusion),
        neighbor_NK=neighbor_NK,
        similarity_NK=similarity_NK,
        noise=estimate_noise(votes, fusion),
        tables=_tables(result, doubts, arguing_neighbors(result, doubts, neighbor_NK, similarity_NK)),
        grades={} if truth is None else grade(truth, result, doubts.answer_M, consensus),
        held_out=_held_out(trained, model_NC, fusion),
    )


def _tables(result: Result, doubts: Doubts, arguing: Arguing) -> dict[str, pd.DataFrame]:
    return {
        "labels": labels_table(result),
        "doubtful": doubtful_table(result, doubts, arguing),
        "annotators": annotators_table(result),
        "confusion": confusion_table(result),
        "classes": classes_table(result),
    }


def opinions(trained: Trained) -> list[np.ndarray]:
    """What those say of the items who have not seen their answers: networks that left them out of training, and, where features
    are not trained, their neighbours. (A network that knows the answers is no second source.)"""
    found = [] if trained.out_of_fold_MC is None else [trained.unseen_NC.double().numpy()]
    if trained.encoded.inputs.ndim == 2:
        alone = trained.loaded.consensus
        generator = torch.Generator().manual_seed(trained.plan.config.seed)
        unit_ND = comparable(trained)
        found.append(leave_one_out(unit_ND, alone.posterior_NC, generator=generator, known_N=alone.answers.known_N))
    return found


def comparable(trained: Trained) -> Tensor:
    """Features that no label has touched, as unit vectors."""
    vectors_ND, responses_ND = trained.encoded.inputs, trained.encoded.responses_ND
    if responses_ND is not None or trained.encoded.encoder is None:  # whoever made vectors may have used any units
        vectors_ND = vectors_ND if responses_ND is None else responses_ND
        std_D, mean_D = torch.std_mean(vectors_ND, dim=0)
        vectors_ND = (vectors_ND - mean_D) / std_D.clamp_min(1e-6)
    return torch.nn.functional.normalize(vectors_ND - vectors_ND.mean(dim=0), dim=1)


def calibrated(trained: Trained, fusion: Fusion) -> np.ndarray:
    """Probabilities by the networks, each kind with a temperature of its own: the scale of logits differs from one to the
    other."""
    row_M = trained.loaded.trained_M
    probability_NC = _tempered(trained.logits_NC, _temperature(trained, trained.logits_NC[row_M], fusion))
    if trained.out_of_fold_MC is not None:
        probability_NC[row_M] = _tempered(trained.out_of_fold_MC, _temperature(trained, trained.out_of_fold_MC, fusion))
    return probability_NC.numpy()


def _temperature(trained: Trained, logits_MC: Tensor, fusion: Fusion) -> float:
    """What makes logits of the items that were trained on agree with all that is known of them. The answers alone would not do
    as the target: they are less sure than a network that has learned from all of them is right."""
    target_NC = torch.from_numpy(fusion.posterior_NC)
    return fit_temperature(logits_MC, target_NC[trained.loaded.trained_M])


def _tempered(logits: Tensor, temperature: float) -> Tensor:
    return (logits.double() / temperature).softmax(dim=1)


def _neighbors(trained: Trained) -> tuple[np.ndarray, np.ndarray]:
    unit_ND = torch.nn.functional.normalize(trained.output.features).to(trained.device)
    found = nearest(unit_ND, max(1, min(NEIGHBORS, len(unit_ND) - 1)), include_self=False)
    return found.index_NK.cpu().numpy(), found.similarity_NK.cpu().numpy()


def _held_out(trained: Trained, model_NC: np.ndarray, fusion: Fusion) -> dict[str, float]:
    """Covering rate and approximated accuracy of what was said of items that had been left out: by the networks of
    cross-fitting, or by the neighbours. For choosing between settings; nothing where nobody left anything out."""
    if trained.out_of_fold_MC is None and fusion.calibration is None:
        return {}
    said_NC = torch.from_numpy(fusion.opinion_NC if trained.out_of_fold_MC is None else model_NC)
    return read_agreement(agreement(said_NC[trained.loaded.trained_M].log(), trained.loaded.candidates.allowed_NC))
