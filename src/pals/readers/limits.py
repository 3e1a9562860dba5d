"""How much a file may claim to hold: a small one can claim a great deal. Looked at before anything is unpacked."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields

from pals.util.errors import InputError

CELLS_PER_BYTE = 4
"""A large file may hold more than `Limits.cells`: so many for each of its bytes. CSV has fewer than one."""


@dataclass(frozen=True)
class Limits:
    """Beyond these a file is refused. Each can be set for a whole session: PALS_MAX_CELLS, PALS_MAX_BYTES."""

    cells: int = 20_000_000
    "Cells of a table or matrix that is stored in packed form (Parquet, MATLAB)."
    bytes: int = 4 << 30
    "Bytes of a file, and of a part of it once it is unpacked."

    @classmethod
    def from_environment(cls) -> Limits:
        """The limits as the environment variables set them."""
        set_ = {field.name: os.environ.get(f"PALS_MAX_{field.name.upper()}") for field in fields(cls)}
        return cls(**{name: _number(name, text) for name, text in set_.items() if text})

    def too_many_cells(self, cells: int, size: int) -> str | None:
        """Why a file of `size` bytes that claims to hold so many cells is refused, with the remedy; None if it is not."""
        if cells <= max(self.cells, size * CELLS_PER_BYTE):
            return None
        return f"its {size:,} bytes claim to hold {cells:,} cells. {_raise('cells', cells)}"

    def too_many_bytes(self, count: int, what: str) -> str | None:
        """The same for the bytes of the file, or of a part once it is unpacked."""
        return None if count <= self.bytes else f"{what} takes {count:,} bytes. {_raise('bytes', count)}"


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise InputError(f"PALS_MAX_{name.upper()} is {text[:40]!r}. Set it to a whole number, or unset it.")
    return int(text)


def _raise(name: str, needed: int) -> str:
    return f"If the file is right, set PALS_MAX_{name.upper()}={needed} (limits=Limits({name}={needed})) and read it again."
