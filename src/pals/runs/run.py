"""A run: settings in, a folder out. Puts data, noise, network, method and trainer together."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from pals.data import Dataset, load_dataset
from pals.labels.candidates import CandidateSets
from pals.labels.metrics import mean_and_std
from pals.labels.noise import Noise, make_candidates, official_candidates
from pals.methods import Problem, find_method
from pals.model import FILE_NAME
from pals.runs.extractor import (
    ExtractedDataset,
    FeatureExtractor,
    extract_dataset,
    make_extractor,
    starting_network,
    with_weights_found,
)
from pals.runs.feature_cache import RunFeatures, encoder_state, read_features, write_features
from pals.runs.run_config import DataConfig, NetworkConfig, RunConfig, VotesConfig, completed
from pals.runs.run_folder import check_folder, claim_folder, code_mark, data_mark, load_run_config, refuse_other_data
from pals.training.distributed import ALONE, Ranks
from pals.training.engine import Engine
from pals.training.inference import OnBatch
from pals.training.trainer import Trainer
from pals.util.config import merge
from pals.util.errors import InputError
from pals.util.files import read_object, write_json
from pals.util.locks import FolderLock
from pals.vision.images import default_cache
from pals.vision.networks import Network, build_network
from pals.vision.networks.patch_features import PatchNetwork
from pals.vision.pretrained import PATCHES


class Run:
    """A run that is ready to start, or to resume from its folder."""

    def __init__(
        self,
        config: RunConfig,
        folder: Path | None = None,
        data_dir: Path | None = None,
        dataset: Dataset | None = None,
        about: Mapping[str, Any] | None = None,
        owner: bool = True,
        progress: OnBatch | None = None,
        kept: Path | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        """Prepare the run.

        Args:
            about: What `run.json` should hold besides versions, machine and command; a `data_mark` in it is used as given.
            owner: Lock the folder while it is worked on, and write `summary.json` at the end; false if somebody else does both.
            progress: Called with the number of pictures encoded and the total.
            kept: The folder of the run whose checkpoint will be loaded.
            ranks: The processes that train together; the first of them writes the folder.
        """
        self.config, self.owner, self.ranks = config, owner, ranks
        self.folder = folder if ranks.is_first else None
        with ranks.raise_together():
            about = self._prepare(data_dir, dataset, dict(about or {}), progress, kept)
        if ranks.several:
            settings = json.dumps(config.to_dict(), sort_keys=True, default=str)
            ranks.refuse_differences({"code": code_mark(), "settings": settings, "data": about["data_mark"]})
        self._lock = FolderLock(self.folder) if self.folder is not None and owner else None
        self._begin(about)  # only now: input that turned out bad leaves no trace
        self.resumed_at = self.trainer.progress.total
        self._last: Mapping[str, Any] = {}  # record of the last epoch trained here

    def _prepare(
        self,
        data_dir: Path | None,
        dataset: Dataset | None,
        about: dict[str, Any],
        progress: OnBatch | None,
        kept: Path | None,
    ) -> dict[str, Any]:
        """Data, candidates, network, method and trainer; gives what `run.json` shall hold of them."""
        config, folder = self.config, self.folder
        engine = Engine(config.engine, self.ranks)
        if folder is not None:
            check_folder(folder, config)
        ready = kept is not None and not config.network.frozen  # weights to start from are in the checkpoint
        network = replace(config.network, weights=None) if ready else config.network
        self.network = with_weights_found(network, data_dir)  # before the pictures, which take their time
        source = dataset if dataset is not None else chosen_dataset(config, data_dir)
        self.candidates, self.noise = candidates_for(config, source)
        if "data_mark" not in about:
            about["data_mark"] = data_mark(source.train.inputs, self.candidates)
        if folder is not None:
            refuse_other_data(folder, about["data_mark"])
        self.extractor: FeatureExtractor | None = None
        self.extracted = ExtractedDataset(source)
        if dataset is None and config.network.is_encoder:
            self._extract(source, kept or folder, about["data_mark"], progress)
        self.dataset = self.extracted.dataset
        torch.manual_seed(config.seed)  # the network's first weights
        method = find_method(config.method_name)(config.method, Problem(self.candidates, self._network))
        self.trainer = Trainer(
            method,
            self.dataset.train,
            self.dataset.views,
            config.train,
            engine,
            seed=config.seed,
            truth=self.dataset.truth,
            test=self.dataset.graded_test,
            folder=folder,
            settings=config.to_dict(),
            migrate_settings=completed,
        )
        return about

    def _extract(self, source: Dataset, kept: Path | None, mark: str, progress: OnBatch | None) -> None:
        """At the pictures of the data set, through the network that was asked for."""
        config = self.config
        network = self.network if config.network.frozen else config.network
        _refuse_vectors(source, network)
        self.patches_mark = f"{mark} {network.name} {config.seed}"
        found = read_features(kept, self.patches_mark) if kept is not None and network.name == PATCHES else None
        learned = None if found is None else found.learned
        self.patches_kept = found is not None
        mirror = source.views.mirror
        self.extractor = extractor = make_extractor(network, source.train.inputs, config.seed, mirror=mirror, learned=learned)
        self.extracted = extract_dataset(extractor, source, network.head, config.engine.device, default_cache(), progress)

    def _keep_patches(self, folder: Path) -> None:
        """They were cut from the pictures; cut again, elsewhere, they might not be quite the same."""
        network = None if self.extractor is None else self.extractor.network
        if isinstance(network, PatchNetwork) and not self.patches_kept:
            features_ND = self.dataset.train.inputs[:]
            write_features(folder, self.patches_mark, RunFeatures(features_ND, learned=encoder_state(network)))

    def _begin(self, about: Mapping[str, Any]) -> None:
        """Nobody else may work on the folder from here until the epochs are over."""
        try:
            self.ranks.once(lambda: self._claim(about))
            self.trainer.resume()
        except BaseException:
            if self._lock is not None:
                self._lock.release()
            raise

    def _claim(self, about: Mapping[str, Any]) -> None:
        if self._lock is not None:
            self._lock.acquire()
        if self.folder is not None:
            claim_folder(self.folder, self.config, about)
            self._keep_patches(self.folder)

    def _network(self, name: str | None = None) -> Network:
        """A fresh network; a method that asks for another kind than the run's gets it without the run's weights."""
        wanted, shape, classes = self.network, self.dataset.view_shape, len(self.dataset.class_names)
        if wanted.frozen or name not in (None, wanted.name):
            return build_network(name or wanted.trained, shape, classes)
        return starting_network(wanted, shape, self.dataset.class_names)

    def epochs(self, stop_after: int | None = None, asked: Callable[[], bool] = lambda: False) -> Iterator[dict[str, Any]]:
        """Train, yielding one record per epoch, and write `summary.json` at the end. If `asked` to stop, save and end early."""
        with self._lock or nullcontext():
            if self.trainer.log is not None and self.trainer.progress.total == 0:
                self.trainer.log.clear()
                self.trainer.log.append("start", **self.describe())
            for record in self.trainer.epochs(stop_after):
                self._last = record
                yield record
                if self.ranks.any(asked()) and not self.trainer.progress.done:
                    self.trainer.save()
                    return
            if self.trainer.progress.done and self.owner and (self.folder is not None or self.ranks.several):
                summary = self.summary()  # by all processes: the test items may have to be evaluated
                if self.folder is not None:
                    self._save_model(self.folder)
                    write_json(self.folder / "summary.json", summary)

    def _save_model(self, folder: Path) -> None:
        """For `pals predict`: the classifier with its encoder. Some methods leave more than one network, and none is saved."""
        predictor = self.trainer.method.predictor
        if self.extractor is not None and isinstance(predictor, Network):
            network = copy.deepcopy(predictor).eval().cpu()  # nothing compiled or captured about it
            self.extractor.model(self.dataset.class_names, network, self.extracted.head).save(folder / FILE_NAME)

    def describe(self) -> dict[str, Any]:
        """The method, data and hardware of this run."""
        noise: dict[str, Any] = {}
        if self.noise is not None and isinstance(self.config.data, DataConfig):
            rates = {"nominal_noise": self.noise.noise_rate, "effective_noise": self.noise.effective_rate}
            noise = {"protocol": self.config.data.protocol, **rates}
        return {
            "method": self.config.method_name,
            "data": self.config.data.name,
            "seed": self.config.seed,
            "items": len(self.candidates),
            "mean_set_size": self.candidates.statistics().mean_size,
            **noise,
            **({} if self.extractor is None else {"encoder": self.extractor.name, "size": self.extractor.size}),
            "engine": self.trainer.engine.describe(),
        }

    def summary(self) -> dict[str, Any]:
        """The scores of the finished run; those of an epoch are in its record."""
        scores = {name: value for name, value in self._last.items() if name.startswith("test_")}
        scores = scores or {f"test_{name}": value for name, value in self.trainer.evaluate().items()}
        return {**self.describe(), "epochs": self.trainer.progress.total, **scores}


def chosen_dataset(config: RunConfig, data_dir: Path | None = None) -> Dataset:
    """The data set of these settings."""
    if isinstance(config.data, VotesConfig):
        raise InputError("These settings are for `pals fit`, which reads pictures and answers of your own.")
    if config.loader is not None:
        return config.loader.load(data_dir, config.data.seed)
    return load_dataset(config.data.name, data_dir=data_dir)


def _refuse_vectors(dataset: Dataset, network: NetworkConfig) -> None:
    if len(dataset.train.shape) != 3:
        raise InputError(
            f"Encoder {network.name!r} looks at pictures, but the items of {dataset.name} are vectors: leave out --encoder "
            "(network.frozen, network.adapt)."
        )


def _refuse_rates(data: DataConfig) -> None:
    """Where people answered, nothing is drawn."""
    for key, value in data.drawing.items():
        raise InputError(f"Setting data.{key} = {value!r}: the candidates of {data.name} are people's answers; leave this out.")


def candidates_for(config: RunConfig, dataset: Dataset) -> tuple[CandidateSets, Noise | None]:
    """The candidate sets of a run, and how noisy they were made (None where nothing was made: the truth, or real votes)."""
    data, ids = config.data, dataset.train.ids
    if isinstance(data, DataConfig) and data.supervision == "truth" and dataset.truth is not None:
        return CandidateSets.from_truth(dataset.truth, ids), None
    if dataset.votes is not None:
        if isinstance(data, DataConfig):
            _refuse_rates(data)
        return dataset.votes, None
    assert isinstance(data, DataConfig) and dataset.truth is not None  # what such a data set is made from
    rates: dict[str, Any] = {
        "partial_rate": data.partial_rate,
        "noise_rate": data.noise_rate,
        "group_C": dataset.group_C,
        "ids": ids,
    }
    if data.draws == "official":
        if data.protocol != "g1":
            raise InputError("The official draws exist only for protocol g1; drop data.protocol or data.draws.")
        noise = official_candidates(dataset.truth, seed=data.seed, **rates)
    else:
        generator = torch.Generator().manual_seed(data.seed)
        noise = make_candidates(dataset.truth, protocol=data.protocol, generator=generator, **rates)
    return noise.candidates, noise


def summarise_seeds(base: Path, folders: Sequence[Path]) -> dict[str, Any] | None:
    """Mean and spread over finished runs, written to `summary.json` where there are several; None while one is unfinished."""
    if not all((folder / "summary.json").exists() for folder in folders):
        return None
    accuracies = [_accuracy(folder / "summary.json") for folder in folders]
    scores = {"test_accuracy": mean_and_std(accuracies), "runs": [str(folder) for folder in folders]}
    if len(folders) > 1:
        write_json(base / "summary.json", scores)
    return scores


def _accuracy(summary: Path) -> float:
    found = read_object(summary).get("test_accuracy")
    if not isinstance(found, float):
        raise InputError(f"{summary} names no test accuracy: it was changed. Delete it and run the same command again.")
    return found


def evaluate(folder: Path, device: str | None = None, data_dir: Path | None = None) -> dict[str, Any]:
    """Scores of a run's last checkpoint on the test items. Changes nothing in the folder."""
    loaded = load_run_config(folder)
    if isinstance(loaded.data, VotesConfig):
        raise InputError(f"{folder} was made by `pals fit` and has no test items. See its report.html and labels.csv.")
    settings = loaded.to_dict()
    config = RunConfig.of(settings if device is None else merge(settings, {"engine": {"device": device}}))
    trainer = Run(config, data_dir=data_dir, kept=folder).trainer
    trainer.load(folder / "checkpoint.pt", settings, weights_only=True)
    return {"run": str(folder), "method": config.method_name, "epochs": trainer.progress.total, **trainer.evaluate()}
