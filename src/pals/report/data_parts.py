"""What the report shows, gathered in one file of plain values (`report.json`): numbers, sentences and small pictures."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image
from torch import Tensor

from pals.data import Inputs
from pals.labels.cells import DONT_KNOW
from pals.pipeline.tables.unsure_columns import unknown_of
from pals.readers import Votes
from pals.readers.taxonomy_answers import spoken

GALLERY = 200  # items to review that the page shows
LEADING = ("corrected", "unsure")  # the statuses that come first
SHOWN = 24  # easy and hard examples each
PEOPLE = 200  # annotators with a confusion matrix of their own
NEIGHBORS = 5
NEARLY = 0.999999  # nothing is certain
THUMBNAIL = 96  # pixels a side, at most
CURVES = {"epoch": "total_epoch", "loss": "loss", "selected": "selected", "covering": "covering", "approximate": "approximate"}
"""Lines of the page's charts, and what the log calls them."""


def thumbnail(image: Tensor) -> str:
    """A small picture as a data address; tiny ones without loss."""
    array = image.permute(1, 2, 0).numpy()
    picture = Image.fromarray(array.squeeze(2) if array.shape[2] == 1 else array)
    picture.thumbnail((THUMBNAIL, THUMBNAIL))
    kind, options = ("PNG", {"optimize": True}) if max(picture.size) <= 48 else ("JPEG", {"quality": 82})
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(buffer.getvalue()).decode()}"


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as plain values; what is missing or not a number becomes null."""
    return [{str(key): _plain(value) for key, value in row.items()} for row in frame.to_dict("records")]


def _plain(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    return None if value is pd.NA or (isinstance(value, float) and not math.isfinite(value)) else value


def answers_of(votes: Votes, items: Iterable[int]) -> dict[int, list[dict[str, Any]]]:
    """What each person said about these items."""
    wanted = set(items)
    rows, names = spoken(votes, np.isin(votes.item_R, list(wanted)).nonzero()[0])
    said: dict[int, list[dict[str, Any]]] = {item: [] for item in wanted}
    for row, name in zip(rows.tolist(), names, strict=True):
        worker = int(votes.worker_R[row])
        said[int(votes.item_R[row])].append(
            {
                "annotator": votes.workers[worker] if worker >= 0 else "",
                "label": name,
                "weight": float(votes.weight_R[row]),
                **({} if votes.sure_R[row] else {"sure": False}),
            }
        )
    for item in said if len(votes.unknown_item_U) else ():
        said[item] += [
            {"annotator": name, "label": DONT_KNOW, "weight": 1.0, "unknown": True} for name in unknown_of(votes, item)
        ]
    return said


def to_review(labels: pd.DataFrame, doubtful: pd.DataFrame) -> list[int]:
    """Rows of the items that are worth a look, first those to look at first: corrected and unsure ones in turn, then the other
    items with a doubtful answer, split ones before those on which most people agree."""
    rank = doubtful.drop_duplicates("item").reset_index(drop=True).reset_index().set_index("item")["index"]
    doubt_N = labels["item"].map(rank).to_numpy(dtype=np.float64)  # the surest doubt is 0; NaN where there is none
    status = labels["status"].to_numpy(dtype=object)
    leading = np.isin(status, LEADING)
    row_M = np.flatnonzero(leading | np.isfinite(doubt_N))
    frame = pd.DataFrame(
        {
            "later": ~leading[row_M],
            "split": status[row_M] != "tie-broken",
            "status": status[row_M],
            # A correction is the more worth a look the surer it is; what is unsure, the less sure.
            "doubt": np.where(status[row_M] == "unsure", labels["confidence"].to_numpy()[row_M], doubt_N[row_M]),
        },
        index=row_M,
    ).sort_values(["status", "doubt"], kind="stable", na_position="last")
    frame["turn"] = np.where(frame["later"], frame["doubt"], frame.groupby("status").cumcount())
    order: list[int] = frame.sort_values(["later", "split", "turn", "status"], kind="stable").index.tolist()
    return order


def gallery(
    chosen: Sequence[int],
    doubtful: pd.DataFrame,
    labels: pd.DataFrame,
    votes: Votes,
    model_NC: np.ndarray | None,
    neighbor_NK: np.ndarray,
    similarity_NK: np.ndarray,
) -> list[dict[str, Any]]:
    """These items with what people said, what the model says (if there is one) and which items are most alike."""
    place = {name: row for row, name in enumerate(votes.items)}
    said = answers_of(votes, chosen)
    doubts: dict[int, list[dict[str, Any]]] = {row: [] for row in chosen}
    for entry in records(doubtful[doubtful["item"].isin({votes.items[row] for row in chosen})]):
        keys = ("rank", "annotator", "answer", "suggestion", "probability_wrong")
        doubt = {key: entry[key] for key in keys} | {"probability_wrong": min(entry["probability_wrong"], NEARLY)}
        doubts[place[entry["item"]]].append(doubt)
    label_N, confidence_N, status_N = (labels[name].tolist() for name in ("label", "confidence", "status"))
    shown = []
    for row in chosen:
        top = [] if model_NC is None else np.argsort(-model_NC[row], kind="stable")[:3].tolist()
        alike = zip(neighbor_NK[row, :NEIGHBORS].tolist(), similarity_NK[row, :NEIGHBORS].tolist(), strict=True)
        shown.append(
            {
                "item": votes.items[row],
                "label": label_N[row],
                "confidence": confidence_N[row],
                "status": status_N[row],
                "votes": said[row],
                "doubtful": doubts[row],
                "model": [[votes.class_names[c], round(float(model_NC[row, c]), 4)] for c in top if model_NC is not None],
                "neighbors": [
                    {"item": votes.items[other], "label": label_N[other], "similarity": round(similarity, 3)}
                    for other, similarity in alike
                ],
            }
        )
    return shown


def examples(labels: pd.DataFrame, votes: Votes) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Easy items (the surest of each class in turn) and hard ones (the least sure of those that people answered for)."""
    answered = labels[labels["votes"] > 0]
    ranked = answered.sort_values("confidence", ascending=False, kind="stable")
    turn = ranked.groupby("label", sort=False).cumcount()
    easy = ranked.assign(turn=turn).sort_values(["turn", "label"], kind="stable").head(SHOWN)
    hard = ranked.iloc[::-1].head(SHOWN)
    place = {name: row for row, name in enumerate(votes.items)}
    said = answers_of(votes, (place[name] for name in hard["item"]))
    keys = ["item", "label", "confidence"]
    hard_shown = [{**row, "votes": said[place[row["item"]]]} for row in records(hard[keys])]
    return records(easy[keys]), hard_shown


