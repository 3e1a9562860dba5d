"""The renderer of tables: grids of cells as Markdown or LaTeX (booktabs), all that is known as CSV or JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from pals.bench.report.result_table import SIGNS, Block, Entry, ResultTable, blocks, unique
from pals.util.words import duration

SIGNS_EXPLAINED = (
    "≈ within the spread, ▲ better, ▼ worse than the paper by Welch's t-test at 95%, with our number of runs and its three; "
    "if only one spread is known, it is used for both (no sign: neither is known). · not run."
)
STUDY_COLUMNS = ("accuracy", "s/epoch", "all epochs", "× supervised", "× counted")
PACKAGES = ("booktabs",)

# ------------------------------------------------------------------------------------------------ grids


@dataclass(frozen=True)
class Cell:
    """A text; a number of ours has `links`: seed and address of each run behind it."""

    text: str = ""
    links: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return f"{self.text} ({len(self.links)})" if self.links else self.text


@dataclass(frozen=True)
class Grid:
    """A laid-out part of a table."""

    heading: str
    columns: tuple[tuple[str, str], ...]
    "Name of each column, and the line under it."
    rows: tuple[tuple[str, str, str, tuple[Cell, ...]], ...]
    "Section, row, quantity (ours, paper, difference, ...) and cells; a row has a line for each quantity that is known."

    @property
    def labelled(self) -> bool:
        """Whether its lines name a quantity."""
        return any(label for _, _, label, _ in self.rows)

    def lines(self) -> Iterator[tuple[str | None, str, str, tuple[Cell, ...]]]:
        """Its lines with the section (None: the same as before) and the row named once, at their first line."""
        before: tuple[str, str] | None = None
        for section, row, label, cells in self.rows:
            new = None if before is not None and before[0] == section else section
            yield new, "" if before == (section, row) else row, label, cells
            before = section, row


def grids(table: ResultTable, *, only_run: bool = False) -> list[Grid]:
    """The grids that a table is shown as.

    Args:
        table: any.
        only_run: leave out rows and columns of which nothing was run.
    """
    if table.study_epochs is not None:
        return [_study_grid(table, column) for column in unique(entry.column for entry in table.rows())]
    found = []
    for block in blocks(table):
        run = [
            any(entry is not None and entry.n for entry in column)
            for column in zip(*(e for _, _, e in block.rows), strict=True)
        ]
        kept = [k for k in range(len(block.heads)) if not only_run or run[k]]
        rows = [
            (section, name, label, tuple(cells[k] for k in kept))
            for section, name, entries in block.rows
            if not only_run or any(entry and entry.n for entry in entries)
            for label, cells in _row_lines(table, entries)
        ]
        heading = "" if block.heading == table.title else block.heading
        if rows:
            found.append(Grid(heading, tuple(_head(block, k) for k in kept), tuple(rows)))
    return found


def _head(block: Block, column: int) -> tuple[str, str]:
    """A column's name, and its protocol with the measured noise."""
    entry = block.columns[column]
    noise = "" if entry.effective_noise is None or not entry.protocol else f", {entry.effective_noise:.4g}"
    return block.heads[column], f"{entry.protocol}{noise}"


def _row_lines(table: ResultTable, entries: Sequence[Entry | None]) -> Iterator[tuple[str, list[Cell]]]:
    """Ours, the paper's number, the difference, and the difference to another row: the lines that have a number."""
    known = [entry for entry in entries if entry is not None]
    run, published = any(entry.n for entry in known), any(entry.paper_mean is not None for entry in known)
    seconds = table.quantity == "seconds"
    if run or not published:
        yield "ours" if table.epochs is None else f"ours, {table.epochs} epochs", [_ours(entry) for entry in entries]
    if published:
        yield "paper", [_paper(entry, seconds) for entry in entries]
    if run and published and not seconds:
        yield "difference", [_difference(entry) for entry in entries]
    if any(entry.against for entry in known):
        yield f"to {table.against}", [_against(entry) for entry in entries]


