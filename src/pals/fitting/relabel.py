"""Which items should a person look at next? A queue from a finished run, for a spreadsheet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pals.fitting.tables import UNNAMED
from pals.fitting.unsure import counted, said_in_words
from pals.readers.separator import join_labels, split_labels
from pals.readers.votes import DONT_KNOW, UNSURE_WEIGHT
from pals.util.config import read_yaml
from pals.util.errors import InputError
from pals.util.files import mark_as_text, read_object, without_mark
from pals.util.words import how_many, quoted

TRUST = 0.75
"""How far the result's own confidence is trusted to say whether it is wrong; the rest is left to the votes."""
COLUMNS = ("rank", "item", "suggestion", "confidence", "second", "reason", "said")
TO_FILL_IN = ("label", "annotator")
LABELS = ("suggestion", "second")
NEEDED = {
    "labels.csv": ("item", "label", "confidence", "votes", "agreement", "status"),
    "doubtful.csv": ("item", "worker", "answer", "probability_wrong"),
    "votes.csv": ("item", "worker", "label", "weight", "is_gold"),
    "classes.csv": ("class",),
}
ROWS = {"labels.csv": "items", "doubtful.csv": "doubtful_answers", "votes.csv": "answers"}
"""Where summary.json says how many rows a table has at least."""
SEVERAL = "|"  # between the labels of one answer in votes.csv, unless the run was told otherwise

Labels = tuple[str, ...]
"""Those of one answer."""


def relabel_queue(run: Path | str, top: int = 200) -> pd.DataFrame:
    """The `top` items of a run whose result a person's answer is most likely to improve, first those to look at first.

    Columns: rank, item, suggestion (the result), confidence, second (the class that is likeliest after it), reason (why it is
    in the queue), said (what people answered). Items with a known right label are never in it.
    """
    if top < 1:
        raise InputError(f"A queue of {top} items: give at least 1.")
    labels, doubtful, votes = (read_table(Path(run), name) for name in ("labels.csv", "doubtful.csv", "votes.csv"))
    separator = separator_of(run)
    labels = labels[labels["status"] != "gold"]
    chosen = labels.iloc[spread_over_classes(_benefits(labels), labels["label"].to_numpy(dtype=object), top)]
    given = _given(votes[votes["item"].isin(set(chosen["item"]))])
    said, words = _said(counted(given), separator), said_in_words(given, separator, SEVERAL)
    worst = doubtful.drop_duplicates("item").set_index("item")  # the file has the most certain first
    rows = []
    for rank, row in enumerate(chosen.to_dict("records"), start=1):
        answers = said.get(row["item"], {})
        rows.append(
            {
                "rank": rank,
                "item": row["item"],
                "suggestion": row["label"],
                "confidence": float(row["confidence"]),
                "second": _second(row, answers),
                "reason": _reason(row, answers, worst.loc[row["item"]] if row["item"] in worst.index else None),
                "said": words.get(row["item"], ""),
            }
        )
    return pd.DataFrame(rows, columns=pd.Index(COLUMNS))


def expected_benefit(confidence_N: np.ndarray, votes_N: np.ndarray, agreement_N: np.ndarray) -> np.ndarray:
    """The chance that an item's result is wrong, which is what a right answer would mend: TRUST times what the result itself
    admits, 1 - confidence, and for the rest what the votes say alone: (votes against + 1/2) / (votes + 1), which is a half
    where nobody has answered and falls with every person who agrees."""
    against_N = (votes_N * (1 - agreement_N) + 0.5) / (votes_N + 1)
    benefit_N: np.ndarray = TRUST * (1 - confidence_N) + (1 - TRUST) * against_N
    return benefit_N


def why_look(
    row: Mapping[str, Any], votes: Iterable[Mapping[str, str]], doubt: Mapping[str, Any] | None, separator: str | None
) -> str:
    """The queue's reason for one item: its row of labels.csv, its rows of votes.csv, and its surest row of doubtful.csv. A
    table of a few rows would take ten times as long."""
    said: dict[Labels, float] = {}
    for vote in sorted(votes, key=lambda vote: vote["label"]):
        if vote["is_gold"].casefold() in ("true", "1") or vote["label"] == DONT_KNOW:
            continue
        labels = tuple(split_labels(vote["label"], separator)) if separator else (vote["label"],)
        sure = vote.get("sure", "").casefold() != "false"
        said[labels] = said.get(labels, 0.0) + float(vote["weight"] or 1) * (1.0 if sure else UNSURE_WEIGHT)
    rounded = {labels: round(weight, 6) for labels, weight in said.items()}
    return _reason(row, dict(sorted(rounded.items(), key=lambda one: -one[1])), doubt)


