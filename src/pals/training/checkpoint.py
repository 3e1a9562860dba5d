"""Checkpoints: the complete state of a run in one file of tensors and plain values.

The file is torch's format (a zip) with a SHA-256 of everything before it as the zip's comment, so that any flipped bit is
found. It is read with `weights_only`, which runs no code, and written atomically.
"""

from __future__ import annotations

import hashlib
import io
import pickle
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pals.util.config import differences
from pals.util.errors import InputError
from pals.util.files import write_bytes

CHECKPOINT_FORMAT = 1
DIGEST_BYTES = 64
"""Length of a SHA-256 in hexadecimal."""
CHECKPOINT_HINT = "Restore it from a copy, or delete it to start the run again"

Migrate = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Settings as an older version wrote them -> the same with defaults for settings that it did not have."""


def save_checkpoint(path: Path, settings: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    """Write a checkpoint atomically: after a crash at any moment the file is the old one or the new one.

    Args:
        path: of the file.
        settings: of the run, plain values.
        state: tensors and plain values in dictionaries.
    """
    buffer = io.BytesIO()
    torch.save({"format": CHECKPOINT_FORMAT, "settings": dict(settings), "state": dict(state)}, buffer)
    _append_checksum(buffer)
    write_bytes(path, buffer.getbuffer())


def load_checkpoint(path: Path, settings: Mapping[str, Any] | None = None, migrate: Migrate = dict) -> dict[str, Any]:
    """Read the state from a checkpoint.

    Args:
        path: of the file.
        settings: that the run must have; None: any.
        migrate: brings saved settings up to date before they are compared.

    Returns:
        The state, on the CPU.

    Raises:
        InputError: the file is missing or damaged, or was written under other settings.
    """
    content = _read(path)
    if not isinstance(content, dict) or content.get("format") != CHECKPOINT_FORMAT:
        raise InputError(f"{path} is no checkpoint of this version (format {CHECKPOINT_FORMAT}). Delete it to start again.")
    for key in ("settings", "state"):
        if not isinstance(content.get(key), dict):
            raise incomplete(path, key, content)
    if settings is not None:
        try:
            found = migrate(content["settings"])
        except InputError as error:
            raise InputError(f"The checkpoint {path} was written under settings that are not known here: {error}") from None
        refuse_other_settings(path, found, settings)
    state: dict[str, Any] = content["state"]
    return state


def incomplete(path: Path, key: str, content: Mapping[str, Any]) -> InputError:
    """The error of a checkpoint that lacks a key, or has another type under it."""
    found = f"its {key!r} is of the type {type(content[key]).__name__}" if key in content else f"it has no {key!r}"
    return InputError(f"The checkpoint {path} is incomplete: {found}. {CHECKPOINT_HINT}.")


def tensors_in(content: object, name: str) -> Iterator[tuple[str, Tensor]]:
    """(dotted name, tensor) of every tensor in nested dictionaries."""
    if isinstance(content, Tensor):
        yield name, content
    elif isinstance(content, dict):
        for key, value in content.items():
            yield from tensors_in(value, f"{name}.{key}")


def _read(path: Path) -> Any:
    """The content of the file. Torch's own message about a refused file is left out, because it advises running its code."""
    try:
        data = path.read_bytes()
        if not _has_valid_checksum(data):
            raise ValueError("its checksum is wrong")
        return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise InputError(f"There is no checkpoint {path}.") from None
    except OSError as error:
        reason = error.strerror or type(error).__name__
    except pickle.UnpicklingError:
        reason = "it holds Python objects besides tensors, which are never run"
    except Exception as error:  # damaged files raise errors of many types
        reason = str(error) if type(error) is ValueError else "torch cannot read it"
    raise InputError(f"The checkpoint {path} cannot be read ({reason}). {CHECKPOINT_HINT}.")


def refuse_other_settings(path: Path, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuse settings that differ, by the name and both values of the first."""
    differing = list(differences(found, wanted))
    if differing:
        key, old, new = differing[0]
        more = f" ({len(differing) - 1} more differ)" if len(differing) > 1 else ""
        raise InputError(
            f"{path} belongs to a run with other settings: {key} is {old!r} there and {new!r} here{more}. "
            f"Choose another output folder, or use the old settings to continue that run."
        )


def _append_checksum(buffer: io.BytesIO) -> None:
    """Store a checksum as the comment at the end of the zip, whose own checksums do not cover its directory."""
    buffer.seek(-2, io.SEEK_END)
    buffer.write(DIGEST_BYTES.to_bytes(2, "little"))  # the comment's length, the last field of a zip
    buffer.write(_digest(buffer.getbuffer()))


def _has_valid_checksum(data: bytes) -> bool:
    return len(data) > DIGEST_BYTES and _digest(memoryview(data)[:-DIGEST_BYTES]) == data[-DIGEST_BYTES:]


def _digest(data: memoryview) -> bytes:
    return hashlib.sha256(data).hexdigest().encode()