def _ours(entry: Entry | None) -> Cell:
    if entry is None or not entry.n:
        return Cell("" if entry is None else SIGNS["not run"])
    return Cell(spread(entry.mean, entry.std), tuple((str(run["seed"]), run["href"]) for run in entry.runs))


def _paper(entry: Entry | None, seconds: bool) -> Cell:
    if entry is None or entry.paper_mean is None:
        return Cell()
    return Cell(f"{entry.paper_mean:g}" if seconds else spread(entry.paper_mean, entry.paper_std))


def _difference(entry: Entry | None) -> Cell:
    if entry is None or entry.difference is None:
        return Cell()
    return Cell(f"{signed(entry.difference)} {SIGNS[entry.mark]}".strip())


def _against(entry: Entry | None) -> Cell:
    if entry is None or entry.against is None:
        return Cell()
    low, high = entry.against_low, entry.against_high
    interval = "(one seed)" if low is None else f"[{signed(low)}, {signed(high)}]"
    return Cell(f"{signed(entry.against_mean)} {interval}")


def _study_grid(table: ResultTable, column: str) -> Grid:
    """One row for each method with its times, the best first and those without a run last."""
    entries = sorted((entry for entry in table.rows() if entry.column == column), key=lambda entry: -(entry.mean or 0.0))
    remarks = unique(entry.note for entry in table.rows() if entry.note and entry.n)  # in the order of `table.notes`
    compared = any(entry.against for entry in entries)
    rows = []
    for entry in entries:
        times = [entry.epoch_seconds, entry.total_seconds, entry.times_supervised, entry.cost]
        words = ["" if value is None else f"{value:.2f}" for value in times]
        words[1] = "" if entry.total_seconds is None else duration(entry.total_seconds, exact=True)
        remark = f"[{remarks.index(entry.note) + 1}]" if entry.n and entry.note else ""
        cells = (_ours(entry), *map(Cell, words), *([_against(entry)] if compared else []), Cell(remark))
        rows.append(("", entry.row, "", cells if remarks else cells[:-1]))
    heads = (*STUDY_COLUMNS, *([f"to {table.against}"] if compared else []), *(["note"] if remarks else []))
    return Grid(column_words(entries[0]), tuple((head, "") for head in heads), tuple(rows))


def column_words(entry: Entry) -> str:
    """The name of an entry's column and how its labels were made."""
    words = [entry.column]
    if entry.protocol:
        words.append(f"protocol {entry.protocol}")
    if entry.effective_noise is not None:
        words.append(f"effective noise {entry.effective_noise:.4g}")
    return "; ".join(words)


def legend(table: ResultTable) -> list[str]:
    """The sentences that explain a table."""
    seconds, entries = table.quantity == "seconds", table.rows()
    quantity = "Seconds per epoch, median without warm-up" if seconds else "Test accuracy in per cent, last epoch"
    words = [f"{quantity}, {table.schedule}: mean ± standard deviation over seeds (number of runs)."]
    if table.study_epochs is None:
        if not seconds and any(entry.paper_mean is not None for entry in entries):
            words.append(SIGNS_EXPLAINED)
        if any(entry.protocol for entry in entries) and not seconds:
            words.append("Columns name the protocol of the candidate sets and the share of sets without the true label.")
    else:
        words.append(
            "s/epoch: median seconds in the last phase; times exclude warm-up (compilation). × supervised: time of an epoch "
            "relative to plain training on true labels, as measured; × counted: the same, by counting network passes."
        )
        if any(entry.n and entry.epoch_seconds is None for entry in entries):
            words.append("Runs without times shared their device with another.")
    if any(entry.against for entry in entries):
        words.append(f"To {table.against}: mean difference over shared seeds and its 95% interval.")
    hardware = unique(entry.hardware for entry in entries if entry.hardware)
    if hardware:
        words.append(f"Hardware: {'; '.join(hardware)}.")
    if table.study_epochs is not None:  # the last column has their numbers
        return [*words, *[f"[{number}] {note}" for number, note in enumerate(table.notes, start=1)]]
    return [*words, *table.notes]


