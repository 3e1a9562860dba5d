"""Features that are kept on disk: per image in the cache of all runs, per run where patches are cut from its own images.

The cache holds, below `features/`, one folder for each network and its weights (`features_mark`), with files of 256 images:
their hashes, their features and a checksum. Files that are damaged are ignored, and their images are encoded again.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Container, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from pals.data.row_source import Inputs, in_batches, in_blocks
from pals.model.saved import checksum
from pals.training.extract import encode
from pals.training.inference import OnBatch
from pals.util.errors import InputError
from pals.util.files import write_bytes
from pals.util.threads import read_ahead
from pals.vision.networks import Network
from pals.vision.pretrained import Encoder

CACHE_FOLDER = "features"
RUN_FEATURES_FILE = "features.safetensors"
FEATURES_FORMAT = 1
METADATA_KEY = "pals"
BLOCK_IMAGES = 256
"""Images per file: the most that a process that is killed has to encode again."""
KEY_BYTES = 16
"""Length of the hash of an image."""
UNREADABLE = (OSError, SafetensorError, ValueError)
"""Errors of a file that is damaged or gone."""


# ---------------------------------------------------------------------------------------------- marks


def content_mark(inputs: Inputs, progress: OnBatch = lambda done, total: None) -> str:
    """A hash of all pixels or numbers and of the order of the items."""
    mark = hashlib.blake2b(repr((tuple(inputs.shape), inputs.dtype)).encode(), digest_size=12)
    done = 0
    for block in in_blocks(inputs):
        mark.update(block.contiguous().numpy().data)
        progress(done := done + len(block), len(inputs))
    return mark.hexdigest()


def features_mark(content: str, name: str, encoder: Network, more: Sequence[object]) -> str:
    """A hash of what features depend on.

    Args:
        content: mark of the images; empty in the cache, whose images have a hash each.
        name: of the network.
        encoder: whose weights count, but for those of its own classifier.
        more: settings, such as the normalisation.
    """
    mark = hashlib.blake2b(repr((content, name, *more)).encode(), digest_size=12)
    for key, value in encoder_state(encoder).items():
        mark.update(f"{key} {value.dtype} {tuple(value.shape)}".encode())
        mark.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return mark.hexdigest()


def encoder_state(encoder: Network) -> dict[str, Tensor]:
    """Weights and statistics of a network, but for those of its classifier."""
    return {name: value for name, value in encoder.state_dict().items() if not name.startswith("classifier.")}


def image_key(image: Tensor) -> bytes:
    """A hash of an image's pixels and shape."""
    shape = repr(tuple(image.shape)).encode()
    return hashlib.blake2b(image.contiguous().numpy().data, digest_size=KEY_BYTES, key=shape).digest()


# ---------------------------------------------------------------------------------------------- the cache


def encode_cached(
    images: Inputs, encoder: Encoder, cache: Path, device: str = "cpu", progress: OnBatch | None = None
) -> tuple[Tensor, int]:
    """Encode images, taking from the cache those that were encoded before. Each block is kept as soon as it is done.

    Args:
        images: N, uint8.
        encoder: network, weights and normalisation.
        cache: folder below which features are kept.
        device: where the network runs.
        progress: called with the number of images done and N.

    Returns:
        N x D features, float32, and how many images had to be encoded.
    """
    folder = _cache_folder(cache, encoder)
    features_ND = torch.empty(len(images), encoder.feature_width)
    missing: dict[bytes, list[int]] = {}  # rows by image, which may occur several times
    keys = (image_key(image) for batch in in_batches(images, BLOCK_IMAGES) for image in batch)
    for row, key in enumerate(keys):
        missing.setdefault(key, []).append(row)
    for path in sorted(folder.glob("*.safetensors")):
        tensors = _read(path, {}, missing) or {"key": torch.empty(0, KEY_BYTES)}
        for number, key in enumerate(_keys(tensors["key"])):
            if key in missing:
                features_ND[missing.pop(key)] = tensors["features"][number]
    done, new = len(images) - sum(map(len, missing.values())), list(missing)
    blocks = [new[start : start + BLOCK_IMAGES] for start in range(0, len(new), BLOCK_IMAGES)]
    read = read_ahead(lambda block: images[[missing[key][0] for key in block]], blocks)
    for block, pixels in zip(blocks, read, strict=True):
        report = None if progress is None else shifted(progress, done, len(images))
        feature_BD = encode(pixels, encoder, device, progress=report)
        _write_block(folder, block, feature_BD)
        for key, feature_D in zip(block, feature_BD, strict=True):
            features_ND[missing[key]] = feature_D
            done += len(missing[key])
    return features_ND, len(new)


