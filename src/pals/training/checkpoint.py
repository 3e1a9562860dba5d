"""Save and load all that a run needs to go on as if it had never stopped."""

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

FORMAT = 1
DIGEST = 64  # bytes of a SHA-256 in hexadecimal
REMEDY = "Restore it from a copy, or delete it to start the run again"

Complete = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Settings as an older version wrote them, with those that it did not have yet."""


def save_checkpoint(path: Path, settings: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    """Write atomically: after a crash at any moment the file is the old one or the new one, whole."""
    buffer = io.BytesIO()
    torch.save({"format": FORMAT, "settings": dict(settings), "state": dict(state)}, buffer)
    _seal(buffer)
    write_bytes(path, buffer.getbuffer())


def load_checkpoint(path: Path, settings: Mapping[str, Any] | None = None, complete: Complete = dict) -> dict[str, Any]:
    """The saved state. Refuses a damaged file and, where `settings` are given, one that was written under others; `complete`
    puts in what an older version did not write."""
    content = _read(path)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InputError(f"{path} is not a checkpoint of this version (format {FORMAT}). Delete it to start the run again.")
    for key in ("settings", "state"):
        if not isinstance(content.get(key), dict):
            raise incomplete(path, key, content)
    if settings is not None:
        refuse_other_settings(path, _completed(path, content["settings"], complete), settings)
    state: dict[str, Any] = content["state"]
    return state


def incomplete(path: Path, key: str, content: Mapping[str, Any]) -> InputError:
    """An error about something that every checkpoint holds."""
    found = f"its {key!r} is of the type {type(content[key]).__name__}" if key in content else f"it has no {key!r}"
    return InputError(f"The checkpoint {path} is incomplete: {found}. {REMEDY}.")


def tensors_in(content: object, name: str) -> Iterator[tuple[str, Tensor]]:
    """All tensors in dictionaries within dictionaries, each with the names that lead to it."""
    if isinstance(content, Tensor):
        yield name, content
    elif isinstance(content, dict):
        for key, value in content.items():
            yield from tensors_in(value, f"{name}.{key}")


def _read(path: Path) -> Any:
    """Tensors and plain values. What torch says of a file that it will not read is not repeated: it advises to run the file's
    own code."""
    try:
        data = path.read_bytes()
        if not _is_sealed(data):
            raise ValueError("its checksum is wrong")
        return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise InputError(f"There is no checkpoint {path}.") from None
    except OSError as error:
        reason = error.strerror or type(error).__name__
    except pickle.UnpicklingError:
        reason = "it holds Python objects besides tensors, which are never run"
    except Exception as error:  # readers of damaged files fail in many ways
        reason = str(error) if type(error) is ValueError else "torch cannot read it"
    raise InputError(
        f"The checkpoint {path} cannot be read ({reason}). It is truncated, damaged or not a checkpoint: {REMEDY.lower()}."
    )


def _completed(path: Path, settings: Mapping[str, Any], complete: Complete) -> Mapping[str, Any]:
    try:
        return complete(settings)
    except InputError as error:
        raise InputError(f"The checkpoint {path} was written under settings that are not known here: {error}") from None


def refuse_other_settings(path: Path, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """An error that names the first differing setting."""
    differing = list(differences(found, wanted))
    if differing:
        key, old, new = differing[0]
        more = f" ({len(differing) - 1} more differ)" if len(differing) > 1 else ""
        raise InputError(
            f"{path} belongs to a run with other settings: {key} is {old!r} there and {new!r} here{more}. "
            f"Choose another output folder, or use the old settings to continue that run."
        )


def _seal(buffer: io.BytesIO) -> None:
    """Put a checksum of the whole file into the comment at its end, for which torch's format (a zip) has room. The zip's own
    checksums do not cover its directory, and torch looks at none."""
    buffer.seek(-2, io.SEEK_END)
    buffer.write(DIGEST.to_bytes(2, "little"))  # the comment's length, the last field of a zip
    buffer.write(_digest(buffer.getbuffer()))


def _is_sealed(data: bytes) -> bool:
    return len(data) > DIGEST and _digest(memoryview(data)[:-DIGEST]) == data[-DIGEST:]


def _digest(data: memoryview) -> bytes:
    return hashlib.sha256(data).hexdigest().encode()
