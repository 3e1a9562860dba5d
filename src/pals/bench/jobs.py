"""Which runs a set of recipes asks for, where each has its folder, and how far it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pals.bench.paper.experiment import Recipe
from pals.runs.run_config import RunConfig
from pals.runs.run_folder import load_run_config
from pals.training.checkpoint import refuse_other_settings
from pals.training.run_log import read_epochs
from pals.util.config import differences
from pals.util.errors import InputError

OF_THE_MACHINE = {"engine.device", "engine.compile", "train.feature_batch", "train.checkpoint_every"}
"""Settings on which the numbers of a run do not depend, apart from rounding."""


@dataclass(frozen=True)
class Job:
    """One run of a recipe."""

    recipe: Recipe
    seed: int
    epochs: int | None
    "None: the recipe's own schedule; else shortened to this many."
    folder: Path
    config: RunConfig

    @property
    def name(self) -> str:
        return f"{self.recipe.name} seed {self.seed}"


class State(NamedTuple):
    """How far a run is."""

    kind: Literal["done", "cut off", "missing"]
    epoch: int = 0
    "The last that was logged, of its phase."
    epochs: int = 0
    "That its phase has."
    phase: str = "main"
    total_epoch: int = 0
    "As `epoch`, counted over all phases."

    def __str__(self) -> str:
        if self.kind != "cut off":
            return self.kind
        return f"cut off at {'' if self.phase == 'main' else f'{self.phase} '}epoch {self.epoch} of {self.epochs}"


def plan(
    recipes: Iterable[Recipe],
    seeds: Sequence[int],
    epochs: int | None = None,
    base: Path = Path("runs/bench"),
    extra: Mapping[str, Any] | None = None,
) -> list[Job]:
    """One job for each run folder, ordered so that those of one kind follow each other: what was compiled serves them all.
    Recipes with the same settings share their run."""
    jobs: dict[Path, Job] = {}
    for recipe in recipes:
        for seed in seeds:
            folder = recipe.folder(base, seed, epochs)
            job = Job(recipe, seed, epochs, folder, _config(recipe, seed, epochs, extra))
            first = jobs.setdefault(folder, job)
            if first.config != job.config:
                raise InputError(f"{first.recipe.name} and {recipe.name} have different settings but one folder, {folder}.")
    kinds = list(dict.fromkeys(kind(job.config) for job in jobs.values()))
    methods = list(dict.fromkeys(job.config.method_name for job in jobs.values()))
    place = {name: number for number, name in enumerate((*kinds, *methods))}
    return sorted(jobs.values(), key=lambda job: (place[kind(job.config)], place[job.config.method_name], job.seed))


def _config(recipe: Recipe, seed: int, epochs: int | None, extra: Mapping[str, Any] | None) -> RunConfig:
    """With several methods a setting may be one that only some of them have."""
    try:
        return recipe.config(seed, epochs, extra)
    except InputError as error:
        raise InputError(f"{recipe.name}: {error}") from None


def kind(config: RunConfig) -> tuple[Any, ...]:
    """What compiled networks depend on: runs that agree in this can share them."""
    train, network = config.train, config.network
    return (config.data.name, network.name, network.frozen, network.head, train.batch_size, train.feature_batch, config.engine)


def state(folder: Path, config: RunConfig | None = None) -> State:
    """How far the run in a folder is. With `config` given, a folder with other settings is an error; what is done may have
    been done on another machine."""
    if not (folder / "config.yaml").exists():
        return State("missing")
    found = load_run_config(folder, expected=config)
    done = (folder / "summary.json").exists()
    if config is not None and (not done or changes(found, config)):
        refuse_other_settings(folder / "config.yaml", found.to_dict(), config.to_dict())
    if done:
        return State("done")
    if not (folder / "checkpoint.pt").exists():
        return State("missing")  # cut off before there was anything to go on from
    logged = read_epochs(folder)
    if not logged:
        return State("cut off", 0, found.train.epochs)
    last, epochs = logged[-1], found.train.epochs
    return State("cut off", last["epoch"], last.get("epochs", epochs), last["phase"], last["total_epoch"])


def changes(one: RunConfig, other: RunConfig) -> list[tuple[str, Any, Any]]:
    """Settings in which two runs differ, apart from those of the machine: (key, value of one, value of the other)."""
    return [change for change in differences(one.to_dict(), other.to_dict()) if change[0] not in OF_THE_MACHINE]
