"""Features of pictures, kept on disk by what is seen (the pixels) and by what sees it (the weights): never computed twice."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Container, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from pals.data import Inputs
from pals.data.row_source import in_batches
from pals.model.saved import checksum
from pals.runs.run_features import TEXT, features_mark
from pals.training.extract import encode
from pals.training.inference import OnBatch
from pals.util.errors import InputError
from pals.util.files import write_bytes
from pals.util.threads import read_ahead
from pals.vision.pretrained import Encoder

FOLDER = "features"
BLOCK = 256
"""Pictures whose features are written at a time: what a process that is killed loses."""
KEY = 16  # bytes of a picture's hash
UNREADABLE = (OSError, SafetensorError, ValueError)  # of a file of features


def encode_kept(
    images: Inputs, encoder: Encoder, cache: Path, device: str = "cpu", progress: OnBatch | None = None
) -> tuple[Tensor, int]:
    """`encode` for pictures as they are, except for those whose features by these weights are kept below `cache`; and how many
    had to be encoded. Each block is kept as soon as it is done."""
    place = _place(cache, encoder)
    key_N = [picture_key(image) for part in in_batches(images, BLOCK) for image in part]
    features_ND = torch.empty(len(images), encoder.feature_width)
    row_of: dict[bytes, list[int]] = {}
    for row, key in enumerate(key_N):
        row_of.setdefault(key, []).append(row)
    for key, feature_D in _read(place, row_of):
        features_ND[row_of.pop(key)] = feature_D
    missing = list(row_of)
    done = len(images) - sum(map(len, row_of.values()))
    blocks = [missing[start : start + BLOCK] for start in range(0, len(missing), BLOCK)]
    read = read_ahead(lambda keys: images[[row_of[key][0] for key in keys]], blocks)  # while the block before it is encoded
    for keys, pictures in zip(blocks, read, strict=True):
        told = None if progress is None else shifted(progress, done, len(images))
        feature_BD = encode(pictures, encoder, device, progress=told)
        _keep(place, keys, feature_BD)
        for key, feature_D in zip(keys, feature_BD, strict=True):
            features_ND[row_of[key]] = feature_D
            done += len(row_of[key])
    return features_ND, len(missing)


class Ahead:
    """Encodes pictures while others are still being decoded, and keeps their features, for `encode_kept` to find.

    `see` takes one picture at a time. A full block is encoded in a thread of its own; whoever has filled the next one by then
    waits, so that there are never more than two blocks in memory. A last block that is not full is left to `encode_kept`, and
    so is everything else if features cannot be kept.
    """

    def __init__(self, encoder: Encoder, cache: Path, device: str = "cpu") -> None:
        self.encoder, self.device, self.place = encoder, device, _place(cache, encoder)
        self.known = _known(self.place)
        self.encoded = 0
        self.useful = True
        self.block: list[Tensor] = []
        self.under_way: Future[None] | None = None
        self.pool = ThreadPoolExecutor(1, "pals-ahead", torch.set_num_threads, (torch.get_num_threads(),))

    def see(self, pixels: np.ndarray) -> None:
        """One more picture, C x height x width."""
        self.block.append(torch.from_numpy(pixels))
        if len(self.block) == BLOCK:
            self._wait()
            if self.useful:
                self.under_way = self.pool.submit(self._encode, self.block)
            self.block = []

    def __enter__(self) -> Ahead:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.pool.shutdown()
        if kind is None:
            self._wait()

    def _wait(self) -> None:
        if self.under_way is not None:
            self.under_way.result()

    def _encode(self, block: list[Tensor]) -> None:
        new = {key: image for image in block if (key := picture_key(image)) not in self.known}
        if not new:
            return
        self.useful = _keep(self.place, list(new), encode(torch.stack(list(new.values())), self.encoder, self.device))
        if self.useful:
            self.known |= new.keys()
            self.encoded += len(new)


def _place(cache: Path, encoder: Encoder) -> Path:
    """The folder of what this encoder made, with these weights."""
    return cache / FOLDER / features_mark("", encoder.name, encoder.network, (encoder.mean, encoder.std))


def picture_key(image: Tensor) -> bytes:
    """Changes with any pixel, and with the shape."""
    shape = repr(tuple(image.shape)).encode()
    return hashlib.blake2b(image.contiguous().numpy().data, digest_size=KEY, key=shape).digest()


def shifted(progress: OnBatch, before: int, total: int) -> OnBatch:
    """For a part of all pictures, so many of which come before it."""
    return lambda done, _: progress(before + done, total)


def _keep(place: Path, keys: Sequence[bytes], feature_BD: Tensor) -> bool:
    """Whether there was room; what was computed is of use even if there was none."""
    try:
        _write(place, keys, feature_BD)
    except InputError:
        warnings.warn(f"Features cannot be kept in {place} and will be computed again next time.", stacklevel=3)
        return False
    return True


def _write(place: Path, keys: Sequence[bytes], feature_BD: Tensor) -> None:
    """One file, whole or not at all; its name follows from the pictures, so that processes do not get in each other's way."""
    key_BK = torch.from_numpy(np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(-1, KEY).copy())
    tensors = {"key": key_BK, "features": feature_BD.contiguous()}
    name = hashlib.blake2b(b"".join(keys), digest_size=KEY).hexdigest()
    write_bytes(place / f"{name}.safetensors", to_bytes(tensors, {TEXT: json.dumps({"sha256": checksum({}, tensors)})}))


def _keys(file: Any) -> dict[bytes, int]:
    """The pictures of an open file, and the row of each."""
    return {row.tobytes(): number for number, row in enumerate(file.get_tensor("key").numpy())}


def _known(place: Path) -> set[bytes]:
    """The pictures of all files, damaged ones passed over."""
    known: set[bytes] = set()
    for path in place.glob("*.safetensors"):
        with suppress(*UNREADABLE), safe_open(str(path), framework="pt", device="cpu") as file:
            known |= _keys(file).keys()
    return known


def _read(place: Path, wanted: Container[bytes]) -> Iterator[tuple[bytes, Tensor]]:
    """The features that are kept of these pictures. A damaged file is passed over: its pictures are encoded again."""
    for path in sorted(place.glob("*.safetensors")):
        try:
            with safe_open(str(path), framework="pt", device="cpu") as file:
                keys = _keys(file)
                use = [key for key in keys if key in wanted]
                if not use:
                    continue
                tensors = {name: file.get_tensor(name) for name in ("key", "features")}
                found = json.loads((file.metadata() or {}).get(TEXT, "{}"))
        except UNREADABLE:
            continue
        if found.get("sha256") != checksum({}, tensors):
            continue
        yield from ((key, tensors["features"][keys[key]]) for key in use)