def in_order(labels: pd.DataFrame) -> np.ndarray:
    """Rows of labels.csv in the order of the queue, without those whose right label is known."""
    open_ = np.flatnonzero((labels["status"] != "gold").to_numpy())
    labels = labels.iloc[open_]
    order: np.ndarray = open_[spread_over_classes(_benefits(labels), labels["label"].to_numpy(dtype=object), len(labels))]
    return order


def _benefits(labels: pd.DataFrame) -> np.ndarray:
    return expected_benefit(
        _numbers(labels, "confidence"), _numbers(labels, "votes"), _numbers(labels, "agreement", missing=0.0)
    )


def spread_over_classes(benefit_N: np.ndarray, label_N: np.ndarray, top: int) -> np.ndarray:
    """The rows of the `top` items, best first. The k-th best item of a class (from 0) counts its benefit divided by
    1 + k / (top / classes): a class with twice the benefit of the others may have more than its even share of the queue, but
    none fills it alone while others have something to gain."""
    frame = pd.DataFrame({"benefit": benefit_N, "label": label_N})
    frame = frame.sort_values("benefit", ascending=False, kind="stable")
    share = top / max(frame["label"].nunique(), 1)
    value = frame["benefit"] / (1 + frame.groupby("label").cumcount() / share)
    order: np.ndarray = value.sort_values(ascending=False, kind="stable").index.to_numpy()
    return order[:top]


def _given(votes: pd.DataFrame) -> pd.DataFrame:
    """What people said, weights as numbers."""
    gold = votes["is_gold"].str.casefold().isin({"true", "1"})
    return votes[~gold].assign(weight=lambda frame: _numbers(frame, "weight", missing=1.0))


def _said(votes: pd.DataFrame, separator: str | None) -> dict[str, dict[Labels, float]]:
    """For each item its answers with their weight in votes, the most frequent first."""
    counts = votes.groupby(["item", "label"], sort=True)["weight"].sum().sort_values(ascending=False, kind="stable")
    found: dict[str, dict[Labels, float]] = {}
    for (item, cell), weight in counts.items():
        labels = tuple(split_labels(cell, separator)) if separator else (cell,)
        found.setdefault(item, {})[labels] = round(float(weight), 6)
    return found


def _single(answers: dict[Labels, float]) -> dict[str, float]:
    """The same label by label, the most frequent first: an answer that names several counts as a part for each."""
    parts: dict[str, float] = {}
    for labels, weight in answers.items():
        for label in labels:
            parts[label] = parts.get(label, 0.0) + weight / len(labels)
    return dict(sorted(parts.items(), key=lambda part: -part[1]))


def _second(row: Mapping[str, Any], answers: dict[Labels, float]) -> str:
    """The second choice; of a run of an earlier version, which does not name it, what most of the others said."""
    others = (label for label in _single(answers) if label != row["label"])
    return str(row["second"]) if "second" in row else next(others, "")


def _reason(row: Mapping[str, Any], said: dict[Labels, float], doubt: Mapping[str, Any] | pd.Series | None) -> str:
    """Why a person should look, the strongest reason first."""
    if not said:
        return "nobody answered"
    answers, reasons = _single(said), []
    total = sum(answers.values())
    if total == 0:
        return "no answer counts any more"
    most = max(answers.values())
    if len(answers) > 1 and sum(count == most for count in answers.values()) > 1:
        reasons.append("a tie")
    elif row["label"] not in answers:
        coarse = str(row.get("in_votes")).casefold() == "true"
        reasons.append(f"only coarser answers allow {row['label']}" if coarse else f"nobody said {row['label']}")
    elif answers[row["label"]] < most:
        reasons.append("against what most said")
    elif len(answers) > 1:
        reasons.append(f"{total - answers[row['label']]:g} of {total:g} said something else")
    elif total == 1:
        reasons.append("one answer only")
    if float(row["confidence"]) < 0.5:
        reasons.append("the result is unsure")
    if doubt is not None:
        who = "somebody" if doubt["worker"] in ("", UNNAMED) else doubt["worker"]
        reasons.append(f"{who}'s {doubt['answer']} is probably wrong ({float(doubt['probability_wrong']):.2f})")
    return "; ".join(reasons) or "the least sure of those that are agreed on"


