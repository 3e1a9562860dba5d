"""Tables as text: exact grids for small tables, and what must hold for any text."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from _bench import entry, table, timed
from hypothesis import given
from hypothesis import strategies as st

from _latex import columns_of, environments
from pals.bench.report.result_table import ResultTable, blocks
from pals.bench.report.table_text import (
    as_records,
    escape_latex,
    escape_markdown,
    grids,
    legend,
    signed,
    spread,
    to_csv,
    to_json,
    to_latex,
    to_markdown,
)

NOISE = {"effective_noise": 0.2985}
THREE = {"mean": 80.0, "std": 0.5, "runs": 3}
WIDE = table(
    *[entry("RC", f"Set_1, q={q}", paper=(70.5, 0.25), **(NOISE if q == 4 else {})) for q in (1, 2, 3, 4)],
    entry("PALS*", "Set_1, q=1", paper=(96.28, 0.05)),
    entry("PALS*", "Set_1, q=2", 94.39, paper=(94.18, 0.1), mark="better"),
    entry("PALS*", "Set_1, q=3", **THREE, paper=(80.1, 0.2), mark="within",
          against="RC", against_mean=1.5, against_low=0.25, against_high=2.75),
    entry("PALS*", "Set_1, q=4", **THREE, against="RC", against_mean=-0.001, **NOISE),
    against="RC",
)  # fmt: skip
ABLATION = table(
    entry("K = 1", "Set_1, q=1", 94.39, paper=(94.0, None), group="K"),
    entry("K = 2", "Set_1, q=1", paper=(93.0, None), group="K"),
    entry("on", "Set_1, q=1", paper=(92.0, None), group="Step"),
    entry("on", "Set_1, q=2", **THREE, paper=(81.0, None), mark="worse", group="Step"),
)
STUDY = table(
    entry("supervised", "S, q=1", effective_noise=0.301),
    entry("slow", "S, q=1", 94.39, effective_noise=0.301, **timed(2.5, 3725.0, 2.5, 2.33)),
    entry("best", "S, q=1", 95.0, effective_noise=0.301, **timed(1.0, 59.6, None, 1.0)),
    study_epochs=500,
)

SEEDS = "(seeds [1](../r/seed-1), [2](../r/seed-2), [3](../r/seed-3))"
WIDE_MARKDOWN = f"""\
### Set\\_1

|  |  | q=1<br>g1 | q=2<br>g1 | q=3<br>g1 | q=4<br>g1, 0.2985 |
|---|---|---:|---:|---:|---:|
| RC | paper | 70.50 ± 0.25 | 70.50 ± 0.25 | 70.50 ± 0.25 | 70.50 ± 0.25 |
| PALS\\* | ours | · | [**94.39**](../r/seed-1) (1) | **80.00 ± 0.50** {SEEDS} | **80.00 ± 0.50** {SEEDS} |
|  | paper | 96.28 ± 0.05 | 94.18 ± 0.10 | 80.10 ± 0.20 |  |
|  | difference |  | +0.21 ▲ | −0.10 ≈ |  |
|  | to RC |  |  | +1.50 \\[+0.25, +2.75\\] | +0.00 (one seed) |
"""
WIDE_LATEX = r"""
\begin{tabular}{@{}llrrrr@{}}
\toprule
&  & q=1 & q=2 & q=3 & q=4 \\
&  & g1 & g1 & g1 & g1, 0.2985 \\
\midrule
RC & paper & 70.50 $\pm$ 0.25 & 70.50 $\pm$ 0.25 & 70.50 $\pm$ 0.25 & 70.50 $\pm$ 0.25 \\
\addlinespace
PALS{*} & ours & $\cdot$ & \textbf{94.39} (1) & \textbf{80.00 $\pm$ 0.50} (3) & \textbf{80.00 $\pm$ 0.50} (3) \\
& paper & 96.28 $\pm$ 0.05 & 94.18 $\pm$ 0.10 & 80.10 $\pm$ 0.20 & \\
& difference &  & +0.21 $\uparrow$ & $-$0.10 $\approx$ & \\
& to RC &  &  & +1.50 {[}+0.25, +2.75{]} & +0.00 (one seed) \\
\bottomrule
\end{tabular}
"""
ABLATION_MARKDOWN = f"""\
### Set\\_1

