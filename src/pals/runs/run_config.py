"""All settings of a run, checked: where its data come from, method, network, training, engine, seed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass as settings

from pals.data import SHARED, Loader, dataset_loader, dataset_options
from pals.data.crowd_sets import ONCE_EVERYWHERE
from pals.labels.taxonomy import SURE
from pals.methods import find_method, method_options
from pals.runs.published_settings import settings_by_rates, settings_of
from pals.training.engine import EngineConfig
from pals.training.optim import TrainConfig
from pals.util.config import SEEDS, STRICT, build, merge, to_dict
from pals.util.errors import InputError, unknown

CLOSED_FORM = "closed-form"
"""In place of a method in `pals fit`: answers and features are solved for without training (`pals.closed_form`)."""
DAWID_SKENE = "dawid-skene"
"""In place of a method in `pals fit`: the answers alone (`pals.dawid_skene`)."""
UNTRAINED = (CLOSED_FORM, DAWID_SKENE)
CLOSED_FORM_STRENGTH = 100.0
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
    "Of the candidate sets: as with the authors, all runs share them unless told otherwise."
    supervision: Literal["candidates", "truth"] = "candidates"
    "truth: train on the true labels, as an upper bound."

    @property
    def drawing(self) -> dict[str, Any]:
        """What was chosen of how candidate sets are drawn, where that is not the default."""
        chosen, default = to_dict(self), to_dict(DataConfig())
        return {key: chosen[key] for key in ("partial_rate", "noise_rate", "protocol", "draws") if chosen[key] != default[key]}


@settings(frozen=True, config=STRICT)
class VotesConfig:
    """The data of a run on one's own items: pictures or feature vectors, and what people said of them."""

    votes: tuple[str, ...]
    "Files with the answers."
    earlier: str | None = None
    "The answers of the run that this one goes on from (its votes.csv), read before the others."
    reviewed: int = Field(default=0, ge=0)
    "The last row of that run's review.sqlite (the answers given in `pals review`) that is taken in; 0: none."
    images: str | None = None
    "Folder of the pictures."
    features: str | None = None
    "Instead of pictures: an .npy file with one row per item, in the order of the votes' items or of `names`."
    names: str | None = None
    "For feature vectors: a text file with one item name per line."
    format: str | None = None
    "Of the answers; by default the content decides (docs/formats.md)."
    columns: dict[str, str] = Field(default_factory=dict)
    "Which column holds what, e.g. item: photo."
    class_names: tuple[str, ...] | None = None
    "All classes, also those that nobody chose; by default those that occur."
    taxonomy: str | None = None
    "A file with a tree whose leaves are the classes; an answer may name any of its nodes (docs/taxonomy.md)."
    sure: float = Field(default=SURE, ge=0.5, lt=1)
    "With a taxonomy: a result is rolled up to the deepest node that is likelier than this."
    separator: str | None = "|"
    "Between several labels in one cell."
    dont_know: tuple[str, ...] = ()
    'Further words for "don\'t know", beside those of docs/formats.md.'
    encoding: str | None = None
    "Of a text file that is neither UTF-8 nor marked."
    size: int = Field(default=32, ge=8)
    "Pixels a side that pictures are brought to."
    resize: Literal["squash", "crop", "pad"] = "squash"
    "How a picture that is not square becomes so."
    mirror: bool = True
    "A picture and its mirror image show the same. False for letters, digits, and classes that tell left from right."
    skip_bad: bool = False
    "Go on without pictures that cannot be read."
    gold: bool = True
    "Take an answer marked as gold as the only candidate of its item."
    folds: int = Field(default=0, ge=0)
    "Cross-fitting: networks trained without a part of the items, which they are then asked about. 0: none."
    fold_epochs: int = Field(default=40, ge=1)
    "How long each of them is trained (by soft-votes, which is quick)."
    fold_weights: str | None = None
    "In an update of a fine-tuned network: the pretrained weights that these networks start from, those of the first run."
    fold_lr: float | None = Field(default=None, gt=0)
    "Their learning rate, if they start from weights; that of the first run."
    trusted: tuple[str, ...] = ()
    "People whose answers are right: they are never overruled."
    added: dict[str, str] = Field(default_factory=dict)
    "New classes, and for each a text file with one item per line that is known to be of it."
    fingerprint: str = ""
    "Of the items and answers: a run goes on only with those it began with."
    name: str = "votes"
    "Always `votes`: the data are the user's own."

    @property
    def answers_only(self) -> bool:
        """Nothing is known of the items but what people said."""
        return self.images is None and self.features is None


