"""All settings of a run, checked: data, method, network, training, engine, seed.

A value is taken from the first of these that has it: what is given, the published settings of the data set and method, the
epochs of a preset, the defaults of the classes below.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass as settings

from pals.data import SHARED, dataset_loader
from pals.data.dataset import Loader
from pals.labels.taxonomy import SURE
from pals.methods import find_method, method_options
from pals.runs.published_settings import settings_by_rates, settings_of
from pals.training.engine import EngineConfig
from pals.training.optim import TrainConfig
from pals.util.config import SEEDS, STRICT, build, merge, to_dict
from pals.util.errors import InputError, unknown

CLOSED_FORM = "closed-form"
"""In place of a method in `pals fit`: answers and features without training (`pals.closed_form`)."""
DAWID_SKENE = "dawid-skene"
"""In place of a method in `pals fit`: the answers alone, without images (`pals.dawid_skene`)."""
UNTRAINED = (CLOSED_FORM, DAWID_SKENE)
CLOSED_FORM_STRENGTH = 30.0
"""Default of `pals.closed_form`, here as well so that settings do not load scipy (a test compares the two)."""
SECTIONS = ("data", "method", "network", "train", "engine", "seed")


@settings(frozen=True, config=STRICT)
class DataConfig:
    name: str = "digits"
    "The data set (docs/datasets.md)."
    partial_rate: float = Field(default=0.5, ge=0, le=1)
    "q: chance that a wrong label is a candidate."
    noise_rate: float = Field(default=0.3, ge=0, le=1)
    "eta: chance that the true label is left out."
    protocol: Literal["g1", "g2", "g3", "g4"] = "g1"
    "How candidate sets are drawn; the published protocols differ (docs/noise.md)."
    draws: Literal["own", "official"] = "own"
    "official: the very sets that the authors' generator draws (protocol g1)."
    seed: int = Field(default=42, ge=0, lt=SEEDS)
    "Of the candidate sets; as in the authors' code all runs share them by default."
    supervision: Literal["candidates", "truth"] = "candidates"
    "truth: train on the true labels, as an upper bound."

    @property
    def drawing(self) -> dict[str, Any]:
        """The settings of drawing candidate sets that differ from their defaults."""
        chosen, default = to_dict(self), to_dict(DataConfig())
        return {key: chosen[key] for key in ("partial_rate", "noise_rate", "protocol", "draws") if chosen[key] != default[key]}


@settings(frozen=True, config=STRICT)
class VotesConfig:
    """The data of `pals fit`: the user's images or feature vectors, and annotators' answers."""

    votes: tuple[str, ...]
    "Files with the answers."
    earlier: str | None = None
    "The answers of the run that this one continues (its votes.csv), read before the others."
    before: str | None = None
    "votes.csv of the round before, with whose labels the result is compared; by default that of `earlier`."
    reviewed: int = Field(default=0, ge=0)
    "The last row of that run's review.sqlite (the answers given in `pals review`) that is used; 0: none."
    trust_review: bool = False
    "Whether these answers are trusted: never overruled, and never called wrong."
    images: str | None = None
    "Folder of the images."
    features: str | None = None
    "Instead of images: an .npy file with one row per item, in the order of the votes' items or of `names`."
    names: str | None = None
    "For feature vectors: a text file with one item name per line."
    format: str | None = None
    "Of the answers; by default the content decides (docs/formats.md)."
    columns: dict[str, str] = Field(default_factory=dict)
    "Which column holds what, e.g. item: photo."
    class_names: tuple[str, ...] | None = None
    "All classes, also those without an answer; by default those that occur."
    taxonomy: str | None = None
    "A file with a tree whose leaves are the classes; an answer may name any of its nodes (docs/taxonomy.md)."
    sure: float = Field(default=SURE, ge=0.5, lt=1)
    "With a taxonomy: a result is rolled up to the deepest node with a higher probability than this."
    separator: str | None = "|"
    "Between several labels in one cell."
    notation: Literal["ranked", "percent", "plain"] | None = None
    "How `newt>frog` and `newt:70` in a cell are read; by default the labels show it."
    dont_know: tuple[str, ...] = ()
    'Further words for "don\'t know", beside those of docs/formats.md.'
    encoding: str | None = None
    "Of a text file that is neither UTF-8 nor marked."
    size: int = Field(default=32, ge=8)
    "Pixels per side to which images are resized."
    resize: Literal["squash", "crop", "pad"] = "squash"
    "How an image that is not square becomes square."
    mirror: bool = True
    "An image and its mirror image have the same class. False for letters, digits, and classes such as left hand."
    skip_bad: bool = False
    "Leave out images that cannot be read."
    gold: bool = True
    "Take an answer marked as gold as the only candidate of its item."
    folds: int = Field(default=0, ge=0)
    "Cross-fitting: number of networks, each trained without a part of the items, which it then predicts. 0: none."
    fold_epochs: int = Field(default=40, ge=1)
    "Epochs of each of these networks (by soft-votes, which is fast)."
    fold_weights: str | None = None
    "In an update of a fine-tuned network: the pretrained weights that these networks start from, those of the first run."
    fold_lr: float | None = Field(default=None, gt=0)
    "Their learning rate, if they start from weights; that of the first run."
    trusted: tuple[str, ...] = ()
    "Annotators whose answers are taken as true."
    added: dict[str, str] = Field(default_factory=dict)
    "New classes, and for each a text file with one item per line that is known to belong to it."
    fingerprint: str = ""
    "Of the items and answers; a run continues only with the same."
    name: str = "votes"
    "Always `votes`: the data are the user's own."

    @property
    def answers_only(self) -> bool:
        """Whether there are neither images nor features."""
        return self.images is None and self.features is None


@settings(frozen=True, config=STRICT)
class NetworkConfig:
    name: str = "small-cnn"
    "One of ours, or timm:NAME."
    weights: str | None = None
    "A local file of weights to start from: torchvision's or timm's names, or a run's own model.safetensors."
    frozen: bool = False
    "Do not train the network; train `head` on its features."
    head: str = "mlp"
    "The network that is trained on the features of a frozen one."
    adapt: bool = False
    "Resize and standardise a data set's images as for the training of the weights; always if frozen."

    @property
    def is_encoder(self) -> bool:
        """Whether images are adapted to the network, rather than the network to the images."""
        return self.frozen or self.adapt

    @property
    def trained(self) -> str:
        return self.head if self.frozen else self.name


@settings(frozen=True, config=STRICT)
class ClosedFormConfig:
    """Options of the closed form."""

    strength: float = Field(default=CLOSED_FORM_STRENGTH, gt=0)
    "Prior strength of an annotator's skill, in answers."


@settings(frozen=True, config=STRICT)
class DawidSkeneConfig:
    """Options of the fit of answers alone (`pals.dawid_skene`)."""

    strength: float = Field(default=CLOSED_FORM_STRENGTH, gt=0)
    "Prior strength of an annotator's skill, in answers."


@dataclass(frozen=True)
class RunConfig:
    """All settings of a run, checked.

    Example:
        >>> config = pals.RunConfig.of({"data": {"name": "cifar10"}, "method": {"name": "pals"}, "train": {"epochs": 60}})
        >>> config.train.epochs, config.network.name
        (60, 'resnet18')
    """

    data: DataConfig | VotesConfig
    loader: Loader | None
    "Of a data set with options of its own, which it contains."
    method_name: str
    method: Any
    "The method's own Config."
    network: NetworkConfig
    train: TrainConfig
    engine: EngineConfig
    seed: int

    @classmethod
    def of(cls, values: Mapping[str, Any], *, data: VotesConfig | None = None) -> RunConfig:
        """Check plain values and add the defaults.

        Args:
            values: sections data, method, network, train, engine, and seed; each may be left out.
            data: the section data, already checked, instead of its values.

        Returns:
            The settings.

        Raises:
            InputError: a section or setting is unknown, or a value is invalid.
        """
        given = _checked_sections(values)
        kind: type[DataConfig] | type[VotesConfig] = VotesConfig if "votes" in given["data"] else DataConfig
        data_name = str(given["data"].get("name", kind.name))
        name = str(given["method"].get("name", "pals"))
        published = settings_of(data_name, name, given["network"] if kind is DataConfig else {})
        full = merge(published, _epochs_of_preset(name, given["method"], published.get("train", {})), given)
        shared, own = full["data"], dict[str, Any]()
        if kind is DataConfig:  # what all data sets have, and the options of this one
            own = {key: value for key, value in shared.items() if key not in SHARED}
            shared = {key: value for key, value in shared.items() if key in SHARED}
        return cls(
            data=data if data is not None else build(kind, shared, "data"),
            loader=dataset_loader(data_name, own) if kind is DataConfig else None,
            method_name=name,
            method=_method_options(kind, name, {key: value for key, value in full["method"].items() if key != "name"}),
            network=build(NetworkConfig, full["network"], "network"),
            train=build(TrainConfig, full["train"], "train"),
            engine=build(EngineConfig, full["engine"], "engine"),
            seed=checked_seed(values.get("seed")),
        )

    def to_dict(self) -> dict[str, Any]:
        """Every setting with its value, as written to `config.yaml`; `of` reads it back."""
        return {
            "data": {**to_dict(self.data), **(to_dict(self.loader.config) if self.loader else {})},
            "method": {"name": self.method_name, **to_dict(self.method)},
            "network": to_dict(self.network),
            "train": to_dict(self.train),
            "engine": to_dict(self.engine),
            "seed": self.seed,
        }


def _epochs_of_preset(method: str, options: Mapping[str, Any], train: Mapping[str, Any]) -> Mapping[str, Any]:
    """The epochs of a preset, where it has fewer than `train`."""
    if "preset" not in options or method in UNTRAINED:
        return {}
    usual = int(train.get("epochs", TrainConfig.epochs))
    epochs = find_method(method).preset_epochs.get(str(options["preset"]), usual)
    return {"train": {"epochs": epochs}} if epochs < usual else {}


def _method_options(kind: type[DataConfig] | type[VotesConfig], name: str, given: Mapping[str, Any]) -> Any:
    if name not in UNTRAINED:
        return method_options(name, given)
    if kind is DataConfig:
        raise InputError(f"{name} needs people's answers: use `pals fit`, or choose one of `pals methods`.")
    return build(ClosedFormConfig if name == CLOSED_FORM else DawidSkeneConfig, given, "method")


def completed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of any version, with defaults for those that it did not have, and without those that no longer exist."""
    return RunConfig.of(values).to_dict()


