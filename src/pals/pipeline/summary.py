"""The result in words and numbers: the summary of the findings, the head of the report, and `summary.json`.

Krippendorff's alpha is graded as he proposes (Content Analysis, 2019, doi:10.4135/9781071878781): from 0.8 on reliable, from
2/3 on fit for tentative conclusions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from pals.crowd import STATUS, NoiseEstimate
from pals.crowd.agreement import Agreement, Measured
from pals.crowd.effective_annotators import EffectiveAnnotators
from pals.crowd.result import NO_ANSWER
from pals.pipeline.asking_state import count_decisions
from pals.pipeline.finished_run import UNNAMED
from pals.pipeline.item_order import DISAGREEMENT
from pals.pipeline.none_of_these import group_sentences, next_step
from pals.pipeline.stages.analysis import Analysis
from pals.pipeline.tables.flag_columns import BETWEEN
from pals.pipeline.tables.taxonomy_columns import mistakes, taxonomy_numbers, taxonomy_sentence
from pals.pipeline.tables.unsure_columns import unsure_sentence
from pals.runs.rounds import run_of
from pals.util.words import how_many, one_line

SUMMARY_FORMAT = 1
ALPHA_GRADES = ((0.8, "reliable"), (2 / 3, "fit for tentative conclusions"), (-math.inf, "weak"))
"""Krippendorff's words for his alpha, each with the smallest value that it applies to."""
MIN_LOST_ANNOTATORS = 0.2
"""Answers to an item that shared mistakes must cost before a sentence says so."""


def summary_numbers(found: Analysis) -> dict[str, Any]:
    """The content of `summary.json`, always with the same keys.

    Args:
        found: The analysis of a fit.

    Returns:
        Plain values. `held_out` is empty without cross-fitting, `grades` without a truth, and `taxonomy` is None without one.
    """
    votes, noise, tables = found.result.votes, found.noise, found.tables
    status, measured = tables["labels"]["status"].value_counts(), found.measured_agreement
    flagged = tables["annotators"][tables["annotators"]["flags"] != ""]
    of_class = zip(votes.class_names, measured.alpha_of_class, measured.fleiss_of_class, strict=True)
    return {
        "format": SUMMARY_FORMAT,
        "items": len(tables["labels"]),
        "answers": len(found.result.first_A),
        "annotators": int((tables["annotators"]["annotator"] != UNNAMED).sum()),
        "classes": len(votes.class_names),
        "doubtful_answers": len(tables["doubtful"]),
        "status": {name: int(status.get(name, 0)) for name in (*STATUS, DISAGREEMENT)},
        "asking": count_decisions(tables["next"]),
        "none_of_these": None if found.result.none_N is None else sum(len(group.item_G) for group in found.groups),
        "answers_wrong": noise.answers_wrong,
        "labels_wrong": noise.labels_wrong,
        "labels_wrong_interval": [noise.low, noise.high],
        "earlier_labels_wrong": None if noise.earlier is None else noise.earlier[0],
        "earlier_labels_wrong_interval": None if noise.earlier is None else list(noise.earlier[1:]),
        "models_differ": noise.models_differ,
        "effective_annotators": {
            "answers_per_item": found.effective.answers,
            "independent": found.effective.independent,
            "correlation": found.effective.correlation,
            "copies": [[votes.annotators[person] for person in same.people] for same in found.copies],
        },
        "guideline_items": len(tables["guideline"]),
        "krippendorff_alpha": _measured(measured.alpha),
        "fleiss_kappa": _measured(measured.fleiss),
        "gwet_ac1": _measured(measured.ac1),
        "agreement_by_class": {
            name: {"krippendorff_alpha": _measured(alpha), "fleiss_kappa": _measured(kappa)} for name, alpha, kappa in of_class
        },
        "flags": {name: flags.split(BETWEEN) for name, flags in zip(flagged["annotator"], flagged["flags"], strict=True)},
        "temperature": found.trained.temperature,
        "taxonomy": None if found.taxonomy is None else taxonomy_numbers(found.taxonomy, found.result),
        "held_out": dict(found.held_out),
        "grades": dict(found.grades),
        "training": dict(found.trained.training),
    }


def _measured(found: Measured) -> dict[str, float | None]:
    """Value and interval, None where the measure is not defined."""
    return {key: None if math.isnan(value) else value for key, value in vars(found).items()}


