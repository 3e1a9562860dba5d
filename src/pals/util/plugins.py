"""Plug-in files: Python files, named by the user, that add methods, data sets, readers, networks or encoders to the tables.

Only files that the user names are run. A run folder records the files that it was made with, but never runs them.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pals.util.errors import InputError
from pals.util.registry import TABLES, registering

PLUGIN_HINT = (
    'Write pals.METHODS["name"] = YourMethod in it, or the same with DATASETS, READERS, NETWORKS or ENCODERS (docs/plugins.md).'
)
_loaded: dict[str, str] = {}  # SHA-256 of each file as it was run, by absolute path


def load_plugin(path: Path | str) -> None:
    """Runs a plug-in file, once per process; everything that it registers can then be used by name.

    Args:
        path: A Python file.

    Raises:
        InputError: The file cannot be read, raises an error, or registers nothing.

    >>> from pathlib import Path
    >>> from pals import METHODS, load_plugin
    >>> _ = Path("mine.py").write_text("import pals; pals.METHODS['plugin-average'] = pals.METHODS['average']")
    >>> load_plugin("mine.py")
    >>> "plugin-average" in METHODS
    True
    """
    file = Path(path).resolve()
    if str(file) in _loaded:
        return
    try:
        text = file.read_bytes()
    except OSError as error:
        raise InputError(f"Cannot read the plug-in {path}: {error.strerror or error}. Give a Python file.") from None
    origin = f"the plug-in {file}"
    try:
        with registering(origin):
            name = _module_name(file)
            spec = importlib.util.spec_from_loader(name, loader=None, origin=str(file))
            assert spec is not None
            module: Any = importlib.util.module_from_spec(spec)
            module.__file__ = str(file)
            sys.modules[name] = module  # where dataclasses and pickle find the module
            exec(compile(text, str(file), "exec"), module.__dict__)
    except BaseException as error:
        _forget(file, origin)
        if isinstance(error, (Exception, SystemExit)):
            raise InputError(f"The plug-in {path} cannot be loaded{_place(file, error)}.") from None
        raise
    if not any(table.added_by(origin) for table in TABLES):
        _forget(file, origin)
        raise InputError(f"The plug-in {path} adds nothing. {PLUGIN_HINT}")
    _loaded[str(file)] = hashlib.sha256(text).hexdigest()


def load_plugins(paths: Iterable[Path | str]) -> None:
    for path in paths:
        load_plugin(path)


def plugin_files() -> tuple[str, ...]:
    """Absolute paths of the files that this process has run."""
    return tuple(_loaded)


def plugins_used() -> list[dict[str, str]]:
    """The files with their SHA-256, for `run.json`."""
    return [{"file": file, "sha256": digest} for file, digest in _loaded.items()]


def forget_plugins() -> None:
    """Removes all plug-ins from the tables."""
    for file in list(_loaded):
        _forget(Path(file), f"the plug-in {file}")
        del _loaded[file]


def _module_name(file: Path) -> str:
    """A name in `sys.modules` that differs between files of the same name in two folders."""
    return f"pals_plugin_{file.stem}_{hashlib.sha256(str(file).encode()).hexdigest()[:8]}"


def _forget(file: Path, origin: str) -> None:
    sys.modules.pop(_module_name(file), None)
    for table in TABLES:
        table.forget(origin)


def _place(file: Path, error: BaseException) -> str:
    """Line and reason of an error, in one line."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    line = error.lineno if isinstance(error, SyntaxError) and error.filename == str(file) else lines[-1] if lines else None
    where = f", line {line}" if line else ""
    reason = str(error).strip().rstrip(".") or "no message"
    kind = "" if isinstance(error, InputError) else f"{type(error).__name__}: "
    return f"{where}: {kind}{reason.splitlines()[0]}"
