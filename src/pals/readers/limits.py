"""How much a file may claim to hold, checked before anything is unpacked: a small file can claim a great deal."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields

from pals.util.errors import InputError

CELLS_PER_BYTE = 4
"""Cells per byte of a large file that are allowed beyond `Limits.cells`. A CSV file has fewer than one."""


@dataclass(frozen=True)
class Limits:
    """Beyond these a file is refused. Environment variables set them for a whole session: PALS_MAX_CELLS, PALS_MAX_BYTES.

    >>> Limits(cells=100).max_cells(size=1000)
    4000
    """

    cells: int = 20_000_000
    "Cells of a table or matrix that is stored in packed form (Parquet, MATLAB)."
    bytes: int = 4 << 30
    "Bytes of a file, and of a part of it once it is unpacked."

    @classmethod
    def from_environment(cls) -> Limits:
        """The limits as the environment variables set them."""
        limits = {}
        for field in fields(cls):
            name = f"PALS_MAX_{field.name.upper()}"
            text = os.environ.get(name)
            if text:
                if not (text.isascii() and text.isdigit()) or len(text) > 18:
                    raise InputError(f"{name} is {text[:40]!r}. Set it to a whole number, or unset it.")
                limits[field.name] = int(text)
        return cls(**limits)

    def max_cells(self, size: int) -> int:
        """Cells that a file of `size` bytes may claim to hold."""
        return max(self.cells, size * CELLS_PER_BYTE)

    def too_many_cells(self, cells: int, size: int) -> str | None:
        """Why a file of `size` bytes that claims to hold this many cells is refused, with the remedy; None if it is not."""
        if cells <= self.max_cells(size):
            return None
        return f"its {size:,} bytes claim to hold {cells:,} cells. {_how_to_raise('cells', cells)}"

    def too_many_bytes(self, count: int, what: str) -> str | None:
        """The same for the bytes of the file, or of a part once it is unpacked."""
        return None if count <= self.bytes else f"{what} takes {count:,} bytes. {_how_to_raise('bytes', count)}"


def _how_to_raise(name: str, needed: int) -> str:
    return f"If the file is right, set PALS_MAX_{name.upper()}={needed} (limits=Limits({name}={needed})) and read it again."
