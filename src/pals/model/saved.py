"""The saved classifier: one file with the weights and, as text in its header, all that is needed to ask it."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import torch
from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from pals.crowd.dawid_skene.em import DAWID_SKENE
from pals.labels.taxonomy import SURE, Taxonomy, check_sure
from pals.training.extract import frozen_batch, frozen_stage
from pals.training.inference import (
    INFERENCE_BATCH,
    OUT_OF_MEMORY_HINT,
    Stage,
    batch_threads,
    image_standardizer,
    infer,
    inference_engine,
    vector_standardizer,
)
from pals.util.config import read_yaml
from pals.util.errors import InputError
from pals.util.files import write_bytes
from pals.util.words import in_short, quoted
from pals.vision.augment.augmentations import Standardize
from pals.vision.images import How
from pals.vision.networks import Network, Output, build_network
from pals.vision.networks.weight_loading import refuse_not_finite

FORMAT = 1
FILE_NAME = "model.safetensors"
TEXT = "pals"  # the one key of the file's metadata: with several, their order would not be the same each time
LARGEST_INPUT = 2**26  # numbers in one input; a description that says more is not one of ours


@dataclass(frozen=True)
class Part:
    """A network and what it reads: the shape of one input (channels, height, width of uint8 images, or the width of
    vectors) and how inputs are standardised (per channel, of pixels from 0 to 1, or per feature)."""

    network: str
    input_shape: tuple[int, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        for name, kind in (("input_shape", int), ("mean", float), ("std", float)):  # numbers of numpy or torch, too
            object.__setattr__(self, name, tuple(map(kind, getattr(self, name))))
        shape = self.input_shape
        if len(shape) not in (1, 3) or min(shape) < 1 or math.prod(shape) > LARGEST_INPUT:
            raise InputError(
                f"The input of {quoted(self.network)} has the shape {quoted(shape)}; give (channels, height, width) or "
                f"(width,)."
            )
        if not len(self.mean) == len(self.std) == shape[0]:
            raise InputError(
                f"{len(self.mean)} means and {len(self.std)} deviations for inputs of shape {shape}; give {shape[0]} of each."
            )
        if not all(map(math.isfinite, (*self.mean, *self.std))) or min(self.std) < 0 or (self.is_image and min(self.std) == 0):
            raise InputError(f"The means and deviations of {quoted(self.network)} must be finite, the deviations above zero.")

    @property
    def is_image(self) -> bool:
        return len(self.input_shape) == 3

    def standardizer(self) -> Standardize:
        make = image_standardizer if self.is_image else vector_standardizer
        return make(self.mean, self.std)


@dataclass(frozen=True)
class Description:
    """All about a classifier but its weights. With an encoder the classifier reads the encoder's features."""

    class_names: tuple[str, ...]
    classifier: Part
    encoder: Part | None = None
    temperature: float = 1.0
    "What the logits are divided by before the softmax."
    resize: How = "squash"
    "How images of another shape are brought to the input's."
    taxonomy: Taxonomy | None = None
    "The tree whose leaves the classes are, where there is one."
    sure: float = SURE
    "How likely a node of it must be for a prediction to be rolled up to it."

    def __post_init__(self) -> None:
        object.__setattr__(self, "class_names", tuple(self.class_names))
        object.__setattr__(self, "temperature", float(self.temperature))
        if len(self.class_names) < 2 or len(set(self.class_names)) < len(self.class_names):
            raise InputError("A classifier needs at least two classes, with different names.")
        if self.taxonomy is not None and self.taxonomy.leaves != self.class_names:
            raise InputError("The classes are not the leaves of the taxonomy, in its order.")
        check_sure(self.sure)
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            raise InputError(f"The temperature is {self.temperature}; it must be a finite number above zero.")
        if self.encoder is not None and (self.classifier.is_image or not self.encoder.is_image):
            raise InputError("An encoder reads images, and the classifier behind it vectors.")

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Of what the user gives."""
        return (self.encoder or self.classifier).input_shape

    @property
    def is_image(self) -> bool:
        return len(self.input_shape) == 3


class Model:
    """A trained classifier, for inference only. The network is moved to the device; an encoder is copied to it."""

    def __init__(
        self,
        about: Description,
        network: Network,
        encoder: Network | None = None,
        *,
        device: str = "auto",
        precision: str = "auto",
    ) -> None:
        _check_networks(about, network, encoder)
        self.about, self.network, self.encoder = about, network, encoder
        self.engine = inference_engine(device, precision)
        self.chain = self._quick_links()
        for link in self.chain:
            self.engine.place(link.network)

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.about.class_names

    def _quick_links(self) -> list[Stage]:
        """`links` with an encoder that is a quick copy."""
        *encoders, classifier = self.links()
        return [*(frozen_stage(link.view, cast(Network, link.network)) for link in encoders), classifier]

    def links(self) -> list[Stage]:
        """What inputs pass through: the encoder, if there is one, then the classifier."""
        links = [Stage(self.about.classifier.standardizer(), self.network)]
        if self.about.encoder is not None and self.encoder is not None:
            links.insert(0, Stage(self.about.encoder.standardizer(), self.encoder))
        return links

    def outputs(self, inputs: Tensor, batch: int = INFERENCE_BATCH) -> Output:
        """Logits, before the temperature, and the features they were computed from: float32, on the host."""
        with self.engine.memory(OUT_OF_MEMORY_HINT):
            inputs = self._checked(inputs)
            if self.encoder is None:
                return infer(self.engine, self.chain, inputs, batch, device="cpu")
            batch = min(batch, frozen_batch(self.about.input_shape[1], self.engine.device))
            return infer(self.engine, self.chain, inputs, batch, device="cpu", threads=batch_threads(self.engine.device))

    def probabilities(self, inputs: Tensor, batch: int = INFERENCE_BATCH) -> Tensor:
        """N x C class probabilities for uint8 images (N x channels x height x width) or vectors (N x width)."""
        return (self.outputs(inputs, batch).logits / self.about.temperature).softmax(dim=1)

    def features(self, inputs: Tensor, batch: int = INFERENCE_BATCH) -> Tensor:
        """N x D inputs of the classifier's last layer."""
        return self.outputs(inputs, batch).features

    def _checked(self, inputs: Tensor) -> Tensor:
        about = self.about
        right = inputs.dtype == torch.uint8 if about.is_image else inputs.is_floating_point()
        if tuple(inputs.shape[1:]) != about.input_shape or inputs.ndim != len(about.input_shape) + 1 or not right:
            wanted = " x ".join(map(str, ("N", *about.input_shape)))
            raise InputError(
                f"The classifier reads {'uint8 images' if about.is_image else 'float vectors'} of shape {wanted}; "
                f"found {str(inputs.dtype).removeprefix('torch.')} of shape {' x '.join(map(str, inputs.shape))}."
            )
        if not about.is_image:
            bad_N = ~inputs.isfinite().all(dim=1)
            if bad_N.any():
                row = int(bad_N.int().argmax())
                raise InputError(f"Row {row} of the vectors (from 0) holds NaN or infinity; drop it, or fill the gap.")
        return inputs

    def save(self, path: Path | str) -> None:
        """Write one file, completely or not at all."""
        tensors = {
            name: value.detach().cpu().clone(memory_format=torch.contiguous_format)
            for name, value in _named_state(self.network, self.encoder)
        }
        values = {"format": FORMAT, **asdict(self.about)}
        text = json.dumps({**values, "sha256": checksum(values, tensors)}, ensure_ascii=False)
        write_bytes(Path(path), to_bytes(tensors, {TEXT: text}))

    @classmethod
    def load(cls, path: Path | str, device: str = "auto", *, precision: str = "auto") -> Model:
        """From such a file, or from the run folder that holds one. Reads only text and numbers, no pickle."""
        path = find_model(path)
        about, tensors = _read(path)
        network, encoder = _build(path, about)
        own = dict(_named_state(network, encoder))
        wrong = [name for name in {**own, **tensors} if not _alike(own.get(name), tensors.get(name))]
        if wrong:
            raise InputError(
                f"{path} does not fit the network that it names: {in_short(wrong[0])} ({len(wrong)} such). Write it again."
            )
        refuse_not_finite(tensors, path)
        with torch.no_grad():
            for name, value in own.items():
                value.copy_(tensors[name])
        return cls(about, network, encoder, device=device, precision=precision)


