"""Charts as SVG text. Colours are classes of the style sheet, so that dark mode and print need no second chart."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from pals.report.format import isolated, percent

CHART_WIDTH, CHART_HEIGHT = 400, 230
FRAME_LEFT, FRAME_RIGHT, FRAME_TOP, FRAME_BOTTOM = 54, 386, 12, 190
MAX_POINTS = 600  # more points cannot be distinguished
MAX_HOVERS = 120

Scale = Callable[[float], float]


def tag(name: str, *inside: str, **attributes: str | float) -> Markup:
    """`tag("text", "cat", x=1.25, text_anchor="end")`: an SVG element with escaped content. A trailing underscore keeps an
    attribute from being a Python keyword."""

    def short(value: str | float) -> str:
        return escape(value) if isinstance(value, str) else f"{round(value, 1):g}"

    written = "".join(f' {key.rstrip("_").replace("_", "-")}="{short(value)}"' for key, value in attributes.items())
    return Markup(f"<{name}{written}>{''.join(escape(part) for part in inside)}</{name}>")


@dataclass(frozen=True)
class Series:
    name: str
    values: Sequence[float | None]
    "One per epoch; None leaves a gap."


def ticks(low: float, high: float, wanted: int = 4) -> list[float]:
    """Round numbers (1, 2 or 5 times a power of ten apart) that span low to high."""
    if high <= low:
        high = low + (abs(low) or 1.0)
    raw = (high - low) / wanted
    power: float = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(k * step, 12) for k in range(first, last + 1)]


def line_chart(
    title: str, epochs: Sequence[float], series: Sequence[Series], form: Callable[[float], str], *, from_zero: bool = False
) -> Markup:
    """A line for each series over the epochs. The pointer shows the values of an epoch in words."""
    every = max(1, math.ceil(len(epochs) / MAX_POINTS))
    kept = sorted({*range(0, len(epochs), every), len(epochs) - 1})
    epochs = [epochs[k] for k in kept]
    series = [Series(one.name, [one.values[k] for k in kept]) for one in series]
    known = [value for one in series for value in one.values if value is not None]
    marks = ticks(min(0.0, *known) if from_zero else min(known), max(known))
    x_of = _scale(min(epochs), max(epochs), FRAME_LEFT, FRAME_RIGHT)
    y_of = _scale(marks[0], marks[-1], FRAME_BOTTOM, FRAME_TOP)
    lines = [tag("path", class_=f"line s{k}", d=_path(epochs, one, x_of, y_of)) for k, one in enumerate(series, start=1)]
    last = [(one.name, next(value for value in reversed(one.values) if value is not None)) for one in series]
    return tag(
        "svg",
        _y_axis(marks, y_of, form),
        _x_axis(epochs, x_of),
        *lines,
        _hovers(epochs, series, x_of, y_of, form),
        class_="chart",
        viewBox=f"0 0 {CHART_WIDTH} {CHART_HEIGHT}",
        role="img",
        aria_label=f"{title} by epoch; at the end: " + ", ".join(f"{name} {form(value)}" for name, value in last),
    )


def _scale(low: float, high: float, start: float, end: float) -> Scale:
    if high <= low:
        return lambda value: (start + end) / 2
    return lambda value: start + (value - low) / (high - low) * (end - start)


def _y_axis(marks: Sequence[float], y_of: Scale, form: Callable[[float], str]) -> Markup:
    lines = [tag("line", class_="gridline", x1=FRAME_LEFT, x2=FRAME_RIGHT, y1=y_of(mark), y2=y_of(mark)) for mark in marks]
    words = [tag("text", form(mark), x=FRAME_LEFT - 8, y=y_of(mark) + 4.5, text_anchor="end") for mark in marks]
    return Markup("").join([*lines, *words])


def _x_axis(epochs: Sequence[float], x_of: Scale) -> Markup:
    """Labels at whole epochs, the first epoch always."""
    low, high = min(epochs), max(epochs)
    whole = [mark for mark in ticks(low, high, 5) if mark == round(mark) and low + (high - low) / 12 < mark <= high]
    words = [tag("text", f"{mark:g}", x=x_of(mark), y=FRAME_BOTTOM + 18, text_anchor="middle") for mark in [low, *whole]]
    return Markup("").join(
        [*words, tag("text", "epoch", x=(FRAME_LEFT + FRAME_RIGHT) / 2, y=CHART_HEIGHT - 3, text_anchor="middle")]
    )


def _path(epochs: Sequence[float], one: Series, x_of: Scale, y_of: Scale) -> str:
    """The path restarts after each gap; a value alone between gaps becomes a dot (the round end of the line)."""
    path, drawing = "", False
    for epoch, value in zip(epochs, one.values, strict=True):
        if value is not None:
            point = f"{x_of(epoch):.1f} {y_of(value):.1f}"
            path += f"L{point}" if drawing else f"M{point}h0"
        drawing = value is not None
    return path


def _hovers(
    epochs: Sequence[float], series: Sequence[Series], x_of: Scale, y_of: Scale, form: Callable[[float], str]
) -> Markup:
    every = max(1, math.ceil(len(epochs) / MAX_HOVERS))
    wide = (FRAME_RIGHT - FRAME_LEFT) / math.ceil(len(epochs) / every)
    tall = FRAME_BOTTOM - FRAME_TOP
    parts = []
    for k in range(0, len(epochs), every):
        x = x_of(epochs[k])
        here = [(rank, one.name, one.values[k]) for rank, one in enumerate(series, start=1)]
        found = [(rank, name, value) for rank, name, value in here if value is not None]
        dots = [tag("circle", class_=f"dot s{rank}", cx=x, cy=y_of(value), r=3.5) for rank, _, value in found]
        words = f"Epoch {epochs[k]:g}: " + (", ".join(f"{name} {form(value)}" for _, name, value in found) or "nothing known")
        area = tag("rect", x=x - wide / 2, y=FRAME_TOP, width=wide, height=tall)
        line = tag("line", x1=x, x2=x, y1=FRAME_TOP, y2=FRAME_TOP + tall)
        parts.append(tag("g", area, line, *dots, tag("title", words), class_="at"))
    return Markup("").join(parts)


def bar(share: float | None, words: str, *, mark: float | None = None, kind: str = "good") -> Markup:
    """A bar for a table cell; `mark` is a line to compare with. Hidden from screen readers: the cell holds the number."""
    if share is None:
        return Markup("")
    parts = [
        tag("rect", class_="rail", y=3, width=100, height=6),
        tag("rect", class_=kind, y=3, width=_within(share), height=6),
    ]
    if mark is not None:
        parts.append(tag("rect", class_="mark", x=_within(mark), width=1.5, height=12))
    title = tag("title", words)
    return tag("svg", *parts, title, class_="bar", viewBox="0 0 100 12", preserveAspectRatio="none", aria_hidden="true")


def strip(shares: Sequence[float | None], names: Sequence[str]) -> Markup:
    """One upright bar per class: a dip is a class that the annotator does not recognise."""
    wide, tall = 8, 24
    parts = []
    for k, (share, name) in enumerate(zip(shares, names, strict=True)):
        height = 0.0 if share is None else _within(share) * tall / 100
        kind = "weak" if share is not None and share < 0.5 else "good"
        words = f"{isolated(name)}: {'no items' if share is None else percent(share) + ' right'}"
        area = tag("rect", class_="hit", x=wide * k, width=wide, height=tall)
        upright = tag("rect", class_=kind, x=wide * k + 1, y=tall - height, width=wide - 2, height=height)
        parts.append(tag("g", area, upright, tag("title", words)))
    width = wide * len(names)
    return tag("svg", *parts, class_="strip", width=width, height=tall, viewBox=f"0 0 {width} {tall}", aria_hidden="true")


def interval(value: float, low: float | None, high: float | None, scale: float, kind: str, words: str) -> Markup:
    """A value as a dot on a line from 0 to `scale`, with its interval."""
    parts = [tag("line", class_="rail", x1=0, x2="100%", y1=10, y2=10)]
    if low is not None and high is not None:
        start, end = _within(low / scale), _within(high / scale)
        parts.append(tag("rect", class_=f"likely {kind}", x=f"{start:.1f}%", width=f"{end - start:.1f}%", y=6, height=8, rx=4))
    parts.append(tag("circle", class_=f"point {kind}", cx=f"{_within(value / scale):.1f}%", cy=10, r=5))
    return tag("svg", *parts, tag("title", words), class_="interval", width="100%", height=20, role="img", aria_label=words)


def _within(share: float) -> float:
    """In per cent, clipped to 0 and 100."""
    return 100 * min(1.0, max(0.0, share))
