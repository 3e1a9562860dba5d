"""Camtrap DP: observations with the keys, types and columns that version 1.0.2 of the standard requires."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from _toy import Answer

Exporting = Callable[..., Path]
VERSION = "https://raw.githubusercontent.com/tdwg/camtrap-dp/1.0.2"
TIME = "%Y-%m-%dT%H:%M:%S%z"
TYPES = ["animal", "human", "vehicle", "blank", "unknown", "unclassified"]


def field(name: str, kind: str = "string", required: bool = False, **more: Any) -> dict[str, Any]:
    form = {"format": TIME} if kind == "datetime" else {}
    return {"name": name, "type": kind, **form, "constraints": {"required": required, **more}}


SCHEMA: dict[str, Any] = {
    "primaryKey": "observationID",
    "foreignKeys": [
        {"fields": f"{name}ID", "reference": {"resource": table, "fields": f"{name}ID"}}
        for name, table in (("deployment", "deployments"), ("media", "media"))
    ],
    "fields": [
        field("observationID", required=True, unique=True),
        field("deploymentID", required=True),
        *map(field, ("mediaID", "eventID")),
        field("eventStart", "datetime", required=True),
        field("eventEnd", "datetime", required=True),
        field("observationLevel", required=True, enum=["media", "event"]),
        field("observationType", required=True, enum=TYPES),
        *map(field, ("cameraSetupType", "scientificName")),
        field("count", "integer", minimum=1),
        *map(field, ("lifeStage", "sex", "behavior", "individualID")),
        *(field(f"individual{name}", "number") for name in ("PositionRadius", "PositionAngle", "Speed")),
        *(field(f"bbox{name}", "number", minimum=0, maximum=1) for name in ("X", "Y", "Width", "Height")),
        field("classificationMethod", enum=["human", "machine"]),
        field("classifiedBy"),
        field("classificationTimestamp", "datetime"),
        field("classificationProbability", "number", minimum=0, maximum=1),
        *map(field, ("observationTags", "observationComments")),
    ],
}
"""The columns of observations.csv in the standard's order, with its constraints; a table without one of them is not valid."""


@pytest.fixture
def package(tmp_path: Path, labels: pd.DataFrame) -> Path:
    """The package that the run's images belong to: named by path, by file name, and by mediaID."""
    folder = tmp_path / "package"
    folder.mkdir()
    resources = [
        {
            "name": name,
            "path": f"{name}.csv",
            "profile": "tabular-data-resource",
            "schema": f"{VERSION}/{name}-table-schema.json",
        }
        for name in ("deployments", "media", "observations")
    ]
    about = {
        "resources": resources,
        "profile": f"{VERSION}/camtrap-dp-profile.json",
        "created": "2025-01-01T00:00:00Z",
        "project": {"title": "Ponds"},
        "taxonomic": [{"scientificName": "Triturus cristatus", "vernacularNames": {"eng": "Newt"}}],
    }
    (folder / "datapackage.json").write_text(json.dumps(about))
    (folder / "deployments.csv").write_text(
        "deploymentID,latitude,longitude,deploymentStart,deploymentEnd\nd1,52.1,5.4,2025-05-01T00:00:00Z,2025-06-01T00:00:00Z\n"
    )
    media = pd.DataFrame({"filePath": [f"media/{name}" if name[:4] != "pond" else name for name in labels.index]})
    media.insert(0, "mediaID", ["a.jpg" if name == "a.jpg" else f"m{row}" for row, name in enumerate(labels.index)])
    media.insert(1, "deploymentID", "d1")
    media.insert(2, "timestamp", [f"2025-05-02T03:04:{row:02}+0200" for row in range(len(media))])
    media.to_csv(folder / "media.csv", index=False)
    return folder


def test_observations(export: Exporting, package: Path, labels: pd.DataFrame) -> None:
    made = export("camtrap-dp", "--package", package)
    found = pd.read_csv(made / "observations.csv", dtype=str, keep_default_na=False)
    assert [entry["name"] for entry in SCHEMA["fields"]] == list(found)
    required = [entry["name"] for entry in SCHEMA["fields"] if entry["constraints"]["required"]]
    assert (found[required] != "").all(axis=None) and found["observationID"].is_unique
    name_of = {"newt": "Triturus cristatus", "frog/toad": "frog/toad", "none": ""}
    assert found["scientificName"].tolist() == [name_of[label] for label in labels["label"]]
    assert found["observationType"].tolist() == ["blank" if label == "none" else "animal" for label in labels["label"]]
    assert found["eventStart"][7] == "2025-05-02T03:04:07+0200" and "a.jpg" in set(found["mediaID"])
    by_human = found[labels.reset_index()["status"] == "gold"]
    assert (
        len(by_human) == 3
        and set(by_human["classificationMethod"]) == {"human"}
        and set(by_human["classificationProbability"]) == {""}
    )
    about = json.loads((made / "datapackage.json").read_text())
    assert about["resources"][2]["schema"] == f"{VERSION}/observations-table-schema.json"
    assert [entry["scientificName"] for entry in about["taxonomic"]] == ["Triturus cristatus", "frog/toad"]
    frictionless = pytest.importorskip("frictionless")
    tables = [{"name": name, "path": f"{name}.csv"} for name in ("deployments", "media")]
    checked = frictionless.Package.from_descriptor(
        {"resources": [*tables, {"name": "observations", "path": "observations.csv", "schema": SCHEMA}]}, basepath=str(made)
    )
    report = checked.validate()
    assert report.valid, report.flatten(["type", "note"])


@pytest.mark.parametrize(
    ("damage", "word"),
    [
        (None, "--package"),
        ("datapackage.json", "datapackage.json"),
        ("media.csv", "media"),
        ("no such image", "not in"),
        ("no timestamp", "timestamp"),
    ],
)
def test_a_package_that_does_not_fit(
    damage: str | None, word: str, package: Path, pals: Callable[..., Answer], run: Path
) -> None:
    media = pd.read_csv(package / "media.csv")
    if damage == "no such image":
        media[1:].to_csv(package / "media.csv", index=False)
    elif damage == "no timestamp":
        media.drop(columns="timestamp").to_csv(package / "media.csv", index=False)
    elif damage is not None:
        (package / damage).unlink()
    answer = pals("export", run, "--to", "camtrap-dp", "--out", "made", *(["--package", package] if damage else []))
    assert answer.code == 2 and word in answer.err and not Path("made").exists()
