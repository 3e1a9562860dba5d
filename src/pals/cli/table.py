"""Commands that show results of runs: tables beside the paper's, and figures."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table as RichTable
from rich.text import Text

from pals.cli.base import Plugin, app, console, say
from pals.cli.recipes import Cells, Methods, words
from pals.util.errors import InputError, unknown

if TYPE_CHECKING:
    from pals.bench.paper.experiments import Experiment
    from pals.bench.report.result_table import ResultTable
    from pals.bench.report.table_text import Grid

figure_app = typer.Typer(help="Draw figures from runs and tables.", no_args_is_help=True)
app.add_typer(figure_app, name="figure")

FORMATS = {".md": "markdown", ".tex": "latex", ".csv": "csv", ".json": "json"}
FIGURE_ENDINGS = (".png", ".svg", ".pdf")
DEFAULT_RUNS = Path("runs/bench")

Runs = Annotated[Path, typer.Option(help="Folder written by `pals bench`, or a file of records (.jsonl).")]
Epochs = Annotated[int | None, typer.Option(min=1, help="Show runs shortened to this many epochs; never mixed with full ones.")]
FigureFile = Annotated[Path, typer.Option(help="File to write: .png, .svg or .pdf.")]


@app.command()
def table(
    name: Annotated[
        str | None, typer.Argument(help="Table: 1 to 7, figure2, timing, partial-check or noisy-comparison.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Show all tables; as Markdown, this is the reproduction page.")] = False,
    grid: Annotated[Path | None, typer.Option(help="Your own comparison, as given to `pals bench --grid`.")] = None,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format", help="rich, markdown, latex, csv, json or figure (default: by the suffix of --out, else rich)."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write to this file instead of the screen.")] = None,
    runs: Runs = DEFAULT_RUNS,
    epochs: Epochs = None,
    methods: Methods = None,
    cells: Cells = None,
    against: Annotated[str | None, typer.Option(help="Compare every row with this one over shared seeds, e.g. PALS.")] = None,
    standalone: Annotated[bool, typer.Option("--standalone", help="LaTeX: write a complete document.")] = False,
    plugin: Plugin = None,
) -> None:
    """Show a table of our runs next to the paper's numbers, with differences and run folders.

    Example:  pals table 1 --methods PALS --format markdown
    """
    form = _form(format_, out)
    _check_runs(runs)
    if every:
        if name is not None or grid is not None or against is not None or methods is not None or cells is not None:
            raise InputError("--all shows every table whole; drop the table's name, --grid, --methods, --cells and --against.")
        _write(_all(form, runs, epochs, out, standalone), out)
        return
    chosen = _choose(name, grid, words(methods), words(cells))
    made = _table(chosen, runs, epochs, against, out)
    if form == "figure":
        _draw_table(made, out)
    elif form == "rich" and out is None:
        show(made)
    else:
        _write(_text([made], form, standalone), out)


@figure_app.command("selected")
def figure_selected(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, or curve tables (.csv) written by this command.")],
    out: Annotated[Path, typer.Option(help="File to write: .png, .svg or .pdf; .csv for the numbers of a run.")] = Path(
        "selected.png"
    ),
    paper: Annotated[
        bool | None, typer.Option("--paper/--no-paper", help="Mark the paper's points (default: if the settings match).")
    ] = None,
    title: Annotated[str, typer.Option(help="Title of the figure.")] = "",
    plugin: Plugin = None,
) -> None:
    """Plot how many pairs a run selected per epoch and how many were correct (figure 2 of the paper).

    Example:  pals figure selected runs/digits/seed-1 --out selected.svg
    """
    from pals.bench.report.plots import save, selected
    from pals.bench.report.run_curves import paper_points, read_curves, to_csv
    from pals.util.files import write_text

    if out.suffix.lower() == ".csv":
        if len(runs) > 1:
            raise InputError("A table of curves holds one run; name one, or choose a figure as --out.")
        write_text(out, to_csv(runs[0]))
    else:
        points = paper_points(runs, paper)
        save(selected(read_curves(runs), points, title), out)
    say(f"Written: {out}")


@figure_app.command("ablation")
def figure_ablation(
    part: Annotated[
        str | None, typer.Argument(help='"Mix-up and CR", K, r, delta, Backbone or "Eq. 1"; all by default.')
    ] = None,
    out: FigureFile = Path("ablation.png"),
    runs: Runs = DEFAULT_RUNS,
    epochs: Epochs = None,
) -> None:
    """Plot the ablations (table 7) as bars, ours next to the paper's.

    Example:  pals figure ablation K --out ablation-K.svg
    """
    from pals.bench.report.plots import bars, save

    _check_runs(runs)
    save(bars(_table(_choose("7", None, None, None), runs, epochs, None, None), part), out)
    say(f"Written: {out}")


@figure_app.command("speed")
def figure_speed(
    name: Annotated[
        str, typer.Option("--table", help="Table: noisy-comparison, partial-check or any other.")
    ] = "noisy-comparison",
    out: FigureFile = Path("speed.png"),
    runs: Runs = DEFAULT_RUNS,
    epochs: Epochs = None,
    plugin: Plugin = None,
) -> None:
    """Plot accuracy against training time, and the epoch time of each method.

    Example:  pals figure speed --table noisy-comparison --runs runs/bench --out speed.png
    """
    from pals.bench.report.plots import save
    from pals.bench.report.speed_plots import speed_figure

    _check_runs(runs)
    save(speed_figure(_table(_choose(name, None, None, None), runs, epochs, None, None)), out)
    say(f"Written: {out}")


def show(made: ResultTable) -> None:
    """Print a table, in as many pieces as the width of the screen needs."""
    from pals.bench.report.table_text import grids, legend

    console.print(f"[bold]{escape(made.title)}[/]", highlight=False)
    for grid in grids(made):
        names = sum(max([len(line[k]) for line in grid.rows], default=0) + 3 for k in ((1, 2) if grid.labelled else (1,)))
        sections = max(len(line[0]) for line in grid.rows) + 3
        for first, last in _pieces(grid, console.width - max(names, sections) - 1):
            console.print(_rich_grid(grid, first, last))
    for sentence in legend(made):
        console.print(Text(sentence, style="dim"), soft_wrap=False)


def _pieces(grid: Grid, width: int) -> list[tuple[int, int]]:
    """Ranges of columns that fit into a width, about as many in each."""
    sizes = [
        max([*(len(str(cells[k])) for *_, cells in grid.rows), *map(len, _head(*head))]) + 3
        for k, head in enumerate(grid.columns)
    ]
    for count in range(1, len(sizes) + 1):
        cuts = [len(sizes) * piece // count for piece in range(count + 1)]
        ranges = list(pairwise(cuts))
        if all(sum(sizes[first:last]) <= width for first, last in ranges):
            break
    return ranges


def _head(name: str, under: str) -> list[str]:
    """A heading in short lines."""
    return [*name.split(", "), *([under] if under else [])]


def _rich_grid(grid: Grid, first: int, last: int) -> RichTable:
    table = RichTable(title=escape(grid.heading) or None, title_justify="left", title_style="bold")
    table.add_column("")
    if grid.labelled:
        table.add_column("")
    for name, under in grid.columns[first:last]:
        table.add_column(escape("\n".join(_head(name, under))), justify="right", no_wrap=True)
    for number, (section, row, label, cells) in enumerate(grid.lines()):
        if section:
            if number:
                table.add_section()
            table.add_row(Text(section, style="italic"))
        texts = [Text(str(cell), "bold" if cell.links else "") for cell in cells[first:last]]
        table.add_row(*[escape(name) for name in ((row, label) if grid.labelled else (row,))], *texts)
    return table


def _form(given: str | None, out: Path | None) -> str:
    known = ("rich", "figure", *FORMATS.values())
    ending = "" if out is None else out.suffix.lower()
    if given is None:
        if out is None:
            return "rich"
        if ending not in (*FORMATS, *FIGURE_ENDINGS):
            raise InputError(f"--out {out}: name a --format, or a file that ends in {', '.join((*FORMATS, *FIGURE_ENDINGS))}.")
        return FORMATS.get(ending, "figure")
    if given not in known:
        raise unknown("format", given, known)
    if given == "rich" and out is not None:
        raise InputError("--format rich is for the screen; choose markdown, latex, csv, json or figure for a file.")
    if given == "figure" and ending not in FIGURE_ENDINGS:
        raise InputError(f"--format figure needs an --out that ends in {', '.join(FIGURE_ENDINGS)}.")
    return given


def _check_runs(runs: Path) -> None:
    """A place that was named must be there; without the usual one nothing has been run."""
    if runs != DEFAULT_RUNS and not runs.exists():
        raise InputError(f"--runs {runs} does not exist. Give the folder of `pals bench`, or a file of records (.jsonl).")


def _choose(name: str | None, grid: Path | None, methods: list[str] | None, cells: list[str] | None) -> list[Experiment]:
    from pals.bench.grid import read_grid
    from pals.bench.paper.experiments import narrowed, select

    if (name is None) == (grid is None):
        raise InputError("Which table? Name one (1 to 7, figure2, timing, partial-check, noisy-comparison), or a --grid file.")
    return select(name, methods, cells) if grid is None else narrowed(read_grid(grid), methods, cells)


def _table(
    experiments: list[Experiment], runs: Path, epochs: int | None, against: str | None, page: Path | None
) -> ResultTable:
    from pals.bench.report.results_frame import gather, make_table

    return make_table(experiments, gather(experiments, runs, epochs), runs=runs, epochs=epochs, against=against, page=page)


def _all(form: str, runs: Path, epochs: int | None, out: Path | None, standalone: bool) -> str:
    from pals.bench.report.reproduction import all_tables, reproduction_page

    if form == "markdown":
        return reproduction_page(runs, out or Path("reproduction.md"), epochs)
    if form == "figure":
        raise InputError("--all has no figure; draw one table at a time.")
    made = all_tables(runs, epochs, out)
    if form != "rich":
        return _text(made, form, standalone)
    for one in made:
        show(one)
    return ""


def _text(tables: list[ResultTable], form: str, standalone: bool) -> str:
    from pals.bench.report.table_text import to_csv, to_json, to_latex, to_markdown

    if form == "latex":
        return to_latex(tables, standalone)
    if form == "csv":
        return to_csv(tables)
    return to_json(tables) if form == "json" else "\n".join(to_markdown(one) for one in tables)


def _draw_table(made: ResultTable, out: Path | None) -> None:
    """What reads best: times against accuracy where nothing is published, bars for ablations and seconds, differences as
    colours for the others."""
    from pals.bench.report.plots import bars, heat_map, save
    from pals.bench.report.speed_plots import speed_figure

    assert out is not None
    if made.name == "figure2":
        raise InputError("Figure 2 is drawn from the folders of its runs: `pals figure selected RUN...`.")
    if made.entries["paper_mean"].isna().all():
        figure = speed_figure(made)
    else:
        figure = bars(made) if made.row_groups or made.quantity == "seconds" else heat_map(made)
    save(figure, out)
    say(f"Written: {out}")


def _write(text: str, out: Path | None) -> None:
    from pals.util.files import write_text

    if out is not None:
        write_text(out, text)
        say(f"Written: {out}")
    elif text:
        typer.echo(text, nl=not text.endswith("\n"))
