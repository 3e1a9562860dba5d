"""Small reports for the tests of the page: pictures that are drawn here, answers that follow from the numbers."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
from PIL import Image

from pals.report.format import REPORT_FORMAT

STATUSES = ("corrected", "agreed", "tie-broken", "unsure")
HOSTILE = (
    "<script>alert(1)</script>", '"><img src=x onerror=alert(2)>', "{{7*7}}",
    "</script><script>alert(3)</script><!--", "مرحبا \u202eevil\u2028line", "🦉 owl & 'friends'",
    "a-very-long-name-" * 14,
)  # fmt: skip


def picture(seed: int, size: int = 8) -> str:
    pixels = np.random.default_rng(seed).integers(0, 255, size=(size, size, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def report(
    items: int = 30, classes: int = 3, people: int = 3, *, images: bool = True, names: tuple[str, ...] = (), tree: bool = False
) -> dict[str, Any]:
    """A report with every key; with a taxonomy and with items of no class if `tree`. `names` are used for classes, people and
    items alike, before the plain ones."""
    rng = np.random.default_rng(7)
    labels = [*names, *[f"class {k}" for k in range(classes)]][:classes]
    annotators = [*names, *[f"person {k}" for k in range(people)]][:people]
    files = [*names, *[f"img/{k:03}.png" for k in range(items)]][:items]
    own_PCC = rng.integers(0, 4, size=(people, classes, classes)) + 30 * np.eye(classes, dtype=int)
    own_PCC[:, 0, -1] += 5
    all_CC = own_PCC.sum(axis=0)
    return {
        "format": REPORT_FORMAT,
        "title": names[0] if names else "Owls & moths",
        "created": "2026-11-15T10:00:00+00:00",
        "version": "0.1.0",
        "command": f"pals fit 'images' {files[0] if files else 'x'} --out runs/owls",
        "headline": [
            {"label": "Images", "value": "5,000", "note": "50 without an answer"},
            {"label": labels[0], "value": "7", "note": ""},
        ],
        "summary": ["One sentence.", *labels[:1]],
        "warnings": ["One file was left out: " + (files[0] if files else "none")],
        "curves": [
            {"epoch": e, "loss": 2.0 / e, "selected": 100 * e, "covering": 0.9 - 0.4 / e, "approximate": None}
            for e in range(1, 13)
        ],
        "classes": labels,
        "confusion": sparse(all_CC),
        "thumbs": {name: picture(k, (8, 32, 100)[k % 3]) for k, name in enumerate(files)} if images else {},
        "gallery": [_entry(k, files, labels, annotators) for k in range(items)],
        "gallery_of": items,
        "annotators_of": people,
        "examples_of": len(files[:4]),
        "annotators": [_person(name, own_CC, labels) for name, own_CC in zip(annotators, own_PCC, strict=True)],
        "class_table": [_class_row(k, name, labels) for k, name in enumerate(labels)],
        "agreement": [
            *(_agreement("class", name, "", 0.61, 0.5, 0.7) for name in labels),
            *(_agreement("pair", one, annotators[0], 0.2 + k / 100, 0.1, 0.4) for k, one in enumerate(annotators[1:])),
        ],
        "easy": [{"item": name, "label": labels[0], "confidence": 0.99} for name in files[:4]],
        "hard": [
            {"item": name, "label": labels[0], "confidence": 0.3, "votes": _votes(0, labels, annotators)} for name in files[4:8]
        ],
        "taxonomy": _taxonomy(labels) if tree else None,
        "none_of_these": [_missing(files, labels, annotators)] if tree else [],
        "noise": {"answers_wrong": 0.17, "labels_wrong": 0.06, "low": 0.05, "high": 0.08, "sentence": "About 6.0% are wrong."},
        "settings": f"seed: 1\ntitle: {labels[0]}\n",
    }


def sparse(count_CC: np.ndarray) -> dict[str, list[Any]]:
    """A confusion matrix as report.json has it."""
    result_X, answer_X = count_CC.nonzero()
    return {"result": result_X.tolist(), "answer": answer_X.tolist(), "count": count_CC[result_X, answer_X].tolist()}


def _agreement(of: str, name: str, other: str, value: float, low: float, high: float) -> dict[str, Any]:
    measure = "krippendorff_alpha" if of == "class" else "cohen_kappa"
    return {"of": of, "name": name, "other": other, "items": 40, "measure": measure, "value": value, "low": low, "high": high}


def _taxonomy(labels: list[str]) -> dict[str, Any]:
    """One branch with all classes, and one pair of each kind of mix-up."""
    counts = {"items": 7, "rolled_up": 2, "answers": 5, "answers_below": 20, "accuracy": 0.75}
    pair = {"result": labels[0], "answer": labels[-1], "count": 3, "total": 40}
    return {
        "sure": 0.9,
        "levels": [{"level": 1, "nodes": 2, "accuracy": 0.9}, {"level": 2, "nodes": len(labels), "accuracy": 0.8}],
        "nodes": [
            {"name": "everything", "depth": 1, "leaf": False, **counts},
            *({"name": name, "depth": 2, "leaf": True, **counts} for name in labels),
        ],
        "within": {"answers": 3, "of": 1, "pairs": [pair]},
        "across": {"answers": 0, "of": 0, "pairs": []},
    }


def _missing(files: list[str], labels: list[str], annotators: list[str]) -> dict[str, Any]:
    """A group of items that are none of the classes."""
    shown = [{"item": name, "none_of_these": 0.8, "votes": _votes(0, labels, annotators)} for name in files[:3]]
    group = {"size": 9, "file": "none_of_these/group-1.txt", "disputed": ""}
    return {**group, "labels": [[name, 2] for name in labels], "items": shown}


def _votes(k: int, labels: list[str], annotators: list[str]) -> list[dict[str, Any]]:
    return [
        {"annotator": name, "label": labels[(k + (p == k % len(annotators))) % len(labels)], "weight": 1.0}
        for p, name in enumerate(annotators)
    ]


def _entry(k: int, files: list[str], labels: list[str], annotators: list[str]) -> dict[str, Any]:
    """Item k has the result k modulo the classes; one person said the next class. Every tenth item has no doubted answer."""
    label, other = labels[k % len(labels)], labels[(k + 1) % len(labels)]
    doubt = {"rank": k + 1, "annotator": annotators[k % len(annotators)], "answer": other, "suggestion": label}
    doubt["probability_wrong"] = round(0.99 - 0.9 * k / max(1, len(files)), 4)
    near = [{"item": files[(k + d) % len(files)], "label": label, "similarity": 0.95 - d / 100} for d in range(1, 6)]
    about = {"item": files[k], "label": label, "confidence": round(0.5 + ((37 * k) % 50) / 100, 4), "status": STATUSES[k % 4]}
    votes = {"votes": _votes(k, labels, annotators), "doubtful": [doubt] if k % 10 != 9 else []}
    return {**about, **votes, "model": [[label, 0.9], [other, 0.08]], "neighbors": near}


def _class_row(k: int, name: str, labels: list[str]) -> dict[str, Any]:
    counts = {"items": 50 + 7 * (k % 5), "answers": 150 + k, "majority_items": 48, "corrected": k, "unsure": (3 * k) % 7}
    shares = {"agreement": 0.6 + 0.3 * (k % 4) / 4, "confidence": 0.9, "doubtful_answers": 11 * k}
    return {"class": name, **counts, **shares, "confused": f"{name} -> {labels[0]} 3 of 50"}


def _person(name: str, own_CC: np.ndarray, labels: list[str]) -> dict[str, Any]:
    total, right = own_CC.sum(), float(np.trace(own_CC) / own_CC.sum())
    chance = float(own_CC.sum(axis=0) @ own_CC.sum(axis=1)) / total**2
    shares = {"agreement": right, "by_chance": chance, "above_chance": (right - chance) / (1 - chance)}
    classes = {f"right: {label}": float(own_CC[k, k] / own_CC[k].sum()) for k, label in enumerate(labels)}
    words = {"confused": f"{labels[0]} -> {labels[-1]} 5 of 40", "flags": "", "evidence": ""}
    return {"annotator": name, "answers": int(total), **shares, **classes, **words, "confusion": sparse(own_CC)}


def empty() -> dict[str, Any]:
    """A report on items that nobody answered."""
    whole, counts = report(1, 2, 1, images=False), dict.fromkeys(("gallery_of", "annotators_of", "examples_of"), 0)
    lists = {key: [] for key, value in whole.items() if isinstance(value, list)}
    return whole | lists | counts | {"confusion": sparse(np.zeros((0, 0))), "thumbs": {}}
