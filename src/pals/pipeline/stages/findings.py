"""The findings of a fit: its analysis, with the summary in words and numbers. This is what `pals.fit` returns."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from pals.model import Model
from pals.pipeline.fit_warnings import fit_warnings
from pals.pipeline.short_summary import result_lines
from pals.pipeline.stages.analysis import Analysis, analyse
from pals.pipeline.stages.trained import Trained
from pals.pipeline.summary import summary_numbers, summary_sentences
from pals.pipeline.thumbnails import thumbnails

MAX_LINE_LETTERS = 400
"""Letters of a line of the summary that a notebook shows."""
MAX_TABLE_ROWS = 8
MAX_NOTEBOOK_IMAGES = 6
ANSWER_COLUMNS = ("item", "annotator", "answer", "suggestion", "probability_wrong")
CLASS_COLUMNS = ("class", "items", "answers", "doubtful_answers")
"""Columns of the table that a notebook shows."""


@dataclass(frozen=True)
class Findings(Analysis):
    """The result of a fit. Everything here is in the run's folder as well, in files of the same names.

    Args:
        summary: The result in a few sentences.
        page_summary: Those sentences that the report does not show in another form.
        warnings: What to check before the result is used.
        numbers: The result in numbers, and `summary` as `sentences`: the content of `summary.json`.
    """

    summary: list[str]
    page_summary: list[str]
    warnings: list[str]
    numbers: dict[str, Any]

    def __repr__(self) -> str:
        """The folder, the result, what to check, and warnings."""
        return "\n".join(line[:MAX_LINE_LETTERS] for line in [f"Findings in {self.folder}", *result_lines(self)])

    def _repr_html_(self) -> str:
        """The same for notebooks, with the first doubtful answers and their images, or the classes if there are none."""
        name, shown = ("doubtful", ANSWER_COLUMNS) if len(self.doubtful) else ("classes", CLASS_COLUMNS)
        table = self.tables[name][list(shown)].head(MAX_TABLE_ROWS)
        lines = "".join(f"<li>{escape(line[:MAX_LINE_LETTERS])}</li>" for line in result_lines(self))
        with pd.option_context("display.max_colwidth", 40):
            rows = table.to_html(index=False, border=0, float_format="{:.2f}".format)
        place = escape(str(self.folder)[-MAX_LINE_LETTERS:])
        shown_rows = f"<p>{name}: {len(table)} of {len(self.tables[name]):,}</p>{rows}"
        return f"<p><b>{place}</b></p><ul>{lines}</ul>{self._images_html()}{shown_rows}"

    def _images_html(self) -> str:
        """The first doubtful items with what was answered and what the result is."""
        loaded = self.trained.loaded
        rows = self.doubtful.drop_duplicates("item").head(MAX_NOTEBOOK_IMAGES).set_index("item")
        figures = [
            f'<figure style="display: inline-block; margin: 4px"><img src="{image}" alt="{escape(item)}"><figcaption>'
            f"{escape(rows.loc[item, 'answer'])} → {escape(rows.loc[item, 'suggestion'])}</figcaption></figure>"
            for item, image in thumbnails(rows.index, loaded.votes, loaded.items.inputs).items()
        ]
        return f"<div>{''.join(figures)}</div>" if figures else ""

    @property
    def labels(self) -> pd.DataFrame:
        """One row per item: label, confidence, the answers' majority, status."""
        return self.tables["labels"]

    @property
    def doubtful(self) -> pd.DataFrame:
        """One row per answer that is probably wrong, the likeliest error first."""
        return self.tables["doubtful"]

    @property
    def annotators(self) -> pd.DataFrame:
        """One row per annotator."""
        return self.tables["annotators"]

    @property
    def classes(self) -> pd.DataFrame:
        """One row per class."""
        return self.tables["classes"]

    @property
    def confusion(self) -> pd.DataFrame:
        """Number of answers by annotator, result and answer."""
        return self.tables["confusion"]

    @property
    def agreement(self) -> pd.DataFrame:
        """Agreement beyond chance: of all annotators, class by class, and pair by pair."""
        return self.tables["agreement"]

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return self.trained.plan.folder

    @property
    def model(self) -> Model:
        """The classifier, read from the run's folder."""
        return Model.load(self.folder)


def find(trained: Trained) -> Findings:
    """Analyse a trained run and summarise the analysis; nothing is written."""
    found = analyse(trained)
    warnings, numbers = fit_warnings(found), summary_numbers(found)
    summary, page_summary = summary_sentences(found, numbers, warnings)
    return Findings(
        **vars(found), summary=summary, page_summary=page_summary, warnings=warnings, numbers={**numbers, "sentences": summary}
    )
