"""Figures of tables and runs: differences as a heat map, ablations as bars, selected pairs by epoch.

The colours are those of Okabe and Ito, which the colour-blind can distinguish; every value is also written.
"""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from pals.bench.report.result_table import SIGNS, Block, Entry, ResultTable, blocks
from pals.bench.report.table_text import signed, spread
from pals.util.errors import InputError, unknown
from pals.util.files import write_bytes

BLUE, ORANGE, GREEN, RED, GREY, PALE, INK = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#7A7A7A", "#ECEEF0", "#222222"
FIGURE_SUFFIXES = (".png", ".svg", ".pdf")
STYLE: Any = {  # matplotlib lists every key in its types
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.edgecolor": GREY,
    "text.color": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "pals",
    "pdf.fonttype": 42,
    "hatch.linewidth": 0.6,
}


def save(figure: Figure, path: Path) -> None:
    """Write a figure; the same figure gives the same file.

    Args:
        figure: any.
        path: ends in .png, .svg or .pdf.

    Raises:
        InputError: if it has another suffix.
    """
    ending = path.suffix.lower()
    if ending not in FIGURE_SUFFIXES:
        raise InputError(f"{path}: pictures are written as {', '.join(FIGURE_SUFFIXES)}. Choose such a name.")
    dates = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}, ".png": {}}
    buffer = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(buffer, format=ending[1:], dpi=160, metadata=dates[ending])
    write_bytes(path, buffer.getvalue())


def put_title(figure: Figure, text: str, size: float = 12) -> None:
    """Put a title above a figure, broken into lines that fit its width."""
    characters = int(figure.get_figwidth() * 72 / (0.62 * size))
    lines = [line for part in text.splitlines() for line in textwrap.wrap(part, characters)]
    figure.suptitle("\n".join(lines), fontweight="bold", fontsize=size)


