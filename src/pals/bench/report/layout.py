"""How a table is arranged on a page or a screen: which lines a cell has, what stands beside what, what readers are told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pals.bench.report.result_table import SIGNS, Block, Column, Entry, Table, blocks, unique
from pals.util.words import duration

UNRUN, UNKNOWN = "paper ·", "·"  # the labels of a row of which there is no run
FEW = 3  # columns; with more there is no room to put ours and the paper's beside each other
SIGNS_EXPLAINED = (
    "≈ within the spread, ▲ better, ▼ worse than the paper by Welch's t-test at 95%, with our number of runs and its three; "
    "if only one spread is known, it is used for both (no sign: neither is known). · not run."
)


@dataclass(frozen=True)
class Piece:
    """A bit of text. A number of ours has `links`: seed and address of each run behind it."""

    text: str
    strong: bool = False
    links: tuple[tuple[str, str], ...] = ()

    @property
    def count(self) -> str:
        return f" ({len(self.links)})" if self.links else ""


Line = tuple[Piece, ...]


@dataclass(frozen=True)
class Row:
    """A row of as many lines as `labels`; so has every cell."""

    name: str
    labels: tuple[str, ...]
    cells: tuple[tuple[Line, ...], ...]


@dataclass(frozen=True)
class Part:
    """A grid with a heading: columns (name and the line under it) and rows, in sections that may have headings too. A column
    without a name goes on under the name to its left."""

    heading: str
    columns: tuple[tuple[str, str], ...]
    sections: tuple[tuple[str, tuple[Row, ...]], ...]


def layout(table: Table, *, only_run: bool = False) -> list[Part]:
    """The grids that a table is shown as. `only_run` leaves out rows and columns of which nothing was run."""
    if table.study_epochs is not None:
        return [_study_part(table, column) for column in table.columns]
    parts = []
    for block in map(_run_alone, blocks(table)) if only_run else blocks(table):
        heads = tuple(zip(block.heads, map(_under, block.columns), strict=True))
        sections = tuple(
            (heading, tuple(_row(table, name, entries) for name, entries in rows)) for heading, rows in block.sections
        )
        if sections:
            parts.append(_side_by_side(Part(_heading_of(table, block), heads, sections)))
    return parts


def _run_alone(block: Block) -> Block:
    """What was run of a block."""
    rows = [entries for _, rows in block.sections for _, entries in rows]
    kept = [number for number in range(len(block.heads)) if _is_run([entries[number] for entries in rows])]
    sections = tuple(
        (heading, tuple((name, tuple(entries[k] for k in kept)) for name, entries in rows if _is_run(entries)))
        for heading, rows in block.sections
    )
    return replace(
        block,
        heads=tuple(block.heads[k] for k in kept),
        columns=tuple(block.columns[k] for k in kept),
        sections=tuple((heading, rows) for heading, rows in sections if rows),
    )


def _heading_of(table: Table, block: Block) -> str:
    return "" if block.heading == table.title else block.heading


def _is_run(entries: Sequence[Entry | None]) -> bool:
    return any(entry is not None and entry.ours for entry in entries)


def _under(column: Column) -> str:
    if column.effective_noise is None or not column.protocol:
        return column.protocol
    return f"{column.protocol}, {column.effective_noise:.4g}"


def _row(table: Table, name: str, entries: Sequence[Entry | None]) -> Row:
    """Ours, the paper's, the difference, the difference to another row: those lines of which there is something to say."""
    printed = _published_seconds if table.quantity == "seconds" else _published_accuracy
    published = any(entry is not None and entry.published for entry in entries)
    if not _is_run(entries):
        label = UNRUN if published else UNKNOWN
        return Row(name, (label,), tuple((printed(entry) if published else _ours(entry),) for entry in entries))
    lines = [(ours_label(table), _ours)]
    if published:
        lines.append(("paper", printed))
    if published and table.quantity == "accuracy":
        lines.append(("difference", _difference))
    if any(entry is not None and entry.against for entry in entries):
        lines.append((f"to {table.against}", _against))
    return Row(name, tuple(label for label, _ in lines), tuple(tuple(line(entry) for _, line in lines) for entry in entries))


def ours_label(table: Table) -> str:
    return "ours" if table.epochs is None else f"ours, {table.epochs} epochs"


def _ours(entry: Entry | None) -> Line:
    if entry is None:
        return ()
    if entry.ours is None:
        return (Piece(SIGNS["not run"]),)
    score = entry.ours
    links = tuple((str(run.seed), run.href) for run in score.runs)
    return (Piece(spread(score.mean, score.std), strong=True, links=links),)


def _published_accuracy(entry: Entry | None) -> Line:
    return () if entry is None or entry.published is None else (Piece(spread(*entry.published)),)


def _published_seconds(entry: Entry | None) -> Line:
    return () if entry is None or entry.published is None else (Piece(f"{entry.published[0]:g}"),)


def _difference(entry: Entry | None) -> Line:
    if entry is None or entry.difference is None:
        return ()
    return (Piece(f"{signed(entry.difference)} {SIGNS[entry.mark]}".strip()),)