# ---- what goes out


def to_fill_in(queue: pd.DataFrame, separator: str | None = SEVERAL) -> pd.DataFrame:
    """The queue with two blank columns, label and annotator, for a person to fill in. What is left blank is no answer; the
    file, saved as CSV, is read like any other with votes. No cell is one that a spreadsheet takes for a formula, and a label
    with the separator in its name is written as it has to be copied: "red\\|black"."""
    shown = {name: queue[name].map(lambda label: join_labels([label], separator)) for name in LABELS if separator}
    queue = queue.assign(**shown)
    texts = {name: queue[name].map(mark_as_text) for name in ("item", *LABELS, "reason", "said")}
    blank = queue.assign(**texts, **dict.fromkeys(TO_FILL_IN, ""))
    more = [name for name in queue.columns if name not in COLUMNS]
    return blank[["rank", "item", *TO_FILL_IN, *COLUMNS[2:], *more]]


# ---- what comes in


def read_table(run: Path, name: str, needed: Sequence[str] | None = None) -> pd.DataFrame:
    """A table of the run, all cells as text. `needed`: columns that it must have, if it is not one of the queue's."""
    path = run / name
    if not path.is_file():
        raise InputError(f"{run} holds no {name}. Give the folder that `pals fit --out` wrote, once it is finished.")
    try:
        frame = pd.read_csv(path, dtype=str, keep_default_na=False, encoding="utf-8")
    except (OSError, ValueError) as error:  # pandas' parser errors and wrong encodings are ValueErrors
        reason = " ".join(str(error).split())
        raise InputError(f"Cannot read {path}: {reason}. Fit again to have it written anew.") from None
    missing = [column for column in needed or NEEDED[name] if column not in frame.columns]
    if missing or not isinstance(frame.index, pd.RangeIndex):  # pandas takes cells beyond the header for names of rows
        found = f"no column {missing[0]!r}" if missing else "rows with more cells than its header"
        raise InputError(f"{path} has {found}. Fit again to have it written anew.")
    _refuse_cut(path, len(frame))
    return frame.map(without_mark)


def _refuse_cut(path: Path, rows: int) -> None:
    """Of a table that has lost rows since the fit nothing may be concluded; without a summary nobody can tell."""
    summary = path.with_name("summary.json")
    wanted = read_object(summary).get(ROWS[path.name]) if summary.is_file() else None
    if isinstance(wanted, int) and rows < wanted:
        raise InputError(
            f"{path} is cut off: it has {how_many(rows, 'row')}, and the fit wrote at least {wanted:,}. "
            "Restore it from a copy, or fit again to have it written anew."
        )


def separator_of(run: Path | str) -> str | None:
    """What stands between several labels in the run's votes.csv."""
    separator = data_of(run).get("separator", SEVERAL)
    return None if separator is None else str(separator)


def data_of(run: Path | str) -> dict[str, Any]:
    """The settings of the run's data; nothing where there are none."""
    path = Path(run) / "config.yaml"
    data = read_yaml(path).get("data") if path.is_file() else None
    return data if isinstance(data, dict) else {}


def _numbers(frame: pd.DataFrame, column: str, missing: float | None = None) -> np.ndarray:
    """A column of numbers; blank cells are `missing`, or an error where that is None."""
    cells = frame[column].astype(str).str.strip()
    values = pd.to_numeric(cells.where(cells != "", "nan" if missing is None else str(missing)), errors="coerce")
    bad = np.flatnonzero(~np.isfinite(values.to_numpy(dtype=np.float64)))
    if len(bad):
        item = frame["item"].iloc[bad[0]]
        raise InputError(
            f"The {column} of {quoted(item)} is {quoted(cells.iloc[bad[0]])}, not a number. Fit again to have it written anew."
        )
    numbers: np.ndarray = values.to_numpy(dtype=np.float64)
    return numbers
