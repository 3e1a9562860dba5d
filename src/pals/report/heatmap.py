"""The confusion of answers and result as a heat map, and its worst pairs in words."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform

from pals.report.format import count, isolated, percent
from pals.report.svg import tag
from pals.util.errors import InputError

MOST_CLASSES = 100  # more rows cannot be read on any screen
KEEP_ORDER = 20  # up to here the classes stay as given: the order may mean something, as with grades
LETTERS = 18  # of a class name beside a row or above a column
NUMBERS = 12  # up to here the cells are wide enough for a number
AGREE = (0.5, 0.7, 0.8, 0.9, 0.95, 0.99)
DIFFER = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
"Shares at which the next shade starts. A mix-up of one in twenty is much, an agreement of one in two is little."


@dataclass(frozen=True)
class Cell:
    row: int
    column: int
    count: float
    share: float
    "Of the answers given to items with this result."

    @property
    def shade(self) -> str:
        """The class of the style sheet: a for agreement, d for a difference, then 1 (faint) to 7."""
        letter, edges = ("a", AGREE) if self.row == self.column else ("d", DIFFER)
        return f"{letter}{1 + bisect_right(edges, self.share)}"


@dataclass(frozen=True)
class MixUp:
    result: str
    answer: str
    count: float
    total: float

    @property
    def share(self) -> float:
        return self.count / self.total


def matrix(value: object, names: Sequence[str]) -> np.ndarray | None:
    """The counts as an array, from one or from the cells that are not empty; None where there are none to show."""
    if not value or not names:
        return None
    try:
        count_CC = _filled(value, len(names)) if isinstance(value, Mapping) else np.asarray(value, dtype=float)
    except (TypeError, ValueError, IndexError, KeyError):
        count_CC = np.zeros(0)
    if count_CC.shape != (len(names), len(names)):
        raise InputError(
            f"The confusion in report.json is not a table of {len(names)} x {len(names)} numbers, one row and one column "
            f"per class. Make the report again from its run."
        )
    count_CC = np.nan_to_num(count_CC, nan=0.0, posinf=0.0, neginf=0.0).clip(min=0)
    return count_CC if count_CC.any() else None


def _filled(value: Mapping[str, Sequence[float]], classes: int) -> np.ndarray:
    """The table of which these are the cells."""
    result_X, answer_X = (np.asarray(value[key], dtype=np.int64) for key in ("result", "answer"))
    if min(result_X.min(initial=0), answer_X.min(initial=0)) < 0:
        raise IndexError("a class before the first")
    count_CC = np.zeros((classes, classes))
    count_CC[result_X, answer_X] = np.asarray(value["count"], dtype=float)
    return count_CC


def arrange(count_CC: np.ndarray) -> np.ndarray:
    """Which classes are drawn, in which order: of very many those that are mixed up most; classes that are mixed up with
    each other side by side, so that groups show as blocks."""
    classes = len(count_CC)
    if classes <= KEEP_ORDER:
        return np.arange(classes)
    off_CC = count_CC * (1 - np.eye(classes))
    mixed_C = off_CC.sum(axis=0) + off_CC.sum(axis=1)
    kept = np.sort(np.argsort(-mixed_C, kind="stable")[:MOST_CLASSES])
    share_CC = off_CC[np.ix_(kept, kept)] / count_CC[kept].sum(axis=1, keepdims=True).clip(min=1)
    near_CC = share_CC + share_CC.T
    far_CC = 1 - near_CC / max(near_CC.max(), 1e-12)
    np.fill_diagonal(far_CC, 0)
    order: np.ndarray = kept[leaves_list(linkage(squareform(far_CC, checks=False), "average", optimal_ordering=True))]
    return order


def cells(count_CC: np.ndarray, order: np.ndarray) -> list[Cell]:
    """All cells with anything in them, by their place in the drawing. Shares are of the whole row, drawn or not."""
    drawn = count_CC[np.ix_(order, order)]
    total_R = count_CC[order].sum(axis=1).tolist()
    return [
        Cell(row, column, float(drawn[row, column]), float(drawn[row, column]) / total_R[row])
        for row, column in np.argwhere(drawn > 0).tolist()
    ]


def mix_ups(count_CC: np.ndarray, names: Sequence[str], most: int) -> list[MixUp]:
    off_CC = count_CC * (1 - np.eye(len(names)))
    order = np.argsort(-off_CC, axis=None, kind="stable")[:most]
    pairs = [divmod(int(place), len(names)) for place in order]
    total_C = count_CC.sum(axis=1)
    return [
        MixUp(names[row], names[column], float(off_CC[row, column]), float(total_C[row]))
        for row, column in pairs
        if off_CC[row, column] > 0
    ]


@dataclass(frozen=True)
class Layout:
    """Sizes in pixels, from the number of classes."""

    classes: int

    @property
    def cell(self) -> int:
        return 52 if self.classes <= 8 else 44 if self.classes <= NUMBERS else 22 if self.classes <= 40 else 10

    @property
    def font(self) -> int:
        return 13 if self.classes <= NUMBERS else 12 if self.classes <= 40 else 9

    def numbered(self, names: Sequence[str]) -> bool:
        """Whether rows and columns have numbers, and the names stand whole in a list beside: long ones would leave the cells no
        room."""
        return max(map(len, names)) > LETTERS

    def labels(self, names: Sequence[str]) -> list[str]:
        return [str(place) for place in range(1, len(names) + 1)] if self.numbered(names) else list(names)

    def margin(self, names: Sequence[str]) -> int:
        """Room for the longest label."""
        return round(max(map(len, self.labels(names))) * self.font * 0.6) + 14


def row_labels(names: Sequence[str]) -> Markup:
    """Drawn apart from the cells, to stay in sight while those are moved sideways."""
    layout = Layout(len(names))
    margin = layout.margin(names)
    parts = []
    for row, (label, name) in enumerate(zip(layout.labels(names), names, strict=True)):
        y = margin + (row + 0.5) * layout.cell + layout.font * 0.35
        parts.append(tag("text", label, tag("title", name), x=margin - 8, y=y, text_anchor="end"))
    return _drawing("rows", margin, margin + layout.cell * len(names), layout, parts, aria_hidden="true")


def grid(found: Sequence[Cell], names: Sequence[str]) -> Markup:
    layout = Layout(len(names))
    margin, size = layout.margin(names), layout.cell * len(names)
    parts = []
    for column, (label, name) in enumerate(zip(layout.labels(names), names, strict=True)):
        x = (column + 0.5) * layout.cell + layout.font * 0.35
        if layout.numbered(names):
            place: dict[str, str | float] = {"x": (column + 0.5) * layout.cell, "y": margin - 8, "text_anchor": "middle"}
        else:
            place = {"transform": f"translate({x:.1f} {margin - 8}) rotate(-90)"}
        parts.append(tag("text", label, tag("title", name), **place))
    frame = tag("rect", class_="frame", width=size, height=size)
    squares = [_cell(one, names, layout.cell, numbers=len(names) <= NUMBERS) for one in found]
    parts.append(tag("g", frame, *squares, class_="cells", transform=f"translate(0 {margin})"))
    words = "What people answered (columns) for each result (rows)"
    return _drawing("grid", size + 1, margin + size + 1, layout, parts, role="img", aria_label=words)


def _cell(one: Cell, names: Sequence[str], size: int, *, numbers: bool) -> Markup:
    x, y = one.column * size, one.row * size
    total = count(one.count / one.share)
    words = f"Result {isolated(names[one.row])}, answered {isolated(names[one.column])}: "
    words += f"{count(one.count)} of {total} answers ({percent(one.share)})"
    square = tag("rect", tag("title", words), class_=one.shade, x=x + 1, y=y + 1, width=size - 1, height=size - 1)
    if not numbers:
        return square
    middle = {"x": x + size / 2, "y": y + size / 2 + 4}
    return square + tag("text", f"{100 * one.share:.1f}", class_=f"on-{one.shade}", text_anchor="middle", **middle)


def _drawing(kind: str, wide: int, tall: int, layout: Layout, parts: Sequence[Markup], **more: str) -> Markup:
    view = f"0 0 {wide} {tall}"
    return tag("svg", *parts, class_=f"heat {kind}", width=wide, height=tall, viewBox=view, font_size=layout.font, **more)
