"""Atomic files, written beside the target and renamed in one step; JSON; cells of tables for spreadsheets."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from pals.util.errors import InputError
from pals.util.words import quoted

UNFINISHED = ".part"
FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
ALLOWED = "choose a folder that you may write to"
FORMULA = re.compile(r"'*[=+\-@\t\r]")
"""Start of a cell that a spreadsheet would run as a formula, after any marks that it has already."""
NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")
PATTERN = re.compile(r"[{*?\[]")
"""Characters of a name that stands for several files, as in a shell."""


@contextmanager
def replacing(path: Path, size: str = "", within: Path | None = None) -> Iterator[IO[bytes]]:
    """A temporary file to write, renamed to `path` at the end of the block.

    After any failure the old file is unchanged, and no half-written file is left.

    Args:
        path: The file to replace; missing folders are made.
        size: Added to the name in the message about a full disk; default "".
        within: Folder of the temporary file, on the same disk; a killed process leaves the file there. Default: beside `path`.

    Raises:
        InputError: The file cannot be written.
    """
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=within or path.parent, prefix=f".{path.name}.", suffix=UNFINISHED)
        temporary = Path(name)
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException as error:  # KeyboardInterrupt too must leave no half-written file
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        if not isinstance(error, OSError):
            raise
        hint = "make room or choose another folder, then run the same command again to continue"
        raise InputError(
            f"Could not write {path}{size}: {error.strerror or error}. What was there before is intact; "
            f"{ALLOWED if error.errno in FORBIDDEN else hint}."
        ) from None


def refuse_unwritable(folder: Path) -> None:
    """Raises before the work begins if its results could not be written; the folder need not exist yet."""
    try:
        there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    except (OSError, ValueError) as error:  # a name that no file can have
        raise InputError(f"Nothing can be written to {quoted(str(folder))}: {_reason(error)}. Choose another name.") from None
    if there.is_dir() and not os.access(there, os.W_OK | os.X_OK):
        raise InputError(f"Nothing can be written to {folder}: {os.strerror(errno.EACCES)}. Please {ALLOWED}.")


def check_readable(path: Path, what: str) -> os.stat_result:
    """Raises if a file is missing, or is a pipe or a device, from which reading may block or never end. Folders pass.

    Args:
        path: The file.
        what: Its role in the message, such as "the file with the answers".
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        raise InputError(f"{path} does not exist. Check the name of {what}.") from None
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
        raise InputError(f"{path}: this is a pipe or a device, not a file. Save what comes out of it to a file, and name that.")
    return found


def unreadable(path: Path, error: Exception) -> InputError:
    """The error for a file that the system cannot read."""
    return InputError(f"{path}: it cannot be read ({_reason(error)}). Make the file readable, or name a copy of it.")


def without_advice(error: Exception) -> str:
    """Numpy's reason why it cannot read a file, on one line, without its advice to allow pickles, which would run code."""
    reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    return "no numbers, but perhaps Python objects, which are never loaded" if "pickle" in reason else reason


def _reason(error: Exception) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


def write_bytes(path: Path, data: bytes | memoryview) -> None:
    """Replaces `path` by `data`, entirely or not at all."""
    with replacing(path, f" ({len(data):,} bytes)") as file:
        file.write(data)


def is_unfinished(path: Path) -> bool:
    """Whether this is the temporary file of a killed process."""
    return path.name.startswith(".") and path.name.endswith(UNFINISHED)


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode("utf-8"))


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2) + "\n")


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path} does not exist.") from None
    except RecursionError:
        raise InputError(f"Cannot read {path}: it is nested too deeply. Write it again.") from None
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, not JSON, or a number with thousands of digits
        raise InputError(f"Cannot read {path}: {error}. Restore it from a copy, or repeat the command that wrote it.") from None


def read_object(path: Path) -> dict[str, Any]:
    """A JSON file that holds one object."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise InputError(f"{path} should hold a JSON object, not a {type(value).__name__}. Restore it, or delete it.")
    return value


def read_json_lines(path: Path) -> Iterator[Mapping[str, Any]]:
    """One object per line; a last line that was cut off by a crash is skipped."""
    if not path.exists():
        return
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"Cannot read {path}: {error}.") from None
    for number, line in enumerate(lines, start=1):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict):
            yield value
        elif number < len(lines):
            raise InputError(f"{path}, line {number} is not JSON. The file was changed by hand: fix or delete it.")


# ---- cells of a table that may be opened in a spreadsheet


def mark_as_text(cell: str) -> str:
    """The cell with an apostrophe in front if a spreadsheet would run it as a formula. A plain number stays as it is."""
    return f"'{cell}" if FORMULA.match(cell) and not NUMBER.fullmatch(cell) else cell


def without_mark(cell: str) -> str:
    """The inverse of `mark_as_text`."""
    return cell[1:] if cell.startswith("'") and FORMULA.match(cell) else cell
