"""Results of finished runs: read from their folders, or from records of them (one JSON line per run)."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from pals.bench.jobs import changes
from pals.bench.paper.experiments import Experiment
from pals.runs.run_folder import load_run_config
from pals.runs.run_json import refuse_strange
from pals.training.run_log import read_epochs
from pals.util.config import read_yaml
from pals.util.errors import InputError
from pals.util.files import read_json_lines, read_object, write_text

RECORDS_FILE = "results.jsonl"
"""Below the folder of a bench: a record of each of its finished runs."""


@dataclass(frozen=True)
class RunResult:
    """A finished run. Accuracies are per cent of the test items after the LAST epoch; nothing was chosen by them."""

    recipe: str | None
    "Name of the experiment that it was started as; others may share the run."
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
    "Fraction of the candidate sets without the true label."
    hardware: str
    commit: str | None
    created: str
    command: str
    versions: Mapping[str, str] = field(default_factory=dict)
    at_a_time: int = 1
    "Runs that shared the device; the times of more than one are not those of one."
    changed: tuple[str, ...] = ()
    "Settings that were not the experiment's (--set)."
    folder: str = ""
    "The run folder that it was read from."

    @property
    def timed(self) -> bool:
        """Whether it had its device to itself, so that its times can be compared."""
        return self.at_a_time == 1


def read_result(folder: Path) -> RunResult:
    """The result of one finished run.

    Args:
        folder: of the run.

    Raises:
        InputError: if the folder holds no run, or one that is not finished, has no test items or was damaged.
    """
    refuse_strange(folder)
    config = read_yaml(folder / "config.yaml")
    if not (folder / "summary.json").exists():
        raise InputError(f"{folder} holds a run that is not finished. Run the command that started it to continue.")
    summary, about = read_object(folder / "summary.json"), read_object(folder / "run.json")
    if "test_accuracy" not in summary:
        raise InputError(f"{folder} holds a run without test items (`pals fit`?): there is no accuracy to collect.")
    epochs = read_epochs(folder)
    try:
        seconds = [event["seconds"] - event.get("warmup_seconds", 0.0) for event in epochs]
        last = [took for event, took in zip(epochs, seconds, strict=True) if event["phase"] == epochs[-1]["phase"]]
        return RunResult(
            recipe=about.get("recipe"),
            run="/".join(folder.resolve().parts[-4:]),
            data=config["data"]["name"],
            method=config["method"]["name"],
            network=config["network"]["name"],
            seed=config["seed"],
            epochs=config["train"]["epochs"],
            accuracy=100 * summary["test_accuracy"],
            class_accuracy=100 * summary["test_class_accuracy"] if "test_class_accuracy" in summary else None,
            seconds=round(sum(seconds), 2),
            epoch_seconds=round(statistics.median(last), 4) if last else 0.0,
            warmup_seconds=round(sum(event.get("warmup_seconds", 0.0) for event in epochs), 2),
            items=summary["items"],
            protocol=config["data"].get("protocol") if "nominal_noise" in summary else None,
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
    except (LookupError, TypeError) as error:
        raise InputError(f"{folder} holds a run whose files were changed ({error}). Restore them, or run it again.") from None


def record(folder: Path) -> dict[str, Any]:
    """A result as one JSON object, without the location of its folder on this machine; `read_records` reads it back.

    Args:
        folder: of the run.
    """
    values = asdict(read_result(folder))
    del values["folder"]
    return {**values, "changed": list(values["changed"])}


def write_records(base: Path) -> Path:
    """Write a record of every finished run below a folder into one file in it.

    Args:
        base: folder of a bench.

    Returns:
        The file.
    """
    folders = sorted(summary.parent for summary in base.glob("*/*/*/seed-*/summary.json"))
    path = base / RECORDS_FILE
    write_text(path, "".join(json.dumps(record(folder)) + "\n" for folder in folders))
    return path


def read_records(path: Path) -> list[RunResult]:
    """Results from a file of records.

    Args:
        path: a file with one JSON object per line.

    Raises:
        InputError: if it does not exist or a line is not a record; it names the line.
    """
    if not path.exists():
        raise InputError(f"{path} does not exist.")
    known = {item.name for item in fields(RunResult)}
    needed = {item.name for item in fields(RunResult) if item.default is MISSING and item.default_factory is MISSING}
    results = []
    for number, values in enumerate(read_json_lines(path), start=1):
        missing = needed - set(values)
        if missing or set(values) - known:
            wrong = f"lacks {sorted(missing)[0]}" if missing else f"has an unknown {sorted(set(values) - known)[0]}"
            raise InputError(f"{path}, line {number} is not a record of a run: it {wrong}.")
        results.append(RunResult(**{**values, "changed": tuple(values.get("changed", ()))}))
    return results


def collect(experiments: Iterable[Experiment], base: Path, epochs: int | None = None) -> dict[str, list[RunResult]]:
    """The finished runs of experiments, of all seeds, from the folder of a bench.

    Args:
        experiments: whose runs to collect.
        base: folder of the bench.
        epochs: of a shortened schedule; by default runs of the full one.

    Returns:
        Results by the experiment's name, ordered by seed.

    Raises:
        InputError: if a run has other settings than its experiment (by --set): its numbers are not those of the experiment.
    """
    found: dict[str, list[RunResult]] = {}
    for experiment in experiments:
        above = experiment.folder(base, 1, epochs).parent
        results = [read_result(summary.parent) for summary in above.glob("seed-*/summary.json")]
        for result in results:
            config = experiment.config(result.seed, epochs)
            changed = changes(config, load_run_config(Path(result.folder), expected=config))
            if changed:
                key, expected, value = changed[0]
                raise InputError(
                    f"{result.folder} was not run as {experiment.name} says: {key} is {value!r} and not {expected!r}. "
                    "Keep runs with other settings in a folder of their own (--out), or write a grid for them."
                )
        found[experiment.name] = sorted(results, key=lambda result: result.seed)
    return found