class BackgroundEncoder:
    """Encodes images in a thread while others are being decoded, so that `encode_cached` finds them in the cache.

    `add` takes one image at a time and waits while a second block is full. The last block that is not full, and all others
    once features cannot be written, are left to `encode_cached`.
    """

    def __init__(self, encoder: Encoder, cache: Path, device: str = "cpu") -> None:
        self.encoder, self.device, self.folder = encoder, device, _cache_folder(cache, encoder)
        self.known: set[bytes] = set()
        for path in self.folder.glob("*.safetensors"):
            with suppress(*UNREADABLE), safe_open(str(path), framework="pt", device="cpu") as file:
                self.known |= {*_keys(file.get_tensor("key"))}
        self.encoded = 0
        self.can_write = True
        self.block: list[Tensor] = []
        self.running: Future[None] | None = None
        self.pool = ThreadPoolExecutor(1, "pals-encoder", torch.set_num_threads, (torch.get_num_threads(),))

    def add(self, pixels: np.ndarray) -> None:
        """One more image, C x height x width, uint8."""
        self.block.append(torch.from_numpy(pixels))
        if len(self.block) == BLOCK_IMAGES:
            self._wait()
            if self.can_write:
                self.running = self.pool.submit(self._encode, self.block)
            self.block = []

    def __enter__(self) -> BackgroundEncoder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.pool.shutdown()
        if kind is None:
            self._wait()

    def _wait(self) -> None:
        if self.running is not None:
            self.running.result()

    def _encode(self, block: list[Tensor]) -> None:
        new = {key: image for image in block if (key := image_key(image)) not in self.known}
        if not new:
            return
        self.can_write = _write_block(
            self.folder, list(new), encode(torch.stack(list(new.values())), self.encoder, self.device)
        )
        if self.can_write:
            self.known |= new.keys()
            self.encoded += len(new)


def shifted(progress: OnBatch, before: int, total: int) -> OnBatch:
    """`progress` for a part of all images, with `before` images done already."""
    return lambda done, _: progress(before + done, total)


def _cache_folder(cache: Path, encoder: Encoder) -> Path:
    return cache / CACHE_FOLDER / features_mark("", encoder.name, encoder.network, (encoder.mean, encoder.std))


def _write_block(folder: Path, keys: Sequence[bytes], feature_BD: Tensor) -> bool:
    """Write a block under a name that follows from its images, so that processes do not overwrite each other; whether there was
    room on the disk."""
    key_BK = torch.from_numpy(np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(-1, KEY_BYTES).copy())
    name = hashlib.blake2b(b"".join(keys), digest_size=KEY_BYTES).hexdigest()
    try:
        _write(folder / f"{name}.safetensors", {"key": key_BK, "features": feature_BD}, {})
    except InputError:
        warnings.warn(f"Features cannot be kept in {folder} and will be computed again next time.", stacklevel=3)
        return False
    return True


def _keys(key_BK: Tensor) -> list[bytes]:
    return [row.tobytes() for row in key_BK.numpy()]


# ---------------------------------------------------------------------------------------------- features of one run


@dataclass(frozen=True)
class RunFeatures:
    """Features of all items of a run."""

    features_ND: Tensor
    responses_ND: Tensor | None = None
    "Responses to all patches, where they are few enough to be kept."
    learned: dict[str, Tensor] = field(default_factory=dict)
    "State of an encoder that was learned from the images themselves."


def write_features(folder: Path, mark: str, made: RunFeatures) -> None:
    """Write the features of a run into its folder.

    Args:
        folder: of the run.
        mark: hash of what they depend on (`features_mark`).
        made: the features.
    """
    tensors = {"features": made.features_ND, **{f"learned.{name}": value for name, value in made.learned.items()}}
    if made.responses_ND is not None:
        tensors["responses"] = made.responses_ND
    _write(folder / RUN_FEATURES_FILE, tensors, {"format": FEATURES_FORMAT, "mark": mark})


def read_features(folder: Path, mark: str) -> RunFeatures | None:
    """The features in a run's folder; None where there are none under this mark, or the file is damaged."""
    tensors = _read(folder / RUN_FEATURES_FILE, {"format": FEATURES_FORMAT, "mark": mark})
    if tensors is None or "features" not in tensors:
        return None
    learned = {name.removeprefix("learned."): value for name, value in tensors.items() if name.startswith("learned.")}
    return RunFeatures(tensors["features"], tensors.get("responses"), learned)


# ---------------------------------------------------------------------------------------------- files


def _write(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
    """One file, complete or not at all, with a checksum of its tensors and of `about`."""
    tensors = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    text = json.dumps({**about, "sha256": checksum(about, tensors)})
    write_bytes(path, to_bytes(tensors, {METADATA_KEY: text}))


def _read(path: Path, about: Mapping[str, Any], keys: Container[bytes] | None = None) -> dict[str, Tensor] | None:
    """The tensors of a file that was written with this `about` and holds, if `keys` are given, one of these images; None for
    any other file and for a damaged one."""
    try:
        with safe_open(str(path), framework="pt", device="cpu") as file:
            found = json.loads((file.metadata() or {}).get(METADATA_KEY, "{}"))
            if {key: found.get(key) for key in about} != about:
                return None
            if keys is not None and not any(key in keys for key in _keys(file.get_tensor("key"))):
                return None
            tensors = {name: file.get_tensor(name) for name in list(file.keys())}
    except UNREADABLE:
        return None
    return tensors if found.get("sha256") == checksum(about, tensors) else None
