"""Save and load all that a run needs to go on as if it had never stopped."""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from pals.config import differences
from pals.errors import InputError
from pals.files import write_bytes

FORMAT = 1


def save_checkpoint(path: Path, settings: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    """Write atomically: after a crash at any moment the file is the old one or the new one, whole."""
    buffer = io.BytesIO()
    torch.save({"format": FORMAT, "settings": dict(settings), "state": dict(state)}, buffer)
    write_bytes(path, buffer.getbuffer())


def load_checkpoint(path: Path, settings: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The saved state. Refuses a damaged file and, where `settings` are given, one that was written under others."""
    try:
        with zipfile.ZipFile(path) as archive:  # torch's format is a zip: its checksums find flipped bits, torch looks at none
            damaged = archive.testzip()
        if damaged is not None:
            raise zipfile.BadZipFile(f"checksum of {damaged} is wrong")
        content = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise InputError(f"There is no checkpoint {path}.") from None
    except (OSError, EOFError, ValueError, RuntimeError, zipfile.BadZipFile, pickle.UnpicklingError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            f"The checkpoint {path} cannot be read ({reason}). It is truncated or not a checkpoint: "
            f"restore it from a copy, or delete it to start the run again."
        ) from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InputError(f"{path} is not a checkpoint of this version (format {FORMAT}). Delete it to start the run again.")
    if settings is not None:
        refuse_other_settings(path, content["settings"], settings)
    state: dict[str, Any] = content["state"]
    return state


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
