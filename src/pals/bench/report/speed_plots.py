"""Accuracy against training time, and how long an epoch of each method takes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text
from matplotlib.transforms import Bbox, BboxBase

from pals.bench.report.layout import column_words
from pals.bench.report.plots import BLUE, GREY, INK, ORANGE, PALE, STYLE, clean, put_title
from pals.bench.report.result_table import Column, Entry, Score, Speed, Table, unique
from pals.util.errors import InputError

_TIMES = tuple(base * unit for unit in (1.0, 60.0, 3600.0) for base in (1, 2, 5, 10, 15, 30)) + tuple(
    3600.0 * hours for hours in (60, 120, 240, 480)
)
_AWAY = 9.0  # points between a dot and its name
_BESIDE = 5.0  # points between a bar, or the line of the count, and the time


def speed_figure(table: Table, highlight: str = "PALS") -> Figure:
    """For each column of the table: accuracy of the last epoch against the time of all epochs, and the time of one."""
    if table.quantity == "seconds":
        raise InputError(f"Table {table.name} has no accuracies to draw. Try `pals table {table.name} --out {table.name}.png`.")
    columns = [column for column in table.columns if _timed(table, column)]
    if not columns:
        why = "none is finished, or each shared its device with another (--jobs)"
        raise InputError(f"Table {table.name} has no runs with times: {why}. `pals bench` makes runs.")
    hardware = {entry.speed.hardware for entry in table.entries if entry.speed}
    with matplotlib.rc_context(STYLE):
        tallest = max(len(_timed(table, column)) for column in columns)
        figure = Figure(figsize=(12.5, len(columns) * (2.2 + 0.27 * max(tallest, 8))), layout="constrained")
        FigureCanvasAgg(figure)
        grid = figure.subplots(len(columns), 2, squeeze=False, gridspec_kw={"width_ratios": [1.35, 1]})
        for (points, epochs), column in zip(grid, columns, strict=True):
            entries = _timed(table, column)
            _draw_points(points, [(entry.row, score, speed) for entry, score, speed in entries], highlight)
            points.set_title(column_words(column), loc="left")
            _draw_epochs(epochs, [(entry.row, speed) for entry, _, speed in entries], highlight)
        machine = f" on {', '.join(sorted(str(name) for name in hardware))}" if hardware - {None} else ""
        without = unique(entry.row for entry in table.entries if entry.ours is not None and entry.speed is None)
        missing = f"\nnot shown, since they shared their device: {', '.join(without)}" if without else ""
        put_title(figure, f"{table.title}\n{table.schedule}{machine}{missing}")
        figure.draw_without_rendering()  # the layout must be settled before the names are placed
        figure.set_layout_engine("none")
        for (points, epochs), column in zip(grid, columns, strict=True):
            entries = _timed(table, column)
            _place_names(points, [(entry.row, score, speed) for entry, score, speed in entries], highlight)
            _place_times(epochs, [speed for _, _, speed in entries])
    return figure


def _timed(table: Table, column: Column) -> list[tuple[Entry, Score, Speed]]:
    return [
        (entry, entry.ours, entry.speed)
        for entry in table.entries
        if entry.column == column.name and entry.ours is not None and entry.speed is not None
    ]


Point = tuple[str, Score, Speed]


def _draw_points(axes: Axes, points: Sequence[Point], highlight: str) -> None:
    for name, score, speed in points:
        special = name == highlight
        colour, size, edge = (ORANGE, 110, INK) if special else (BLUE, 55, "white")
        if score.std is not None:
            axes.errorbar(speed.total_seconds, score.mean, score.std, color=GREY, capsize=2, linewidth=1, zorder=2)
        axes.scatter(
            speed.total_seconds, score.mean, s=size, color=colour, edgecolor=edge, linewidth=1, zorder=4 if special else 3
        )
    axes.set_xscale("log")
    values = [score.mean + side * (score.std or 0.0) for _, score, _ in points for side in (-1, 1)]
    seconds = [speed.total_seconds for _, _, speed in points]
    pad = 0.12 * max(max(values) - min(values), 1.0)
    low, high = min(seconds) / 1.35, max(seconds) * 1.35
    axes.set(xlim=(low, high), ylim=(min(values) - pad, max(values) + pad))
    marks = [mark for mark in _TIMES if low <= mark <= high]
    axes.set_xticks(marks, [_short(mark) for mark in marks])
    axes.minorticks_off()
    axes.set(xlabel="time of all epochs (logarithmic)", ylabel="test accuracy, last epoch, %")
    axes.grid(color=PALE)
    clean(axes)


def _short(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:g} s"
    return f"{seconds / 60:g} min" if seconds < 3600 else f"{seconds / 3600:g} h"


def _place_names(axes: Axes, points: Sequence[Point], highlight: str) -> None:
    """Names beside their dots, none over another name, dot or error bar: the first free place of many, near ones first."""
    unit = axes.figure.dpi / 72
    dots, lines = zip(*[_around(axes, point, unit) for point in points], strict=True)
    names: list[Bbox] = []
    for k in sorted(range(len(points)), key=lambda k: points[k][0] != highlight):
        strong = points[k][0] == highlight
        boxes, others = _boxes(axes, points[k], strong=strong), [*names, *dots[:k], *dots[k + 1 :]]
        free = [place for place, box in boxes.items() if _inside(box, axes.bbox) and not box.count_overlaps(others)]
        place = next((place for place in free if not boxes[place].count_overlaps(lines)), (free or list(boxes))[0])
        _name(axes, points[k], place, strong=strong)
        names.append(boxes[place])


def _inside(box: Bbox, frame: BboxBase) -> bool:
    return bool(frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0 and box.y1 <= frame.y1)


def _boxes(axes: Axes, point: Point, *, strong: bool) -> dict[tuple[float, float], Bbox]:
    """The pixels that a name takes at each place, without the line to its dot."""
    text = _name(axes, point, (0.0, 0.0), strong=strong)
    size = Text.get_window_extent(text, axes.figure.canvas.get_renderer())  # type: ignore[attr-defined]
    text.remove()
    x, y = axes.transData.transform((point[2].total_seconds, point[1].mean))
    unit = axes.figure.dpi / 72
    found = {}
    for across, up in _places():
        left = x + across * unit - size.width * (0 if across > 0 else 1 if across < 0 else 0.5)
        bottom = y + up * unit - size.height * (0.5 if abs(up) < 4 else 0 if up > 0 else 1)
        found[across, up] = Bbox.from_bounds(left, bottom, size.width, size.height)
    return found


def _name(axes: Axes, point: Point, place: tuple[float, float], *, strong: bool) -> Annotation:
    """A name so many points away from its dot, with a line to it where that is far."""
    (across, up), (name, score, speed) = place, point
    line = {"arrowstyle": "-", "color": GREY, "linewidth": 0.7, "shrinkB": 4}
    return axes.annotate(
        name,
        (speed.total_seconds, score.mean),
        xytext=place,
        textcoords="offset points",
        ha="left" if across > 0 else "right" if across < 0 else "center",
        va="center" if abs(up) < 4 else "bottom" if up > 0 else "top",
        fontsize=9,
        fontweight="bold" if strong else "normal",
        zorder=6,
        arrowprops=line if math.hypot(across, up) > 16 else None,
    )


def _around(axes: Axes, point: Point, unit: float) -> tuple[Bbox, Bbox]:
    """The places of a dot and of its error bar, in pixels."""
    _, score, speed = point
    std = score.std or 0.0
    (x, low), (_, high) = axes.transData.transform([(speed.total_seconds, score.mean + side * std) for side in (-1, 1)])
    middle = (low + high) / 2
    dot = Bbox.from_bounds(x - 6 * unit, middle - 6 * unit, 12 * unit, 12 * unit)
    return dot, Bbox.from_extents(x - 2 * unit, low, x + 2 * unit, high)


def _places() -> list[tuple[float, float]]:
    """Points to the right and up, near ones first."""
    near = [(_AWAY, 0.0), (-_AWAY, 0.0), (7.0, 6.0), (7.0, -6.0), (-7.0, 6.0), (-7.0, -6.0), (0.0, 8.0), (0.0, -8.0)]
    far = [
        (reach * math.cos(turn * math.pi / 8), reach * math.sin(turn * math.pi / 8))
        for reach in (18.0, 28.0, 40.0, 55.0, 75.0, 100.0, 130.0, 170.0)
        for turn in range(16)
    ]
    return near + far


def _draw_epochs(axes: Axes, epochs: Sequence[tuple[str, Speed]], highlight: str) -> None:
    """Measured time as a bar; a line where the time would be by counting passes."""
    ordered = sorted(epochs, key=lambda one: _slowest_first(one[1]))
    longest = max(max(speed.epoch_seconds, _counted(speed) or 0.0) for _, speed in ordered)
    counted = False
    for y, (name, speed) in enumerate(ordered):
        axes.barh(y, speed.epoch_seconds, height=0.62, color=ORANGE if name == highlight else BLUE)
        if (theory := _counted(speed)) is not None:
            label = None if counted else "by counting passes"
            axes.plot([theory, theory], [y - 0.4, y + 0.4], color=INK, linewidth=2, label=label, zorder=3)
            counted = True
    axes.set_yticks(range(len(ordered)), [name for name, _ in ordered])
    axes.set(xlim=(0, 1.28 * longest), xlabel="seconds per epoch, median (times a supervised epoch)", title="An epoch")
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color=PALE)
    clean(axes)
    if counted:
        axes.legend(frameon=False, loc="upper right")


def _slowest_first(speed: Speed) -> float:
    return -speed.epoch_seconds


def _counted(speed: Speed) -> float | None:
    """Seconds of an epoch by counting passes."""
    if speed.cost is None or not speed.times_supervised:
        return None
    return speed.cost * speed.epoch_seconds / speed.times_supervised


def _place_times(axes: Axes, speeds: Sequence[Speed]) -> None:
    """Each time right of its bar, or of the line for the count where that leaves no room between them."""
    renderer = axes.figure.canvas.get_renderer()  # type: ignore[attr-defined]
    for y, speed in enumerate(sorted(speeds, key=_slowest_first)):
        words = f"{speed.epoch_seconds:.2f} s"
        if speed.times_supervised is not None:
            words += f"  ({speed.times_supervised:.1f}×)"
        text = axes.annotate(
            words, (speed.epoch_seconds, y), xytext=(_BESIDE, 0), textcoords="offset points", va="center", fontsize=8.5
        )
        theory = _counted(speed)
        if theory is not None and theory > speed.epoch_seconds:
            end = text.get_window_extent(renderer).x1 + _BESIDE * axes.figure.dpi / 72
            if end > axes.transData.transform((theory, y))[0]:
                text.xy = (theory, y)
