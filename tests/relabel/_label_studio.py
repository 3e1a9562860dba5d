"""Label Studio without Label Studio: what it demands of tasks that are imported, and what it exports once people answered.

After its documentation (labelstud.io: Basic Label Studio JSON format; Import pre-annotated data; Label Studio JSON format of
annotated tasks; JSON_MIN; tags Choices, Taxonomy, Rating), the checks that it makes on import, and exports of version 1.23.2.
"""

from __future__ import annotations

from typing import Any

RESULT: dict[str, Any] = {
    "type": "object",
    "required": ["from_name", "to_name", "type", "value"],
    "properties": {
        "id": {"type": "string"},
        "from_name": {"type": "string"},
        "to_name": {"type": "string"},
        "score": {"type": "number", "minimum": 0, "maximum": 1},
    },
    "oneOf": [
        {
            "properties": {
                "type": {"const": "choices"},
                "value": {
                    "type": "object",
                    "required": ["choices"],
                    "properties": {"choices": {"type": "array", "minItems": 1, "items": {"type": "string"}}},
                    "additionalProperties": False,
                },
            }
        },
        {
            "properties": {
                "type": {"const": "taxonomy"},
                "value": {
                    "type": "object",
                    "required": ["taxonomy"],
                    "properties": {
                        "taxonomy": {
                            "type": "array",
                            "minItems": 1,
                            "items": {"type": "array", "minItems": 1, "items": {"type": "string"}},
                        }
                    },
                    "additionalProperties": False,
                },
            }
        },
    ],
}
PREDICTION: dict[str, Any] = {
    "type": "object",
    "required": ["result"],
    "properties": {
        "model_version": {"type": "string"},
        "score": {"type": "number", "minimum": 0, "maximum": 1},
        "result": {"type": "array", "items": RESULT},
    },
    "additionalProperties": False,
}
TASKS: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "array",
    "items": {
        "type": "object",
        "required": ["data"],
        "properties": {
            "data": {"type": "object", "minProperties": 1, "additionalProperties": {"type": ["string", "number"]}},
            "meta": {"type": "object"},
            "predictions": {"type": "array", "items": PREDICTION},
        },
        "additionalProperties": False,
    },
}
"""Tasks to import."""

Given = dict[str, Any]
"""An answer: the choice (or a path), and whatever else an annotation has; `unsure`, `stars` for the second question."""


def exported(tasks: list[dict[str, Any]], given: dict[int, list[Given]], project: int = 7) -> list[dict[str, Any]]:
    """The full export (JSON) once people have answered the tasks with these places."""
    done, annotation_id = [], 100
    for place, task in enumerate(tasks):
        annotations = []
        for answer in given.get(place, []):
            annotation_id += 1
            annotations.append(_annotation(task, dict(answer), annotation_id, project))
        number = place + 1
        done.append(
            {
                "id": number,
                "annotations": annotations,
                "drafts": [],
                "predictions": [number],
                "data": task["data"],
                "meta": task["meta"],
                "created_at": "2026-01-05T10:00:00.000000Z",
                "inner_id": number,
                "total_annotations": len(annotations),
                "project": project,
            }
        )
    return done


def _annotation(task: dict[str, Any], answer: Given, number: int, project: int) -> dict[str, Any]:
    asked = {key: value for key, value in task["predictions"][0]["result"][0].items() if key not in ("id", "score")}
    result = [{**asked, "id": "pals-1", "origin": "prediction-changed", "value": {asked["type"]: [answer.pop("choice")]}}]
    if answer.pop("unsure", False):
        second = {**asked, "from_name": "sure", "type": "choices", "value": {"choices": ["unsure"]}}
        result.append({**second, "id": f"s{number}", "origin": "manual"})
    return {
        "id": number,
        "completed_by": answer.pop("who"),
        "result": result,
        "was_cancelled": False,
        "ground_truth": False,
        "created_at": f"2026-01-05T10:{number % 60:02}:00.000000Z",
        "updated_at": f"2026-01-05T10:{number % 60:02}:00.000000Z",
        "draft_created_at": None,
        "lead_time": 4.5,
        "prediction": {"id": number, "created_ago": "1 hour", **task["predictions"][0]},
        "parent_prediction": number,
        "project": project,
        **answer,
    }


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
