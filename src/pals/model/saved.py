"""The saved classifier: one safetensors file with the weights and, as JSON in its header, everything else to use it.

    features_ND = encoder((x / 255 - mean) / std)                  if there is an encoder
    p_NC        = softmax(classifier((h - mean) / std) / temperature)

A checksum covers the description and the weights. Loading runs no code of the file.
"""

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

from pals.labels.taxonomy import SURE, Taxonomy, check_sure
from pals.training.extract import frozen_batch, frozen_stage
from pals.training.inference import (
    INFERENCE_BATCH,
    OUT_OF_MEMORY_HINT,
    InferenceStage,
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
from pals.vision.images.decoding import How
from pals.vision.networks import Network, Output, build_network
from pals.vision.networks.weight_loading import refuse_not_finite

MODEL_FORMAT = 1
FILE_NAME = "model.safetensors"
MODEL_METADATA_KEY = "pals"
"""The only key of the file's metadata; the order of several would vary."""
MAX_INPUT_SIZE = 2**26
"""Numbers in one input."""


@dataclass(frozen=True)
class Part:
    """A network and its inputs."""

    network: str
    "Name in `NETWORKS`, or timm:NAME."
    input_shape: tuple[int, ...]
    "Of one input: channels, height, width of uint8 images, or the width of vectors."
    mean: tuple[float, ...]
    "Per channel, of pixels from 0 to 1, or per feature."
    std: tuple[float, ...]
    "As `mean`; 0 for a constant feature."

    def __post_init__(self) -> None:
        for name, kind in (("input_shape", int), ("mean", float), ("std", float)):  # also from numbers of numpy and torch
            object.__setattr__(self, name, tuple(map(kind, getattr(self, name))))
        shape = self.input_shape
        if len(shape) not in (1, 3) or min(shape) < 1 or math.prod(shape) > MAX_INPUT_SIZE:
            raise InputError(f"The input of {quoted(self.network)} has the shape {quoted(shape)}; give (C, H, W) or (width,).")
        if not len(self.mean) == len(self.std) == shape[0]:
            raise InputError(f"{len(self.mean)} means and {len(self.std)} deviations for {shape}; give {shape[0]} of each.")
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
    """Everything about a classifier except its weights. With an encoder the classifier reads the encoder's features."""

    class_names: tuple[str, ...]
    classifier: Part
    encoder: Part | None = None
    temperature: float = 1.0
    "The logits are divided by it before the softmax."
    resize: How = "squash"
    "How images of another shape are resized."
    taxonomy: Taxonomy | None = None
    "The tree whose leaves are the classes."
    sure: float = SURE
    "How likely a node of the tree must be for a prediction to be rolled up to it."

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
        """Of one input of the whole model."""
        return (self.encoder or self.classifier).input_shape

    @property
    def is_image(self) -> bool:
        return len(self.input_shape) == 3


class Model:
    """A trained classifier, for inference only.

    Args:
        about: classes, inputs, temperature.
        network: the classifier, which is moved to the device.
        encoder: of the images, copied to the device; None: the classifier reads the inputs.
        device: "cpu", "cuda", or "auto", the default.
        precision: "fp32", "bf16", ... or "auto", the default: bf16 on a GPU that has it.

    Raises:
        InputError: networks and description do not fit, or the device does not exist.

    Example:
        >>> import torch
        >>> from pals.model import Description, Part
        >>> from pals.vision.networks import build_network
        >>> about = Description(("cat", "dog"), Part("mlp", (2,), (0, 0), (1, 1)))
        >>> model = pals.Model(about, build_network("mlp", (2,), 2), device="cpu")
        >>> model.probabilities(torch.zeros(3, 2)).shape
        torch.Size([3, 2])
    """

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
        *encoders, classifier = self.stages()
        self._fast_stages = [*(frozen_stage(stage.view, cast(Network, stage.network)) for stage in encoders), classifier]
        for stage in self._fast_stages:
            self.engine.place(stage.network)

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.about.class_names

    def stages(self) -> list[InferenceStage]:
        """The encoder, if there is one, and the classifier, each with the standardisation of its inputs."""
        stages = [InferenceStage(self.about.classifier.standardizer(), self.network)]
        if self.about.encoder is not None and self.encoder is not None:
            stages.insert(0, InferenceStage(self.about.encoder.standardizer(), self.encoder))
        return stages

    def outputs(self, inputs: Tensor, batch: int = INFERENCE_BATCH) -> Output:
        """Logits before the temperature, and the features they are computed from.

        Args:
            inputs: as in `probabilities`.
            batch: items at a time; default: 256.

        Returns:
            N x C and N x D, float32, on the CPU.
        """
        with self.engine.memory(OUT_OF_MEMORY_HINT):
            inputs, threads = self._checked(inputs), 1
            if self.encoder is not None:
                batch = min(batch, frozen_batch(self.about.input_shape[1], self.engine.device))
                threads = batch_threads(self.engine.device)
            return infer(self.engine, self._fast_stages, inputs, batch, device="cpu", threads=threads)

    def probabilities(self, inputs: Tensor, batch: int = INFERENCE_BATCH) -> Tensor:
        """Class probabilities, softmax(logits / temperature).

        Args:
            inputs: uint8 images, N x channels x height x width, or float vectors, N x width.
            batch: items at a time; default: 256.

        Returns:
            N x C, float32, on the CPU.

        Raises:
            InputError: type or shape is wrong, or a vector is not finite.
        """
        return (self.outputs(inputs, batch).logits / self.about.temperature).softmax(dim=1)

    def features(self, inputs: Tensor, batch: int = INFERENCE_BATCH) -> Tensor:
        """The inputs of the classifier's last layer.

        Args:
            inputs: as in `probabilities`.
            batch: items at a time; default: 256.

        Returns:
            N x D, float32, on the CPU.
        """
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
        """Write the classifier to one file, completely or not at all.

        Args:
            path: of the file, by convention model.safetensors in the run folder.
        """
        tensors = {
            name: value.detach().cpu().clone(memory_format=torch.contiguous_format)
            for name, value in _named_state(self.network, self.encoder)
        }
        values = {"format": MODEL_FORMAT, **asdict(self.about)}
        text = json.dumps({**values, "sha256": checksum(values, tensors)}, ensure_ascii=False)
        write_bytes(Path(path), to_bytes(tensors, {MODEL_METADATA_KEY: text}))

    @classmethod
    def load(cls, path: Path | str, device: str = "auto", *, precision: str = "auto") -> Model:
        """Load a saved classifier.

        Args:
            path: the file, or the run folder that contains it.
            device: "cpu", "cuda", or "auto", the default.
            precision: as in `Model`.

        Raises:
            InputError: there is no classifier, or the file is damaged or of a newer version.
        """
        path = find_model(path)
        about, tensors = _read(path)
        network, encoder = _build(path, about)
        own = dict(_named_state(network, encoder))
        kinds = [{name: (x.shape, x.dtype) for name, x in state.items()} for state in (own, tensors)]
        wrong = [name for name in {**own, **tensors} if kinds[0].get(name) != kinds[1].get(name)]
        if wrong:
            raise InputError(f"{path} does not fit its network: {in_short(wrong[0])} ({len(wrong)} such). Write it again.")
        refuse_not_finite(tensors, path)
        with torch.no_grad():
            for name, value in own.items():
                value.copy_(tensors[name])
        return cls(about, network, encoder, device=device, precision=precision)


def find_model(run: Path | str) -> Path:
    """The file of a run's classifier; `run` may also be the file itself."""
    path = Path(run) / FILE_NAME if Path(run).is_dir() else Path(run)
    if not path.is_file():
        from pals.crowd.dawid_skene.em import DAWID_SKENE  # only here: it loads scipy

        config = Path(run) / "config.yaml"
        method = read_yaml(config).get("method") if config.is_file() else None
        if isinstance(method, Mapping) and method.get("name") == DAWID_SKENE:
            raise InputError(f"{run} has no classifier: it was fitted to answers alone (--no-images). Fit the images too.")
        where = f"{run} holds no {FILE_NAME}" if Path(run).is_dir() else f"{run} does not exist"
        raise InputError(f"{where}. Give the folder that `pals fit` or `pals train --encoder` wrote, once it is finished.")
    return path


def is_model(path: Path) -> bool:
    """Whether the file is a saved classifier, and not another file of weights."""
    try:
        with safe_open(str(path), framework="pt", device="cpu") as file:
            return MODEL_METADATA_KEY in (file.metadata() or {})
    except (OSError, SafetensorError, ValueError):
        return False


def check_saveable(module: nn.Module) -> None:
    """Refuse a predictor that a `Model` cannot save."""
    if not isinstance(module, Network):
        raise InputError(
            f"The predictor ({type(module).__name__}) is not a single network with a linear classifier, and only those "
            "can be saved. Choose a method that trains one network; `pals methods` shows how many each has."
        )


def _check_networks(about: Description, network: Network, encoder: Network | None) -> None:
    for module in (network, encoder):
        if module is not None:
            check_saveable(module)
    if network.num_classes != len(about.class_names):
        raise InputError(f"The network has {network.num_classes} classes, but {len(about.class_names)} are named.")
    if (encoder is None) != (about.encoder is None):
        raise InputError("An encoder needs a description, and a described encoder must be given.")
    if encoder is not None and about.classifier.input_shape != (encoder.feature_width,):
        raise InputError(f"{encoder.feature_width} features are encoded; the classifier reads {about.classifier.input_shape}.")


def _named_state(network: Network, encoder: Network | None) -> Iterator[tuple[str, Tensor]]:
    """All weights and statistics by name, without an encoder's own classifier, which is not used."""
    for name, value in network.state_dict().items():
        yield f"classifier.{name}", value
    for name, value in ({} if encoder is None else encoder.state_dict()).items():
        if not name.startswith("classifier."):
            yield f"encoder.{name}", value


def checksum(values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of the description and of names, types, shapes and numbers of all tensors; safetensors itself has none."""
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
    if MODEL_METADATA_KEY not in metadata:
        raise InputError(f"{path} holds weights, but not a PALS classifier. Give the {FILE_NAME} that `pals fit` wrote.")
    values = _parse(path, metadata[MODEL_METADATA_KEY])
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
    """The description as plain values. Its format is checked first, because the content of a newer one is unknown."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        values = None
    version = values.get("format") if isinstance(values, dict) else None
    if not isinstance(values, dict) or not isinstance(version, int):
        raise InputError(f"{path} was changed or damaged: its description cannot be read. Restore it, or fit again.")
    if version > MODEL_FORMAT:
        raise InputError(
            f"{path} was written by a newer PALS (format {version}; this one reads up to {MODEL_FORMAT}). Install "
            f"that version: pip install -U pals-learn."
        )
    return values


def _build(path: Path, about: Description) -> tuple[Network, Network | None]:
    reads, encodes = about.classifier, about.encoder
    try:
        with torch.random.fork_rng(devices=[]):  # initial weights are drawn, and replaced by the saved ones
            network = build_network(reads.network, reads.input_shape, len(about.class_names))
            encoder = None if encodes is None else build_network(encodes.network, encodes.input_shape, 2)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return network, encoder
