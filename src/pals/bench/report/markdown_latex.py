"""A laid-out table as Markdown or as LaTeX with booktabs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pals.bench.report.layout import Line, Part, Piece, Row, layout, legend
from pals.bench.report.result_table import Table

PACKAGES = ("booktabs",)

# ------------------------------------------------------------------------------------------------ Markdown


def to_markdown(table: Table, level: int = 2, *, only_run: bool = False) -> str:
    """Headings, what the signs mean, and a grid per part; `only_run` leaves out rows of which nothing was run."""
    lines = [f"{'#' * level} {escape_markdown(table.title)}", "", escape_markdown(" ".join(legend(table))), ""]
    for part in layout(table, only_run=only_run):
        if part.heading:
            lines += [f"{'#' * (level + 1)} {escape_markdown(part.heading)}", ""]
        lines += [*_markdown_grid(part), ""]
    return "\n".join(lines)


def _markdown_grid(part: Part) -> Iterator[str]:
    heads = ["<br>".join(escape_markdown(word) for word in head if word) for head in part.columns]
    yield markdown_row(["", *heads])
    yield "|---|" + "---:|" * len(heads)
    for heading, rows in part.sections:
        if heading:
            yield markdown_row([f"**{escape_markdown(heading)}**", *["" for _ in heads]])
        for row in rows:
            yield markdown_row([_markdown_name(row), *["<br>".join(map(_markdown_line, cell)) for cell in row.cells]])


def _markdown_name(row: Row) -> str:
    """Beside each line of the cells, what it is."""
    first = f"{row.name}, {row.labels[0]}" if row.labels[0] else row.name
    return "<br>".join(map(escape_markdown, (first, *row.labels[1:])))


def markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _markdown_line(line: Line) -> str:
    return "".join(_markdown_piece(piece) for piece in line)


def _markdown_piece(piece: Piece) -> str:
    """Of one run the number is the link, of several each seed."""
    text = escape_markdown(piece.text)
    text = f"**{text}**" if piece.strong else text
    if not all(href for _, href in piece.links):
        return text + piece.count
    if len(piece.links) == 1:
        return f"[{text}]({piece.links[0][1]}){piece.count}"
    seeds = ", ".join(f"[{seed}]({href})" for seed, href in piece.links)
    return f"{text} (seeds {seeds})" if seeds else text


def escape_markdown(text: str) -> str:
    """As plain words, also within a cell."""
    return re.sub(r"([\\`*_\[\]<>|])", r"\\\1", text)


# ------------------------------------------------------------------------------------------------ LaTeX


def to_latex(tables: Sequence[Table], standalone: bool = False) -> str:
    """A snippet to put into one's own document, or with `standalone` a document that compiles as it is."""
    needs = "\n".join(f"\\usepackage{{{name}}}" for name in PACKAGES)
    body = "\n".join(line for table in tables for line in _latex_table(table))
    if not standalone:
        return "".join(f"% needs {line}\n" for line in needs.splitlines()) + body + "\n"
    paper = "\\usepackage[a4paper,landscape,margin=12mm]{geometry}"
    return f"\\documentclass{{article}}\n{paper}\n{needs}\n\\begin{{document}}\n{body}\n\\end{{document}}\n"


def _latex_table(table: Table) -> Iterator[str]:
    caption = escape_latex(f"{table.title}. {' '.join(legend(table))}")
    for number, part in enumerate(layout(table), start=1):
        yield "\\begin{table}[htbp]"
        yield "\\centering\\scriptsize\\setlength{\\tabcolsep}{3pt}"
        yield f"\\caption{{{escape_latex(part.heading) + '. ' if part.heading else ''}{caption}}}"
        yield f"\\label{{tab:pals-{re.sub('[^a-z0-9]+', '-', table.name.lower())}-{number}}}"
        yield from _latex_grid(part)
        yield "\\end{table}"


def _latex_grid(part: Part) -> Iterator[str]:
    labelled = any(label for _, rows in part.sections for row in rows for label in row.labels)
    names = 2 if labelled else 1
    yield f"\\begin{{tabular}}{{@{{}}{'l' * names}{'r' * len(part.columns)}@{{}}}}"
    yield "\\toprule"
    yield from _latex_heads([name for name, _ in part.columns], names)
    if any(under for _, under in part.columns):
        yield _latex_row([*[""] * names, *[escape_latex(under) for _, under in part.columns]])
    for heading, rows in part.sections:
        yield "\\midrule"
        if heading:
            yield f"\\multicolumn{{{names + len(part.columns)}}}{{@{{}}l}}{{\\textit{{{escape_latex(heading)}}}}} \\\\"
        for number, row in enumerate(rows):
            if number and len(row.labels) > 1:
                yield "\\addlinespace"
            yield from _latex_lines(row, labelled)
    yield "\\bottomrule"
    yield "\\end{tabular}"


def _latex_heads(heads: Sequence[str], names: int) -> Iterator[str]:
    """Names of columns; one that spans several stands over a rule."""
    starts = [number for number, head in enumerate(heads) if head or not number]
    spans = [end - start for start, end in zip(starts, [*starts[1:], len(heads)], strict=True)]
    cells = [
        f"\\multicolumn{{{span}}}{{c}}{{{escape_latex(heads[start])}}}" if span > 1 else escape_latex(heads[start])
        for start, span in zip(starts, spans, strict=True)
    ]
    yield _latex_row([*[""] * names, *cells])
    rules = [
        f"\\cmidrule(lr){{{names + start + 1}-{names + start + span}}}"
        for start, span in zip(starts, spans, strict=True)
        if span > 1
    ]
    if rules:
        yield " ".join(rules)


def _latex_lines(row: Row, labelled: bool) -> Iterator[str]:
    for number, label in enumerate(row.labels):
        names = [escape_latex(row.name) if number == 0 else "", *([escape_latex(label)] if labelled else [])]
        yield _latex_row([*names, *[_latex_line(cell[number]) for cell in row.cells]])


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(cells).strip() + " \\\\"


def _latex_line(line: Line) -> str:
    """Without links: a printed page has none."""
    words = [
        (f"\\textbf{{{escape_latex(piece.text)}}}" if piece.strong else escape_latex(piece.text)) + piece.count
        for piece in line
    ]
    return "".join(words)


_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "_": r"\_",
    "%": r"\%",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "[": "{[}",
    "]": "{]}",
    "*": "{*}",  # after a line's end it would be part of the command
    "±": r"$\pm$",
    "−": "$-$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "≈": r"$\approx$",
    "▲": r"$\uparrow$",
    "▼": r"$\downarrow$",
    "–": "--",
    "—": "---",
    "η": r"$\eta$",
    "δ": r"$\delta$",
}


def escape_latex(text: str) -> str:
    """Every character that LaTeX reads as a command, and the signs that our tables use."""
    return "".join(_LATEX.get(character, character) for character in text)
