"""Camtrap DP (camtrap-dp.tdwg.org): the labels as media-based observations of a package that the images belong to.

Its deployments and media, which say where and when each image was taken, are taken over as they are; observations.csv and the
list of species in datapackage.json are new. An item is a medium by mediaID, by filePath, or by a file name that only one has.
"""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

import pandas as pd

from pals import __version__
from pals.label_formats.run_labels import LabelledItem, RunLabels
from pals.util.csv_text import write_csv
from pals.util.errors import InputError
from pals.util.files import read_object
from pals.util.words import how_many, listed

OBSERVATION_COLUMNS = (
    "observationID", "deploymentID", "mediaID", "eventID", "eventStart", "eventEnd", "observationLevel", "observationType",
    "cameraSetupType", "scientificName", "count", "lifeStage", "sex", "behavior", "individualID", "individualPositionRadius",
    "individualPositionAngle", "individualSpeed", "bboxX", "bboxY", "bboxWidth", "bboxHeight", "classificationMethod",
    "classifiedBy", "classificationTimestamp", "classificationProbability", "observationTags", "observationComments",
)  # fmt: skip
"""All columns of the standard, in its order; what is not known is blank."""
OBSERVATION_TYPES = {
    **dict.fromkeys(("blank", "empty", "nothing", "no animal", "none"), "blank"),
    **dict.fromkeys(("human", "person", "people"), "human"),
    **dict.fromkeys(("vehicle", "car"), "vehicle"),
    **{name: name for name in ("unknown", "unclassified")},
}
"""Type by class; every other class is an animal."""
MEDIA_COLUMNS = ("mediaID", "deploymentID", "timestamp", "filePath")
OBSERVATIONS = "observations"
TIME = "%Y-%m-%dT%H:%M:%SZ"


def write(labels: RunLabels, target: Path, *, package: Path | str | None) -> list[str]:
    """Fill the folder `target`."""
    if package is None:
        raise InputError(
            "Camtrap DP needs the place and the time of each image: name the folder of the package that the images belong to "
            "with --package (datapackage.json, deployments.csv, media.csv)."
        )
    folder = Path(package)
    about = read_object(folder / "datapackage.json")
    tables = {name: _resource(folder, about, name) for name in ("deployments", "media")}
    place_of, media = _places(tables["media"])
    row_of = [place_of.get(item.item, place_of.get(PurePosixPath(item.item).name)) for item in labels.items]
    missing = [item.item for item, row in zip(labels.items, row_of, strict=True) if row is None]
    if missing:
        count = how_many(len(missing), "item is", "items are")
        raise InputError(
            f"{count} not in {tables['media']}: {listed(missing, 3)}. Name the package that these images belong to."
        )
    species = _species(about)
    when = datetime.fromtimestamp((labels.folder / "labels.csv").stat().st_mtime, UTC).strftime(TIME)
    rows = [
        _observation(item, media[row], species, when) for item, row in zip(labels.items, row_of, strict=True) if row is not None
    ]
    for path in tables.values():
        shutil.copyfile(path, target / path.name)
    write_csv(target / f"{OBSERVATIONS}.csv", pd.DataFrame(rows, columns=list(OBSERVATION_COLUMNS)))
    names = {_name_of(item.label, species) for item in labels.items}
    new = sorted(name for name in names if name is not None and name not in species.values())
    (target / "datapackage.json").write_text(
        json.dumps(_package(about, tables, new), ensure_ascii=False, indent=2), encoding="utf-8"
    )
    lines = [f"The paths in {tables['media'].name} are those of {folder}; copy the export there, or its images here."]
    if new:
        count = how_many(len(new), "class is taken as a scientific name", "classes are taken as scientific names")
        lines.append(
            f"{count}: {listed(new, 5)}. List them with vernacularNames under `taxonomic` of datapackage.json to change that."
        )
    return lines


