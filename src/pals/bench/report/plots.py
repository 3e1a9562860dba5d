"""Pictures of tables and runs: differences as a heat map, ablations as bars, accuracy against time, selected pairs by epoch.

Colours can be told apart by the colour-blind and in print (Okabe and Ito's); what is known only from colour is also written.
"""

from __future__ import annotations

import io
import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from pals.bench.report.layout import signed, spread
from pals.bench.report.result_table import SIGNS, Block, Entry, Table, blocks
from pals.util.errors import InputError, unknown
from pals.util.files import write_bytes

BLUE, ORANGE, GREEN, RED, GREY, PALE, INK = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#7A7A7A", "#ECEEF0", "#222222"
ENDINGS = (".png", ".svg", ".pdf")
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
    """As the ending says: .png, .svg or .pdf. The same picture gives the same file."""
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise InputError(f"{path}: pictures are written as {', '.join(ENDINGS)}. Choose such a name.")
    dates = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}, ".png": {}}
    buffer = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(buffer, format=ending[1:], dpi=160, metadata=dates[ending])
    write_bytes(path, buffer.getvalue())


def put_title(figure: Figure, text: str, size: float = 12) -> None:
    """Above the picture, in as many lines as its width asks for."""
    characters = int(figure.get_figwidth() * 72 / (0.62 * size))
    lines = [line for part in text.splitlines() for line in textwrap.wrap(part, characters)]
    figure.suptitle("\n".join(lines), fontweight="bold", fontsize=size)


def clean(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)


# ------------------------------------------------------------------------------------------------ heat map


def heat_map(table: Table) -> Figure:
    """Difference to the paper in each cell, with our number under it; grey with the paper's number where nothing was run."""
    _need_published(table)
    if table.quantity == "seconds":
        raise InputError(f"Table {table.name} has seconds, which depend on the machine: draw them as bars.")
    parts = blocks(table)
    differences = [abs(entry.difference) for entry in table.entries if entry.difference is not None]
    largest = max([1.0, *differences])
    colours, norm = matplotlib.colormaps["PuOr"], TwoSlopeNorm(0.0, -largest, largest)
    rows = [sum(len(rows) for _, rows in part.sections) for part in parts]
    columns = [len(part.columns) for part in parts]
    stacked = sum(columns) > 12  # wider would be unreadable on a page
    with matplotlib.rc_context(STYLE):
        if stacked:
            figure = Figure(
                figsize=(2.0 + 0.86 * max(columns), 1.6 + 0.75 * len(parts) + 0.46 * sum(rows)), layout="constrained"
            )
            grid = figure.subplots(len(parts), 1, squeeze=False, gridspec_kw={"height_ratios": rows})[:, 0]
        else:
            width = max(6.5, 2.0 + 0.86 * sum(columns) + 1.2 * len(parts))
            figure = Figure(figsize=(width, 2.3 + 0.46 * max(rows)), layout="constrained")
            grid = figure.subplots(1, len(parts), squeeze=False, gridspec_kw={"width_ratios": columns})[0]
        for axes, part in zip(grid, parts, strict=True):
            _draw_cells(axes, part, colours, norm)
        bar = figure.colorbar(
            matplotlib.cm.ScalarMappable(norm, colours),
            ax=list(grid),
            orientation="horizontal",
            shrink=0.6,
            aspect=40,
            pad=0.02,
        )
        bar.set_label("ours minus paper, points of accuracy")
        bar.outline.set_visible(False)
        put_title(figure, table.title)
        figure.supxlabel(_caption(table), fontsize=9, color=GREY)
    return figure


def _caption(table: Table) -> str:
    runs = sum(len(entry.ours.runs) for entry in table.entries if entry.ours)
    done = sum(entry.ours is not None for entry in table.entries)
    cells = f"{done} of {len(table.entries)} cells run ({runs} run{'s' if runs != 1 else ''}), {table.schedule}"
    return f"{cells}.  {SIGNS['within']} within the spread (95%).  Grey: not run, the paper's number."