def _against(entry: Entry | None) -> Line:
    if entry is None or entry.against is None:
        return ()
    mean, low, high = entry.against
    interval = "(one seed)" if low is None or high is None else f"[{signed(low)}, {signed(high)}]"
    return (Piece(f"{signed(mean)} {interval}"),)


def _side_by_side(part: Part) -> Part:
    """With few columns there is room for ours, the paper's and the difference beside each other."""
    labels = unique(label for _, rows in part.sections for row in rows for label in row.labels)
    shown = [label for label in labels if label not in (UNRUN, UNKNOWN)]
    if len(part.columns) > FEW or len(shown) < 2:
        return part
    shown.sort(key=lambda label: (not label.startswith("ours"), label != "paper", label != "difference"))
    heads: list[tuple[str, str]] = []
    for name, under in part.columns:
        heads += [(f"{name} ({under})" if under else name, shown[0]), *[("", label) for label in shown[1:]]]
    sections = tuple((heading, tuple(_flat(row, shown) for row in rows)) for heading, rows in part.sections)
    return Part(part.heading, tuple(heads), sections)


def _flat(row: Row, labels: Sequence[str]) -> Row:
    """The lines of each cell as cells of one line."""
    cells: list[tuple[Line, ...]] = []
    for cell in row.cells:
        lines = dict(zip(row.labels, cell, strict=True))
        if UNRUN in lines:
            lines |= {labels[0]: (Piece(SIGNS["not run"]),) if lines[UNRUN] else (), "paper": lines[UNRUN]}
        lines.setdefault(labels[0], lines.get(UNKNOWN, ()))
        cells += [(lines.get(label, ()),) for label in labels]
    return Row(row.name, ("",), tuple(cells))


def _study_part(table: Table, column: Column) -> Part:
    entries = [entry for entry in table.entries if entry.column == column.name]
    entries.sort(key=lambda entry: -entry.ours.mean if entry.ours else 0.0)  # the best first, what was not run last
    remarks = unique(entry.note for entry in table.entries if entry.note and entry.ours)  # in the order of `table.notes`
    heads = ("accuracy", "s/epoch", "all epochs", "× supervised", "× counted")
    paired = any(entry.against for entry in entries)
    rows = []
    for entry in entries:
        remark = (Piece(f" [{remarks.index(entry.note) + 1}]"),) if entry.note in remarks and entry.ours else ()
        speed, cells = entry.speed, [(*_ours(entry), *remark)]
        if speed is not None:
            times = ["" if value is None else f"{value:.2f}" for value in (speed.times_supervised, speed.cost)]
            words = [f"{speed.epoch_seconds:.2f}", duration(speed.total_seconds, exact=True), *times]
            cells += [(Piece(word),) for word in words]
        cells += [()] * (len(heads) - len(cells)) + ([_against(entry)] if paired else [])
        rows.append(Row(entry.row, ("",), tuple((cell,) for cell in cells)))
    shown = (*heads, *([f"to {table.against}"] if paired else []))
    return Part(column_words(column), tuple((head, "") for head in shown), (("", tuple(rows)),))


def column_words(column: Column) -> str:
    """A column's name and how its labels were made."""
    words = [column.name]
    if column.protocol:
        words.append(f"protocol {column.protocol}")
    if column.effective_noise is not None:
        words.append(f"effective noise {column.effective_noise:.4g}")
    return "; ".join(words)


def legend(table: Table) -> list[str]:
    """What a reader must know, a sentence each."""
    seconds = table.quantity == "seconds"
    what = "Seconds per epoch, median without warm-up" if seconds else "Test accuracy in per cent, last epoch"
    words = [f"{what}, {table.schedule}: mean ± standard deviation over seeds (number of runs)."]
    if table.study_epochs is None:
        if not seconds and any(entry.published for entry in table.entries):
            words.append(SIGNS_EXPLAINED)
        if any(map(_under, table.columns)) and not seconds:
            words.append("Columns name the protocol of the candidate sets and the share of sets without the true label.")
    else:
        words.append(
            "s/epoch: median seconds in the last phase; times exclude warm-up (compilation). × supervised: time of an epoch "
            "relative to plain training on true labels, as measured; × counted: the same, by counting network passes."
        )
        if any(entry.ours and entry.speed is None for entry in table.entries):
            words.append("Runs without times shared their device with another.")
    if any(entry.against for entry in table.entries):
        words.append(f"To {table.against}: mean difference over shared seeds and its 95% interval.")
    hardware = unique(entry.speed.hardware for entry in table.entries if entry.speed and entry.speed.hardware)
    if hardware:
        words.append(f"Hardware: {'; '.join(hardware)}.")
    if table.study_epochs is not None:  # numbers stand beside the accuracies
        return [*words, *[f"[{number}] {note}" for number, note in enumerate(table.notes, start=1)]]
    return [*words, *table.notes]


def spread(mean: float, std: float | None) -> str:
    return f"{mean:.2f}" if std is None else f"{mean:.2f} ± {std:.2f}"


def signed(value: float) -> str:
    """With its sign; nothing rounds to minus zero."""
    rounded = round(value, 2)
    return f"{'−' if rounded < 0 else '+'}{abs(rounded):.2f}"