def unreachable_options(config: RunConfig) -> list[str]:
    """Names of the method's options whose epoch is after the last one."""
    method, epochs = find_method(config.method_name), config.train.epochs
    first = {name: getattr(config.method, name) for name in method.counted_in_epochs if name.endswith("_from")}
    first |= {name: getattr(config.method, name) + 1 for name in method.begins_after}
    return [name for name, epoch in first.items() if epoch is not None and epoch > epochs]


def other_settings_by_rates(config: RunConfig) -> dict[str, Any]:
    """Settings that the method's authors choose by the rates of a run on CIFAR, where the run has others.

    Args:
        config: of the run.

    Returns:
        Published value by dotted key.
    """
    data = config.data
    if not isinstance(data, DataConfig) or data.name not in ("cifar10", "cifar100") or data.supervision == "truth":
        return {}
    chosen = settings_by_rates(config.method_name, data.name, data.partial_rate, data.noise_rate).settings
    given = config.to_dict()
    return {
        f"{section}.{name}": value
        for section, options in chosen.items()
        for name, value in options.items()
        if given[section][name] != value
    }


def shortened(values: Mapping[str, Any], epochs: int) -> dict[str, Any]:
    """The same run with a schedule of another length.

    Args:
        values: all settings (`RunConfig.to_dict`).
        epochs: of the new schedule.

    Returns:
        All settings; warm-up, milestones, periods and the method's options that count epochs or steps change in proportion.
    """
    share: float = epochs / values["train"]["epochs"]

    def scaled(name: str, value: int | None) -> int | None:
        if value is None:
            return None
        begun = int(name.endswith("_from"))  # such an option is 1 in the first epoch, before one has passed
        return begun + math.ceil((value - begun) * share)

    train, method = values["train"], values["method"]
    counted = {name: scaled(name, method[name]) for name in find_method(method["name"]).counted_in_epochs}
    schedule = {
        "epochs": epochs,
        "warmup": train["warmup"] * share,
        "milestones": [math.ceil(epoch * share) for epoch in train["milestones"]],
        "period": max(1, math.ceil(train["period"] * share)),
    }
    return merge(values, {"train": schedule, "method": counted})


def _checked_sections(values: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Every section, empty where none is given; refuses `train: 5` and unknown sections."""
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


def checked_seed(seed: Any) -> int:
    """The seed, 1 by default; refuses what is not a whole number from 0 to 2**32 - 1."""
    if seed is None:
        return 1
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < SEEDS:
        raise InputError(f"Setting seed = {seed!r}: a seed is a whole number from 0 to {SEEDS - 1}.")
    return seed
