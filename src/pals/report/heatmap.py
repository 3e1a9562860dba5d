"""The confusion matrix of results and answers as a heat map, and its most frequent confusions."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform

from pals.report.charts import tag
from pals.report.format import count, isolated, percent

MAX_DRAWN_CLASSES = 100  # more rows cannot be read on any screen
MAX_UNSORTED_CLASSES = 20  # up to this number the classes keep their order, which may have a meaning (grades)
MAX_NAME_LETTERS = 18  # longer class names are replaced by numbers
MAX_NUMBERED_CLASSES = 12  # up to this number the cells are wide enough for a percentage
AGREE_EDGES = (0.5, 0.7, 0.8, 0.9, 0.95, 0.99)
DIFFER_EDGES = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
"""Shares at which the next shade starts: a confusion of 5% is frequent, an agreement of 50% is low."""


@dataclass(frozen=True)
class HeatCell:
    row: int
    column: int
    count: float
    share: float
    "Of the answers to the items with this result."

    @property
    def shade(self) -> str:
        """The class of the style sheet: a for agreement, d for a difference, then 1 (faint) to 7."""
        letter, edges = ("a", AGREE_EDGES) if self.row == self.column else ("d", DIFFER_EDGES)
        return f"{letter}{1 + bisect_right(edges, self.share)}"


@dataclass(frozen=True)
class ConfusedPair:
    result: str
    answer: str
    count: float
    total: float

    @property
    def share(self) -> float:
        return self.count / self.total


def matrix(cells: Mapping[str, Sequence[float]], num_classes: int) -> np.ndarray:
    """The confusion matrix (C x C: result, answer) from its cells that are not zero."""
    count_CC = np.zeros((num_classes, num_classes))
    count_CC[np.array(cells["result"], dtype=np.int64), np.array(cells["answer"], dtype=np.int64)] = cells["count"]
    return count_CC


def arrange(count_CC: np.ndarray) -> np.ndarray:
    """The classes to draw, in order. Up to MAX_UNSORTED_CLASSES all of them as given; else those with the most confusions,
    ordered by hierarchical clustering so that classes that are confused with each other are adjacent."""
    classes = len(count_CC)
    if classes <= MAX_UNSORTED_CLASSES:
        return np.arange(classes)
    off_CC = count_CC * (1 - np.eye(classes))
    mixed_C = off_CC.sum(axis=0) + off_CC.sum(axis=1)
    kept = np.sort(np.argsort(-mixed_C, kind="stable")[:MAX_DRAWN_CLASSES])
    share_CC = off_CC[np.ix_(kept, kept)] / count_CC[kept].sum(axis=1, keepdims=True).clip(min=1)
    near_CC = share_CC + share_CC.T
    far_CC = 1 - near_CC / max(near_CC.max(), 1e-12)
    np.fill_diagonal(far_CC, 0)
    order: np.ndarray = kept[leaves_list(linkage(squareform(far_CC, checks=False), "average", optimal_ordering=True))]
    return order


def cells(count_CC: np.ndarray, order: np.ndarray) -> list[HeatCell]:
    """The cells that are not zero, by row and column of the map. Shares are of the whole row, drawn or not."""
    drawn = count_CC[np.ix_(order, order)]
    total_R = count_CC[order].sum(axis=1).tolist()
    return [
        HeatCell(row, column, float(drawn[row, column]), float(drawn[row, column]) / total_R[row])
        for row, column in np.argwhere(drawn > 0).tolist()
    ]


def confused_pairs(count_CC: np.ndarray, names: Sequence[str], most: int) -> list[ConfusedPair]:
    off_CC = count_CC * (1 - np.eye(len(names)))
    order = np.argsort(-off_CC, axis=None, kind="stable")[:most]
    pairs = [divmod(int(place), len(names)) for place in order]
    total_C = count_CC.sum(axis=1)
    return [
        ConfusedPair(names[row], names[column], float(off_CC[row, column]), float(total_C[row]))
        for row, column in pairs
        if off_CC[row, column] > 0
    ]


@dataclass(frozen=True)
class HeatmapLayout:
    """Sizes in pixels, from the number of classes."""

    classes: int

    @property
    def cell(self) -> int:
        return 52 if self.classes <= 8 else 44 if self.classes <= MAX_NUMBERED_CLASSES else 22 if self.classes <= 40 else 10

    @property
    def font(self) -> int:
        return 13 if self.classes <= MAX_NUMBERED_CLASSES else 12 if self.classes <= 40 else 9

    def numbered(self, names: Sequence[str]) -> bool:
        """Whether rows and columns have numbers instead of names, which then stand in a list beside the map."""
        return max(map(len, names)) > MAX_NAME_LETTERS

    def labels(self, names: Sequence[str]) -> list[str]:
        return [str(place) for place in range(1, len(names) + 1)] if self.numbered(names) else list(names)

    def margin(self, names: Sequence[str]) -> int:
        """Room for the longest label."""
        return round(max(map(len, self.labels(names))) * self.font * 0.6) + 14


def row_labels(names: Sequence[str]) -> Markup:
    """A drawing of its own, which stays visible while the cells are scrolled sideways."""
    layout = HeatmapLayout(len(names))
    margin = layout.margin(names)
    parts = []
    for row, (label, name) in enumerate(zip(layout.labels(names), names, strict=True)):
        y = margin + (row + 0.5) * layout.cell + layout.font * 0.35
        parts.append(tag("text", label, tag("title", name), x=margin - 8, y=y, text_anchor="end"))
    return _drawing("rows", margin, margin + layout.cell * len(names), layout, parts, aria_hidden="true")


def grid(found: Sequence[HeatCell], names: Sequence[str]) -> Markup:
    layout = HeatmapLayout(len(names))
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
    squares = [_cell(one, names, layout.cell, numbers=len(names) <= MAX_NUMBERED_CLASSES) for one in found]
    parts.append(tag("g", frame, *squares, class_="cells", transform=f"translate(0 {margin})"))
    words = "Answers (columns) for each result (rows)"
    return _drawing("grid", size + 1, margin + size + 1, layout, parts, role="img", aria_label=words)


def _cell(one: HeatCell, names: Sequence[str], size: int, *, numbers: bool) -> Markup:
    x, y = one.column * size, one.row * size
    total = count(one.count / one.share)
    words = f"Result {isolated(names[one.row])}, answered {isolated(names[one.column])}: "
    words += f"{count(one.count)} of {total} answers ({percent(one.share)})"
    square = tag("rect", tag("title", words), class_=one.shade, x=x + 1, y=y + 1, width=size - 1, height=size - 1)
    if not numbers:
        return square
    middle = {"x": x + size / 2, "y": y + size / 2 + 4}
    return square + tag("text", f"{100 * one.share:.1f}", class_=f"on-{one.shade}", text_anchor="middle", **middle)


def _drawing(kind: str, wide: int, tall: int, layout: HeatmapLayout, parts: Sequence[Markup], **more: str) -> Markup:
    view = f"0 0 {wide} {tall}"
    return tag("svg", *parts, class_=f"heat {kind}", width=wide, height=tall, viewBox=view, font_size=layout.font, **more)
