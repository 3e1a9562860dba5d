"""Dictionaries and arrays out of files that are not trusted: pickles as CIFAR's makers wrote them, and .npz files.

A pickle can run any program: a restricted reader takes only what CIFAR's own files consist of.
"""

from __future__ import annotations

import io
import pickle
import re
import zipfile
import zlib
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from pals.util.errors import InputError


def read_pickle(path: Path, remedy: str) -> dict[str, Any]:
    """The dictionary in one of CIFAR's files, without running anything that the file asks for."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error}.") from None
    try:
        found = _Reader(io.BytesIO(content), encoding="bytes").load()
    except _ForbiddenError as error:
        raise InputError(f"{path} is not one of CIFAR's own files: it tries to use {error}. It was not run. {remedy}") from None
    except Exception as error:  # a damaged pickle can raise anything
        _damaged(path, error, remedy)
    if not isinstance(found, dict):
        refuse(path, f"it holds {type(found).__name__}, not a dictionary", remedy)
    return {as_text(key): value.value if isinstance(value, _Array) else value for key, value in found.items()}


def read_arrays(path: Path, keys: tuple[str, ...], remedy: str) -> list[np.ndarray]:
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            missing = [key for key in keys if key not in file.files]
            if not missing:
                return [file[key] for key in keys]
            held = ", ".join(file.files)
    except (OSError, ValueError, EOFError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        _damaged(path, error, remedy)
    return refuse(path, f"it holds no {missing[0]!r} but {held or 'nothing'}", remedy)


def refuse(path: Path, found: str, remedy: str) -> NoReturn:
    raise InputError(f"{path} does not hold what it should: {found}. {remedy}")


def _damaged(path: Path, error: Exception, remedy: str) -> NoReturn:
    reason = str(error).rstrip(".") or type(error).__name__
    raise InputError(f"{path} is truncated or corrupted ({reason}). {remedy}") from None


class _ForbiddenError(Exception):
    """The file names something that CIFAR's files have no need of."""


class _Reader(pickle.Unpickler):
    """Never imports: the few names that CIFAR's files contain stand for the harmless classes below."""

    def find_class(self, module: str, name: str, /) -> Any:
        if (module, name) not in _STAND_INS:
            raise _ForbiddenError(f"{module}.{name}")
        return _STAND_INS[module, name]


class _Bytes(bytes):
    """For `_codecs.encode(text, "latin1")`: how Python 3 writes bytes for Python 2."""

    def __new__(cls, text: str, encoding: bytes | str) -> _Bytes:
        if as_text(encoding) != "latin1":
            raise _ForbiddenError(f"the encoding {as_text(encoding)}")
        return super().__new__(cls, text.encode("latin1"))

    def __setstate__(self, state: object) -> None:
        raise pickle.UnpicklingError("bytes have no state")


class _Dtype:
    """For `numpy.dtype(code, align, copy)`: whole numbers only."""

    def __init__(self, code: bytes | str, *_: object) -> None:
        self.code = as_text(code)
        if not re.fullmatch(r"[iu][1248]", self.code):
            raise _ForbiddenError(f"numbers of type {self.code}")
        self.value = np.dtype(self.code)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.value = np.dtype(as_text(state[1]) + self.code)


class _Array:
    """For `numpy.core.multiarray._reconstruct(...)`: an empty array, filled by its state."""

    value: np.ndarray

    def __init__(self, *_: object) -> None:
        self.value = np.empty(0, np.uint8)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, fortran, content = state
        self.value = np.frombuffer(content, dtype.value).reshape(shape, order="F" if fortran else "C")


_STAND_INS: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): "ndarray",  # only ever handed to _reconstruct
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _Bytes,
}


def as_text(value: object) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else str(value)