def find_model(run: Path | str) -> Path:
    """The classifier of a run folder; the path of the file itself is taken as it is."""
    path = Path(run) / FILE_NAME if Path(run).is_dir() else Path(run)
    if not path.is_file():
        if _is_of_answers_alone(Path(run)):
            raise InputError(
                f"{run} has no classifier: it was fitted to answers alone (--no-images). Fit the pictures to have one."
            )
        where = f"{run} holds no {FILE_NAME}" if Path(run).is_dir() else f"{run} does not exist"
        raise InputError(f"{where}. Give the folder that `pals fit` or `pals train --encoder` wrote, once it is finished.")
    return path


def _is_of_answers_alone(run: Path) -> bool:
    config = run / "config.yaml"
    method = read_yaml(config).get("method") if config.is_file() else None
    return isinstance(method, Mapping) and method.get("name") == DAWID_SKENE


def is_model(path: Path) -> bool:
    """Whether the file is such a classifier, and not some other file of weights."""
    try:
        with safe_open(str(path), framework="pt", device="cpu") as file:
            return TEXT in (file.metadata() or {})
    except (OSError, SafetensorError, ValueError):
        return False


def check_saveable(module: nn.Module) -> None:
    """Refuse what a `Model` cannot be made of."""
    if not isinstance(module, Network):
        raise InputError(
            f"The predictor ({type(module).__name__}) is not a single network with a linear classifier, and only those "
            "can be saved. Choose a method that trains one network; `pals methods` shows how many each has."
        )


