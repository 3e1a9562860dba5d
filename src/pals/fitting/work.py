"""One run on somebody's own items, step by step: read, choose, decode, train."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pals.crowd import Consensus, dawid_skene
from pals.data import Dataset, Items
from pals.data.pictures import IMAGENET
from pals.fitting.choose import Facts, choose
from pals.fitting.forecast import Forecast, bytes_of_responses, forecast
from pals.fitting.inputs import (
    Answers,
    Graded,
    Inputs,
    Progress,
    Statistics,
    fingerprint,
    load_inputs,
    read_answers,
    read_truth,
)
from pals.labels.candidates import CandidateSets
from pals.model import Model, is_model
from pals.runs import Run, check_folder, claim_folder, starting_network
from pals.runs.settings import NetworkConfig, RunConfig, VotesConfig
from pals.training.engine import find_device
from pals.training.inference import encode_images, image_standardizer
from pals.util.config import build, merge, read_yaml
from pals.util.errors import InputError
from pals.util.words import how_many
from pals.vision.augment import vector_views
from pals.vision.backbones import Network, Output
from pals.vision.backbones.patches import PatchNetwork, Responses, learn_patches
from pals.vision.backbones.timm import PREFIX, build_timm
from pals.vision.images import survey

CROWD: Mapping[str, Any] = {"method": {"name": "pals", "delta": 0.75}}
"""What the authors use for the answers of real people; shares of the votes weigh the candidates by themselves."""


FOLD_TRAINING: Mapping[str, Any] = {"batch_size": 128, "lr": 0.1, "weight_decay": 5e-4, "tail": "fill"}
"""What soft-votes is trained with on pictures."""


AT_ONCE = 10_000  # pictures that are turned round at a time
PATCHED = 5000  # pictures that the patches of an untrained network are cut from


class Part(NamedTuple):
    """A run that belongs to the work: the whole, or one that leaves a fold out."""

    title: str
    run: Run


@dataclass
class Work:
    """From the files that the user names to trained networks. What was chosen once stays chosen: a folder that exists is
    gone on with in its own settings."""

    config: RunConfig
    answers: Answers
    reasons: list[str]
    folder: Path
    truth_file: Path | None = None
    cache: Path | None = None
    begun: bool = False  # an earlier command has done a part of it, or all
    inputs: Inputs | None = field(default=None, init=False)
    encoding: Progress | None = field(default=None, init=False)
    responses: Tensor | None = field(default=None, init=False)  # to patches, of all items, where they are not too many
    kept: dict[str, Output] = field(default_factory=dict, init=False)
    last: Run | None = field(default=None, init=False)

    @classmethod
    def plan(cls, given: Mapping[str, Any], folder: Path, *, truth: Path | None = None, cache: Path | None = None) -> Work:
        """Read the votes, look at the pictures' sizes, and settle what is not given."""
        data = build(VotesConfig, {key: value for key, value in given["data"].items() if value is not None}, "data")
        answers = read_answers(data)
        earlier = read_yaml(folder / "config.yaml") if (folder / "config.yaml").exists() else None
        if earlier is not None:
            values, reasons = merge(earlier, given), [f"{folder} has begun: its settings are kept."]
        else:
            values, reasons = choose(given, _facts(data, answers, given))
            values = merge(CROWD if values.get("method", {}).get("name", "pals") == "pals" else {}, values)
        mark = fingerprint(answers.votes)
        if earlier is not None and earlier.get("data", {}).get("fingerprint") != mark:
            raise InputError(
                f"The pictures or answers are not those that {folder} was begun with. Use `pals update {folder} VOTES` to go "
                f"on with new answers, or choose another --out."
            )
        config = RunConfig.of(merge(values, {"data": {"fingerprint": mark}}))
        check_folder(folder, config)
        return cls(config, answers, reasons, folder, truth, cache, begun=earlier is not None)

    @property
    def data(self) -> VotesConfig:
        assert isinstance(self.config.data, VotesConfig)
        return self.config.data

    def load(self, progress: Progress | None = None) -> Inputs:
        """Decode the pictures, or read the vectors."""
        statistics = None if self.data.images is None else _statistics_of(self.config.network, self.data.size)
        self.inputs = load_inputs(self.data, self.answers, statistics=statistics, cache=self.cache, progress=progress)
        _ = self.truth  # better refused now than after the training
        return self.inputs

    @property
    def ready(self) -> Inputs:
        """What `load` has loaded."""
        assert self.inputs is not None
        return self.inputs

    def warnings(self) -> list[str]:
        """What a reader of the report should know of the files: everything that was skipped, did not match or was left out."""
        return [*self.answers.warnings, *(f"Left out: {line}" for line in self.ready.bad)]

    def describe(self) -> str:
        """What will be done."""
        network, train = self.config.network, self.config.train
        times = f", {how_many(self.data.folds, 'more network')} for cross-fitting" if self.data.folds else ""
        size = f" on {self.data.size} px" if self.data.images is not None else ""
        frozen = f" on frozen {network.name}" if network.frozen else ""
        return f"{self.config.method_name} with {network.trained}{frozen}{size}, {how_many(train.epochs, 'epoch')}{times}"

    @cached_property
    def candidates(self) -> CandidateSets:
        """Of the items that are trained on."""
        return self.ready.votes.to_candidates(on_empty="drop", use_gold=self.data.gold)

    @cached_property
    def trained_M(self) -> Tensor:
        """Which items those are."""
        place = {name: row for row, name in enumerate(self.ready.items.ids)}
        return torch.tensor([place[name] for name in self.candidates.ids])

    @cached_property
    def encoder(self) -> Network | None:
        """The frozen network, with its weights; None where the network is trained itself."""
        if not self.config.network.frozen:
            return None
        shape = (3, self.data.size, self.data.size)
        return starting_network(self.config.network, shape, self.answers.votes.class_names)

    @cached_property
    def vectors(self) -> tuple[Tensor, Tensor, Tensor] | None:
        """What a frozen network sees of all items, its mean and deviation; None where the network is trained itself."""
        if self.encoder is None:
            return None
        images, mean, std = self.ready.items.inputs, self.ready.mean, self.ready.std
        if isinstance(self.encoder, PatchNetwork):
            sample = images[torch.linspace(0, len(images) - 1, min(len(images), PATCHED)).long()]
            generator = torch.Generator().manual_seed(self.config.seed)
            learn_patches(self.encoder.cpu(), image_standardizer(mean, std)(sample), generator)
        features_ND = self._encoded(self.encoder)
        mean_D = features_ND.mean(dim=0)
        return features_ND, mean_D, (features_ND - mean_D).square().mean().sqrt().expand_as(mean_D)  # large ones stay large

    def _encoded(self, encoder: Network) -> Tensor:
        """Features of all pictures; of patches all responses are kept as well, if there is room."""
        inputs, device, progress = self.ready, self.config.engine.device, self.encoding

        def seen_by(network: Network) -> Tensor:
            return encode_images(network, inputs.items.inputs, inputs.mean, inputs.std, device, batch=64, progress=progress)

        if not isinstance(encoder, PatchNetwork) or not bytes_of_responses(encoder, len(inputs.items)):
            return seen_by(encoder)
        self.responses = seen_by(Responses(encoder))
        encoder.cpu()
        with torch.no_grad():
            return torch.cat([encoder.reduced(part_BD) for part_BD in torch.split(self.responses, AT_ONCE)])

    @cached_property
    def learned_from(self) -> Tensor:
        """What the trained network reads, of all items: pictures, given vectors, or a frozen network's features."""
        return self.ready.items.inputs if self.vectors is None else self.vectors[0]

    def forecast(self) -> Forecast:
        """What all of it will take; nothing needs to be loaded for that."""
        return forecast(self.config, self.answers.votes, self.encoder, cache=self.cache)

    def encode(self, progress: Progress | None = None) -> None:
        """Let a frozen network, if there is one, look at all pictures: what follows learns from what it sees."""
        self.encoding = progress
        _ = self.vectors

    @cached_property
    def truth(self) -> Graded | None:
        """Of items with answers, for grading."""
        return None if self.truth_file is None else read_truth(self.truth_file, self.ready.votes)

    def parts(self) -> Iterator[Part]:
        """First the runs that leave a fold out, then the one on all items."""
        claim_folder(self.folder, self.config)
        for fold in range(self.data.folds):
            folder = self.folder / "folds" / f"fold-{fold + 1}"
            kept_M = self.fold_M != fold
            run = self._run(self.fold_config, self.shares.take(kept_M), self.trained_M[kept_M], folder)
            yield Part(f"without part {fold + 1} of {self.data.folds}", run)
        yield Part("all items", self._run(self.config, self.candidates, self.trained_M, self.folder))

    @cached_property
    def fold_config(self) -> RunConfig:
        """Of the networks that each leave a part out: quick to train, and without weights that have seen that part."""
        values = self.config.to_dict()
        weights = self.config.network.weights
        if weights is not None and is_model(Path(weights)):
            values["network"]["weights"] = None
        train = {"epochs": self.data.fold_epochs, "checkpoint_every": 10, **({} if self.vectors is not None else FOLD_TRAINING)}
        return RunConfig.of({**values, "method": {"name": "soft-votes"}, "train": values["train"] | train})

    @cached_property
    def people(self) -> Consensus:
        """What the answers say by themselves."""
        return dawid_skene(self.ready.votes)

    @cached_property
    def shares(self) -> CandidateSets:
        """The candidates with, as shares of the votes, how likely the answers alone make each of them: who errs how is part
        of that."""
        sets, posterior_NC = self.candidates, torch.from_numpy(self.people.posterior_NC).float()
        share_MC = posterior_NC[self.trained_M] * sets.allowed_NC
        total_M1 = share_MC.sum(dim=1, keepdim=True)
        assert sets.frequency_NC is not None
        return replace(sets, frequency_NC=torch.where(total_M1 > 0.1, share_MC / total_M1.clamp_min(0.1), sets.frequency_NC))

    @cached_property
    def fold_M(self) -> Tensor:
        """The fold of each item that is trained on: the same however often it is asked for."""
        order = np.random.default_rng(self.config.seed).permutation(len(self.candidates))
        return torch.from_numpy(order) % max(self.data.folds, 1)

    def _run(self, config: RunConfig, candidates: CandidateSets, row_M: Tensor, folder: Path | None) -> Run:
        items = Items(_rows(self.learned_from, row_M), candidates.ids)
        views = self.ready.views if self.vectors is None else vector_views(*self.vectors[1:])
        dataset = Dataset("votes", candidates.class_names, items, None, None, None, views, votes=candidates)
        return Run(config, folder, dataset=dataset)

    def keep(self, trained: Part) -> None:
        """Remember what a trained network says of all items."""
        trainer = trained.run.trainer
        output = trainer.infer(trainer.method.predictor, self.learned_from)
        logits_NC = output.logits
        if self.learned_from.ndim == 4:  # a second look, at the mirror image, makes a guess better
            turned = (part.flip(-1) for part in torch.split(self.learned_from, AT_ONCE))
            logits_NC = (logits_NC + torch.cat([trainer.infer(trainer.method.predictor, x).logits for x in turned])) / 2
        self.kept[trained.title] = Output(logits_NC.cpu(), output.features.cpu())
        self.last = trained.run

    @property
    def whole(self) -> Run:
        """The run on all items."""
        assert self.last is not None
        return self.last

    @cached_property
    def output(self) -> Output:
        """Features of the network that was trained on all items, and its logits; for an item of a fold the logits of the
        network that has not seen it."""
        *others, whole = self.kept.values()
        logits_NC = whole.logits.clone()
        for fold, other in enumerate(others):
            row_M = self.trained_M[self.fold_M == fold]
            logits_NC[row_M] = other.logits[row_M]
        return Output(logits_NC, whole.features)


def _statistics_of(network: NetworkConfig, size: int) -> Statistics | None:
    """By which pictures are standardised for the weights that a network starts from; None: by their own."""
    if network.weights is None:
        return None
    if is_model(Path(network.weights)):
        part = Model.load(network.weights, "cpu").about.classifier
        return (part.mean, part.std) if part.is_image else None
    if network.name.startswith(PREFIX):
        made = build_timm(network.name, (3, size, size), 2)
        return made.mean, made.std
    return IMAGENET


def _rows(inputs: Tensor, row_M: Tensor) -> Tensor:
    """Those rows; without a copy where they are the first ones, so that a file larger than memory is never read whole."""
    if torch.equal(row_M, torch.arange(len(row_M))):
        return inputs[: len(row_M)]
    return inputs[row_M]


def _facts(data: VotesConfig, answers: Answers, given: Mapping[str, Any]) -> Facts:
    device = str((given.get("engine") or {}).get("device", "auto"))
    side = None
    if data.images is not None:
        side = survey(Path(data.images), answers.votes.items).shorter_side
    return Facts(
        answered=max(int(answers.answered_N.sum()), 1),
        classes=len(answers.votes.class_names),
        side=side,
        accelerated=find_device(device).type != "cpu",
    )
