"""From pictures and votes to a classifier, cleaned labels, doubtful answers and a report.

The command `pals fit` without its command line, the tables for people, the queue to relabel, and (`page`) the report. The
science is not here: statistics of answers are in `crowd`, training is in `training`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pals.fitting.results import finish
from pals.fitting.work import Part, Work
from pals.model import FILE_NAME, Model
from pals.runs import load_run_config
from pals.runs.settings import VotesConfig
from pals.util.config import merge
from pals.util.errors import InputError
from pals.util.words import duration as in_words

__all__ = ["Part", "Work", "continued", "finish", "in_words"]


def continued(
    run: Path,
    votes: Sequence[Path],
    *,
    columns: Mapping[str, str] | None = None,
    epochs: int | None = None,
    device: str | None = None,
    skip_bad: bool | None = None,
    encoding: str | None = None,
    class_names: Sequence[str] | None = None,
) -> dict[str, Any]:
    """The settings of a run that goes on from a finished one with further answers: its network, a third of its epochs, a third
    of its learning rate; its classes, if they were named, unless others are named now. How the first files were written says
    nothing of the further ones."""
    finished = all((run / name).exists() for name in ("config.yaml", "votes.csv", FILE_NAME))
    config = load_run_config(run) if finished else None
    if config is None or not isinstance(config.data, VotesConfig):
        raise InputError(f"{run} is not a finished run of `pals fit`. Run that first, or let it finish.")
    Model.load(run, "cpu")  # refuses a damaged one before anything is done
    values = config.to_dict()
    values["data"] |= {
        "earlier": str((run / "votes.csv").resolve()),
        "votes": tuple(str(path.resolve()) for path in votes),
        "columns": dict(columns or {}),
        "format": None,
        "encoding": encoding,
        "fingerprint": "",
    }
    if not config.network.frozen:
        values["network"]["weights"] = str((run / FILE_NAME).resolve())
        values["train"] |= {"epochs": max(1, round(config.train.epochs / 3)), "lr": config.train.lr / 3}
    changes: dict[str, dict[str, Any]] = {
        "train": {"epochs": epochs},
        "engine": {"device": device},
        "data": {"skip_bad": skip_bad, "class_names": None if class_names is None else tuple(class_names)},
    }
    given = {name: {key: value for key, value in section.items() if value is not None} for name, section in changes.items()}
    return merge(values, given)