def clean(axes: Axes) -> None:
    """Remove the upper and right frame, and draw grid lines behind the data."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)


# ------------------------------------------------------------------------------------------------ heat map


def heat_map(table: ResultTable) -> Figure:
    """The difference to the paper in each cell, with our number under it; grey with the paper's number where nothing was run.

    Args:
        table: with published accuracies.

    Raises:
        InputError: if nothing is published, or the table has seconds.
    """
    _need_published(table)
    if table.quantity == "seconds":
        raise InputError(f"Table {table.name} has seconds, which depend on the machine: draw them as bars.")
    parts, entries = blocks(table), table.rows()
    largest = max([1.0, *(abs(entry.difference) for entry in entries if entry.difference is not None)])
    colours, norm = matplotlib.colormaps["PuOr"], TwoSlopeNorm(0.0, -largest, largest)
    rows, columns = [len(part.rows) for part in parts], [len(part.heads) for part in parts]
    with matplotlib.rc_context(STYLE):
        if sum(columns) > 12:  # side by side they would be unreadable on a page
            size = (2.0 + 0.86 * max(columns), 1.6 + 0.75 * len(parts) + 0.46 * sum(rows))
            shape: dict[str, Any] = {"nrows": len(parts), "gridspec_kw": {"height_ratios": rows}}
        else:
            size = (max(6.5, 2.0 + 0.86 * sum(columns) + 1.2 * len(parts)), 2.3 + 0.46 * max(rows))
            shape = {"ncols": len(parts), "gridspec_kw": {"width_ratios": columns}}
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.subplots(squeeze=False, **shape).ravel()
        for axes, part in zip(grid, parts, strict=True):
            _draw_cells(axes, part, colours, norm)
        scale = matplotlib.cm.ScalarMappable(norm, colours)
        bar = figure.colorbar(scale, ax=list(grid), orientation="horizontal", shrink=0.6, aspect=40, pad=0.02)
        bar.set_label("ours minus paper, points of accuracy")
        bar.outline.set_visible(False)
        put_title(figure, table.title)
        runs, done = sum(entry.n for entry in entries), sum(entry.n > 0 for entry in entries)
        cells = f"{done} of {len(entries)} cells run ({runs} run{'s' if runs != 1 else ''}), {table.schedule}"
        words = f"{cells}.  {SIGNS['within']} within the spread (95%).  Grey: not run, the paper's number."
        figure.supxlabel(words, fontsize=9, color=GREY)
    return figure


def _draw_cells(axes: Axes, block: Block, colours: Colormap, norm: TwoSlopeNorm) -> None:
    for y, (_, _, entries) in enumerate(block.rows):
        for x, entry in enumerate(entries):
            if entry is not None:
                _draw_cell(axes, x, y, entry, colours, norm)
    axes.set(xlim=(-0.5, len(block.heads) - 0.5), ylim=(len(block.rows) - 0.5, -0.5), title=block.heading)
    axes.set_xticks(range(len(block.heads)), [name.replace(", ", "\n") for name in block.heads], fontsize=8.5)
    names = [f"{section}: {row}" if section else row for section, row, _ in block.rows]
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _draw_cell(axes: Axes, x: int, y: int, entry: Entry, colours: Colormap, norm: TwoSlopeNorm) -> None:
    corner = (x - 0.47, y - 0.46)
    centred: dict[str, Any] = {"ha": "center", "va": "center"}
    if entry.difference is None:
        axes.add_patch(Rectangle(corner, 0.94, 0.92, facecolor=PALE, linewidth=0))
        known = entry.mean if entry.n else entry.paper_mean
        axes.text(x, y, "" if known is None else f"{known:.2f}", color=GREY, fontsize=8, **centred)
        return
    face = colours(norm(entry.difference))
    luminance = 0.2126 * face[0] + 0.7152 * face[1] + 0.0722 * face[2]
    ink = "white" if luminance < 0.4 else INK
    axes.add_patch(Rectangle(corner, 0.94, 0.92, facecolor=face, edgecolor=INK, linewidth=1.2))
    sign = f" {SIGNS['within']}" if entry.mark == "within" else ""
    axes.text(x, y - 0.15, signed(entry.difference) + sign, color=ink, fontsize=9.5, fontweight="bold", **centred)
    axes.text(x, y + 0.22, f"{entry.mean:.2f}", color=ink, fontsize=8, **centred)


# ------------------------------------------------------------------------------------------------ bars


def bars(table: ResultTable, group: str | None = None) -> Figure:
    """The paper's number (hollow bar) and ours (filled) in each column, with a panel for each group of rows.

    Args:
        table: with published numbers.
        group: draw this panel alone; in any case.

    Raises:
        InputError: if nothing is published, or there is no such group.
    """
    _need_published(table)
    panels: dict[str, list[tuple[str, Sequence[Entry | None]]]] = {}
    for block in blocks(table):
        for section, row, entries in block.rows:
            panels.setdefault(section or block.heading, []).append((row, entries))
    heads = blocks(table)[0].heads
    if group is not None:
        chosen = {name: rows for name, rows in panels.items() if name.lower() == group.lower()}
        if not chosen:
            raise unknown(f"part of table {table.name}", group, panels)
        panels = chosen
    shown = [entry for rows in panels.values() for _, entries in rows for entry in entries if entry is not None]
    # Differences are small beside the values: the axis starts a little under the lowest, and the title names its start.
    values = [value for entry in shown for value in (entry.paper_mean, entry.mean) if value is not None]
    low = max(0.0, 5.0 * math.floor((min(values) - 1.0) / 5.0))
    across = min(len(panels), 3)
    down = math.ceil(len(panels) / across)
    with matplotlib.rc_context(STYLE):
        size = (9.0, 4.6) if len(panels) == 1 else (5.4 * across, 3.5 * down + 1.1)
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.subplots(down, across, squeeze=False).ravel()
        for axes, (heading, rows) in zip(grid, panels.items(), strict=False):
            _draw_panel(axes, heading, rows)
            axes.set_ylim(low, max(values) + 0.18 * (max(values) - low))
            axes.set_ylabel("accuracy, %" if table.quantity == "accuracy" else "seconds per epoch")
        for axes in grid[len(panels) :]:
            axes.set_visible(False)
        keys = []
        for number, name in enumerate(heads):
            colour = (BLUE, ORANGE, GREEN, RED)[number % 4]
            keys.append(Patch(facecolor="white", edgecolor=colour, hatch="////", label=f"paper, {name}"))
            if any(entry.n for entry in shown):
                keys.append(Patch(facecolor=colour, edgecolor=colour, label=f"ours, {name}"))
        figure.legend(handles=keys, loc="outside lower center", ncols=4, frameon=False)
        put_title(figure, _title_of_bars(table, blocks(table)[0].heading, low))
    return figure


def _title_of_bars(table: ResultTable, heading: str, low: float) -> str:
    if table.quantity == "seconds":  # they mean nothing without the machines they were measured on
        machines = sorted({entry.hardware for entry in table.rows() if entry.hardware})
        ours = f"; ours on {', '.join(machines)}" if machines else ""
        return "\n".join([table.title, table.schedule + ours, *table.notes])
    words = f"{table.title.rstrip('.')}: {heading}" if heading else table.title
    return f"{words}\n{table.schedule}; the axis starts at {low:g}"


def _draw_panel(axes: Axes, heading: str, rows: Sequence[tuple[str, Sequence[Entry | None]]]) -> None:
    ours = any(entry is not None and entry.n for _, entries in rows for entry in entries)
    width = 0.84 / (max(len(entries) for _, entries in rows) * (2 if ours else 1))
    for x, (_, entries) in enumerate(rows):
        for number, entry in enumerate(entries):
            if entry is None:
                continue
            left = x - 0.42 + number * width * (2 if ours else 1)
            colour = (BLUE, ORANGE, GREEN, RED)[number % 4]
            if entry.paper_mean is not None:
                _bar(axes, left, width, (entry.paper_mean, entry.paper_std), colour, filled=False)
            if entry.n:
                _bar(axes, left + width, width, (entry.mean, entry.std), colour, filled=True)
            elif ours:
                _upright(axes, "not run", (left + 1.5 * width, 0), up=4, xycoords=("data", "axes fraction"), color=GREY)
    names = [name.removeprefix(f"{heading} = ").removeprefix(f"{heading} ") for name, _ in rows]
    width_of_name = max(8, 50 // len(rows))
    parts = [[textwrap.fill(part, width_of_name, break_long_words=False) for part in name.split(", ")] for name in names]
    axes.set_xticks(range(len(rows)), ["\n".join(lines) for lines in parts], fontsize=9)
    axes.set(title=heading, xlim=(-0.55, len(rows) - 0.45))
    axes.grid(axis="y", color=PALE)
    clean(axes)


def _bar(axes: Axes, left: float, width: float, value: tuple[float, float | None], colour: str, *, filled: bool) -> None:
    style: dict[str, Any] = {"facecolor": colour} if filled else {"facecolor": "white", "hatch": "////"}
    axes.bar(left + width / 2, value[0], width=0.9 * width, edgecolor=colour, linewidth=1.2, **style)
    if value[1] is not None:
        axes.errorbar(left + width / 2, value[0], value[1], color=INK, capsize=2, linewidth=1)
    top = (left + width / 2, value[0] + (value[1] or 0.0))
    _upright(axes, f"{value[0]:.2f}", top, up=3, fontweight="bold" if filled else "normal")


def _upright(axes: Axes, text: str, place: tuple[float, float], *, up: int, **style: Any) -> None:
    """Small vertical text, some points above a place."""
    common: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "va": "bottom", "rotation": 90, "fontsize": 7.5}
    axes.annotate(text, place, xytext=(0, up), **common, **style)


def _need_published(table: ResultTable) -> None:
    if not any(entry.paper_mean is not None for entry in table.rows()):
        raise InputError(f"Table {table.name} has no published numbers to draw beside ours. Try `pals figure speed`.")


# ------------------------------------------------------------------------------------------------ selected pairs


@dataclass(frozen=True)
class Curve:
    """A run by epoch: the number of pairs that it trained on and of the correct ones among them."""

    name: str
    epochs: Sequence[int]
    selected: Sequence[float]
    correct: Sequence[float]
    accuracy: Sequence[float]
    "Per cent; empty where there is no test set."


@dataclass(frozen=True)
class Marks:
    """Published numbers for some runs."""

    pairs: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    "By epoch (-1: the last) the number of selected pairs and of the correct ones among them."
    accuracy: tuple[float, float | None] | None = None
    "Mean and standard deviation, per cent."


def selected(curves: Sequence[Curve], paper: Marks | None = None, title: str = "") -> Figure:
    """Selected and correct pairs of one or several runs by epoch, and their accuracy.

    Args:
        curves: of the runs.
        paper: published numbers to mark.
        title: of the figure.
    """
    paper = paper or Marks()
    with_accuracy, several = any(curve.accuracy for curve in curves), len(curves) > 1
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(11 if with_accuracy else 6.2, 4.4), layout="constrained")
        panels = figure.subplots(1, 2 if with_accuracy else 1, squeeze=False)[0]
        for curve, colour in zip(curves, cycle((BLUE, ORANGE, GREEN, RED, GREY))):
            name = f"{curve.name}: " if several else ""
            panels[0].plot(curve.epochs, curve.selected, color=colour, linewidth=1.2, alpha=0.5, label=f"{name}selected")
            panels[0].plot(curve.epochs, curve.correct, color=colour, linewidth=1.8, label=f"{name}of these right")
            panels[0].fill_between(curve.epochs, curve.correct, curve.selected, color=colour, alpha=0.12, linewidth=0)
            if curve.accuracy:
                label = f"{name}last epoch {curve.accuracy[-1]:.2f}"
                panels[1].plot(curve.epochs, curve.accuracy, color=colour, linewidth=1.5, label=label)
        last = max(curve.epochs[-1] for curve in curves)
        for number, (epoch, (chosen, right)) in enumerate(paper.pairs.items()):
            at = last if epoch < 0 else epoch
            style = {"color": INK, "zorder": 5, "clip_on": False, "linestyle": "none", "markersize": 8}
            panels[0].plot(at, chosen, marker="o", fillstyle="none", label=None if number else "paper: selected", **style)
            panels[0].plot(at, right, marker="x", label=None if number else "paper: right", **style)
        panels[0].set(title="Selected pairs", xlabel="epoch", ylabel="items")
        panels[0].set_ylim(bottom=0)
        panels[0].yaxis.set_major_formatter("{x:,.0f}")
        if with_accuracy:
            panels[1].set(title="Accuracy on test items", xlabel="epoch", ylabel="%")
            if paper.accuracy is not None:
                _draw_published(panels[1], *paper.accuracy)
        for axes in panels:
            axes.legend(frameon=False, loc="lower right")
            axes.xaxis.get_major_locator().set_params(integer=True)  # there is no half epoch
            axes.grid(color=PALE)
            clean(axes)
        put_title(figure, title)
    return figure


def _draw_published(axes: Axes, mean: float, std: float | None) -> None:
    """A line, named above its left end: a run lies below it there."""
    axes.axhline(mean, color=INK, linewidth=1, linestyle="--", zorder=1.5)
    place: Any = {"xycoords": ("axes fraction", "data"), "xytext": (0, 3), "textcoords": "offset points"}
    axes.annotate(f"paper {spread(mean, std)}", (0.02, mean), va="bottom", fontsize=8.5, **place)
    axes.set_ymargin(0.08)  # for the name