@settings(frozen=True, config=STRICT)
class NetworkConfig:
    name: str = "small-cnn"
    "One of ours, or timm:NAME."
    weights: str | None = None
    "A local file of weights to start from: torchvision's or timm's names, or a run's own model.safetensors."
    frozen: bool = False
    "Leave the network as it is in the file, and train `head` on its features."
    head: str = "mlp"
    "What learns when the network is frozen."
    adapt: bool = False
    "Bring a data set's pictures to the size and the standardisation that the weights were made for; always if frozen."

    @property
    def is_encoder(self) -> bool:
        """Whether a data set's pictures are brought to what the network wants, and not the network to the pictures."""
        return self.frozen or self.adapt

    @property
    def trained(self) -> str:
        return self.head if self.frozen else self.name


@settings(frozen=True, config=STRICT)
class ClosedFormConfig:
    """Options of the closed form."""

    strength: float = Field(default=CLOSED_FORM_STRENGTH, gt=0)
    "Answers per class that the prior of a person's confusion matrix weighs."


@settings(frozen=True, config=STRICT)
class DawidSkeneConfig:
    """Options of the fit of answers alone (`pals.dawid_skene`)."""

    strength: float | None = Field(default=None, gt=0)
    "Answers per class that the prior of a person's confusion matrix weighs; by default what predicts answers best."


@dataclass(frozen=True)
class RunConfig:
    """All settings of a run, checked."""

    data: DataConfig | VotesConfig
    loader: Loader | None  # of a data set with options: it holds them
    method_name: str
    method: Any  # the method's own Config
    network: NetworkConfig
    train: TrainConfig
    engine: EngineConfig
    seed: int

    @classmethod
    def of(cls, values: Mapping[str, Any], *, data: VotesConfig | None = None) -> RunConfig:
        """From plain values. Anything not given comes from the data set's recipe, then from the defaults. `data`: that section,
        already checked, instead of its values."""
        given = _checked_sections(values)
        kind: type[DataConfig] | type[VotesConfig] = VotesConfig if "votes" in given["data"] else DataConfig
        data_name = given["data"].get("name", kind.name)
        name = str(given["method"].get("name", "pals"))
        published = settings_of(str(data_name), name, given["network"] if kind is DataConfig else {})
        full = merge(published, _by_preset(name, given["method"], published.get("train", {})), given)
        method = {key: value for key, value in full["method"].items() if key != "name"}
        shared, own = _split(kind, str(data_name), full["data"])
        return cls(
            data=data if data is not None else build(kind, shared, "data"),
            loader=dataset_loader(str(data_name), own) if kind is DataConfig else None,
            method_name=name,
            method=_method_options(kind, name, method),
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


def _by_preset(method: str, options: Mapping[str, Any], train: Mapping[str, Any]) -> Mapping[str, Any]:
    """A preset that is made for fewer epochs than `train` has gets no more."""
    if "preset" not in options or method in UNTRAINED:
        return {}
    most, preset = find_method(method).preset_epochs, str(options["preset"])
    usual = int(train.get("epochs", TrainConfig.epochs))
    return {"train": {"epochs": most[preset]}} if most.get(preset, usual) < usual else {}


def _method_options(kind: type[DataConfig] | type[VotesConfig], name: str, given: Mapping[str, Any]) -> Any:
    if name not in UNTRAINED:
        return method_options(name, given)
    if kind is DataConfig:
        raise InputError(f"{name} needs people's answers: use `pals fit`, or choose one of `pals methods`.")
    return build(ClosedFormConfig if name == CLOSED_FORM else DawidSkeneConfig, given, "method")


def completed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as any version wrote them, with what it did not know yet at its default, and without what means nothing now."""
    return RunConfig.of(values).to_dict()


def _split(
    kind: type[DataConfig] | type[VotesConfig], name: str, data: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The section `data`: what all data sets have, and the options of this one."""
    if kind is VotesConfig:
        return dict(data), {}
    shared = {key: value for key, value in data.items() if key in SHARED}
    own = {key: value for key, value in data.items() if key not in SHARED}
    known = dataset_options(name)
    return shared, {key: value for key, value in own.items() if key in known or (key, value) not in ONCE_EVERYWHERE.items()}


def never_comes(config: RunConfig) -> list[str]:
    """The method's options that put something after the last epoch."""
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
    """All settings of a run (`RunConfig.to_dict`) with a schedule of so many epochs: warm-up, milestones, periods and the
    method's options that count epochs or steps change in proportion."""
    share: float = epochs / values["train"]["epochs"]

    def scaled(name: str, value: int | None) -> int | None:
        if value is None:
            return None
        before = int(name.endswith("_from"))  # epochs that have begun when none has passed
        return before + math.ceil((value - before) * share)

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


def checked_seed(seed: Any) -> int:
    if seed is None:
        return 1
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < SEEDS:
        raise InputError(f"Setting seed = {seed!r}: a seed is a whole number from 0 to {SEEDS - 1}.")
    return seed
