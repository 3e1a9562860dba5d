"""Tables written down: exact texts for a small table, and what must hold for any."""

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
from hypothesis import given
from hypothesis import strategies as st

from _latex import columns_of, environments
from pals.bench.report.json_csv import as_records, to_csv, to_json
from pals.bench.report.layout import layout, legend, signed, spread
from pals.bench.report.markdown_latex import escape_latex, escape_markdown, to_latex, to_markdown
from pals.bench.report.result_table import Column, Entry, RunLink, Score, Speed, Table, blocks
from pals.util.errors import InputError


def run(accuracy: float, seed: int = 1, **more: object) -> RunLink:
    values = {"epochs": 500, "shortened": False, "folder": f"runs/r/seed-{seed}", "href": f"../r/seed-{seed}", "commit": "abc1"}
    return RunLink(seed, accuracy, **{**values, **more})  # type: ignore[arg-type]


COLUMNS = tuple(Column(f"Set_1, q={q}", "Set_1", "g1", 0.3, 0.2985 if q == 4 else None) for q in (1, 2, 3, 4))
ONE = Score(94.39, None, (run(94.39),))
THREE = Score(80.0, 0.5, tuple(run(80 + d, seed) for seed, d in ((1, -0.5), (2, 0.0), (3, 0.5))))
WIDE = Table(
    name="9",
    title="A & B: 100%",
    entries=(
        *[Entry("RC", column.name, "Set_1", None, (70.5, 0.25), "not run") for column in COLUMNS],
        Entry("PALS*", "Set_1, q=1", "Set_1", None, (96.28, 0.05), "not run"),
        Entry("PALS*", "Set_1, q=2", "Set_1", ONE, (94.18, 0.1), "better"),
        Entry("PALS*", "Set_1, q=3", "Set_1", THREE, (80.1, 0.2), "within", against=(1.5, 0.25, 2.75)),
        Entry("PALS*", "Set_1, q=4", "Set_1", THREE, None, "", against=(-0.001, None, None)),
    ),
    columns=COLUMNS,
    against="RC",
)
NARROW = replace(
    WIDE,
    entries=(
        Entry("K = 1", "Set_1, q=1", "K", ONE, (94.0, None), ""),
        Entry("K = 2", "Set_1, q=1", "K", None, (93.0, None), "not run"),
        Entry("on", "Set_1, q=1", "Step", None, (92.0, None), "not run"),
        Entry("on", "Set_1, q=2", "Step", THREE, (81.0, None), "worse"),
    ),
    columns=COLUMNS[:2],
    against=None,
)
STUDY = Table(
    name="study",
    title="Study",
    entries=(
        Entry("supervised", "S, q=1", "S", None, None, "not run"),
        Entry("slow", "S, q=1", "S", ONE, None, "", speed=Speed(2.5, 3725.0, 2.5, 2.33, "X1, bf16")),
        Entry("best", "S, q=1", "S", Score(95.0, None, (run(95.0),)), None, "", speed=Speed(1.0, 59.6, None, 1.0, "X1, bf16")),
    ),
    columns=(Column("S, q=1", "S", "g1", 0.3, 0.301),),
    study_epochs=500,
)

