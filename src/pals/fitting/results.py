"""What a finished work leaves in its folder: the classifier, the tables, the report."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
import torch

from pals import __version__
from pals.crowd import (
    Consensus,
    Fusion,
    NoiseEstimate,
    Result,
    arguing_neighbors,
    estimate_noise,
    fuse,
    leave_one_out,
    majority_vote,
    named_labels,
    rank_doubts,
)
from pals.fitting import report_json
from pals.fitting.inputs import Graded
from pals.fitting.page.render import write_report
from pals.fitting.tables import annotators_table, classes_table, confusion_table, csv_text, doubtful_table, labels_table
from pals.fitting.work import Work
from pals.labeling.neighbors import nearest
from pals.labels.metrics import accuracy_of, agreement, read_agreement, share_covered
from pals.model import FILE_NAME, Description, Model, Part, fit_temperature
from pals.training.log import read_epochs
from pals.util.config import to_yaml
from pals.util.files import read_json, write_json, write_text
from pals.util.words import how_many
from pals.vision.backbones import Output

NEIGHBORS = 15
FIRST = 100  # doubtful answers that are graded where the truth is known


@dataclass(frozen=True)
class Findings:
    """Everything that the files say."""

    result: Result
    model_NC: np.ndarray  # the classifier's own calibrated probabilities
    temperature: float
    neighbor_NK: np.ndarray
    similarity_NK: np.ndarray
    noise: NoiseEstimate
    tables: Mapping[str, pd.DataFrame]
    grades: Mapping[str, float]
    held_out: Mapping[str, float]


def finish(work: Work) -> list[str]:
    """Write all files; the answer is the summary in a few sentences."""
    findings = find(work)
    save_model(work, findings.temperature)
    write_text(work.folder / "votes.csv", csv_text(work.ready.votes.to_frame(work.data.separator)))
    for name, table in findings.tables.items():
        write_text(work.folder / f"{name}.csv", csv_text(table))
    summary = in_sentences(work, findings)
    write_json(work.folder / "summary.json", {**numbers(findings), "grades": dict(findings.grades)})
    write_json(work.folder / "report.json", report_data(work, findings, summary))
    page_file = write_report(work.folder)
    return [*summary, f"Everything is in {work.folder}; open {page_file}"]


def find(work: Work) -> Findings:
    votes, output = work.ready.votes, work.output
    fusion = fuse(votes, opinions(work), strength=work.people.annotators.strength)
    temperature = _temperature(work, output, fusion.alone)
    model_NC = (output.logits.double() / temperature).softmax(dim=1).numpy()
    posterior_NC = fusion.posterior_NC.copy()
    if fusion.calibration is None:
        unknown_N = ~fusion.consensus.answers.known_N
        posterior_NC[unknown_N] = model_NC[unknown_N]
    result = Result(votes, posterior_NC)
    unit_ND = torch.nn.functional.normalize(output.features).to(work.whole.trainer.engine.device)
    neighbors = nearest(unit_ND, _neighbors(len(votes.items)), include_self=False)
    neighbor_NK, similarity_NK = neighbors.index_NK.cpu().numpy(), neighbors.similarity_NK.cpu().numpy()
    doubts = rank_doubts(result)
    arguing = arguing_neighbors(result, doubts, neighbor_NK, similarity_NK)
    tables = {
        "labels": labels_table(result),
        "doubtful": doubtful_table(result, doubts, arguing),
        "annotators": annotators_table(result),
        "confusion": confusion_table(result),
        "classes": classes_table(result),
    }
    noise = estimate_noise(votes, fusion)
    grades = {} if work.truth is None else grade(work.truth, result, doubts.answer_M, work.people)
    held_out = _held_out(work, model_NC, fusion)
    return Findings(result, model_NC, temperature, neighbor_NK, similarity_NK, noise, tables, grades, held_out)


def _held_out(work: Work, model_NC: np.ndarray, fusion: Fusion) -> dict[str, float]:
    """Covering rate and approximated accuracy of what was said of items that had been left out: by the networks of
    cross-fitting, or by the neighbours. For choosing between settings; nothing where nobody left anything out."""
    if not work.data.folds and fusion.calibration is None:
        return {}
    said_NC = torch.from_numpy(model_NC if work.data.folds else fusion.opinion_NC)
    return read_agreement(agreement(said_NC[work.trained_M].log(), work.candidates.allowed_NC))


def opinions(work: Work) -> list[np.ndarray]:
    """What those say of the items who have not seen their answers: networks that left them out of training, and, where features
    are not trained, their neighbours. (A network that knows the answers is no witness.)"""
    found = [work.output.logits.double().numpy()] if work.data.folds else []
    vectors_ND = work.learned_from
    if vectors_ND.ndim == 2:
        alone = work.people
        if work.responses is not None or not work.config.network.frozen:  # whoever made vectors may have used any units
            vectors_ND = vectors_ND if work.responses is None else work.responses
            std_D, mean_D = torch.std_mean(vectors_ND, dim=0)
            vectors_ND = (vectors_ND - mean_D) / std_D.clamp_min(1e-6)
        unit_ND = torch.nn.functional.normalize(vectors_ND - vectors_ND.mean(dim=0), dim=1)
        generator = torch.Generator().manual_seed(work.config.seed)
        known_N = alone.answers.known_N
        found.append(leave_one_out(unit_ND, alone.posterior_NC, generator=generator, known_N=known_N))
    return found


def _neighbors(items: int) -> int:
    return max(1, min(NEIGHBORS, items - 1))


def _temperature(work: Work, output: Output, alone: Consensus) -> float:
    """By which the classifier's logits are divided: what makes them agree with the answers, taken by themselves."""
    answered_M = work.trained_M
    target_NC = torch.from_numpy(alone.posterior_NC)
    return fit_temperature(output.logits[answered_M], target_NC[answered_M])