def _draw_cells(axes: Axes, block: Block, colours: Colormap, norm: TwoSlopeNorm) -> None:
    rows = [(f"{heading}: {row}" if heading else row, entries) for heading, rows in block.sections for row, entries in rows]
    for y, (_, entries) in enumerate(rows):
        for x, entry in enumerate(entries):
            _draw_cell(axes, x, y, entry, colours, norm)
    axes.set(xlim=(-0.5, len(block.heads) - 0.5), ylim=(len(rows) - 0.5, -0.5), title=block.heading)
    axes.set_xticks(range(len(block.heads)), [name.replace(", ", "\n") for name in block.heads], fontsize=8.5)
    axes.set_yticks(range(len(rows)), [name for name, _ in rows])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _draw_cell(axes: Axes, x: int, y: int, entry: Entry | None, colours: Colormap, norm: TwoSlopeNorm) -> None:
    if entry is None:
        return
    corner = (x - 0.47, y - 0.46)
    centred: dict[str, Any] = {"ha": "center", "va": "center"}
    if entry.ours is None or entry.difference is None:
        axes.add_patch(Rectangle(corner, 0.94, 0.92, facecolor=PALE, linewidth=0))
        known = entry.ours.mean if entry.ours else entry.published[0] if entry.published else None
        axes.text(x, y, "" if known is None else f"{known:.2f}", color=GREY, fontsize=8, **centred)
        return
    face = colours(norm(entry.difference))
    ink = "white" if _luminance(face) < 0.4 else INK
    axes.add_patch(Rectangle(corner, 0.94, 0.92, facecolor=face, edgecolor=INK, linewidth=1.2))
    sign = f" {SIGNS['within']}" if entry.mark == "within" else ""
    axes.text(x, y - 0.15, signed(entry.difference) + sign, color=ink, fontsize=9.5, fontweight="bold", **centred)
    axes.text(x, y + 0.22, f"{entry.ours.mean:.2f}", color=ink, fontsize=8, **centred)


def _luminance(rgba: tuple[float, float, float, float]) -> float:
    return 0.2126 * rgba[0] + 0.7152 * rgba[1] + 0.0722 * rgba[2]


# ------------------------------------------------------------------------------------------------ bars


def bars(table: Table, group: str | None = None) -> Figure:
    """A panel per group of rows: for each column the paper's bar (hollow) and ours (filled), with their numbers."""
    _need_published(table)
    panels = [(heading or block.heading, block, rows) for block in blocks(table) for heading, rows in block.sections]
    if group is not None:
        known = [heading for heading, _, _ in panels]
        panels = [panel for panel in panels if panel[0].lower() == group.lower()]
        if not panels:
            raise unknown(f"part of table {table.name}", group, known)
    shown = [entry for _, _, rows in panels for _, entries in rows for entry in entries if entry is not None]
    low, high = _limits(shown)
    across = min(len(panels), 3)
    down = math.ceil(len(panels) / across)
    with matplotlib.rc_context(STYLE):
        size = (9.0, 4.6) if len(panels) == 1 else (5.4 * across, 3.5 * down + 1.1)
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.subplots(down, across, squeeze=False).ravel()
        for axes, (heading, _, rows) in zip(grid, panels, strict=False):
            _draw_panel(axes, heading, rows)
            axes.set_ylim(low, high)
            axes.set_ylabel("accuracy, %" if table.quantity == "accuracy" else "seconds per epoch")
        for axes in grid[len(panels) :]:
            axes.set_visible(False)
        figure.legend(handles=_keys(panels[0][1].heads, shown), loc="outside lower center", ncols=4, frameon=False)
        put_title(figure, _title_of_bars(table, panels[0][1].heading, low))
    return figure


def _title_of_bars(table: Table, heading: str, low: float) -> str:
    """Seconds say nothing without the machines they were measured on."""
    if table.quantity == "seconds":
        machines = sorted({str(entry.speed.hardware) for entry in table.entries if entry.speed})
        ours = f"; ours on {', '.join(machines)}" if machines else ""
        return "\n".join([table.title, table.schedule + ours, *table.notes])
    words = f"{table.title.rstrip('.')}: {heading}" if heading else table.title
    return f"{words}\n{table.schedule}; the axis starts at {low:g}"


