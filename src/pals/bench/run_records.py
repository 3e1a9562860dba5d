"""What came of runs: read from their folders, or from records of them (one JSON line per run)."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from pals.bench.jobs import changes
from pals.bench.paper.experiment import Recipe
from pals.runs.run_config import DataConfig
from pals.runs.run_folder import load_run_config
from pals.runs.run_json import refuse_strange
from pals.training.run_log import read_epochs
from pals.util.config import read_yaml
from pals.util.errors import InputError
from pals.util.files import read_json_lines, read_object, write_text

RECORDS = "results.jsonl"
"""Below the folder of a bench: a record of each of its finished runs."""


@dataclass(frozen=True)
class Result:
    """A finished run. Accuracies are per cent of the test items after the LAST epoch; nothing was chosen by them."""

    recipe: str | None
    "Name of the recipe that it was started as; others may share the run."
    run: str
    "Its folder below that of the bench: cell/variant/schedule/seed-1."
    data: str
    method: str
    network: str
    seed: int
    epochs: int
    accuracy: float
    class_accuracy: float | None
    seconds: float
    "All epochs, without warm-up."
    epoch_seconds: float
    "Median epoch of the last phase, without warm-up."
    warmup_seconds: float
    "Compilation and the like."
    items: int
    protocol: str | None
    "How candidate sets were drawn; None: they were not made."
    nominal_noise: float | None
    effective_noise: float | None
    "Share of the candidate sets without the true label."
    hardware: str
    commit: str | None
    created: str
    command: str
    versions: Mapping[str, str] = field(default_factory=dict)
    at_a_time: int = 1
    "Runs that shared the device; the times of more than one are not those of one."
    changed: tuple[str, ...] = ()
    "Settings that were not the recipe's (--set)."
    folder: str = ""
    "Where it was read from."

    @property
    def timed(self) -> bool:
        """Whether it had its device to itself, so that its times say something."""
        return self.at_a_time == 1


def read_result(folder: Path) -> Result:
    """Of one finished run."""
    refuse_strange(folder)
    settings = read_yaml(folder / "config.yaml")
    if not (folder / "summary.json").exists():
        raise InputError(f"{folder} holds a run that is not finished. Run the command that started it to continue.")
    summary, about = read_object(folder / "summary.json"), read_object(folder / "run.json")
    if "test_accuracy" not in summary:
        raise InputError(f"{folder} holds a run without test items (`pals fit`?): there is no accuracy to collect.")
    try:
        return _result(folder, settings, summary, about)
    except (LookupError, TypeError) as error:
        raise InputError(f"{folder} holds a run whose files were changed ({error}). Restore them, or run it again.") from None


def _result(folder: Path, settings: Mapping[str, Any], summary: Mapping[str, Any], about: Mapping[str, Any]) -> Result:
    epochs = read_epochs(folder)
    seconds = [event["seconds"] - event.get("warmup_seconds", 0.0) for event in epochs]
    last = [took for event, took in zip(epochs, seconds, strict=True) if event["phase"] == epochs[-1]["phase"]]
    made = "nominal_noise" in summary
    return Result(
        recipe=about.get("recipe"),
        run="/".join(folder.resolve().parts[-4:]),
        data=settings["data"]["name"],
        method=settings["method"]["name"],
        network=settings["network"]["name"],
        seed=settings["seed"],
        epochs=settings["train"]["epochs"],
        accuracy=100 * summary["test_accuracy"],
        class_accuracy=100 * summary["test_class_accuracy"] if "test_class_accuracy" in summary else None,
        seconds=round(sum(seconds), 2),
        epoch_seconds=round(statistics.median(last), 4) if last else 0.0,
        warmup_seconds=round(sum(event.get("warmup_seconds", 0.0) for event in epochs), 2),
        items=summary["items"],
        protocol=settings["data"].get("protocol", DataConfig.protocol) if made else None,
        nominal_noise=summary.get("nominal_noise"),
        effective_noise=summary.get("effective_noise"),
        hardware=summary["engine"],
        commit=about.get("commit"),
        created=about["created"],
        command=" ".join(["pals", *about["command"][1:]]),
        versions={name: about[name] for name in ("pals", "torch", "python")},
        at_a_time=about.get("at_a_time", 1),
        changed=tuple(about.get("changed", ())),
        folder=str(folder),
    )


def record(folder: Path) -> dict[str, Any]:
    """A result as one JSON object; `read_records` reads it back. Where the folder lies on this machine is left out."""
    values = asdict(read_result(folder))
    del values["folder"]
    return {**values, "changed": list(values["changed"])}


def write_records(base: Path) -> Path:
    """A record of every finished run below `base`, in one file."""
    folders = sorted(summary.parent for summary in base.glob("*/*/*/seed-*/summary.json"))
    path = base / RECORDS
    write_text(path, "".join(json.dumps(record(folder)) + "\n" for folder in folders))
    return path


def read_records(path: Path) -> list[Result]:
    if not path.exists():
        raise InputError(f"{path} does not exist.")
    known = {item.name for item in fields(Result)}
    needed = {item.name for item in fields(Result) if item.default is MISSING and item.default_factory is MISSING}
    results = []
    for number, values in enumerate(read_json_lines(path), start=1):
        missing = needed - set(values)
        if missing or set(values) - known:
            wrong = f"lacks {sorted(missing)[0]}" if missing else f"has an unknown {sorted(set(values) - known)[0]}"
            raise InputError(f"{path}, line {number} is not a record of a run: it {wrong}.")
        results.append(Result(**{**values, "changed": tuple(values.get("changed", ()))}))
    return results


def collect(recipes: Iterable[Recipe], base: Path, epochs: int | None = None) -> dict[str, list[Result]]:
    """By recipe: the finished runs below `base`, of all seeds, of the full schedule or the one with so many epochs. Runs made
    with other settings than the recipe's (by --set) are an error: their numbers are not its numbers."""
    found: dict[str, list[Result]] = {}
    for recipe in recipes:
        above = recipe.folder(base, 1, epochs).parent
        results = [read_result(summary.parent) for summary in above.glob("seed-*/summary.json")]
        for result in results:
            _refuse_changes(recipe, result, epochs)
        found[recipe.name] = sorted(results, key=lambda result: result.seed)
    return found


def _refuse_changes(recipe: Recipe, result: Result, epochs: int | None) -> None:
    wanted = recipe.config(result.seed, epochs)
    changed = changes(wanted, load_run_config(Path(result.folder), expected=wanted))
    if changed:
        key, own, found = changed[0]
        raise InputError(
            f"{result.folder} was not run as {recipe.name} says: {key} is {found!r} and not {own!r}. "
            "Keep runs with other settings in a folder of their own (--out), or write a grid for them."
        )