def grade(known: Graded, result: Result, answer_M: np.ndarray, people: Consensus) -> dict[str, float]:
    """How right the result is, beside what votes alone come to; for people who know the truth of all items or of some."""
    votes, (row_G, truth, _) = result.votes, known
    place_N = np.full(len(votes.items), -1)
    place_N[row_G] = np.arange(len(row_G))
    first = answer_M[place_N[result.item_A[answer_M]] >= 0][:FIRST]
    return {
        "labels": accuracy_of(result.posterior_NC[row_G], truth),
        "majority": accuracy_of(majority_vote(votes)[row_G], truth),
        "dawid_skene": accuracy_of(people.posterior_NC[row_G], truth),
        "first_100_doubtful": 1 - share_covered(place_N[result.item_A[first]], named_labels(result, first), truth),
        "items": len(row_G),
        "doubtful": len(first),
    }


def save_model(work: Work, temperature: float) -> None:
    """The network that was trained on all items, with all that is needed to ask it."""
    inputs, network, config = work.ready, work.whole.trainer.method.predictor, work.config
    images = inputs.items.inputs
    encoder = None
    if work.vectors is None:
        classifier = Part(config.network.name, tuple(images.shape[1:]), inputs.mean, inputs.std)
    else:
        _, mean_D, std_D = work.vectors
        classifier = Part(config.network.head, tuple(mean_D.shape), tuple(mean_D.tolist()), tuple(std_D.tolist()))
        encoder = Part(config.network.name, tuple(images.shape[1:]), inputs.mean, inputs.std)
    about = Description(work.candidates.class_names, classifier, encoder, temperature, resize=work.data.resize)
    Model(about, network, work.encoder, device="cpu").save(work.folder / FILE_NAME)  # type: ignore[arg-type]


def numbers(findings: Findings) -> dict[str, Any]:
    """The result in numbers."""
    labels, votes = findings.tables["labels"], findings.result.votes
    status = labels["status"].value_counts().to_dict()
    return {
        "items": len(labels),
        "answers": len(findings.result.first_A),
        "annotators": len(votes.workers),
        "classes": len(votes.class_names),
        "doubtful_answers": len(findings.tables["doubtful"]),
        "status": {str(key): int(value) for key, value in status.items()},
        "answers_wrong": findings.noise.answers_wrong,
        "labels_wrong": findings.noise.labels_wrong,
        "labels_wrong_interval": [findings.noise.low, findings.noise.high],
        "temperature": findings.temperature,
        "held_out": dict(findings.held_out),
    }