def summary_sentences(found: Analysis, numbers: Mapping[str, Any], warnings: Sequence[str]) -> tuple[list[str], list[str]]:
    """The result in a few sentences.

    Args:
        found: The analysis of a fit.
        numbers: Its `summary_numbers`.
        warnings: Its `fit_warnings`.

    Returns:
        All sentences for the end of the run, and those of them that the report does not show as a number in large type, a
        chart, a command or a warning.
    """
    status, doubtful = numbers["status"], numbers["doubtful_answers"]
    who = how_many(numbers["annotators"], "annotator") if numbers["annotators"] else "unnamed annotators"
    items, answers, classes = (
        how_many(numbers["items"], "item"),
        how_many(numbers["answers"], "answer"),
        how_many(numbers["classes"], "class", "classes"),
    )
    uncounted = bool((found.result.answers_N[found.result.status_N == NO_ANSWER] > 0).any())
    which = "no answer that counts" if uncounted else "no answer"
    unanswered = f"; {status['no-answer']:,} had {which}" if status["no-answer"] else ""
    changes = (
        f"Overruled the majority on {how_many(status['corrected'], 'item')} and broke {how_many(status['tie-broken'], 'tie')}; "
        f"{how_many(status['unsure'], 'item')} {'remains' if status['unsure'] == 1 else 'remain'} uncertain{unanswered}."
    )
    first = "; doubtful.csv lists the surest first." if doubtful > 1 else "."
    errors = f"{how_many(doubtful, 'answer').capitalize()} {'is' if doubtful == 1 else 'are'} probably wrong{first}"
    parts: list[tuple[Sequence[str], bool]] = [  # sentences, and whether the report has them
        ([f"{items} with {answers} from {who} in {classes}."], True),
        ([changes, errors], False),
        (unsure_sentence(found.result, found.trained.fusion.consensus), True),
        (agreement_sentence(found.measured_agreement), True),
        (effective_sentence(found.effective), True),
        (guideline_sentence(found.tables["guideline"]), True),
        (_most_confused(found), False),
        ([taxonomy_sentence(numbers["taxonomy"])] if numbers["taxonomy"] else [], True),
        ([still_wrong(found.noise)], False),
        (models_differ(found), True),
        (_earlier_estimate(found), True),
        (group_sentences(found.groups), True),
        (next_step(found.groups, run_of(found.trained.plan.folder) or found.trained.plan.folder), False),
        (warnings, False),
        (found.trained.remarks, True),
        (_against_the_truth(found), True),
    ]
    return [line for lines, _ in parts for line in lines], [line for lines, shown in parts if shown for line in lines]


def agreement_sentence(found: Agreement) -> list[str]:
    """Krippendorff's alpha in a sentence; empty where it is not defined."""
    alpha = found.alpha
    if math.isnan(alpha.value):
        return []
    likely = f"{alpha.value:.2f} ({alpha.low:.2f} to {alpha.high:.2f})"
    line = (
        f"Inter-annotator agreement is {_grade(alpha)}: Krippendorff's alpha is {likely}, where 1 is perfect and 0 is chance."
    )
    ac1 = found.ac1
    if _grade(ac1) != _grade(alpha) and ac1.low > alpha.high:
        line += (
            f" Gwet's AC1 is {ac1.value:.2f} ({ac1.low:.2f} to {ac1.high:.2f}): most answers are of few classes and agree, and "
            f"the disagreement is about the rare ones."
        )
    return [line]


def _grade(found: Measured) -> str:
    return next((words for least, words in ALPHA_GRADES if found.value >= least), "")


def effective_sentence(found: EffectiveAnnotators) -> list[str]:
    """How many independent annotators the answers are worth; empty if they are worth what they are."""
    if found.answers - found.independent < MIN_LOST_ANNOTATORS:
        return []
    worth = f"worth {found.independent:.1f} independent ones"
    if found.everybody:
        return [f"Your {found.everybody:,} annotators are {worth}: they share mistakes."]
    return [f"The {found.answers:.1f} answers to an item are {worth}: annotators share mistakes."]


