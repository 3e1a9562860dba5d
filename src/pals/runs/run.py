"""A run, from settings to a folder: data, candidate sets, network, method and trainer are put together here.

settings -> data set -> candidates (drawn with q and eta, or answers) -> features, if the encoder is frozen
         -> network -> method -> trainer -> epochs -> summary.json, model.safetensors
"""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from pals.data import load_dataset
from pals.data.dataset import Dataset
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
from pals.runs.run_config import DataConfig, RunConfig, VotesConfig, completed
from pals.runs.run_folder import check_folder, claim_folder, code_mark, data_mark, load_run_config, refuse_other_data
from pals.training.distributed import ALONE, Ranks
from pals.training.engine import Engine
from pals.training.inference import OnBatch
from pals.training.trainer import Trainer
from pals.util.config import merge
from pals.util.errors import InputError
from pals.util.files import read_object, write_json
from pals.util.locks import FolderLock
from pals.vision.images.image_cache import default_cache
from pals.vision.networks import Network, build_network
from pals.vision.networks.patch_features import PatchNetwork
from pals.vision.pretrained import PATCHES


class Run:
    """A run that is ready to start, or to resume from its folder.

    Attributes:
        config: all settings.
        dataset: what the method learns from; the features where the encoder is frozen.
        candidates: the candidate sets of the N training items.
        trainer: the method's trainer; `trainer.progress` has the finished epochs.

    Example:
        >>> config = pals.RunConfig.of({"data": {"name": "digits"}, "method": {"name": "average"}, "train": {"epochs": 1}})
        >>> run = pals.Run(config)
        >>> [record["epoch"] for record in run.epochs()]
        [1]
    """

    def __init__(
        self,
        config: RunConfig,
        folder: Path | None = None,
        data_dir: Path | None = None,
        dataset: Dataset | None = None,
        about: Mapping[str, Any] | None = None,
        owner: bool = True,
        progress: OnBatch | None = None,
        resume_from: Path | None = None,
        ranks: Ranks = ALONE,
        *,
        kept: Path | None = None,
    ) -> None:
        """Load the data, build the network, and continue from the folder's checkpoint.

        Args:
            config: all settings.
            folder: of the run; None: nothing is written.
            data_dir: folder of the data sets; default: where downloads go.
            dataset: instead of the one that the settings name.
            about: what `run.json` gets besides versions, machine and command; a `data_mark` in it is not computed again.
            owner: lock the folder, and write `summary.json` at the end; False where the caller does so.
            progress: called with the number of images encoded and the total.
            resume_from: the folder of the run whose checkpoint will be loaded; default: `folder`.
            ranks: the processes that train together; the first of them writes the folder.
            kept: old name of `resume_from`.

        Raises:
            InputError: the folder belongs to another run or is in use, or the settings do not fit the data.
        """
        if kept is not None:
            warnings.warn("Run(kept=...) is now resume_from.", DeprecationWarning, stacklevel=2)
            resume_from = kept
        self.config, self.owner, self.ranks = config, owner, ranks
        self.folder = folder if ranks.is_first else None
        with ranks.raise_together():
            about = self._prepare(data_dir, dataset, dict(about or {}), progress, resume_from)
        if ranks.several:
            settings = json.dumps(config.to_dict(), sort_keys=True, default=str)
            ranks.refuse_differences({"code": code_mark(), "settings": settings, "data": about["data_mark"]})
        self._lock = FolderLock(self.folder) if self.folder is not None and owner else None
        try:  # from here on the folder is locked; invalid input has left no trace in it
            ranks.once(lambda: self._claim(about))
            self.trainer.resume()
        except BaseException:
            if self._lock is not None:
                self._lock.release()
            raise
        self.resumed_at = self.trainer.progress.total
        self._last_record: Mapping[str, Any] = {}

    def _prepare(
        self,
        data_dir: Path | None,
        dataset: Dataset | None,
        about: dict[str, Any],
        progress: OnBatch | None,
        resume_from: Path | None,
    ) -> dict[str, Any]:
        """Data, candidates, network, method and trainer; returns `about` with the mark of the data."""
        config, folder = self.config, self.folder
        engine = Engine(config.engine, self.ranks)
        if folder is not None:
            check_folder(folder, config)
        # A checkpoint has the weights of a fine-tuned network, so the file that it started from is not needed.
        started = resume_from is not None and not config.network.frozen
        network = replace(config.network, weights=None) if started else config.network
        self.network = with_weights_found(network, data_dir)  # an error here comes before images are decoded
        source = dataset if dataset is not None else chosen_dataset(config, data_dir)
        self.candidates, self.noise = candidates_for(config, source)
        if "data_mark" not in about:
            about["data_mark"] = data_mark(source.train.inputs, self.candidates)
        if folder is not None:
            refuse_other_data(folder, about["data_mark"])
        self.extractor: FeatureExtractor | None = None
        self.extracted = ExtractedDataset(source)
        if dataset is None and config.network.is_encoder:
            self._extract(source, resume_from or folder, about["data_mark"], progress)
        self.dataset = self.extracted.dataset
        torch.manual_seed(config.seed)  # of the network's initial weights
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

    def _extract(self, source: Dataset, folder: Path | None, mark: str, progress: OnBatch | None) -> None:
        """Replace the images by features, or by views for the network that is fine-tuned."""
        config = self.config
        network = self.network if config.network.frozen else config.network
        if len(source.train.shape) != 3:
            raise InputError(f"Encoder {network.name!r} reads images, but {source.name} has vectors: leave out --encoder.")
        self._patches_mark = f"{mark} {network.name} {config.seed}"
        saved = read_features(folder, self._patches_mark) if folder is not None and network.name == PATCHES else None
        learned = None if saved is None else saved.learned
        self._patches_saved = saved is not None
        mirror = source.views.mirror
        self.extractor = extractor = make_extractor(network, source.train.inputs, config.seed, mirror=mirror, learned=learned)
        self.extracted = extract_dataset(extractor, source, network.head, config.engine.device, default_cache(), progress)

    def _claim(self, about: Mapping[str, Any]) -> None:
        """Lock the folder and write the settings. Patches are saved: cut again, on another machine, they could differ."""
        if self._lock is not None:
            self._lock.acquire()
        if self.folder is not None:
            claim_folder(self.folder, self.config, about)
            network = None if self.extractor is None else self.extractor.network
            if isinstance(network, PatchNetwork) and not self._patches_saved:
                features = RunFeatures(self.dataset.train.inputs[:], learned=encoder_state(network))
                write_features(self.folder, self._patches_mark, features)

    def _network(self, name: str | None = None) -> Network:
        """A new network. One of another kind than the run's, which a method may need, has random weights."""
        own, shape, class_names = self.network, self.dataset.view_shape, self.dataset.class_names
        if own.frozen or name not in (None, own.name):
            return build_network(name or own.trained, shape, len(class_names))
        return starting_network(own, shape, class_names)

    def epochs(
        self,
        stop_after: int | None = None,
        stop_requested: Callable[[], bool] = lambda: False,
        *,
        asked: Callable[[], bool] | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Train to the end and write `summary.json`.

        Args:
            stop_after: stop after this many more epochs.
            stop_requested: called after each epoch; True saves a checkpoint and stops.
            asked: old name of `stop_requested`.

        Yields:
            The record of each epoch.
        """
        if asked is not None:
            warnings.warn("Run.epochs(asked=...) is now stop_requested.", DeprecationWarning, stacklevel=2)
            stop_requested = asked
        trainer = self.trainer
        with self._lock or nullcontext():
            if trainer.log is not None and trainer.progress.total == 0:
                trainer.log.clear()
                trainer.log.append("start", **self.describe())
            for record in trainer.epochs(stop_after):
                self._last_record = record
                yield record
                if self.ranks.any(stop_requested()) and not trainer.progress.done:
                    trainer.save()
                    return
            if trainer.progress.done and self.owner and (self.folder is not None or self.ranks.several):
                summary = self.summary()  # by all processes, because the test items may have to be evaluated
                if self.folder is not None:
                    self._save_model(self.folder)
                    write_json(self.folder / "summary.json", summary)

    def _save_model(self, folder: Path) -> None:
        """Save the classifier and its encoder for `pals predict`, unless the method has more than one network."""
        predictor = self.trainer.method.predictor
        if self.extractor is not None and isinstance(predictor, Network):
            network = copy.deepcopy(predictor).eval().cpu()  # a copy is neither compiled nor captured
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
        """The scores of the finished run: those of its last epoch, or computed now if that was trained before."""
        scores = {name: value for name, value in self._last_record.items() if name.startswith("test_")}
        scores = scores or {f"test_{name}": value for name, value in self.trainer.evaluate().items()}
        return {**self.describe(), "epochs": self.trainer.progress.total, **scores}


def chosen_dataset(config: RunConfig, data_dir: Path | None = None) -> Dataset:
    """The data set that the settings name; `data_dir` is the folder of the data sets."""
    if isinstance(config.data, VotesConfig):
        raise InputError("These settings are for `pals fit`, which reads pictures and answers of your own.")
    if config.loader is not None:
        return config.loader.load(data_dir, config.data.seed)
    return load_dataset(config.data.name, data_dir=data_dir)


def candidates_for(config: RunConfig, dataset: Dataset) -> tuple[CandidateSets, Noise | None]:
    """The candidate sets of a run.

    Args:
        config: q, eta and protocol, or that the truth is trained on.
        dataset: with the truth of its N training items, or their answers.

    Returns:
        The sets, and the noise they were drawn with; None for the truth and for answers, where nothing is drawn.

    Raises:
        InputError: a rate or protocol is set for a data set of answers, or official draws for another protocol.
    """
    data, ids = config.data, dataset.train.ids
    if isinstance(data, DataConfig) and data.supervision == "truth" and dataset.truth is not None:
        return CandidateSets.from_truth(dataset.truth, ids), None
    if dataset.votes is not None:
        for key, value in data.drawing.items() if isinstance(data, DataConfig) else ():
            raise InputError(f"Setting data.{key} = {value!r}: the candidates of {data.name} are people's answers; drop it.")
        return dataset.votes, None
    assert isinstance(data, DataConfig) and dataset.truth is not None
    rates: dict[str, Any] = {"partial_rate": data.partial_rate, "noise_rate": data.noise_rate}
    rates |= {"group_C": dataset.group_C, "ids": ids}
    if data.draws == "official":
        if data.protocol != "g1":
            raise InputError("The official draws exist only for protocol g1; drop data.protocol or data.draws.")
        noise = official_candidates(dataset.truth, seed=data.seed, **rates)
    else:
        generator = torch.Generator().manual_seed(data.seed)
        noise = make_candidates(dataset.truth, protocol=data.protocol, generator=generator, **rates)
    return noise.candidates, noise


def summarise_seeds(base: Path, folders: Sequence[Path]) -> dict[str, Any] | None:
    """The accuracy over runs of several seeds, also written to `summary.json` in `base`.

    Args:
        base: the folder above those of the runs.
        folders: of the runs; of a single one nothing is written.

    Returns:
        `test_accuracy` (mean and standard deviation) and `runs`; None while one is unfinished.

    Raises:
        InputError: a summary has no accuracy.
    """
    summaries = [folder / "summary.json" for folder in folders]
    if not all(path.exists() for path in summaries):
        return None
    accuracies: list[float] = []
    for path in summaries:
        accuracies.append(read_object(path).get("test_accuracy", ""))
        if not isinstance(accuracies[-1], float):
            raise InputError(f"{path} names no test accuracy: it was changed. Delete it and run the same command again.")
    scores = {"test_accuracy": mean_and_std(accuracies), "runs": [str(folder) for folder in folders]}
    if len(folders) > 1:
        write_json(base / "summary.json", scores)
    return scores


def evaluate(folder: Path, device: str | None = None, data_dir: Path | None = None) -> dict[str, Any]:
    """Scores of a run's last checkpoint on the test items; the folder is not changed.

    Args:
        folder: of the run.
        device: to compute on; default: as in the run's settings.
        data_dir: folder of the data sets; default: where downloads go.

    Returns:
        run, method, epochs, accuracy and other scores.

    Raises:
        InputError: the folder is not one of `pals train`, or its data or checkpoint are missing.
    """
    loaded = load_run_config(folder)
    if isinstance(loaded.data, VotesConfig):
        raise InputError(f"{folder} was made by `pals fit` and has no test items. See its report.html and labels.csv.")
    settings = loaded.to_dict()
    config = RunConfig.of(settings if device is None else merge(settings, {"engine": {"device": device}}))
    trainer = Run(config, data_dir=data_dir, resume_from=folder).trainer
    trainer.load(folder / "checkpoint.pt", settings, weights_only=True)
    return {"run": str(folder), "method": config.method_name, "epochs": trainer.progress.total, **trainer.evaluate()}