WIDE_MARKDOWN = """\
## A & B: 100%

Test accuracy in per cent, last epoch, full schedule: mean ± standard deviation over seeds (number of runs). ≈ within the \
spread, ▲ better, ▼ worse than the paper by Welch's t-test at 95%, with our number of runs and its three; if only one \
spread is known, it is used for both (no sign: neither is known). · not run. Columns name the protocol of the candidate sets \
and the share of sets without the true label. To RC: mean difference over shared seeds and its \
95% interval.

### Set\\_1

|  | q=1<br>g1 | q=2<br>g1 | q=3<br>g1 | q=4<br>g1, 0.2985 |
|---|---:|---:|---:|---:|
| RC, paper · | 70.50 ± 0.25 | 70.50 ± 0.25 | 70.50 ± 0.25 | 70.50 ± 0.25 |
| PALS\\*, ours<br>paper<br>difference<br>to RC | ·<br>96.28 ± 0.05<br><br> \
| [**94.39**](../r/seed-1) (1)<br>94.18 ± 0.10<br>+0.21 ▲<br> \
| **80.00 ± 0.50** (seeds [1](../r/seed-1), [2](../r/seed-2), [3](../r/seed-3))<br>80.10 ± 0.20\
<br>−0.10 ≈<br>+1.50 \\[+0.25, +2.75\\] \
| **80.00 ± 0.50** (seeds [1](../r/seed-1), [2](../r/seed-2), [3](../r/seed-3))<br><br><br>+0.00 (one seed) |
"""
WIDE_LATEX = r"""
\begin{tabular}{@{}llrrrr@{}}
\toprule
&  & q=1 & q=2 & q=3 & q=4 \\
&  & g1 & g1 & g1 & g1, 0.2985 \\
\midrule
RC & paper $\cdot$ & 70.50 $\pm$ 0.25 & 70.50 $\pm$ 0.25 & 70.50 $\pm$ 0.25 & 70.50 $\pm$ 0.25 \\
\addlinespace
PALS{*} & ours & $\cdot$ & \textbf{94.39} (1) & \textbf{80.00 $\pm$ 0.50} (3) & \textbf{80.00 $\pm$ 0.50} (3) \\
& paper & 96.28 $\pm$ 0.05 & 94.18 $\pm$ 0.10 & 80.10 $\pm$ 0.20 & \\
& difference &  & +0.21 $\uparrow$ & $-$0.10 $\approx$ & \\
& to RC &  &  & +1.50 {[}+0.25, +2.75{]} & +0.00 (one seed) \\
\bottomrule
\end{tabular}
"""
NARROW_MARKDOWN = """\
### Set\\_1

|  | q=1 (g1)<br>ours | paper | difference | q=2 (g1)<br>ours | paper | difference |
|---|---:|---:|---:|---:|---:|---:|
| **K** |  |  |  |  |  |  |
| K = 1 | [**94.39**](../r/seed-1) (1) | 94.00 | +0.39 |  |  |  |
| K = 2 | · | 93.00 |  |  |  |  |
| **Step** |  |  |  |  |  |  |
| on | · | 92.00 |  | **80.00 ± 0.50** (seeds [1](../r/seed-1), [2](../r/seed-2), [3](../r/seed-3)) | 81.00 | −1.00 ▼ |
"""
NARROW_LATEX = r"""
\begin{tabular}{@{}lrrrrrr@{}}
\toprule
& \multicolumn{3}{c}{q=1 (g1)} & \multicolumn{3}{c}{q=2 (g1)} \\
\cmidrule(lr){2-4} \cmidrule(lr){5-7}
& ours & paper & difference & ours & paper & difference \\
\midrule
\multicolumn{7}{@{}l}{\textit{K}} \\
K = 1 & \textbf{94.39} (1) & 94.00 & +0.39 &  &  & \\
K = 2 & $\cdot$ & 93.00 &  &  &  & \\
\midrule
\multicolumn{7}{@{}l}{\textit{Step}} \\
on & $\cdot$ & 92.00 &  & \textbf{80.00 $\pm$ 0.50} (3) & 81.00 & $-$1.00 $\downarrow$ \\
\bottomrule
\end{tabular}
"""
STUDY_MARKDOWN = """\
### S, q=1; protocol g1; effective noise 0.301

|  | accuracy | s/epoch | all epochs | × supervised | × counted |
|---|---:|---:|---:|---:|---:|
| best | [**95.00**](../r/seed-1) (1) | 1.00 | 1 min 00 s |  | 1.00 |
| slow | [**94.39**](../r/seed-1) (1) | 2.50 | 1 h 02 min | 2.50 | 2.33 |
| supervised | · |  |  |  |  |
"""


def test_many_columns_put_the_numbers_under_each_other() -> None:
    assert to_markdown(WIDE) == WIDE_MARKDOWN
    assert WIDE_LATEX in to_latex([WIDE])