def _resource(folder: Path, about: dict[str, Any], name: str) -> Path:
    """The file of a table of the package."""
    for entry in about.get("resources", []):
        if isinstance(entry, dict) and entry.get("name") == name and isinstance(entry.get("path"), str):
            path = folder / str(entry["path"])
            if path.is_file() and path.resolve().is_relative_to(folder.resolve()):
                return path
            raise InputError(
                f"{folder / 'datapackage.json'}: the resource {name!r} is at {entry['path']}, not a file of {folder}."
            )
    raise InputError(f"{folder / 'datapackage.json'} has no resource {name!r} with a path. Name the folder of a Camtrap DP.")


def _places(path: Path) -> tuple[dict[str, int], list[dict[str, str]]]:
    """Rows of media.csv by mediaID, filePath and unique file name, and the rows."""
    try:
        table = pd.read_csv(path, dtype=str, keep_default_na=False)
    except (OSError, ValueError) as error:
        raise InputError(f"Cannot read {path}: {' '.join(str(error).split())}.") from None
    lacking = [name for name in MEDIA_COLUMNS if name not in table]
    if lacking:
        raise InputError(f"{path} has no column {lacking[0]!r}, which Camtrap DP requires.")
    names = table["fileName"] if "fileName" in table else table["filePath"].map(lambda text: PurePosixPath(text).name)
    single = names[~names.duplicated(keep=False)]
    rows: list[dict[str, str]] = table.to_dict("records")
    places = dict(zip(single, single.index.tolist(), strict=True))
    for column in ("filePath", "mediaID"):
        places |= {text: row for row, text in enumerate(table[column])}
    return places, rows


def _species(about: dict[str, Any]) -> dict[str, str]:
    """Scientific name by any name of a species, in lower case."""
    found = dict[str, str]()
    for entry in about.get("taxonomic") or []:
        if isinstance(entry, dict) and isinstance(name := entry.get("scientificName"), str):
            common = entry.get("vernacularNames") or {}
            found |= {str(text).casefold(): name for text in (*common.values(), name)}
    return found


def _name_of(label: str, species: dict[str, str]) -> str | None:
    """The scientific name of a class; None for classes that are no animals."""
    kind = OBSERVATION_TYPES.get(label.casefold(), "animal")
    return species.get(label.casefold(), label) if kind == "animal" else None


def _observation(item: LabelledItem, medium: dict[str, str], species: dict[str, str], when: str) -> dict[str, object]:
    """One row of observations.csv: a known label is a human's, any other is the machine's with its probability."""
    found = {
        "observationID": f"pals-{medium['mediaID']}",
        **{name: medium[name] for name in ("deploymentID", "mediaID")},
        **dict.fromkeys(("eventStart", "eventEnd"), medium["timestamp"]),
        "observationLevel": "media",
        "observationType": OBSERVATION_TYPES.get(item.label.casefold(), "animal"),
        "scientificName": _name_of(item.label, species),
    }
    if item.row["status"] == "gold":
        return {**found, "classificationMethod": "human"}
    machine = {"classificationMethod": "machine", "classifiedBy": f"PALS {__version__}", "classificationTimestamp": when}
    return {**found, **machine, "classificationProbability": round(item.confidence, 6)}


def _package(about: dict[str, Any], tables: dict[str, Path], new: list[str]) -> dict[str, Any]:
    """datapackage.json with the observations as a resource, of the same version of the standard as the media."""
    kept = [
        {**entry, "path": tables[entry["name"]].name}
        for entry in about["resources"]
        if isinstance(entry, dict) and entry.get("name") in tables
    ]
    (media,) = (entry for entry in kept if entry["name"] == "media")
    observations = {**media, "name": OBSERVATIONS, "path": f"{OBSERVATIONS}.csv"}
    if isinstance(media.get("schema"), str):
        observations["schema"] = media["schema"].replace("media-table-schema", f"{OBSERVATIONS}-table-schema")
    species = [*(about.get("taxonomic") or []), *({"scientificName": name} for name in new)]
    now = datetime.now(UTC).strftime(TIME)
    return {**about, "created": now, "resources": [*kept, observations], "taxonomic": species}