def confusion_cells(confusion: pd.DataFrame, class_names: Sequence[str]) -> dict[str, list[Any]]:
    """Who was answered as what, how often: numbers of classes, and counts, wherever there are any. A table of all classes by
    all classes would be nearly empty where they are many. Answers that name no class are left out."""
    number = pd.Series(range(len(class_names)), index=list(class_names))
    named = confusion[confusion["answer"].isin(number.index)]
    count = named.groupby([named["result"].map(number), named["answer"].map(number)])["count"].sum().round(3)
    result, answer = (count.index.get_level_values(level).tolist() for level in ("result", "answer"))
    return {"result": result, "answer": answer, "count": count.tolist()}


def people(annotators: pd.DataFrame, confusion: pd.DataFrame, class_names: Sequence[str]) -> list[dict[str, Any]]:
    shown, nothing = records(annotators.head(PEOPLE)), confusion.iloc[:0]
    of_person = dict(list(confusion[confusion["annotator"].isin({row["annotator"] for row in shown})].groupby("annotator")))
    return [{**row, "confusion": confusion_cells(of_person.get(row["annotator"], nothing), class_names)} for row in shown]


def pictures(names: Iterable[str], votes: Votes, images: Inputs) -> dict[str, str]:
    """A thumbnail of each, once."""
    if images.ndim != 4:
        return {}
    place = {name: row for row, name in enumerate(votes.items)}
    return {name: thumbnail(images[place[name]]) for name in dict.fromkeys(names)}


def names_shown(shown: Sequence[Mapping[str, Any]], *more: Sequence[Mapping[str, Any]]) -> list[str]:
    """All items that the page shows a picture of."""
    names = [entry["item"] for part in (shown, *more) for entry in part]
    return names + [other["item"] for entry in shown for other in entry["neighbors"]]