def in_sentences(work: Work, findings: Findings) -> list[str]:
    """Five lines for the end of the run."""
    found = numbers(findings)
    status, noise = found["status"], findings.noise
    items, answers = how_many(found["items"], "item"), how_many(found["answers"], "answer")
    corrected, ties = how_many(status.get("corrected", 0), "item"), how_many(status.get("tie-broken", 0), "tie")
    doubtful, unsure = found["doubtful_answers"], status.get("unsure", 0)
    unanswered = f", {status['no-answer']:,} had no answer" if "no-answer" in status else ""
    lines = [
        f"{items} with {answers} of {_people(found)} in {how_many(found['classes'], 'class', 'classes')}.",
        f"The result differs from what most people said for {corrected} and decides {ties}; "
        f"{unsure:,} {'is' if unsure == 1 else 'are'} too close to call{unanswered}.",
        f"{how_many(doubtful, 'answer').capitalize()} {'is' if doubtful == 1 else 'are'} probably wrong"
        + ("; the surest of them come first in doubtful.csv." if doubtful > 1 else "."),
        noise.sentence,
    ]
    worst = _most_confused(findings)
    if worst:
        lines.insert(3, worst)
    if work.truth is not None:
        lines.append(_against_the_truth(findings.grades, work.truth.whole))
    return lines


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


def _most_confused(findings: Findings) -> str:
    confusion = findings.tables["confusion"]
    wrong = confusion[confusion["result"] != confusion["answer"]]
    if not len(wrong):
        return ""
    pairs = wrong.groupby(["result", "answer"], sort=True)["count"].sum()
    (result, answer), count = pairs.idxmax(), round(pairs.max())  # parts of answers that name several labels
    return f"The most frequent mistake: {answer} for {result} ({how_many(count, 'answer')})." if count else ""


def report_data(work: Work, findings: Findings, summary: list[str]) -> dict[str, Any]:
    """Plain values for the page."""
    votes, labels, tables = work.ready.votes, findings.tables["labels"], findings.tables
    found = numbers(findings)
    shown = report_json.gallery(
        tables["doubtful"], labels, votes, findings.model_NC, findings.neighbor_NK, findings.similarity_NK
    )
    easy, hard = report_json.examples(labels, votes)
    about = read_json(work.folder / "run.json")
    curves = [
        {key: record.get(name) for key, name in report_json.CURVES.items() if record.get(name) is not None}
        for record in read_epochs(work.folder)
    ]
    return {
        "format": 1,
        "title": f"Report on {work.folder.resolve().name}",
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "version": __version__,
        "command": shlex.join(["pals", *map(str, about["command"][1:])]),
        "headline": [{"label": label, "value": value, "note": note} for label, value, note in headline(found)],
        "summary": summary,
        "warnings": work.warnings(),
        "curves": curves,
        "classes": list(votes.class_names),
        "confusion": report_json.confusion_matrix(tables["confusion"], votes.class_names),
        "thumbs": report_json.pictures(report_json.names_shown(shown, easy, hard), votes, work.ready.items.inputs),
        "gallery": shown,
        "annotators": report_json.people(tables["annotators"], tables["confusion"], votes.class_names),
        "class_table": report_json.records(tables["classes"]),
        "easy": easy,
        "hard": hard,
        "noise": {
            "answers_wrong": findings.noise.answers_wrong,
            "labels_wrong": findings.noise.labels_wrong,
            "low": findings.noise.low,
            "high": findings.noise.high,
            "sentence": findings.noise.sentence,
        },
        "settings": to_yaml(work.config.to_dict()),
    }


def headline(found: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """The numbers at the top of the page: what, how many, in words."""
    status, answers, doubtful = found["status"], found["answers"], found["doubtful_answers"]
    unanswered = status.get("no-answer", 0)
    return [
        ("Items", f"{found['items']:,}", f"{unanswered:,} without an answer" if unanswered else "all have answers"),
        ("Answers", f"{answers:,}", f"from {_people(found)}"),
        ("Probably wrong answers", f"{doubtful:,}", f"{100 * doubtful / max(answers, 1):.1f}% of all answers"),
        ("Labels changed", f"{status.get('corrected', 0):,}", "against what most people said"),
        ("Ties decided", f"{status.get('tie-broken', 0):,}", "people disagreed evenly"),
        ("Still unsure", f"{status.get('unsure', 0):,}", "worth another look"),
    ]