|  |  | q=1<br>g1 | q=2<br>g1 |
|---|---|---:|---:|
| **K** |  |  |  |
| K = 1 | ours | [**94.39**](../r/seed-1) (1) |  |
|  | paper | 94.00 |  |
|  | difference | +0.39 |  |
| K = 2 | paper | 93.00 |  |
| **Step** |  |  |  |
| on | ours | · | **80.00 ± 0.50** {SEEDS} |
|  | paper | 92.00 | 81.00 |
|  | difference |  | −1.00 ▼ |
"""
STUDY_MARKDOWN = """\
### S, q=1; protocol g1; effective noise 0.301

|  | accuracy | s/epoch | all epochs | × supervised | × counted |
|---|---:|---:|---:|---:|---:|
| best | [**95.00**](../r/seed-1) (1) | 1.00 | 1 min 00 s |  | 1.00 |
| slow | [**94.39**](../r/seed-1) (1) | 2.50 | 1 h 02 min | 2.50 | 2.33 |
| supervised | · |  |  |  |  |
"""


@pytest.mark.parametrize(("made", "text"), [(WIDE, WIDE_MARKDOWN), (ABLATION, ABLATION_MARKDOWN)])
def test_lines_of_a_row_stand_under_each_other(made: ResultTable, text: str) -> None:
    assert to_markdown(made).endswith(text)
    if made is WIDE:
        assert WIDE_LATEX in to_latex([made])
    sections = re.findall(r"\\textit\{(\w+)\}", to_latex([made]))
    assert sections == (["K", "Step"] if made.row_groups else [])


def noted(made: ResultTable) -> ResultTable:
    entries = made.entries.assign(note=[f"On {row}." for row in made.entries["row"]])
    return replace(made, entries=entries, notes=("slow: On slow.", "best: On best."))


def test_a_study_shows_times_its_own_schedule_and_remarks() -> None:
    text = to_markdown(STUDY)
    assert text.endswith(STUDY_MARKDOWN) and "500 epochs (this study's own schedule)" in text
    assert "Hardware: X1, bf16." in text
    text = to_markdown(noted(STUDY))  # the first was not run
    assert r"\[1\] slow: On slow. \[2\] best: On best." in text
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()[-3:]]
    assert [(row[0], row[-1]) for row in rows] == [("best", r"\[2\]"), ("slow", r"\[1\]"), ("supervised", "")]
    why = "Runs without times shared their device with another."
    assert why not in legend(STUDY)  # nothing to explain where nothing was run
    shared = STUDY.entries.copy()
    shared.at[2, "epoch_seconds"] = None
    assert why in legend(replace(STUDY, entries=shared)) and why not in legend(WIDE)


def test_which_rows_columns_and_groups_are_shown() -> None:
    (grid,) = grids(WIDE, only_run=True)
    assert [name for name, _ in grid.columns] == ["q=2", "q=3", "q=4"]
    assert {row for _, row, _, _ in grid.rows} == {"PALS*"}
    assert grids(replace(WIDE, entries=WIDE.entries[:4]), only_run=True) == []
    assert not WIDE.row_groups and ABLATION.row_groups
    (block,) = blocks(ABLATION)
    assert (block.heading, block.heads) == ("Set_1", ("q=1", "q=2"))
    assert [(section, row) for section, row, _ in block.rows] == [("K", "K = 1"), ("K", "K = 2"), ("Step", "on")]
    assert blocks(replace(ABLATION, entries=ABLATION.entries[:3]))[0].heads == ("q=1",)


def test_shortened_tables_and_seconds_say_so() -> None:
    made = table(entry("RC", "Set_1, q=1", 70.0, paper=(70.5, 0.25)), epochs=50)
    assert "| RC | ours, 50 epochs |" in to_markdown(made)
    assert all("SHORTENED to 50 epochs" in text for text in (to_markdown(made), to_latex([made]), to_json([made])))
    made = table(entry("PALS", "Net", 1.55, paper=(40.0, None), protocol=""), quantity="seconds")
    assert to_markdown(made).endswith("| PALS | ours | [**1.55**](../r/seed-1) (1) |\n|  | paper | 40 |\n")
    assert legend(made)[0].startswith("Seconds per epoch")
    assert [signed(value) for value in (0.214, -0.321, -0.004, 0.0)] == ["+0.21", "−0.32", "+0.00", "+0.00"]
    assert (spread(94.384, None), spread(94.384, 0.1)) == ("94.38", "94.38 ± 0.10")


def test_json_and_csv_hold_everything() -> None:
    content = json.loads(to_json([WIDE]))
    assert (content["table"], content["schedule"], content["epochs"]) == ("9", "full schedule", None)
    found = content["entries"][6]
    assert (found["row"], found["column"], found["n"], found["mark"]) == ("PALS*", "Set_1, q=3", 3, "within")
    assert [found[key] for key in ("mean", "std", "paper_mean", "paper_std", "difference")] == [80.0, 0.5, 80.1, 0.2, -0.1]
    assert [found[key] for key in ("against", "against_mean", "against_low", "against_high")] == ["RC", 1.5, 0.25, 2.75]
    assert [found[key] for key in ("protocol", "nominal_noise", "effective_noise", "epoch_seconds")] == ["g1", 0.3, None, None]
    assert [(run["seed"], run["href"], run["commit"]) for run in found["runs"]][2] == (3, "../r/seed-3", "abc1")
    assert content["entries"][0]["mean"] is None and isinstance(json.loads(to_json([WIDE, STUDY])), list)
    rows = list(csv.DictReader(io.StringIO(to_csv([WIDE, STUDY]))))
    assert len(rows) == len(WIDE.entries) + len(STUDY.entries)
    assert (rows[5]["mean"], rows[5]["std"], rows[9]["times_supervised"]) == ("94.39", "", "2.5")
    assert rows[6]["folders"] == "runs/r/seed-1; runs/r/seed-2; runs/r/seed-3"
    assert {record["schedule"] for record in as_records(WIDE)} == {"full schedule"}


def unescape_markdown(text: str) -> str:
    return re.sub(r"\\([\\`*_\[\]<>|])", r"\1", text)


@given(st.text())
def test_markdown_escapes_can_be_undone_and_leave_no_cell_border(text: str) -> None:
    escaped = escape_markdown(text)
    assert unescape_markdown(escaped) == text and not re.search(r"(?<!\\)(?:\\\\)*[|<\[]", escaped)


@given(st.text())
def test_latex_escapes_leave_nothing_active(text: str) -> None:
    escaped = escape_latex(text)
    rest = re.sub(
        r"\\text(backslash|asciitilde|asciicircum|less|greater|bar)\{\}|\\[{}$&#_%]|\$(\\[a-z]+|-)\$|\{[\[\]*]\}", "", escaped
    )
    assert not set("\\{}$&#_%~^<>|[]*") & set(rest)


@pytest.mark.parametrize("standalone", [False, True])
def test_latex_is_well_formed(standalone: bool) -> None:
    text = to_latex([WIDE, ABLATION, STUDY], standalone)
    tables = ["table", "tabular"] * 3
    assert environments(text) == (["document", *tables] if standalone else tables)
    assert columns_of(text) and all(filled == there for filled, there in columns_of(text))
    assert text.startswith("\\documentclass" if standalone else "% needs \\usepackage{booktabs}")
    assert text.isascii() and "../r/seed-1" not in text
    assert r"A \& B: 100\%" in text and r"Set\_1" in text


@pytest.mark.skipif(not (shutil.which("tectonic") or shutil.which("pdflatex")), reason="no LaTeX on this machine")
def test_latex_compiles(tmp_path: Path) -> None:
    (tmp_path / "t.tex").write_text(to_latex([WIDE, ABLATION, STUDY], standalone=True), encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error"] if shutil.which("pdflatex") else ["tectonic"]
    subprocess.run([*command, "t.tex"], cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "t.pdf").stat().st_size > 1000
