"""Stage 5, the analysis: the result item by item, every table, the estimates, and the score against a known truth.

Each is computed here once and stored as a plain value; `summary` puts them into words and `write_results` writes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch

from pals.crowd import NoiseEstimate, Result, arguing_neighbors, estimate_noise, rank_doubts
from pals.crowd.agreement import Agreement, agreement
from pals.crowd.copied_answers import Same, never_differ
from pals.crowd.effective_annotators import EffectiveAnnotators, effective_annotators
from pals.crowd.guideline_items import guideline_items
from pals.labels.covering import agreement as prediction_agreement
from pals.labels.covering import read_agreement
from pals.pipeline.asking_state import AskingState, default_next_table
from pals.pipeline.evaluate import grade
from pals.pipeline.none_of_these import MissingClass, missing_classes, none_of_these_N
from pals.pipeline.reviewed_answers import marked_none_of_these
from pals.pipeline.stages.trained import Trained
from pals.pipeline.stages.warm_start import earlier_estimate, earlier_labels
from pals.pipeline.tables.result_tables import (
    agreement_table,
    annotators_table,
    classes_table,
    confusion_counts,
    confusion_table,
    doubtful_table,
    guideline_table,
    labels_table,
)
from pals.pipeline.tables.taxonomy_columns import TaxonomyResult, with_taxonomy
from pals.pipeline.tables.unsure_columns import with_marks
from pals.pipeline.trusted_answers import TrustedItems, without_trusted
from pals.pseudo_labels.knn import nearest

NUM_COMPARED_NEIGHBORS = 15


@dataclass(frozen=True)
class Analysis:
    """What a fit found, in tables and numbers: N items, K neighbours.

    Args:
        trained: The stages before this one.
        result: Label and probabilities of every item.
        neighbor_NK: Most similar items; K is 0 where only answers are known.
        similarity_NK: Their cosine similarities.
        noise: Estimated shares of wrong answers and wrong labels.
        measured_agreement: Agreement between annotators beyond chance.
        copies: Groups of annotators who never differ.
        effective: How many independent annotators the answers are worth.
        tables: Data frame by the name of its CSV file.
        groups: Items that probably belong to a missing class, the largest group first.
        taxonomy: The result on the tree of classes; None without a taxonomy.
        asking: What `pals relabel` needs to decide who is asked next.
        earlier_estimate: In an update, the share of wrong labels that the earlier run estimated.
        held_out: Covering rate and approximate accuracy of the predictions for items that were left out of training.
        grades: Accuracy against the truth; empty where none is known.
    """

    trained: Trained
    result: Result
    neighbor_NK: np.ndarray
    similarity_NK: np.ndarray
    noise: NoiseEstimate
    measured_agreement: Agreement
    copies: tuple[Same, ...]
    effective: EffectiveAnnotators
    tables: Mapping[str, pd.DataFrame]
    groups: tuple[MissingClass, ...]
    taxonomy: TaxonomyResult | None
    asking: AskingState
    earlier_estimate: float | None
    held_out: Mapping[str, float]
    grades: Mapping[str, float]


def analyse(trained: Trained) -> Analysis:
    """Compute all tables and estimates from the fused answers and classifiers.

    Args:
        trained: The result of stage 4.

    Returns:
        The analysis; nothing is written.
    """
    votes, fusion, consensus = trained.loaded.votes, trained.fusion, trained.loaded.consensus
    posterior_NC, unknown_N = fusion.posterior_NC, ~fusion.consensus.answers.known_N
    if fusion.calibration is None and unknown_N.any():  # items without answers have the classifier's probabilities
        posterior_NC = posterior_NC.copy()
        posterior_NC[unknown_N] = trained.predicted_NC[unknown_N]
    neighbor_NK, similarity_NK = _neighbors(trained)
    data = trained.plan.data
    trusted = TrustedItems.of(votes, marked_none_of_these(data.earlier, data.reviewed, data.trust_review))
    posterior_NC = trusted.restrict(posterior_NC)
    result = Result(votes, posterior_NC, none_N=trusted.mark_none(none_of_these_N(trained, posterior_NC, neighbor_NK)))
    noise = estimate_noise(fusion, earlier_N=earlier_labels(votes, data.before or data.earlier))
    measured, doubts, counts = agreement(votes), without_trusted(rank_doubts(result), result), confusion_counts(result)
    copies = tuple(never_differ(votes, measured))
    asking = AskingState.of(fusion, result, noise.labels_wrong)
    tables = {
        "labels": trusted.mark_statuses(labels_table(result, consensus, (noise.low_N, noise.high_N))),
        "doubtful": doubtful_table(result, doubts, arguing_neighbors(result, doubts, neighbor_NK, similarity_NK)),
        "annotators": annotators_table(result, counts),
        "confusion": confusion_table(result, counts),
        "classes": classes_table(result, doubts, counts),
        "agreement": agreement_table(measured, result),
        "guideline": guideline_table(result, guideline_items(result)),
        "next": default_next_table(asking, votes.items),
    }
    tables = with_marks(tables, result, fusion.consensus)
    taxonomy = TaxonomyResult.of(result, tables["confusion"], trained.plan.data.sure)
    truth = trained.loaded.truth
    return Analysis(
        trained=trained,
        result=result,
        neighbor_NK=neighbor_NK,
        similarity_NK=similarity_NK,
        noise=noise,
        measured_agreement=measured,
        copies=copies,
        effective=effective_annotators(fusion.consensus, copies),
        tables=tables if taxonomy is None else with_taxonomy(tables, result, taxonomy),
        groups=missing_classes(result, trained.features_ND),
        taxonomy=taxonomy,
        asking=asking,
        earlier_estimate=earlier_estimate(data.before or data.earlier),
        held_out=_held_out(trained),
        grades={} if truth is None else grade(truth, result, doubts.answer_M, consensus),
    )


def _neighbors(trained: Trained) -> tuple[np.ndarray, np.ndarray]:
    """The most similar items to each, with their similarities; none without features."""
    if not trained.features_ND.shape[1]:
        return np.zeros((len(trained.features_ND), 0), dtype=np.int64), np.zeros((len(trained.features_ND), 0))
    unit_ND = torch.nn.functional.normalize(trained.features_ND).to(trained.device)
    found = nearest(unit_ND, max(1, min(NUM_COMPARED_NEIGHBORS, len(unit_ND) - 1)), include_self=False)
    return found.index_NK.cpu().numpy(), found.similarity_NK.cpu().numpy()


def _held_out(trained: Trained) -> dict[str, float]:
    """Covering rate and approximate accuracy of the predictions for items that were left out of training, by which settings are
    compared; empty if no item was left out."""
    if not trained.plan.data.folds and trained.fusion.calibration is None:
        return {}
    predicted_MC = torch.from_numpy(trained.predicted_NC)[trained.loaded.trained_M]
    return read_agreement(prediction_agreement(predicted_MC.log(), trained.loaded.candidates.allowed_NC))
