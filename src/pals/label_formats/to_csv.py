"""One table: labels.csv of the run, and all answers to each item in words."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from pals.label_formats.run_labels import RunLabels
from pals.pipeline.item_answers import in_words
from pals.util.csv_text import write_csv


def write(labels: RunLabels, target: Path) -> list[str]:
    """Write the file `target`."""
    rows = [{**item.row, "answers": in_words(item.answers)} for item in labels.items]
    write_csv(target, pd.DataFrame(rows))
    return []
