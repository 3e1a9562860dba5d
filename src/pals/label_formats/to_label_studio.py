"""A Label Studio project of all items: tasks.json, each task with its label as a prediction, and the labelling settings."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

from pals.label_formats.run_labels import RunLabels
from pals.pipeline.item_answers import in_words
from pals.relabel.label_studio_tasks import label_studio_project


def write(labels: RunLabels, target: Path, *, prefix: str | None, document_root: Path | str | None) -> list[str]:
    """Fill the folder `target`."""
    rows = [
        {
            "rank": rank,
            "item": item.item,
            "suggestion": item.label,
            "confidence": item.confidence,
            "said": in_words(item.answers),
        }
        for rank, item in enumerate(labels.items, start=1)
    ]
    project = label_studio_project(labels.folder, pd.DataFrame(rows), prefix=prefix, document_root=document_root)
    (target / "tasks.json").write_text(json.dumps(project.tasks, ensure_ascii=False, indent=1), encoding="utf-8")
    (target / "config.xml").write_text(project.config, encoding="utf-8")
    return ["Labelling settings (Settings, Labeling Interface, Code): config.xml", *project.sentences]