def guideline_sentence(table: pd.DataFrame) -> list[str]:
    """On how many items the best annotators agree with one another against the crowd, and about which classes."""
    if not len(table):
        return []
    crowd, answer, count = table["crowd_answer"].iloc[0], table["best_answer"].iloc[0], len(table)
    pair = int(((table["crowd_answer"] == crowd) & (table["best_answer"] == answer)).sum())
    return [
        one_line(
            f"The best annotators agree with one another against the crowd on {how_many(count, 'item')}, most often {answer} "
            f"against {crowd} ({pair:,}): no vote can settle these, the instructions can (guideline.csv)."
        )
    ]


def still_wrong(noise: NoiseEstimate) -> str:
    """The estimated shares of wrong answers and wrong labels."""
    shares = (noise.answers_wrong, noise.labels_wrong, noise.low, noise.high)
    answers, labels, low, high = (f"{100 * share:.1f}%" for share in shares)
    return (
        f"About {answers} of the answers are wrong, and {labels} of the labels in the result (likely {low} to {high}), not "
        f"counting mistakes that most annotators share: answers cannot show those."
    )


def models_differ(found: Analysis) -> list[str]:
    """How far the fit of the answers alone and the fit with the images disagree about the labels; empty without images."""
    differ = found.noise.models_differ
    if found.trained.fusion.calibration is None or differ == 0:
        return []
    return [f"The models differ: {100 * differ:.1f}% of the labels are others by the answers alone than with the images."]


def _earlier_estimate(found: Analysis) -> list[str]:
    """The estimate by this fit for the labels before the update, and whether that corrects the estimate made then."""
    if found.noise.earlier is None:
        return []
    now, then = found.noise.earlier[0], corrected_estimate(found)
    line = f"By the same estimate {100 * now:.1f}% of the labels before this update were wrong"
    return [
        f"{line}."
        if then is None
        else f"{line}; the earlier estimate of {100 * then:.1f}% was too {'low' if then < now else 'high'}."
    ]


def corrected_estimate(found: Analysis) -> float | None:
    """The share of wrong labels that the run before an update estimated; None if this fit agrees with it."""
    if found.noise.earlier is None or found.earlier_estimate is None:
        return None
    _, low, high = found.noise.earlier
    return None if low <= found.earlier_estimate <= high else found.earlier_estimate


def _most_confused(found: Analysis) -> list[str]:
    tree = found.taxonomy
    wrong = mistakes(found.tables["confusion"], None) if tree is None else pd.concat([tree.within, tree.across])
    if not len(wrong):
        return []
    pairs = wrong.groupby(["result", "answer"], sort=True)["count"].sum()
    (result, answer), count = pairs.idxmax(), round(pairs.max())  # parts of answers that name several labels
    return [one_line(f"The most frequent mistake: {answer} for {result} ({how_many(count, 'answer')}).")] if count else []


def _against_the_truth(found: Analysis) -> list[str]:
    grades, truth = found.grades, found.trained.loaded.truth
    if truth is None:
        return []
    right = {name: f"{100 * grades[name]:.2f}%" for name in ("labels", "majority", "dawid_skene")}
    of = "" if truth.whole else f" of {how_many(int(grades['items']), 'item')}"
    first = how_many(int(grades["doubtful"]), "doubtful answer")
    wrong = f"; of the first {first} {100 * grades['first_100_doubtful']:.0f}% are wrong" if grades["doubtful"] else ""
    return [
        f"Against the truth{of}: labels right {right['labels']}, majority {right['majority']}, Dawid-Skene "
        f"{right['dawid_skene']}{wrong}."
    ]


def headline(numbers: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """The numbers at the top of the report, those to check first: what, how many, in words."""
    status, answers, doubtful = numbers["status"], numbers["answers"], numbers["doubtful_answers"]
    tiles = [
        ("Labels changed", f"{status['corrected']:,}", "against the majority of the answers"),
        (
            "Still unsure",
            f"{status['unsure']:,}",
            "worth a check" if status["unsure"] else "nothing is too close to call",
        ),
        ("Ties decided", f"{status['tie-broken']:,}", "no label was ahead"),
        ("Probably wrong answers", f"{doubtful:,}", f"{100 * doubtful / max(answers, 1):.1f}% of all answers"),
    ]
    if status["no-answer"]:
        tiles.append(("No answer that counts", f"{status['no-answer']:,}", "labelled by the classifier"))
    return tiles
