"""The result in words and numbers: the lines at the end of a fit, the head of the report, and `summary.json`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from pals.crowd import STATUS, NoiseEstimate
from pals.crowd.agreement import Agreement, Measured
from pals.fitting import novel, unsure
from pals.fitting.asking import counts
from pals.fitting.tree import mistakes, numbers_of_tree, tree_in_words
from pals.util.words import how_many

if TYPE_CHECKING:
    from pals.fitting.findings import Findings

FORMAT = 1
"""Of `summary.json`."""


def numbers(findings: Findings) -> dict[str, Any]:
    """The result in numbers, always with the same keys. `held_out` is empty where nothing was left out, `grades` without a
    truth; `taxonomy` is None without one."""
    votes, noise = findings.result.votes, findings.noise
    status = findings.labels["status"].value_counts()
    return {
        "format": FORMAT,
        "items": len(findings.labels),
        "answers": len(findings.result.first_A),
        "annotators": len(votes.workers),
        "classes": len(votes.class_names),
        "doubtful_answers": len(findings.doubtful),
        "status": {name: int(status.get(name, 0)) for name in STATUS},
        "asking": counts(findings.tables["next"]),
        "none_of_these": None if findings.result.none_N is None else sum(map(len, findings.groups)),
        "answers_wrong": noise.answers_wrong,
        "labels_wrong": noise.labels_wrong,
        "labels_wrong_interval": [noise.low, noise.high],
        "krippendorff_alpha": _measured(findings.people.alpha),
        "fleiss_kappa": _measured(findings.people.fleiss),
        "temperature": findings.trained.temperature,
        "taxonomy": numbers_of_tree(findings.result, findings.confusion, findings.trained.plan.data.sure),
        "held_out": dict(findings.trained.held_out),
        "grades": dict(findings.grades),
        "training": dict(findings.trained.training),
    }


def _measured(found: Measured) -> dict[str, float | None]:
    """Value and interval, null where the measure is not defined."""
    return {key: None if math.isnan(value) else value for key, value in vars(found).items()}


GRADES = ((0.8, "reliable"), (2 / 3, "fit for tentative conclusions"), (-math.inf, "weak"))
"""What Krippendorff calls values of his alpha from so much on."""


def how_far_they_agree(found: Agreement) -> list[str]:
    """Krippendorff's alpha in a sentence."""
    alpha = found.alpha
    if math.isnan(alpha.value):
        return []
    grade = next(words for least, words in GRADES if alpha.value >= least)
    likely = f"{alpha.value:.2f} ({alpha.low:.2f} to {alpha.high:.2f})"
    return [f"People's agreement is {grade}: Krippendorff's alpha is {likely}, where 1 is perfect and 0 is chance."]


def still_wrong(noise: NoiseEstimate) -> str:
    """What is still wrong, as far as can be known without the truth."""
    shares = (noise.answers_wrong, noise.labels_wrong, noise.low, noise.high)
    answers, labels, low, high = (f"{100 * share:.1f}%" for share in shares)
    found = f"About {answers} of the answers are wrong, and {labels} of the labels in the result (likely {low} to {high})."
    if noise.disagreement is None:
        return found
    alone, seen = (f"{100 * share:.1f}%" for share in noise.disagreement)
    return (
        f"{found} But people and classifier contradict each other: of the labels by the answers alone, {alone} are wrong by "
        f"the answers and {seen} with the classifier. One of them is misled; look at some of the corrected labels."
    )


def in_sentences(findings: Findings) -> list[str]:
    """A few lines for the end of the run."""
    found, votes_tree = numbers(findings), findings.result.votes.taxonomy
    status, doubtful = found["status"], found["doubtful_answers"]
    items, answers = how_many(found["items"], "item"), how_many(found["answers"], "answer")
    unanswered = f"; {status['no-answer']:,} had no answer" if status["no-answer"] else ""
    lines = [
        f"{items} with {answers} of {_people(found)} in {how_many(found['classes'], 'class', 'classes')}.",
        f"Overruled the majority on {how_many(status['corrected'], 'item')} and broke {how_many(status['tie-broken'], 'tie')}; "
        f"{how_many(status['unsure'], 'item')} {'remains' if status['unsure'] == 1 else 'remain'} uncertain{unanswered}.",
        f"{how_many(doubtful, 'answer').capitalize()} {'is' if doubtful == 1 else 'are'} probably wrong"
        + ("; the surest of them come first in doubtful.csv." if doubtful > 1 else "."),
        *unsure.in_a_sentence(findings.result, findings.trained.fusion.consensus.annotators),
        *how_far_they_agree(findings.people),
        *_most_confused(mistakes(findings.confusion, votes_tree)),
        *tree_in_words(found["taxonomy"]),
        still_wrong(findings.noise),
        *novel.in_a_sentence(findings),
        *findings.trained.remarks,
    ]
    truth = findings.trained.loaded.truth
    return lines if truth is None else [*lines, _against_the_truth(findings.grades, truth.whole)]


def _against_the_truth(grades: Mapping[str, float], whole: bool) -> str:
    right = {name: f"{100 * grades[name]:.2f}%" for name in ("labels", "majority", "dawid_skene")}
    of = "" if whole else f" of {how_many(int(grades['items']), 'item')}"
    first = how_many(int(grades["doubtful"]), "doubtful answer")
    wrong = f"; of the first {first} {100 * grades['first_100_doubtful']:.0f}% are wrong" if grades["doubtful"] else ""
    return (
        f"Against the truth{of}: labels right {right['labels']}, majority {right['majority']}, Dawid-Skene "
        f"{right['dawid_skene']}{wrong}."
    )


def _people(found: Mapping[str, Any]) -> str:
    return how_many(found["annotators"], "person", "people") if found["annotators"] else "unnamed people"


def _most_confused(wrong: pd.DataFrame) -> list[str]:
    if not len(wrong):
        return []
    pairs = wrong.groupby(["result", "answer"], sort=True)["count"].sum()
    (result, answer), count = pairs.idxmax(), round(pairs.max())  # parts of answers that name several labels
    return [f"The most frequent mistake: {answer} for {result} ({how_many(count, 'answer')})."] if count else []


def headline(found: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """The numbers at the top of the page: what, how many, in words."""
    status, answers, doubtful = found["status"], found["answers"], found["doubtful_answers"]
    unanswered = status["no-answer"]
    return [
        ("Items", f"{found['items']:,}", f"{unanswered:,} without an answer" if unanswered else "all have answers"),
        ("Answers", f"{answers:,}", f"from {_people(found)}"),
        ("Probably wrong answers", f"{doubtful:,}", f"{100 * doubtful / max(answers, 1):.1f}% of all answers"),
        ("Labels changed", f"{status['corrected']:,}", "against what most people said"),
        ("Ties decided", f"{status['tie-broken']:,}", "people disagreed evenly"),
        ("Still unsure", f"{status['unsure']:,}", "worth another look"),
    ]
