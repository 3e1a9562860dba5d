"""Stage 5, the findings: labels, doubtful answers, tables of people and classes, what is still wrong. Nothing is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from pals.crowd import (
    Arguing,
    Doubts,
    NoiseEstimate,
    Result,
    arguing_neighbors,
    estimate_noise,
    rank_doubts,
)
from pals.crowd.agreement import Agreement, agreement
from pals.model import Model
from pals.pipeline.asking_state import AskingState, default_next_table
from pals.pipeline.evaluate import grade
from pals.pipeline.none_of_these import groups_of, none_of_these_N
from pals.pipeline.stages.trained import Trained
from pals.pipeline.stages.warm_start import earlier_labels
from pals.pipeline.summary import in_sentences, numbers
from pals.pipeline.tables.result_tables import (
    agreement_table,
    annotators_table,
    classes_table,
    confusion_table,
    doubtful_table,
    labels_table,
)
from pals.pipeline.tables.taxonomy_columns import with_taxonomy
from pals.pipeline.tables.unsure_columns import with_marks
from pals.pseudo_labels.knn import nearest

NEIGHBORS = 15
LONGEST_LINE = 400
"""Characters of a line of the summary where a notebook shows it."""
SHOWN_ANSWERS = ("item", "annotator", "answer", "suggestion", "probability_wrong")
SHOWN_CLASSES = ("class", "items", "answers", "doubtful_answers")
SHOWN_ROWS = 8
"""Columns and rows of the table there."""


@dataclass(frozen=True)
class Findings:
    """What a fit comes to. Everything here is in the run's folder as well, in files of the same names.

    `labels`, `doubtful`, `annotators`, `classes`, `confusion` and `agreement` are tables; `summary` is the result in a few
    sentences and `numbers` the same in numbers; `model` is the classifier.
    """

    trained: Trained
    result: Result
    neighbor_NK: np.ndarray
    similarity_NK: np.ndarray
    noise: NoiseEstimate
    people: Agreement
    "How far people agree with one another, beyond chance."
    tables: Mapping[str, pd.DataFrame]
    grades: Mapping[str, float]
    "How right the result is, where the truth is known."

    def __repr__(self) -> str:
        """The folder and the summary."""
        return "\n".join(line[:LONGEST_LINE] for line in [f"Findings in {self.folder}", *self.summary])

    def _repr_html_(self) -> str:
        """The same for notebooks, with the first doubtful answers, or the classes where there are none."""
        name, shown = ("doubtful", SHOWN_ANSWERS) if len(self.doubtful) else ("classes", SHOWN_CLASSES)
        table = self.tables[name][list(shown)].head(SHOWN_ROWS)
        lines = "".join(f"<li>{escape(line[:LONGEST_LINE])}</li>" for line in self.summary)
        with pd.option_context("display.max_colwidth", 40):
            rows = table.to_html(index=False, border=0, float_format="{:.2f}".format)
        place = escape(str(self.folder)[-LONGEST_LINE:])
        return f"<p><b>{place}</b></p><ul>{lines}</ul><p>{name}: {len(table)} of {len(self.tables[name]):,}</p>{rows}"

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
    def agreement(self) -> pd.DataFrame:
        """How far people agree beyond chance: everybody, class by class, and pair by pair."""
        return self.tables["agreement"]

    @cached_property
    def groups(self) -> list[np.ndarray]:
        """The items that are probably none of the classes, in groups that look alike, the largest first."""
        return groups_of(self)

    @property
    def asking(self) -> AskingState:
        """What is held of items and people, for those who ask later whom to ask again. Worked out anew each time: of very many
        items these are the largest tables."""
        return AskingState.of(self.trained.fusion, self.result, self.noise.labels_wrong)

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
    """Draw up all tables from what answers and classifiers say together."""
    votes, fusion = trained.loaded.votes, trained.fusion
    posterior_NC, unknown_N = fusion.posterior_NC, ~fusion.consensus.answers.known_N
    if fusion.calibration is None and unknown_N.any():
        posterior_NC = posterior_NC.copy()
        posterior_NC[unknown_N] = trained.said_NC[unknown_N]
    neighbor_NK, similarity_NK = _neighbors(trained)
    result = Result(votes, posterior_NC, none_N=none_of_these_N(trained, posterior_NC, neighbor_NK))
    doubts, people = rank_doubts(result), agreement(votes)
    noise = estimate_noise(votes, fusion, earlier_N=earlier_labels(votes, trained.plan.data.earlier))
    asking = default_next_table(AskingState.of(fusion, result, noise.labels_wrong), votes.items)
    tables = _tables(trained, result, doubts, arguing_neighbors(result, doubts, neighbor_NK, similarity_NK), people)
    tables = with_taxonomy(with_marks(tables, result, fusion.consensus.annotators), result, trained.plan.data.sure)
    truth = trained.loaded.truth
    return Findings(
        trained=trained,
        result=result,
        neighbor_NK=neighbor_NK,
        similarity_NK=similarity_NK,
        noise=noise,
        people=people,
        tables={**tables, "next": asking},
        grades={} if truth is None else grade(truth, result, doubts.answer_M, trained.loaded.consensus),
    )


def _tables(trained: Trained, result: Result, doubts: Doubts, arguing: Arguing, people: Agreement) -> dict[str, pd.DataFrame]:
    return {
        "labels": labels_table(result, trained.loaded.consensus),
        "doubtful": doubtful_table(result, doubts, arguing),
        "annotators": annotators_table(result),
        "confusion": confusion_table(result),
        "classes": classes_table(result),
        "agreement": agreement_table(people, result),
    }


def _neighbors(trained: Trained) -> tuple[np.ndarray, np.ndarray]:
    """The items most alike to each, and how alike; none where nothing is known of them but answers."""
    if not trained.features_ND.shape[1]:
        return np.zeros((len(trained.features_ND), 0), dtype=np.int64), np.zeros((len(trained.features_ND), 0))
    unit_ND = torch.nn.functional.normalize(trained.features_ND).to(trained.device)
    found = nearest(unit_ND, max(1, min(NEIGHBORS, len(unit_ND) - 1)), include_self=False)
    return found.index_NK.cpu().numpy(), found.similarity_NK.cpu().numpy()