def test_few_columns_put_them_beside_each_other() -> None:
    assert to_markdown(NARROW).endswith(NARROW_MARKDOWN)
    assert NARROW_LATEX in to_latex([NARROW])


def test_a_study_shows_times_and_its_own_schedule() -> None:
    text = to_markdown(STUDY)
    assert text.endswith(STUDY_MARKDOWN)
    assert "500 epochs (this study's own schedule)" in text
    assert "Hardware: X1, bf16." in text


def test_remarks_of_a_study_stand_beside_its_numbers() -> None:
    entries = tuple(replace(entry, note=f"On {entry.row}.") for entry in STUDY.entries)  # the first was not run
    text = to_markdown(replace(STUDY, entries=entries, notes=("slow: On slow.", "best: On best.")))
    assert r"\[1\] slow: On slow. \[2\] best: On best." in text
    rows = [line.split(" | ")[:2] for line in text.splitlines() if line.startswith("| ")]
    assert [(name, cell[-5:] if "]" in cell else cell) for name, cell in rows[1:]] == [
        ("| best", r"\[2\]"), ("| slow", r"\[1\]"), ("| supervised", "·")
    ]  # fmt: skip


def test_a_study_says_why_times_are_missing() -> None:
    why = "Runs without times shared their device with another."
    assert why not in legend(STUDY)  # what was not run needs no word
    shared = replace(STUDY, entries=(*STUDY.entries[:2], replace(STUDY.entries[2], speed=None)))
    assert why in legend(shared)
    assert why not in legend(WIDE)


def test_only_what_was_run() -> None:
    (part,) = layout(WIDE, only_run=True)
    assert [name for name, _ in part.columns if name] == ["q=2 (g1)", "q=3 (g1)", "q=4 (g1, 0.2985)"]
    assert [row.name for _, rows in part.sections for row in rows] == ["PALS*"]
    nothing = replace(WIDE, entries=WIDE.entries[:4])
    assert layout(nothing, only_run=True) == []


def test_groups_are_of_columns_or_of_rows() -> None:
    assert not WIDE.row_groups
    assert NARROW.row_groups
    (block,) = blocks(NARROW)
    assert (block.heading, block.heads) == ("Set_1", ("q=1", "q=2"))
    assert [(heading, [name for name, _ in rows]) for heading, rows in block.sections] == [
        ("K", ["K = 1", "K = 2"]),
        ("Step", ["on"]),
    ]
    one = replace(NARROW, columns=COLUMNS[:1], entries=NARROW.entries[:3])
    assert blocks(one)[0].heads == ("q=1",)


@pytest.mark.parametrize(
    ("epochs", "link"),
    [(None, {"shortened": True, "epochs": 50}), (50, {}), (50, {"shortened": True, "epochs": 30})],
)
def test_schedules_are_never_mixed(epochs: int | None, link: dict[str, object]) -> None:
    entry = replace(WIDE.entries[0], ours=Score(1.0, None, (run(1.0, **link),)))
    with pytest.raises(InputError, match="never mixed"):
        replace(WIDE, entries=(entry,), epochs=epochs)


def test_a_shortened_table_says_so_at_every_number() -> None:
    entries = tuple(
        replace(entry, ours=Score(70.0, None, (run(70.0, shortened=True, epochs=50),))) for entry in WIDE.entries[:4]
    )
    table = replace(WIDE, entries=entries, epochs=50)
    assert "| RC, ours, 50 epochs<br>paper<br>difference |" in to_markdown(table)
    assert "SHORTENED to 50 epochs" in to_markdown(table)
    assert "SHORTENED to 50 epochs" in to_latex([table])
    assert {record["schedule"] for record in as_records(table)} == {"SHORTENED to 50 epochs"}


def test_seconds_are_not_judged() -> None:
    column = Column("Net", "Seconds per epoch")
    entry = Entry("PALS", "Net", "Seconds per epoch", Score(1.55, None, (run(77.0),)), (40.0, None), "")
    table = Table("timing", "Time", (entry,), (column,), quantity="seconds")
    assert "| PALS | [**1.55**](../r/seed-1) (1) | 40 |" in to_markdown(table)
    assert legend(table)[0].startswith("Seconds per epoch")