def _limits(entries: Sequence[Entry]) -> tuple[float, float]:
    """The differences are small beside the values: the axis starts a little under the lowest, which the title says."""
    values = [entry.published[0] for entry in entries if entry.published]
    values += [entry.ours.mean for entry in entries if entry.ours]
    step = 5.0
    low = max(0.0, step * math.floor((min(values) - 1.0) / step))
    return low, max(values) + 0.18 * (max(values) - low)


def _draw_panel(axes: Axes, heading: str, rows: Sequence[tuple[str, Sequence[Entry | None]]]) -> None:
    ours = any(entry is not None and entry.ours for _, entries in rows for entry in entries)
    width = 0.84 / (max(len(entries) for _, entries in rows) * (2 if ours else 1))
    for x, (_, entries) in enumerate(rows):
        for number, entry in enumerate(entries):
            if entry is None:
                continue
            left = x - 0.42 + number * width * (2 if ours else 1)
            colour = (BLUE, ORANGE, GREEN, RED)[number % 4]
            if entry.published is not None:
                _bar(axes, left, width, entry.published, colour, filled=False)
            if entry.ours is not None:
                _bar(axes, left + width, width, (entry.ours.mean, entry.ours.std), colour, filled=True)
            elif ours:
                look = {"xycoords": ("data", "axes fraction"), "color": GREY}
                _upright(axes, "not run", (left + 1.5 * width, 0), up=4, **look)
    names = [name.removeprefix(f"{heading} = ").removeprefix(f"{heading} ") for name, _ in rows]
    axes.set_xticks(range(len(rows)), [_wrapped(name, max(8, 50 // len(rows))) for name in names], fontsize=9)
    axes.set(title=heading, xlim=(-0.55, len(rows) - 0.45))
    axes.grid(axis="y", color=PALE)
    clean(axes)


def _wrapped(name: str, width: int) -> str:
    """In lines of about so many characters, broken after commas and hyphens."""
    lines = [""]
    for word in re.findall(r"[^,-]+(?:, |-)?|.", name):
        if lines[-1] and (lines[-1].endswith(", ") or len(lines[-1] + word) > width):
            lines.append("")
        lines[-1] += word
    return "\n".join(line.rstrip(", ") for line in lines)


def _bar(axes: Axes, left: float, width: float, value: tuple[float, float | None], colour: str, *, filled: bool) -> None:
    look: dict[str, Any] = {"facecolor": colour} if filled else {"facecolor": "white", "hatch": "////"}
    axes.bar(left + width / 2, value[0], width=0.9 * width, edgecolor=colour, linewidth=1.2, **look)
    if value[1] is not None:
        axes.errorbar(left + width / 2, value[0], value[1], color=INK, capsize=2, linewidth=1)
    top = (left + width / 2, value[0] + (value[1] or 0.0))
    _upright(axes, f"{value[0]:.2f}", top, up=3, fontweight="bold" if filled else "normal")


def _upright(axes: Axes, text: str, place: tuple[float, float], *, up: int, **look: Any) -> None:
    """Small text that runs upwards, so many points above a place."""
    common: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "va": "bottom", "rotation": 90, "fontsize": 7.5}
    axes.annotate(text, place, xytext=(0, up), **common, **look)


def _keys(heads: Sequence[str], entries: Sequence[Entry]) -> list[Patch]:
    found = []
    for number, name in enumerate(heads):
        colour = (BLUE, ORANGE, GREEN, RED)[number % 4]
        found.append(Patch(facecolor="white", edgecolor=colour, hatch="////", label=f"paper, {name}"))
        if any(entry.ours for entry in entries):
            found.append(Patch(facecolor=colour, edgecolor=colour, label=f"ours, {name}"))
    return found


def _need_published(table: Table) -> None:
    if not any(entry.published for entry in table.entries):
        raise InputError(f"Table {table.name} has no published numbers to draw beside ours. Try `pals figure speed`.")


# ------------------------------------------------------------------------------------------------ selected pairs


@dataclass(frozen=True)
class Curve:
    """A run by epoch: the pairs it trained on and how many of them were right."""

    name: str
    epochs: Sequence[int]
    selected: Sequence[float]
    correct: Sequence[float]
    accuracy: Sequence[float]
    "Per cent; empty where there is no test set."


@dataclass(frozen=True)
class Marks:
    """What the paper has for these runs."""

    pairs: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    "Epoch (-1: the last) to the pairs selected there and those of them that are right."
    accuracy: tuple[float, float | None] | None = None
    "Mean and standard deviation, per cent."


def selected(curves: Sequence[Curve], paper: Marks | None = None, title: str = "") -> Figure:
    """Selected and right pairs of one or several runs, and their accuracy; beside them what the paper has."""
    paper = paper or Marks()
    accuracies = [curve for curve in curves if curve.accuracy]
    colours = (BLUE, ORANGE, GREEN, RED, GREY)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(11 if accuracies else 6.2, 4.4), layout="constrained")
        panels = figure.subplots(1, 2 if accuracies else 1, squeeze=False)[0]
        for curve, colour in zip(curves, np.resize(colours, len(curves)), strict=True):
            _draw_selected(panels[0], curve, str(colour), f"{curve.name}: " if len(curves) > 1 else "")
        last = max(curve.epochs[-1] for curve in curves)
        for number, (epoch, (chosen, right)) in enumerate(paper.pairs.items()):
            at = last if epoch < 0 else epoch
            look = {"color": INK, "zorder": 5, "clip_on": False, "linestyle": "none", "markersize": 8}
            panels[0].plot(at, chosen, marker="o", fillstyle="none", label=None if number else "paper: selected", **look)
            panels[0].plot(at, right, marker="x", label=None if number else "paper: right", **look)
        panels[0].set(title="Selected pairs", xlabel="epoch", ylabel="items")
        panels[0].set_ylim(bottom=0)
        panels[0].yaxis.set_major_formatter("{x:,.0f}")
        panels[0].legend(frameon=False, loc="lower right")
        if accuracies:
            _draw_accuracies(panels[1], accuracies, colours)
            if paper.accuracy is not None:
                _draw_published(panels[1], *paper.accuracy)
        for axes in panels:
            axes.xaxis.get_major_locator().set_params(integer=True)  # there is no half epoch
            axes.grid(color=PALE)
            clean(axes)
        put_title(figure, title)
    return figure


def _draw_selected(axes: Axes, curve: Curve, colour: str, prefix: str) -> None:
    axes.plot(curve.epochs, curve.selected, color=colour, linewidth=1.2, alpha=0.5, label=f"{prefix}selected")
    axes.plot(curve.epochs, curve.correct, color=colour, linewidth=1.8, label=f"{prefix}of these right")
    axes.fill_between(curve.epochs, curve.correct, curve.selected, color=colour, alpha=0.12, linewidth=0)


def _draw_accuracies(axes: Axes, curves: Sequence[Curve], colours: Sequence[str]) -> None:
    for curve, colour in zip(curves, np.resize(np.array(colours), len(curves)), strict=True):
        name = f"{curve.name}: " if len(curves) > 1 else ""
        axes.plot(
            curve.epochs, curve.accuracy, color=str(colour), linewidth=1.5, label=f"{name}last epoch {curve.accuracy[-1]:.2f}"
        )
    axes.set(title="Accuracy on test items", xlabel="epoch", ylabel="%")
    axes.legend(frameon=False, loc="lower right")


def _draw_published(axes: Axes, mean: float, std: float | None) -> None:
    """A line, named above its left end: a run lies below it there."""
    axes.axhline(mean, color=INK, linewidth=1, linestyle="--", zorder=1.5)
    place: Any = {"xycoords": ("axes fraction", "data"), "xytext": (0, 3), "textcoords": "offset points"}
    axes.annotate(f"paper {spread(mean, std)}", (0.02, mean), va="bottom", fontsize=8.5, **place)
    axes.set_ymargin(0.08)  # for the name
