"""Features of pictures, kept on disk by what is seen (the pixels) and by what sees it (the weights): never computed twice."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Container, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from pals.data import Inputs
from pals.data.source import in_batches
from pals.model.saved import checksum
from pals.runs.features import TEXT, features_mark
from pals.training.encoding import encode
from pals.training.inference import OnBatch
from pals.util.errors import InputError
from pals.util.files import write_bytes
from pals.vision.encoders import Encoder

FOLDER = "features"
BLOCK = 256
"""Pictures whose features are written at a time: what a process that is killed loses."""
KEY = 16  # bytes of a picture's hash


def encode_kept(
    images: Inputs, encoder: Encoder, cache: Path, device: str = "cpu", progress: OnBatch | None = None
) -> tuple[Tensor, int]:
    """`encode` for pictures as they are, except for those whose features by these weights are kept below `cache`; and how many
    had to be encoded. Each block is kept as soon as it is done."""
    place = cache / FOLDER / features_mark("", encoder.name, encoder.network, (encoder.mean, encoder.std))
    key_N = [picture_key(image) for part in in_batches(images, BLOCK) for image in part]
    features_ND = torch.empty(len(images), encoder.feature_width)
    row_of: dict[bytes, list[int]] = {}
    for row, key in enumerate(key_N):
        row_of.setdefault(key, []).append(row)
    for key, feature_D in _read(place, row_of):
        features_ND[row_of.pop(key)] = feature_D
    missing = list(row_of)
    done = len(images) - sum(map(len, row_of.values()))
    for start in range(0, len(missing), BLOCK):
        keys = missing[start : start + BLOCK]
        pictures = images[[row_of[key][0] for key in keys]]
        told = None if progress is None else shifted(progress, done, len(images))
        feature_BD = encode(pictures, encoder, device, progress=told)
        _keep(place, keys, feature_BD)
        for key, feature_D in zip(keys, feature_BD, strict=True):
            features_ND[row_of[key]] = feature_D
            done += len(row_of[key])
    return features_ND, len(missing)


def picture_key(image: Tensor) -> bytes:
    """Changes with any pixel, and with the shape."""
    shape = repr(tuple(image.shape)).encode()
    return hashlib.blake2b(image.contiguous().numpy().data, digest_size=KEY, key=shape).digest()


def shifted(progress: OnBatch, before: int, total: int) -> OnBatch:
    """For a part of all pictures, so many of which come before it."""
    return lambda done, _: progress(before + done, total)


def _keep(place: Path, keys: Sequence[bytes], feature_BD: Tensor) -> None:
    """What was computed is of use even if there is no room for it."""
    try:
        _write(place, keys, feature_BD)
    except InputError:
        warnings.warn(f"Features cannot be kept in {place} and will be computed again next time.", stacklevel=3)


def _write(place: Path, keys: Sequence[bytes], feature_BD: Tensor) -> None:
    """One file, whole or not at all; its name follows from the pictures, so that processes do not get in each other's way."""
    key_BK = torch.from_numpy(np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(-1, KEY).copy())
    tensors = {"key": key_BK, "features": feature_BD.contiguous()}
    name = hashlib.blake2b(b"".join(keys), digest_size=KEY).hexdigest()
    write_bytes(place / f"{name}.safetensors", to_bytes(tensors, {TEXT: json.dumps({"sha256": checksum({}, tensors)})}))


def _read(place: Path, wanted: Container[bytes]) -> Iterator[tuple[bytes, Tensor]]:
    """The features that are kept of these pictures. A damaged file is passed over: its pictures are encoded again."""
    for path in sorted(place.glob("*.safetensors")):
        try:
            with safe_open(str(path), framework="pt", device="cpu") as file:
                keys = {row.tobytes(): number for number, row in enumerate(file.get_tensor("key").numpy())}
                use = [key for key in keys if key in wanted]
                if not use:
                    continue
                tensors = {name: file.get_tensor(name) for name in ("key", "features")}
                found = json.loads((file.metadata() or {}).get(TEXT, "{}"))
        except (OSError, SafetensorError, ValueError):
            continue
        if found.get("sha256") != checksum({}, tensors):
            continue
        yield from ((key, tensors["features"][keys[key]]) for key in use)
