"""A run: settings in, a folder out. Puts data, noise, network, method and trainer together."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass as settings

from pals import __version__
from pals.backbones import build_network
from pals.candidates import CandidateSets
from pals.checkpoint import refuse_other_settings
from pals.config import STRICT, build, merge, read_yaml, to_dict, to_yaml
from pals.data import Dataset, load_dataset
from pals.engine import Engine, EngineConfig
from pals.errors import InputError, unknown
from pals.files import is_unfinished, read_json, write_json, write_text
from pals.methods import Problem, find_method, method_options
from pals.metrics import mean_and_std
from pals.noise import Noise, make_candidates, official_candidates
from pals.optim import TrainConfig
from pals.recipes import DEFAULTS, PUBLISHED
from pals.trainer import Trainer

SECTIONS = ("data", "method", "network", "train", "engine", "seed")
SEEDS = 2**32  # as many as every generator used here can tell apart


@settings(frozen=True, config=STRICT)
class DataConfig:
    name: str = "digits"
    partial_rate: float = Field(default=0.5, ge=0, le=1)
    "q: chance that a wrong label is a candidate."
    noise_rate: float = Field(default=0.3, ge=0, le=1)
    "eta: chance that the true label is left out."
    protocol: Literal["g1", "g2", "g3", "g4"] = "g1"
    "How candidate sets are drawn; the published protocols differ (docs/noise.md)."
    draws: Literal["own", "official"] = "own"
    "official: the very sets that the authors' generator draws (protocol g1)."
    seed: int = Field(default=42, ge=0, lt=SEEDS)
    "Of the candidate sets: as with the authors, all runs share them unless told otherwise."
    supervision: Literal["candidates", "truth"] = "candidates"
    "truth: train on the true labels, as an upper bound."


@settings(frozen=True, config=STRICT)
class NetworkConfig:
    name: str = "small-cnn"


@dataclass(frozen=True)
class RunConfig:
    """All settings of a run, checked."""

    data: DataConfig
    method_name: str
    method: Any  # the method's own Config
    network: NetworkConfig
    train: TrainConfig
    engine: EngineConfig
    seed: int

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> RunConfig:
        """From plain values. What is not given comes from the data set's recipe, then from the defaults."""
        given = _checked_sections(values)
        data_name = given["data"].get("name", DataConfig.name)
        name = str(given["method"].get("name", "pals"))
        full = merge(DEFAULTS.get(str(data_name), {}), PUBLISHED.get(str(data_name), {}).get(name, {}), given)
        method = {key: value for key, value in full["method"].items() if key != "name"}
        return cls(
            data=build(DataConfig, full["data"], "data"),
            method_name=name,
            method=method_options(name, method),
            network=build(NetworkConfig, full["network"], "network"),
            train=build(TrainConfig, full["train"], "train"),
            engine=build(EngineConfig, full["engine"], "engine"),
            seed=_checked_seed(values.get("seed")),
        )

    def to_dict(self) -> dict[str, Any]:
        """Every setting with its value, as written to `config.yaml`; `of` reads it back."""
        return {
            "data": to_dict(self.data),
            "method": {"name": self.method_name, **to_dict(self.method)},
            "network": to_dict(self.network),
            "train": to_dict(self.train),
            "engine": to_dict(self.engine),
            "seed": self.seed,
        }