def test_json_holds_everything() -> None:
    content = json.loads(to_json([WIDE]))
    assert (content["table"], content["schedule"], content["epochs"]) == ("9", "full schedule", None)
    entry = content["entries"][6]
    expected = {
        "row": "PALS*",
        "column": "Set_1, q=3",
        "mean": 80.0,
        "std": 0.5,
        "n": 3,
        "paper_mean": 80.1,
        "paper_std": 0.2,
        "difference": -0.1,
        "mark": "within",
        "against": "RC",
        "against_mean": 1.5,
        "against_low": 0.25,
        "against_high": 2.75,
        "protocol": "g1",
        "nominal_noise": 0.3,
        "effective_noise": None,
        "epoch_seconds": None,
    }
    assert {key: entry[key] for key in expected} == expected
    assert entry["runs"][2] == {
        "seed": 3,
        "accuracy": 80.5,
        "epochs": 500,
        "shortened": False,
        "folder": "runs/r/seed-3",
        "href": "../r/seed-3",
        "commit": "abc1",
    }
    assert content["entries"][0]["mean"] is None
    assert isinstance(json.loads(to_json([WIDE, STUDY])), list)


def test_csv_has_a_line_per_number() -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv([WIDE, STUDY]))))
    assert len(rows) == len(WIDE.entries) + len(STUDY.entries)
    assert rows[5]["mean"] == "94.39"
    assert rows[5]["std"] == ""
    assert rows[6]["folders"] == "runs/r/seed-1; runs/r/seed-2; runs/r/seed-3"
    assert rows[9]["times_supervised"] == "2.5"


def test_words() -> None:
    assert [signed(value) for value in (0.214, -0.321, -0.004, 0.0)] == ["+0.21", "−0.32", "+0.00", "+0.00"]
    assert (spread(94.384, None), spread(94.384, 0.1)) == ("94.38", "94.38 ± 0.10")


def unescape_markdown(text: str) -> str:
    return re.sub(r"\\([\\`*_\[\]<>|])", r"\1", text)


@given(st.text())
def test_markdown_escapes_can_be_undone_and_leave_no_cell_border(text: str) -> None:
    escaped = escape_markdown(text)
    assert unescape_markdown(escaped) == text
    assert not re.search(r"(?<!\\)(?:\\\\)*[|<\[]", escaped)


@given(st.text())
def test_latex_escapes_leave_nothing_active(text: str) -> None:
    escaped = escape_latex(text)
    rest = re.sub(
        r"\\text(backslash|asciitilde|asciicircum|less|greater|bar)\{\}|\\[{}$&#_%]|\$(\\[a-z]+|-)\$|\{[\[\]*]\}", "", escaped
    )
    assert not set("\\{}$&#_%~^<>|[]*") & set(rest)


@pytest.mark.parametrize("standalone", [False, True])
def test_latex_is_well_formed(standalone: bool) -> None:
    text = to_latex([WIDE, NARROW, STUDY], standalone)
    tables = ["table", "tabular"] * 3
    assert environments(text) == (["document", *tables] if standalone else tables)
    counts = columns_of(text)
    assert counts
    assert all(filled == there for filled, there in counts)
    assert text.startswith("\\documentclass" if standalone else "% needs \\usepackage{booktabs}")
    assert text.isascii()
    assert "../r/seed-1" not in text
    assert r"A \& B: 100\%" in text
    assert r"Set\_1" in text


@pytest.mark.skipif(not (shutil.which("tectonic") or shutil.which("pdflatex")), reason="no LaTeX on this machine")
def test_latex_compiles(tmp_path: Path) -> None:
    (tmp_path / "t.tex").write_text(to_latex([WIDE, NARROW, STUDY], standalone=True), encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error"] if shutil.which("pdflatex") else ["tectonic"]
    subprocess.run([*command, "t.tex"], cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "t.pdf").stat().st_size > 1000
