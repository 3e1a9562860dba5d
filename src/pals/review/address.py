"""The address of a review that stays: token and port, in a file of the run that its owner alone can read."""

from __future__ import annotations

import json
import os
import re
import secrets
from contextlib import suppress
from pathlib import Path

from pals.util.errors import InputError
from pals.util.files import read_object

ADDRESS_FILE = "review-address.json"
"""In the run's folder. Delete it to get a new token."""
TOKEN = re.compile(r"[A-Za-z0-9_-]{32,64}")


def stored_address(run: Path) -> tuple[str, int]:
    """Token and port of the last start; a new token and port 0 without a file, or if others could read it."""
    path = run / ADDRESS_FILE
    with suppress(OSError, InputError):
        private = os.name == "nt" or not path.stat().st_mode & 0o077
        found = read_object(path) if private else {}
        token, port = found.get("token"), found.get("port")
        if isinstance(token, str) and TOKEN.fullmatch(token) and isinstance(port, int) and 0 <= port < 65536:
            return token, port
    return secrets.token_urlsafe(24), 0


def store_address(run: Path, token: str, port: int) -> None:
    """Keep the address for the next start, unless the folder cannot be written."""
    new = run / f".{ADDRESS_FILE}.part"
    with suppress(OSError):
        new.unlink(missing_ok=True)
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            json.dump({"token": token, "port": port}, file)
        new.replace(run / ADDRESS_FILE)