def spread(mean: float, std: float | None) -> str:
    """A mean and its standard deviation, with two decimals.

    >>> spread(94.384, 0.1)
    '94.38 ± 0.10'
    """
    return f"{mean:.2f}" if std is None else f"{mean:.2f} ± {std:.2f}"


def signed(value: float) -> str:
    """A difference with its sign and two decimals; nothing rounds to minus zero.

    >>> signed(-0.004), signed(-0.321)
    ('+0.00', '−0.32')
    """
    rounded = round(value, 2)
    return f"{'−' if rounded < 0 else '+'}{abs(rounded):.2f}"


# ------------------------------------------------------------------------------------------------ CSV and JSON


def as_records(table: ResultTable) -> list[dict[str, Any]]:
    """One flat record for each entry, with the table's name, schedule and quantity; numbers have at most six decimals."""
    about = {"schedule": table.schedule, "epochs": table.epochs, "quantity": table.quantity}
    records = []
    for entry in table.entries.to_dict("records"):
        keys = {key: entry.pop(key) for key in ("group", "row", "column")}
        record = {"table": table.name, **keys, **about, **entry}
        records.append({key: round(value, 6) if isinstance(value, float) else value for key, value in record.items()})
    return records


def to_json(tables: Sequence[ResultTable]) -> str:
    """All that is known, as JSON: one object, or a list where there are several tables."""
    found = [
        {
            "table": table.name,
            "title": table.title,
            "schedule": table.schedule,
            "epochs": table.epochs,
            "legend": legend(table),
            "entries": as_records(table),
        }
        for table in tables
    ]
    return json.dumps(found[0] if len(found) == 1 else found, indent=2, ensure_ascii=False) + "\n"


def to_csv(tables: Sequence[ResultTable]) -> str:
    """One line for each entry; folders and commits of its runs are separated by semicolons."""
    frame = pd.DataFrame([record for table in tables for record in as_records(table)], dtype=object)
    runs = frame.pop("runs")
    frame["folders"] = ["; ".join(run["folder"] for run in of_it) for of_it in runs]
    frame["commits"] = ["; ".join(run["commit"] or "" for run in of_it) for of_it in runs]
    text: str = frame.to_csv(index=False, lineterminator="\n")
    return text


# ------------------------------------------------------------------------------------------------ Markdown


def to_markdown(table: ResultTable, level: int = 2, *, only_run: bool = False) -> str:
    """A table as Markdown: headings, the legend, and its grids.

    Args:
        table: any.
        level: of the first heading.
        only_run: leave out rows and columns of which nothing was run.
    """
    lines = [f"{'#' * level} {escape_markdown(table.title)}", "", escape_markdown(" ".join(legend(table))), ""]
    for grid in grids(table, only_run=only_run):
        if grid.heading:
            lines += [f"{'#' * (level + 1)} {escape_markdown(grid.heading)}", ""]
        heads = ["<br>".join(escape_markdown(word) for word in head if word) for head in grid.columns]
        names = 2 if grid.labelled else 1
        lines += [markdown_row([*[""] * names, *heads]), f"|{'---|' * names}{'---:|' * len(heads)}"]
        for section, row, label, cells in grid.lines():
            if section:
                lines.append(markdown_row([f"**{escape_markdown(section)}**", *[""] * (names - 1 + len(heads))]))
            lines.append(markdown_row([*map(escape_markdown, (row, label)[:names]), *map(_markdown_cell, cells)]))
        lines.append("")
    return "\n".join(lines)


def markdown_row(cells: Sequence[str]) -> str:
    """One line of a Markdown table."""
    return "| " + " | ".join(cells) + " |"


