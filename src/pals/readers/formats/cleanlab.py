"""cleanlab's frame: a wide table whose cells are class numbers or blank."""

from __future__ import annotations

import re

from pals.readers.columns import Columns
from pals.readers.formats.wide import read_wide
from pals.readers.reader_table import Table
from pals.readers.source import Source
from pals.util.errors import InputError
from pals.util.words import quoted


def read_cleanlab(source: Source, columns: Columns) -> Table:
    """A wide table in which a cell that is no whole number is an error."""
    table = read_wide(source, columns)
    for code, name in enumerate(table.label.names):
        if not re.fullmatch(r"[0-9]+(\.0*)?", str(name).strip()) and str(name).strip() not in ("", "nan", "NaN"):
            where = table.place(table.label.first_row(code))
            raise InputError(f"{where}: {quoted(name)} is not a class number. For names: --format wide (format='wide').")
    return table
