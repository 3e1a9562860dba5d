"""Tables as text that people open in a spreadsheet."""

from __future__ import annotations

import pandas as pd

from pals.util.files import mark_as_text


def csv_text(table: pd.DataFrame) -> str:
    """The table as CSV: quoted where needed, true and false, nothing where there is no value. A cell that a spreadsheet would
    take for a formula is marked as text."""
    flags = {name: table[name].map({True: "true", False: "false"}) for name in table if table[name].dtype == bool}
    names = [name for name in table if not pd.api.types.is_numeric_dtype(table[name])]
    texts = {name: table[name].map(lambda cell: mark_as_text(cell) if isinstance(cell, str) else cell) for name in names}
    text: str = table.assign(**flags | texts).rename(columns=mark_as_text).to_csv(index=False, lineterminator="\n")
    return text