def _checked_sections(values: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Every section, empty where nothing was given; `train: 5` and unknown sections are errors."""
    sections: dict[str, Mapping[str, Any]] = {name: {} for name in SECTIONS if name != "seed"}
    for name, section in values.items():
        if name not in SECTIONS:
            raise unknown("section", name, SECTIONS)
        if name == "seed" or section is None:
            continue
        if not isinstance(section, Mapping):
            raise InputError(f"Setting {name} = {section!r}: this is a section; write {name}.key=value.")
        sections[name] = section
    return sections


def _checked_seed(seed: Any) -> int:
    if seed is None:
        return 1
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < SEEDS:
        raise InputError(f"Setting seed = {seed!r}: a seed is a whole number from 0 to {SEEDS - 1}.")
    return seed


def load_run_config(folder: Path) -> RunConfig:
    if not (folder / "config.yaml").exists():
        raise InputError(f"{folder} is not a run folder: it has no config.yaml. Give the folder that `pals train --out` wrote.")
    return RunConfig.of(read_yaml(folder / "config.yaml"))


class Run:
    """A run that is ready to start, or to go on where its folder ends."""

    def __init__(
        self, config: RunConfig, folder: Path | None = None, data_dir: Path | None = None, dataset: Dataset | None = None
    ) -> None:
        find_method(config.method_name)
        engine = Engine(config.engine)
        self.config, self.folder = config, folder
        if folder is not None:
            check_folder(folder, config)
        self.dataset = dataset if dataset is not None else load_dataset(config.data.name, data_dir=data_dir)
        self.candidates, self.noise = candidates_for(config, self.dataset)
        torch.manual_seed(config.seed)  # the network's first weights
        network = partial(self._network, config.network.name)
        method = find_method(config.method_name)(config.method, Problem(self.candidates, network))
        self.trainer = Trainer(
            method,
            self.dataset.train,
            self.dataset.views,
            config.train,
            engine,
            seed=config.seed,
            truth=self.dataset.truth,
            test=(self.dataset.test, self.dataset.test_truth),
            folder=folder,
            settings=config.to_dict(),
        )
        if folder is not None:
            claim_folder(folder, config)  # only now: input that turned out bad leaves no trace
        self.trainer.resume()
        self.resumed_at = self.trainer.progress.total

    def _network(self, default: str, name: str | None = None) -> Any:
        return build_network(name or default, self.dataset.train.shape, len(self.dataset.class_names))

    def epochs(self, stop_after: int | None = None) -> Iterator[dict[str, Any]]:
        """Train, one record per epoch; at the end `summary.json` is written."""
        if self.trainer.log is not None and self.trainer.progress.total == 0:
            self.trainer.log.clear()
            self.trainer.log.append("start", **self.describe())
        yield from self.trainer.epochs(stop_after)
        if self.trainer.progress.done and self.folder is not None:
            write_json(self.folder / "summary.json", self.summary())

    def describe(self) -> dict[str, Any]:
        """What is being run, on what."""
        noise = (
            {} if self.noise is None else {"nominal_noise": self.noise.noise_rate, "effective_noise": self.noise.effective_rate}
        )
        return {
            "method": self.config.method_name,
            "data": self.config.data.name,
            "seed": self.config.seed,
            "items": len(self.candidates),
            "mean_set_size": self.candidates.statistics().mean_size,
            **noise,
            "engine": self.trainer.engine.describe(),
        }

    def summary(self) -> dict[str, Any]:
        scores = {f"test_{name}": value for name, value in self.trainer.evaluate().items()}
        return {**self.describe(), "epochs": self.trainer.progress.total, **scores}


def candidates_for(config: RunConfig, dataset: Dataset) -> tuple[CandidateSets, Noise | None]:
    """The candidate sets of a run, and how noisy they were made (None where nothing was made: the truth, or real votes)."""
    data, ids = config.data, dataset.train.ids
    if data.supervision == "truth":
        return CandidateSets.from_truth(dataset.truth, ids), None
    if dataset.votes is not None:
        return dataset.votes, None
    rates: dict[str, Any] = {
        "partial_rate": data.partial_rate,
        "noise_rate": data.noise_rate,
        "group_C": dataset.group_C,
        "ids": ids,
    }
    if data.draws == "official":
        if data.protocol != "g1":
            raise InputError("The official draws exist for protocol g1 alone; drop data.protocol or data.draws.")
        noise = official_candidates(dataset.truth, seed=data.seed, **rates)
    else:
        generator = torch.Generator().manual_seed(data.seed)
        noise = make_candidates(dataset.truth, protocol=data.protocol, generator=generator, **rates)
    return noise.candidates, noise


def check_folder(folder: Path, config: RunConfig) -> None:
    """Refuse a folder that holds another run, or something else."""
    if (folder / "config.yaml").exists():
        refuse_other_settings(folder / "config.yaml", read_yaml(folder / "config.yaml"), config.to_dict())
    elif not _is_free(folder):
        raise InputError(f"{folder} exists and holds no run of this program. Choose another --out, or empty it first.")


def check_base(base: Path, runs: str) -> None:
    """The same for the folder above several runs; `runs` is the pattern of their folders."""
    if (base / "config.yaml").exists():
        raise InputError(f"{base} is the folder of a single run. Choose another --out for several.")
    if not _is_free(base) and not any(base.glob(f"{runs}/config.yaml")):
        raise InputError(f"{base} exists and holds no run of this program. Choose another --out, or empty it first.")


def _is_free(folder: Path) -> bool:
    """Whether nothing is there, or only what a process killed at its very start left behind."""
    if not folder.is_dir():
        return not folder.exists()
    return all(path.is_dir() or is_unfinished(path) for path in folder.rglob("*"))


def claim_folder(folder: Path, config: RunConfig) -> None:
    """Make the run's folder; `check_folder` has found it free, or the run's own."""
    for path in folder.iterdir() if folder.exists() else ():
        if is_unfinished(path):
            path.unlink()
    if not (folder / "config.yaml").exists():
        write_text(folder / "config.yaml", to_yaml(config.to_dict()))
    if (folder / "run.json").exists():
        return
    about = {
        "pals": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.platform(),
        "command": sys.argv,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": config.seed,
    }
    write_json(folder / "run.json", about)


def default_folder(config: RunConfig) -> Path:
    """Where a run goes when nobody says: named after what tells runs apart."""
    data = config.data
    return Path("runs") / f"{data.name}-{config.method_name}-q{data.partial_rate:g}-eta{data.noise_rate:g}"


def summarise_seeds(base: Path, folders: Sequence[Path]) -> dict[str, Any] | None:
    """Mean and spread over finished runs, written to `summary.json` where there are several; None while one is unfinished."""
    if not all((folder / "summary.json").exists() for folder in folders):
        return None
    accuracies = [read_json(folder / "summary.json")["test_accuracy"] for folder in folders]
    scores = {"test_accuracy": mean_and_std(accuracies), "runs": [str(folder) for folder in folders]}
    if len(folders) > 1:
        write_json(base / "summary.json", scores)
    return scores


def evaluate(folder: Path, device: str | None = None, data_dir: Path | None = None) -> dict[str, Any]:
    """Scores of a run's last checkpoint on the test items. Changes nothing in the folder."""
    settings = load_run_config(folder).to_dict()
    config = RunConfig.of(settings if device is None else merge(settings, {"engine": {"device": device}}))
    trainer = Run(config, data_dir=data_dir).trainer
    trainer.load(folder / "checkpoint.pt", settings, to_train=False)
    return {"run": str(folder), "method": config.method_name, "epochs": trainer.progress.total, **trainer.evaluate()}
