"""The page on reproduction: the numbers of the paper with our runs beside them, and the commands for those without a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pals.bench.paper.experiments import Experiment, select, table_names
from pals.bench.paper.published import PAPER_RUNS, numbers, selected_pairs
from pals.bench.report.result_table import Entry, ResultTable
from pals.bench.report.results_frame import folder_of, gather, link, make_table
from pals.bench.report.run_curves import read_curve
from pals.bench.report.table_text import escape_markdown, markdown_row, to_markdown
from pals.bench.run_records import RunResult

FIGURE2 = "figure2"


def all_tables(runs: Path, epochs: int | None = None, page: Path | None = None) -> list[ResultTable]:
    """Every table of the paper and of our studies.

    Args:
        runs: folder of a bench, or a file of records (.jsonl).
        epochs: show runs shortened to this many epochs.
        page: the file that will show the tables.
    """
    return [table for table, _, _ in _tables(runs, epochs, page)]


def _tables(
    runs: Path, epochs: int | None, page: Path | None
) -> Iterator[tuple[ResultTable, list[Experiment], list[RunResult]]]:
    """Each table with its experiments and all runs in it."""
    for name in table_names():
        experiments = select(name)
        results = gather(experiments, runs, epochs)
        table = make_table(experiments, results, runs=runs, epochs=epochs, page=page)
        yield table, experiments, [result for experiment in experiments for result in results.get(experiment.name, ())]


def reproduction_page(runs: Path, page: Path, epochs: int | None = None) -> str:
    """The page as Markdown, with the rows and columns of which something was run; `pals table` shows whole tables.

    Args:
        runs: folder of a bench, or a file of records (.jsonl).
        page: the file that will hold the page: its links start there.
        epochs: show runs shortened to this many epochs.
    """
    found = list(_tables(runs, epochs, page))
    tables = [table for table, _, _ in found]
    results = {result.run: result for _, _, part in found for result in part}
    length = "" if epochs is None else f" --epochs {epochs}"
    parts = [
        "# Reproduction",
        "",
        f"<!-- Written by `pals table --all --runs {runs.as_posix()}{length} --format markdown --out {page.as_posix()}`.",
        "     Do not edit: run that command instead. -->",
        "",
        _introduction(tables, len(results), runs, page),
        "",
        *_overview(found, length),
        "",
    ]
    for table, _, runs_of_it in found:
        if table.name == FIGURE2 and runs_of_it:
            parts += [f"## {escape_markdown(table.title)}", "", *_pairs(runs_of_it, runs, page), ""]
        elif runs_of_it:
            parts.append(to_markdown(table, only_run=True))
    if results:
        parts += ["## The runs", "", *_runs(results, runs, page), ""]
    parts += ["## What the published numbers are", "", *[f"- {escape_markdown(note)}" for note in numbers()["notes"]]]
    return "\n".join(parts).rstrip() + "\n"


def _introduction(tables: Sequence[ResultTable], runs: int, records: Path, page: Path) -> str:
    """A paragraph with the number of accuracies that were run, and how they compare."""
    shown = [table for table in tables if table.quantity == "accuracy"]
    entries = [entry for table in shown for entry in table.rows() if entry.paper_mean is not None]
    done = [entry for entry in entries if entry.n]
    marks = [entry.mark for entry in done]
    where = f"[`{records.name}`]({link(records, page)})" if records.is_file() else f"`{records.as_posix()}`"
    source = numbers()["source"]
    return (
        f"Our runs beside the numbers in [the paper]({source['url']}) ({source['where']}). Of its {len(entries)} accuracies, "
        f"{len(done)} have been run ({runs} run{'s' if runs != 1 else ''} in total; one run can serve several accuracies): "
        f"{marks.count('within')} within the spread, {marks.count('better')} better, {marks.count('worse')} worse (at 95%), "
        f"{marks.count('')} where no spread is known. Accuracies are those of the last epoch; nothing is chosen on the test "
        f"set. All methods in a column share their candidate sets. The records are in {where}; `pals bench` writes such "
        "records, runs what is missing, and resumes where it was stopped. `pals table 1` shows a whole table."
    )


def _overview(found: Sequence[tuple[ResultTable, list[Experiment], list[RunResult]]], length: str) -> Iterator[str]:
    yield markdown_row(["what", "run", "PALS run", f"command for the rest ({PAPER_RUNS} seeds)"])
    yield "|---|---:|---:|---|"
    for table, experiments, _ in found:
        entries = table.rows()
        ours = [entry for entry, experiment in zip(entries, experiments, strict=True) if experiment.method == "pals"]
        missing = any(entry.n < PAPER_RUNS for entry in entries)
        command = f"`pals bench --table {table.name} --seeds {PAPER_RUNS}{length}`" if missing else "nothing is missing"
        yield markdown_row([escape_markdown(table.title), _of(entries), _of(ours), command])


def _of(entries: Sequence[Entry]) -> str:
    return f"{sum(entry.n > 0 for entry in entries)} of {len(entries)}"


def _pairs(results: Sequence[RunResult], runs: Path, page: Path) -> Iterator[str]:
    """Figure 2 in numbers: the pairs that each run selected in its first and last epoch, and its figure."""
    figures = []
    yield markdown_row(["", "first epoch: selected", "right", "last epoch: selected", "right"])
    yield "|---|---:|---:|---:|---:|"
    points = [value for when in selected_pairs().values() for value in (when["selected"], when["right"])]
    yield markdown_row(["paper", *[f"{value:,}" for value in points]])
    for result in results:
        place = folder_of(result, runs)
        source = place if place.is_dir() else place.with_suffix(".csv")
        if source.exists():
            curve = read_curve(source)
            values = (curve.selected[0], curve.correct[0], curve.selected[-1], curve.correct[-1])
            yield markdown_row([f"[seed {result.seed}]({link(place, page)})", *[f"{value:,.0f}" for value in values]])
            figures += [link(place.with_suffix(".png"), page)] if place.is_file() else []
    yield ""
    yield "`pals figure selected RUN` draws all epochs."
    for figure in filter(None, figures):
        yield f"\n![Selected and right pairs by epoch]({figure})"


def _runs(results: Mapping[str, RunResult], runs: Path, page: Path) -> Iterator[str]:
    """Each run with its folder, commit, hardware and command; no time if it shared its device."""
    yield markdown_row(["run", "accuracy", "seconds per epoch", "hardware", "versions", "commit", "command"])
    yield "|---|---:|---:|---|---|---|---|"
    for name, result in sorted(results.items()):
        href = link(folder_of(result, runs), page)
        yield markdown_row(
            [
                f"[{escape_markdown(name)}]({href})" if href else escape_markdown(name),
                f"{result.accuracy:.2f}",
                f"{result.epoch_seconds:.2f}" if result.timed else "",
                escape_markdown(result.hardware),
                escape_markdown(", ".join(f"{what} {version}" for what, version in result.versions.items())),
                "not known" if result.commit is None else f"`{result.commit}`",
                f"`{result.command}`",
            ]
        )
