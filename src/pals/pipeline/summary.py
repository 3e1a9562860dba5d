"""The result in words and numbers: the lines at the end of a fit, the head of the report, and `summary.json`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from pals.crowd import STATUS, NoiseEstimate
from pals.crowd.agreement import Agreement, Measured
from pals.crowd.result import NO_ANSWER
from pals.pipeline import none_of_these
from pals.pipeline.asking_state import count_decisions
from pals.pipeline.finished_run import UNNAMED
from pals.pipeline.fit_warnings import warnings
from pals.pipeline.stages.warm_start import earlier_estimate
from pals.pipeline.tables import unsure_columns
from pals.pipeline.tables.flag_columns import BETWEEN
from pals.pipeline.tables.taxonomy_columns import mistakes, numbers_of_tree, tree_in_words
from pals.util.words import how_many, one_line

if TYPE_CHECKING:
    from pals.pipeline.stages.findings import Findings

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
        "annotators": int((findings.annotators["annotator"] != UNNAMED).sum()),
        "classes": len(votes.class_names),
        "doubtful_answers": len(findings.doubtful),
        "status": {name: int(status.get(name, 0)) for name in STATUS},
        "asking": count_decisions(findings.tables["next"]),
        "none_of_these": None if findings.result.none_N is None else sum(map(len, findings.groups)),
        "answers_wrong": noise.answers_wrong,
        "labels_wrong": noise.labels_wrong,
        "labels_wrong_interval": [noise.low, noise.high],
        "earlier_labels_wrong": None if noise.earlier is None else noise.earlier[0],
        "earlier_labels_wrong_interval": None if noise.earlier is None else list(noise.earlier[1:]),
        "krippendorff_alpha": _measured(findings.people.alpha),
        "fleiss_kappa": _measured(findings.people.fleiss),
        "agreement_by_class": _by_class(findings.people, votes.class_names),
        "flags": _flags(findings.annotators),
        "temperature": findings.trained.temperature,
        "taxonomy": numbers_of_tree(findings.result, findings.confusion, findings.trained.plan.data.sure),
        "held_out": dict(findings.trained.held_out),
        "grades": dict(findings.grades),
        "training": dict(findings.trained.training),
    }


def _measured(found: Measured) -> dict[str, float | None]:
    """Value and interval, null where the measure is not defined."""
    return {key: None if math.isnan(value) else value for key, value in vars(found).items()}


def _by_class(found: Agreement, names: Sequence[str]) -> dict[str, dict[str, dict[str, float | None]]]:
    of_class = zip(names, found.alpha_of_class, found.fleiss_of_class, strict=True)
    return {name: {"krippendorff_alpha": _measured(alpha), "fleiss_kappa": _measured(kappa)} for name, alpha, kappa in of_class}


def _flags(annotators: pd.DataFrame) -> dict[str, list[str]]:
    """The people with a flag, and which."""
    flagged = annotators[annotators["flags"] != ""]
    return {worker: flags.split(BETWEEN) for worker, flags in zip(flagged["annotator"], flagged["flags"], strict=True)}


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
    return " ".join([found, *contradiction(noise)])


def contradiction(noise: NoiseEstimate) -> list[str]:
    """Whether people and classifier contradict each other."""
    if noise.disagreement is None:
        return []
    alone, seen = (f"{100 * share:.1f}%" for share in noise.disagreement)
    return [
        f"But people and classifier contradict each other: of the labels taken from the answers alone, {alone} are wrong "
        f"judging by the answers, but {seen} judging by the classifier as well. One side is misled: look at some of the "
        f"corrected labels."
    ]


# ---- the result in a few lines


def _size(findings: Findings) -> list[str]:
    found = findings.numbers
    items, answers = how_many(found["items"], "item"), how_many(found["answers"], "answer")
    return [f"{items} with {answers} from {_people(found)} in {how_many(found['classes'], 'class', 'classes')}."]


def _changes(findings: Findings) -> list[str]:
    status = findings.numbers["status"]
    aside = bool((findings.result.answers_N[findings.result.status_N == NO_ANSWER] > 0).any())
    which = "no answer that counts" if aside else "no answer"
    unanswered = f"; {status['no-answer']:,} had {which}" if status["no-answer"] else ""
    return [
        f"Overruled the majority on {how_many(status['corrected'], 'item')} and broke {how_many(status['tie-broken'], 'tie')}; "
        f"{how_many(status['unsure'], 'item')} {'remains' if status['unsure'] == 1 else 'remain'} uncertain{unanswered}."
    ]


def _doubtful(findings: Findings) -> list[str]:
    doubtful = len(findings.doubtful)
    first = "; doubtful.csv lists the surest first." if doubtful > 1 else "."
    return [f"{how_many(doubtful, 'answer').capitalize()} {'is' if doubtful == 1 else 'are'} probably wrong{first}"]


def _agreement(findings: Findings) -> list[str]:
    return how_far_they_agree(findings.people)


def _noise(findings: Findings) -> list[str]:
    before = compared(findings.noise, earlier_estimate(findings.trained.plan.data.earlier))
    return [" ".join([still_wrong(findings.noise), *before])]


def compared(noise: NoiseEstimate, then: float | None) -> list[str]:
    """What the present model estimates for the labels before the update, and whether that corrects the estimate of `then`."""
    if noise.earlier is None:
        return []
    now, low, high = noise.earlier
    line = f"By the same estimate {100 * now:.1f}% of the labels before this update were wrong"
    if then is None or low <= then <= high:
        return [f"{line}."]
    return [f"{line}; the earlier estimate of {100 * then:.1f}% was too {'low' if then < now else 'high'}."]


def _remarks(findings: Findings) -> list[str]:
    return list(findings.trained.remarks)


def _against_the_truth(findings: Findings) -> list[str]:
    grades, truth = findings.grades, findings.trained.loaded.truth
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


def _unsure(findings: Findings) -> list[str]:
    return unsure_columns.in_a_sentence(findings.result, findings.trained.fusion.consensus.annotators)


def _tree(findings: Findings) -> list[str]:
    return tree_in_words(findings.numbers["taxonomy"])


def _most_confused(findings: Findings) -> list[str]:
    wrong = mistakes(findings.confusion, findings.result.votes.taxonomy)
    if not len(wrong):
        return []
    pairs = wrong.groupby(["result", "answer"], sort=True)["count"].sum()
    (result, answer), count = pairs.idxmax(), round(pairs.max())  # parts of answers that name several labels
    return [one_line(f"The most frequent mistake: {answer} for {result} ({how_many(count, 'answer')}).")] if count else []


SENTENCES: tuple[Callable[[Findings], list[str]], ...] = (
    _size, _changes, _doubtful, _unsure, _agreement, _most_confused, _tree, _noise, none_of_these.in_a_sentence,
    none_of_these.what_to_do, warnings, _remarks, _against_the_truth,
)  # fmt: skip
"""The end of a run, in this order."""
SHOWN_OTHERWISE = (_changes, _doubtful, _most_confused, _noise, none_of_these.what_to_do, warnings)
"""What the page has in large type, as a chart, a command or a warning, and so not once more as a sentence."""


def in_sentences(findings: Findings) -> list[str]:
    """A few lines for the end of the run."""
    return [line for sentence in SENTENCES for line in sentence(findings)]


def for_the_page(findings: Findings) -> list[str]:
    """Those of them that the page does not show in another form."""
    return [line for sentence in SENTENCES if sentence not in SHOWN_OTHERWISE for line in sentence(findings)]


def _people(found: Mapping[str, Any]) -> str:
    return how_many(found["annotators"], "person", "people") if found["annotators"] else "unnamed people"


def headline(found: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """The numbers at the top of the page, first those that ask for a look: what, how many, in words."""
    status, answers, doubtful = found["status"], found["answers"], found["doubtful_answers"]
    tiles = [
        ("Labels changed", f"{status['corrected']:,}", "against what most people said"),
        ("Still unsure", f"{status['unsure']:,}", "worth another look" if status["unsure"] else "nothing is too close to call"),
        ("Ties decided", f"{status['tie-broken']:,}", "no label was ahead"),
        ("Probably wrong answers", f"{doubtful:,}", f"{100 * doubtful / max(answers, 1):.1f}% of all answers"),
    ]
    if status["no-answer"]:
        tiles.append(("No answer that counts", f"{status['no-answer']:,}", "labelled by the classifier"))
    return tiles
