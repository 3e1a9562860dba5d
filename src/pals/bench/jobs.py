"""The runs that a set of experiments needs: where each has its folder, and how far it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pals.bench.paper.experiments import Experiment
from pals.runs.run_config import RunConfig
from pals.runs.run_folder import load_run_config
from pals.training.checkpoint import refuse_other_settings
from pals.training.run_log import read_epochs
from pals.util.config import differences
from pals.util.errors import InputError

MACHINE_SETTINGS = {"engine.device", "engine.compile", "train.feature_batch", "train.checkpoint_every"}
"""Settings on which the numbers of a run do not depend, apart from rounding."""


@dataclass(frozen=True)
class Job:
    """One planned run of an experiment."""

    experiment: Experiment
    seed: int
    epochs: int | None
    "None: the experiment's own schedule; else shortened to this many."
    folder: Path
    config: RunConfig
    changed: tuple[str, ...] = ()
    "Settings that are not the experiment's (--set), apart from those of the machine."

    @property
    def name(self) -> str:
        return f"{self.experiment.name} seed {self.seed}"


def plan(
    experiments: Iterable[Experiment],
    seeds: Sequence[int],
    epochs: int | None = None,
    base: Path = Path("runs/bench"),
    extra: Mapping[str, Any] | None = None,
) -> list[Job]:
    """One job for each run folder, in an order in which runs that can share compiled networks follow each other.

    Args:
        experiments: those with the same settings share their runs.
        seeds: of each experiment.
        epochs: shorten every schedule to this many; by default each has its own.
        base: folder for all runs.
        extra: settings that win over those of the experiments.

    Raises:
        InputError: if a setting in `extra` is wrong, or two experiments with different settings have one folder.

    >>> from pals.bench.paper.experiments import select
    >>> jobs = plan(select("figure2"), seeds=[1, 2], epochs=10)
    >>> [job.folder.as_posix() for job in jobs]  # doctest: +NORMALIZE_WHITESPACE
    ['runs/bench/cifar100-q0.05-eta0.3-g1/pals/epochs-10/seed-1',
     'runs/bench/cifar100-q0.05-eta0.3-g1/pals/epochs-10/seed-2']
    """
    jobs: dict[Path, Job] = {}
    for experiment in experiments:
        for seed in seeds:
            folder = experiment.folder(base, seed, epochs)
            try:
                config = experiment.config(seed, epochs, extra)
            except InputError as error:  # of several methods perhaps only some have the setting
                raise InputError(f"{experiment.name}: {error}") from None
            changed = tuple(key for key, _, _ in changes(experiment.config(seed, epochs), config)) if extra else ()
            first = jobs.setdefault(folder, Job(experiment, seed, epochs, folder, config, changed))
            if first.config != config:
                raise InputError(f"{first.experiment.name} and {experiment.name} have one folder, {folder}, and other settings")
    kinds = list(dict.fromkeys(run_kind(job.config) for job in jobs.values()))
    methods = list(dict.fromkeys(job.config.method_name for job in jobs.values()))
    rank = {name: number for number, name in enumerate((*kinds, *methods))}
    return sorted(jobs.values(), key=lambda job: (rank[run_kind(job.config)], rank[job.config.method_name], job.seed))


def run_kind(config: RunConfig) -> tuple[Any, ...]:
    """What compiled networks depend on: runs that agree in this can share them."""
    train, network = config.train, config.network
    return (config.data.name, network.name, network.frozen, network.head, train.batch_size, train.feature_batch, config.engine)


class State(NamedTuple):
    """The progress of a run."""

    kind: Literal["done", "cut off", "missing"]
    epoch: int = 0
    "The last logged epoch, counted within its phase."
    epochs: int = 0
    "Epochs of that phase."
    phase: str = "main"
    total_epoch: int = 0
    "The last logged epoch, counted over all phases."

    def __str__(self) -> str:
        if self.kind != "cut off":
            return self.kind
        return f"cut off at {'' if self.phase == 'main' else f'{self.phase} '}epoch {self.epoch} of {self.epochs}"


def state(folder: Path, config: RunConfig | None = None) -> State:
    """The progress of the run in a folder.

    Args:
        folder: of the run; it need not exist.
        config: the settings that the run must have, if that is to be checked. A finished run may have been made on another
            machine.

    Raises:
        InputError: if the folder holds a run with other settings.
    """
    if not (folder / "config.yaml").exists():
        return State("missing")
    found = load_run_config(folder, expected=config)
    done = (folder / "summary.json").exists()
    if config is not None and (not done or changes(found, config)):
        refuse_other_settings(folder / "config.yaml", found.to_dict(), config.to_dict())
    if done:
        return State("done")
    if not (folder / "checkpoint.pt").exists():
        return State("missing")  # it ended before its first checkpoint
    logged, epochs = read_epochs(folder), found.train.epochs
    if not logged:
        return State("cut off", 0, epochs)
    last = logged[-1]
    return State("cut off", last["epoch"], last.get("epochs", epochs), last["phase"], last["total_epoch"])


def changes(one: RunConfig, other: RunConfig) -> list[tuple[str, Any, Any]]:
    """Settings in which two runs differ, apart from those of the machine.

    Args:
        one: settings of a run.
        other: those of another.

    Returns:
        For each differing setting its key, the value in `one` and the value in `other`.
    """
    return [change for change in differences(one.to_dict(), other.to_dict()) if change[0] not in MACHINE_SETTINGS]