def _check_networks(about: Description, network: Network, encoder: Network | None) -> None:
    for module in (network, *(() if encoder is None else (encoder,))):
        check_saveable(module)
    if network.num_classes != len(about.class_names):
        raise InputError(f"The network has {network.num_classes} classes, but {len(about.class_names)} are named.")
    if (encoder is None) != (about.encoder is None):
        raise InputError("An encoder needs a description, and a described encoder must be given.")
    if encoder is not None and about.classifier.input_shape != (encoder.feature_width,):
        raise InputError(
            f"The encoder gives features of width {encoder.feature_width}; the classifier reads {about.classifier.input_shape}."
        )


def _named_state(network: Network, encoder: Network | None) -> Iterator[tuple[str, Tensor]]:
    """All weights and statistics by name; an encoder's own classifier is not asked and not kept."""
    for name, value in network.state_dict().items():
        yield f"classifier.{name}", value
    for name, value in ({} if encoder is None else encoder.state_dict()).items():
        if not name.startswith("classifier."):
            yield f"encoder.{name}", value


def _alike(a: Tensor | None, b: Tensor | None) -> bool:
    return a is not None and b is not None and a.shape == b.shape and a.dtype == b.dtype


def checksum(values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """Over description, names, types, shapes and numbers: a safetensors file notices a wrong length, not a wrong byte."""
    digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode())
    for name in sorted(tensors):
        value = tensors[name]
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _read(path: Path) -> tuple[Description, dict[str, Tensor]]:
    try:
        with safe_open(str(path), framework="pt", device="cpu") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, ValueError) as error:
        reason = in_short(error) or type(error).__name__
        raise InputError(f"{path} is truncated, damaged or not a classifier ({reason}). Restore it, or fit again.") from None
    if TEXT not in metadata:
        raise InputError(f"{path} holds weights, but not a PALS classifier. Give the {FILE_NAME} that `pals fit` wrote.")
    values = _parse(path, metadata[TEXT])
    if values.pop("sha256", None) != checksum(values, tensors):
        raise InputError(f"{path} was changed or damaged: its checksum is wrong. Restore it from a copy, or fit again.")
    del values["format"]
    try:
        return TypeAdapter(Description).validate_python(values), tensors
    except ValidationError as error:
        first = error.errors()[0]
        where, reason = in_short(".".join(map(str, first["loc"]))) or "in all", in_short(first["msg"], 200)
        raise InputError(f"{path}: its description is invalid ({where}: {reason}). Fit again.") from None


def _parse(path: Path, text: str) -> dict[str, Any]:
    """The description as plain values. Its format is looked at first: what a newer one holds is not known here."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        values = None
    format_ = values.get("format") if isinstance(values, dict) else None
    if not isinstance(values, dict) or not isinstance(format_, int):
        raise InputError(f"{path} was changed or damaged: its description cannot be read. Restore it, or fit again.")
    if format_ > FORMAT:
        raise InputError(
            f"{path} was written by a newer PALS (format {format_}; this one reads up to {FORMAT}). Install that version: "
            f"pip install -U pals-learn."
        )
    return values


def _build(path: Path, about: Description) -> tuple[Network, Network | None]:
    reads, encodes = about.classifier, about.encoder
    try:
        with torch.random.fork_rng(devices=[]):  # the first weights are drawn in vain: nobody's random numbers change by it
            network = build_network(reads.network, reads.input_shape, len(about.class_names))
            encoder = None if encodes is None else build_network(encodes.network, encodes.input_shape, 2)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return network, encoder
