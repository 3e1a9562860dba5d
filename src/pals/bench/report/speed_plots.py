"""Accuracy against training time, and the time of an epoch of each method."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pals.bench.report.plots import BLUE, GREEN, GREY, INK, ORANGE, PALE, RED, STYLE, clean, put_title
from pals.bench.report.result_table import Entry, ResultTable, unique
from pals.bench.report.table_text import column_words
from pals.util.errors import InputError

_TIMES = tuple(base * unit for unit in (1.0, 60.0, 3600.0) for base in (1, 2, 5, 10, 15, 30)) + tuple(
    3600.0 * hours for hours in (60, 120, 240, 480)
)
_MARKERS = [(marker, colour) for marker in "os^DvP" for colour in (BLUE, GREEN, RED, GREY)]  # 24 methods


def speed_figure(table: ResultTable, highlight: str = "PALS") -> Figure:
    """For each column of a table: accuracy of the last epoch against the time of all epochs, and the time of one epoch.

    Args:
        table: of accuracies, with runs that had their device to themselves.
        highlight: the row that is emphasised.

    Raises:
        InputError: if the table is of seconds, or no run has times.
    """
    if table.quantity == "seconds":
        raise InputError(f"Table {table.name} has no accuracies to draw. Try `pals table {table.name} --out {table.name}.png`.")
    timed = [entry for entry in table.rows() if entry.n and entry.epoch_seconds is not None]
    columns = [[entry for entry in timed if entry.column == column] for column in unique(entry.column for entry in timed)]
    if not columns:
        why = "none is finished, or each shared its device with another (--jobs)"
        raise InputError(f"Table {table.name} has no runs with times: {why}. `pals bench` makes runs.")
    rows = unique(entry.row for entry in timed if entry.row != highlight)
    styles = {highlight: ("*", ORANGE), **{row: _MARKERS[k % len(_MARKERS)] for k, row in enumerate(rows)}}
    with matplotlib.rc_context(STYLE):
        height = len(columns) * (2.2 + 0.3 * max(8, *map(len, columns)))
        figure = Figure(figsize=(13.5, height), layout="constrained")
        grid = figure.subplots(len(columns), 2, squeeze=False, gridspec_kw={"width_ratios": [1.35, 1]})
        for (points, epochs), entries in zip(grid, columns, strict=True):
            _draw_points(points, entries, styles)
            points.set_title(column_words(entries[0]), loc="left")
            _draw_epochs(epochs, entries, highlight)
        machine = f" on {', '.join(sorted({entry.hardware for entry in timed}))}"
        without = unique(entry.row for entry in table.rows() if entry.n and entry.epoch_seconds is None)
        missing = f"\nnot shown, since they shared their device: {', '.join(without)}" if without else ""
        put_title(figure, f"{table.title}\n{table.schedule}{machine}{missing}")
    return figure


def _draw_points(axes: Axes, entries: Sequence[Entry], styles: dict[str, tuple[str, str]]) -> None:
    """A marker for each method; the legend names them, the most accurate first."""
    for entry in sorted(entries, key=lambda entry: -entry.mean):
        marker, colour = styles[entry.row]
        special = marker == "*"
        if entry.std is not None:
            axes.errorbar(entry.total_seconds, entry.mean, entry.std, color=GREY, capsize=2, linewidth=1, zorder=2)
        axes.scatter(
            entry.total_seconds,
            entry.mean,
            s=230 if special else 60,
            marker=marker,
            color=colour,
            edgecolor=INK if special else "white",
            linewidth=1,
            zorder=4 if special else 3,
            label=entry.row,
        )
    axes.set_xscale("log")
    seconds = [entry.total_seconds for entry in entries]
    low, high = min(seconds) / 1.35, max(seconds) * 1.35
    axes.set_xlim(low, high)
    axes.margins(y=0.12)
    marks = [mark for mark in _TIMES if low <= mark <= high]
    axes.set_xticks(marks, [_short(mark) for mark in marks])
    axes.minorticks_off()
    axes.set(xlabel="time of all epochs (logarithmic)", ylabel="test accuracy, last epoch, %")
    axes.grid(color=PALE)
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=9)
    clean(axes)


def _short(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:g} s"
    return f"{seconds / 60:g} min" if seconds < 3600 else f"{seconds / 3600:g} h"


def _draw_epochs(axes: Axes, entries: Sequence[Entry], highlight: str) -> None:
    """The measured time as a bar, and a line at the time by counting network passes."""
    ordered = sorted(entries, key=lambda entry: -entry.epoch_seconds)
    labels, counted = [], False
    for y, entry in enumerate(ordered):
        seconds, times = entry.epoch_seconds, entry.times_supervised
        axes.barh(y, seconds, height=0.62, color=ORANGE if entry.row == highlight else BLUE)
        if entry.cost is not None and times:
            by_count = entry.cost * seconds / times
            label = None if counted else "by counting passes"
            axes.plot([by_count, by_count], [y - 0.4, y + 0.4], color=INK, linewidth=2, label=label, zorder=3)
            counted = True
        labels.append(f"{entry.row}  {seconds:.2f} s" + ("" if times is None else f"  ({times:.1f}×)"))
    axes.set_yticks(range(len(ordered)), labels)
    axes.set(xlabel="seconds per epoch, median (times a supervised epoch)", title="An epoch")
    axes.set_xlim(left=0)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color=PALE)
    clean(axes)
    if counted:
        axes.legend(frameon=False, loc="upper right")
