"""Label Studio without Label Studio: what it demands of tasks that are imported, and what it exports once people answered.

After its documentation (labelstud.io: Basic Label Studio JSON format; Import pre-annotated data; Label Studio JSON format of
annotated tasks; JSON_MIN; tags Choices, Taxonomy, Rating), the checks that it makes on import, and exports of version 1.23.2.
"""

from __future__ import annotations

from typing import Any


def _object(required: tuple[str, ...], more: bool = True, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(required), "properties": properties, "additionalProperties": more}


TEXT, SHARE = {"type": "string"}, {"type": "number", "minimum": 0, "maximum": 1}
NAMES = {"type": "array", "minItems": 1, "items": TEXT}
VALUES = {"choices": NAMES, "taxonomy": {"type": "array", "minItems": 1, "items": NAMES}}
RESULT: dict[str, Any] = {
    **_object(("from_name", "to_name", "type", "value"), id=TEXT, from_name=TEXT, to_name=TEXT, score=SHARE),
    "oneOf": [
        {"properties": {"type": {"const": kind}, "value": _object((kind,), False, **{kind: form})}}
        for kind, form in VALUES.items()
    ],
}
PREDICTION = _object(("result",), False, model_version=TEXT, score=SHARE, result={"type": "array", "items": RESULT})
DATA = {"type": "object", "minProperties": 1, "additionalProperties": {"type": ["string", "number"]}}
PREDICTIONS = {"type": "array", "items": PREDICTION}
TASKS: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "array",
    "items": _object(("data",), False, data=DATA, meta={"type": "object"}, predictions=PREDICTIONS),
}
"""Tasks to import."""

Given = dict[str, Any]
"""An answer: the choice (or a path), and whatever else an annotation has; `unsure`, `stars` for the second question."""


def exported(tasks: list[dict[str, Any]], given: dict[int, list[Given]], project: int = 7) -> list[dict[str, Any]]:
    """The full export (JSON) once people have answered the tasks with these places."""
    done, annotation_id = [], 100
    for place, task in enumerate(tasks):
        annotations, number = [], place + 1
        for answer in given.get(place, []):
            annotation_id += 1
            annotations.append(_annotation(task, dict(answer), annotation_id, project))
        about = {"id": number, "inner_id": number, "project": project, "created_at": "2026-01-05T10:00:00.000000Z"}
        lists = {"annotations": annotations, "drafts": [], "predictions": [number], "total_annotations": len(annotations)}
        done.append({**about, **lists, "data": task["data"], "meta": task["meta"]})
    return done


def _annotation(task: dict[str, Any], answer: Given, number: int, project: int) -> dict[str, Any]:
    asked = {key: value for key, value in task["predictions"][0]["result"][0].items() if key not in ("id", "score")}
    result = [{**asked, "id": "pals-1", "origin": "prediction-changed", "value": {asked["type"]: [answer.pop("choice")]}}]
    if answer.pop("unsure", False):
        second = {**asked, "from_name": "sure", "type": "choices", "value": {"choices": ["unsure"]}}
        result.append({**second, "id": f"s{number}", "origin": "manual"})
    at = f"2026-01-05T10:{number % 60:02}:00.000000Z"
    times = {"created_at": at, "updated_at": at, "draft_created_at": None, "lead_time": 4.5}
    predicted = {"prediction": {"id": number, "created_ago": "1 hour", **task["predictions"][0]}, "parent_prediction": number}
    about = {"id": number, "completed_by": answer.pop("who"), "was_cancelled": False, "ground_truth": False, "project": project}
    return {**about, **times, **predicted, "result": result, **answer}


def exported_min(export: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """JSON_MIN of the same: one row per annotation that was not skipped, data beside answers."""
    rows = []
    for task in export:
        for annotation in task["annotations"]:
            if annotation["was_cancelled"]:
                continue
            said = {result["from_name"]: _small(result) for result in annotation["result"]}
            about = {key: annotation[key] for key in ("created_at", "updated_at", "lead_time")}
            who = {"annotator": annotation["completed_by"], "annotation_id": annotation["id"]}
            rows.append({**task["data"], "id": task["id"], **said, **who, **about})
    return rows


def _small(result: dict[str, Any]) -> Any:
    if result["type"] != "choices":
        return [result["value"]]
    choices = result["value"]["choices"]
    return choices[0] if len(choices) == 1 else {"choices": choices}