def _markdown_cell(cell: Cell) -> str:
    """With one run the number is the link, with several each seed."""
    text = escape_markdown(cell.text)
    if not cell.links:
        return text
    if not all(href for _, href in cell.links):
        return f"**{text}** ({len(cell.links)})"
    if len(cell.links) == 1:
        return f"[**{text}**]({cell.links[0][1]}) (1)"
    return f"**{text}** (seeds {', '.join(f'[{seed}]({href})' for seed, href in cell.links)})"


def escape_markdown(text: str) -> str:
    """A text that Markdown shows as it is, also within a table."""
    return re.sub(r"([\\`*_\[\]<>|])", r"\\\1", text)


# ------------------------------------------------------------------------------------------------ LaTeX


def to_latex(tables: Sequence[ResultTable], standalone: bool = False) -> str:
    """Tables as LaTeX, without links: a printed page has none.

    Args:
        tables: any.
        standalone: a document that compiles as it is; by default a part for the user's own document.
    """
    needs = "\n".join(f"\\usepackage{{{name}}}" for name in PACKAGES)
    body = "\n".join(line for table in tables for line in _latex_table(table))
    if not standalone:
        return "".join(f"% needs {line}\n" for line in needs.splitlines()) + body + "\n"
    paper = "\\usepackage[a4paper,landscape,margin=12mm]{geometry}"
    return f"\\documentclass{{article}}\n{paper}\n{needs}\n\\begin{{document}}\n{body}\n\\end{{document}}\n"


def _latex_table(table: ResultTable) -> Iterator[str]:
    caption = escape_latex(f"{table.title}. {' '.join(legend(table))}")
    for number, grid in enumerate(grids(table), start=1):
        names = 2 if grid.labelled else 1
        yield "\\begin{table}[htbp]"
        yield "\\centering\\scriptsize\\setlength{\\tabcolsep}{3pt}"
        yield f"\\caption{{{escape_latex(grid.heading) + '. ' if grid.heading else ''}{caption}}}"
        yield f"\\label{{tab:pals-{re.sub('[^a-z0-9]+', '-', table.name.lower())}-{number}}}"
        yield f"\\begin{{tabular}}{{@{{}}{'l' * names}{'r' * len(grid.columns)}@{{}}}}"
        yield "\\toprule"
        yield _latex_row([*[""] * names, *[name for name, _ in grid.columns]])
        if any(under for _, under in grid.columns):
            yield _latex_row([*[""] * names, *[under for _, under in grid.columns]])
        for line, (section, row, label, cells) in enumerate(grid.lines()):
            if section is not None:
                yield "\\midrule"
                if section:
                    yield f"\\multicolumn{{{names + len(cells)}}}{{@{{}}l}}{{\\textit{{{escape_latex(section)}}}}} \\\\"
            elif line and label.startswith("ours"):
                yield "\\addlinespace"
            yield _latex_row([*(row, label)[:names], *cells])
        yield "\\bottomrule"
        yield "\\end{tabular}"
        yield "\\end{table}"


def _latex_row(cells: Sequence[str | Cell]) -> str:
    words = [
        f"\\textbf{{{escape_latex(cell.text)}}} ({len(cell.links)})"
        if isinstance(cell, Cell) and cell.links
        else escape_latex(str(cell))
        for cell in cells
    ]
    return " & ".join(words).strip() + " \\\\"


_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "_": r"\_", "%": r"\%",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
    '"': "''", "[": "{[}", "]": "{]}", "*": "{*}",  # a star after a line's end would be part of the command
    "±": r"$\pm$", "−": "$-$", "×": r"$\times$", "·": r"$\cdot$", "≈": r"$\approx$", "▲": r"$\uparrow$", "▼": r"$\downarrow$",
    "–": "--", "—": "---", "η": r"$\eta$", "δ": r"$\delta$",
}  # fmt: skip


def escape_latex(text: str) -> str:
    """A text that LaTeX prints as it is: its special characters and the signs of our tables are replaced."""
    return "".join(_LATEX.get(character, character) for character in text)
