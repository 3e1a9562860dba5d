"""From experiments and runs to tables: the toy grid, records, schedules, comparisons, the page on what is reproduced."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from _latex import columns_of, environments
from _toy import Answer
from pals.bench.paper.experiments import experiments, find, select
from pals.bench.report.reproduction import reproduction_page
from pals.bench.report.results_frame import BASELINE_RUN, gather, link, make_table
from pals.bench.report.run_curves import read_curve, read_curves
from pals.bench.run_records import RunResult, read_records
from pals.util.errors import InputError
from pals.util.files import read_json

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "benchmarks" / "results" / "runs.jsonl"
Pals = Callable[..., Answer]


def record(name: str, seed: int = 1, accuracy: float = 90.0, epochs: int | None = None, **more: Any) -> RunResult:
    experiment = find(name)
    values: dict[str, Any] = {
        "recipe": name, "run": experiment.folder(Path(), seed, epochs).as_posix(), "data": "cifar10", "network": "resnet18",
        "method": experiment.method, "seed": seed, "epochs": experiment.length(epochs), "accuracy": accuracy,
        "class_accuracy": None, "seconds": 60.0, "epoch_seconds": 2.0, "warmup_seconds": 5.0, "items": 50000, "protocol": "g1",
        "nominal_noise": 0.3, "effective_noise": 0.3, "hardware": "X1, bf16", "commit": "abc1", "created": "2026-11-15",
        "command": "pals bench",
    }  # fmt: skip
    return RunResult(**{**values, **more})


def write(path: Path, *records: RunResult) -> Path:
    path.write_text("".join(json.dumps(asdict(one)) + "\n" for one in records), encoding="utf-8")
    return path


def table(runs: Path, name: str, epochs: int | None = None, **more: Any) -> Any:
    chosen = select(name)
    return make_table(chosen, gather(chosen, runs, epochs), runs=runs, epochs=epochs, **more)


PALS_CELL = "table1/cifar10-q0.1-eta0.1/pals"
ALIM_CELL = "table1/cifar10-q0.1-eta0.1/alim-scale"
STUDY = "noisy-comparison/cifar10-q0.3-eta0.3"


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., Any]:
    """The table of some records."""

    def make(name: str, *records: RunResult, epochs: int | None = None, **more: Any) -> Any:
        return table(write(tmp_path / "r.jsonl", *records), name, epochs, **more)

    return make


def entry_of(made: Any, row: str, column: str = "CIFAR-10, q=0.1, eta=0.1") -> Any:
    (found,) = [entry for entry in made.rows() if (entry.row, entry.column) == (row, column)]
    return found


def test_the_toy_grid_in_every_format(whole: Path, grid: Path, pals: Pals, tmp_path: Path) -> None:
    """Means and deviations are those of the run folders."""
    (tmp_path / "bench").symlink_to(whole)
    for ending in ("md", "tex", "json"):
        assert pals("table", "--grid", grid, "--runs", "bench", "--out", f"t.{ending}").code == 0
    markdown, latex = ((tmp_path / f"t.{ending}").read_text(encoding="utf-8") for ending in ("md", "tex"))
    screen = pals("table", "--grid", grid, "--runs", whole, "--against", "average").out
    assert "to Average" in screen and screen.count("[") == 2  # an interval for PALS in each column
    entries = read_json(tmp_path / "t.json")["entries"]
    assert [(one["row"], one["column"], one["n"], one["mark"]) for one in entries] == [
        (row, column, 2, "") for column in ("few", "many") for row in ("PALS", "Average")
    ]
    for one in entries:
        folders = [f"bench/{one['column']}/{one['row'].lower()}/full/seed-{seed}" for seed in (1, 2)]
        summaries = [read_json(tmp_path / folder / "summary.json") for folder in folders]
        values = [100 * summary["test_accuracy"] for summary in summaries]
        mean, std = statistics.fmean(values), statistics.stdev(values)
        assert (one["mean"], one["std"]) == (pytest.approx(mean), pytest.approx(std))
        assert one["effective_noise"] == pytest.approx(summaries[0]["effective_noise"])
        assert [run["folder"] for run in one["runs"]] == folders
        assert f"**{mean:.2f} ± {std:.2f}** (seeds [1]({folders[0]}), [2]({folders[1]}))" in markdown
        assert rf"\textbf{{{mean:.2f} $\pm$ {std:.2f}}} (2)" in latex and f"{mean:.2f} ± {std:.2f} (2)" in screen


def test_experiments_with_the_same_settings_share_their_run(made: Callable[..., Any], whole: Path) -> None:
    """PALS on CIFAR-100, q=0.05, eta=0.3 is in table 1, in figure 2, and in each part of table 7 unchanged."""
    run = record("table1/cifar100-q0.05-eta0.3/pals", accuracy=77.55)
    assert [made(name, run).entries["n"].sum() for name in ("7", "figure2", "1")] == [6, 1, 1]
    assert {entry.mark for entry in made("7", run).rows() if entry.n} == {""}  # one run, and no deviation published
    runs = sorted(whole.glob("*/pals/full/seed-*"))
    assert len(runs) == 4 and [curve.name for curve in read_curves(runs)] == ["/".join(run.parts[-4:]) for run in runs]
    assert [curve.name for curve in read_curves(runs[:2])] == ["seed-1", "seed-2"]
    assert [curve.name for curve in read_curves(runs[:1])] == ["seed-1"]


@pytest.mark.parametrize(("accuracy", "mark"), [(96.34, "within"), (96.54, "better"), (96.0, "worse")])
def test_marks(accuracy: float, mark: str, made: Callable[..., Any]) -> None:
    """Published: 96.28 ± 0.05."""
    found = made("1", record(PALS_CELL, accuracy=accuracy))
    entry = entry_of(found, "PALS")
    assert (entry.mark, entry.paper_mean, entry.paper_std) == (mark, 96.28, 0.05)
    assert entry.difference == pytest.approx(accuracy - 96.28) and entry_of(found, "RC").mark == "not run"


def test_a_table_is_of_one_schedule(made: Callable[..., Any], tmp_path: Path) -> None:
    """PALS has 500 epochs and ALIM 1000: in a table of 500, PALS would be the only one with its whole schedule."""
    runs = [record(PALS_CELL, epochs=50), record(PALS_CELL, seed=2), record(PALS_CELL, seed=3, epochs=30)]
    for epochs, seed in ((None, 2), (50, 1), (30, 3)):
        found = made("1", *runs, epochs=epochs)
        assert [[run["seed"] for run in entry.runs] for entry in found.rows() if entry.n] == [[seed]]
        assert found.epochs == epochs
    found = made("1", record(PALS_CELL), record(ALIM_CELL, epochs=500), epochs=500)
    assert (entry_of(found, "PALS").n, entry_of(found, "ALIM-Scale").n) == (0, 1)
    experiments_of_pals, runs = select("1", methods=["PALS"]), write(tmp_path / "r.jsonl", record(PALS_CELL))
    found = make_table(experiments_of_pals, gather(experiments_of_pals, runs, 500), runs=runs, epochs=500)
    assert (found.epochs, found.schedule, entry_of(found, "PALS").n) == (None, "full schedule", 1)


@pytest.mark.parametrize(("of_the_run", "of_the_table"), [(50, None), (500, 50), (30, 50)])
def test_neither_schedules_nor_records_are_mixed(of_the_run: int, of_the_table: int | None, made: Callable[..., Any]) -> None:
    """Also where the folder of a run and its settings contradict each other."""
    with pytest.raises(InputError, match="two records"):
        made("1", record(PALS_CELL), record(PALS_CELL, accuracy=80.0))
    with pytest.raises(InputError, match="never mixed"):
        made("1", replace(record(PALS_CELL, epochs=of_the_table), epochs=of_the_run), epochs=of_the_table)


def test_rows_are_compared_over_shared_seeds(made: Callable[..., Any]) -> None:
    """Differences -1 and -3: mean -2, half width 12.7062 (t, one degree of freedom) times 1."""
    runs = [record(PALS_CELL, seed, value) for seed, value in ((1, 96.0), (2, 97.0), (3, 98.0))]
    runs += [record(ALIM_CELL, seed, value) for seed, value in ((2, 96.0), (3, 95.0), (4, 10.0))]
    found = made("1", *runs, against="pals")
    entry = entry_of(found, "ALIM-Scale")
    assert [entry.against_mean, entry.against_low, entry.against_high] == pytest.approx([-2.0, -14.7062, 10.7062], abs=1e-3)
    assert entry_of(found, "PALS").against is None
    with pytest.raises(InputError, match="Unknown row"):
        made("1", *runs, against="nobody")


def test_a_study_counts_in_supervised_epochs_of_the_same_machine(made: Callable[..., Any]) -> None:
    plain = record(BASELINE_RUN, epoch_seconds=0.8, protocol=None, nominal_noise=None, effective_noise=None)
    column = "CIFAR-10, q=0.3, eta=0.3"
    for epochs in (None, 30):  # its own length is not a shortened one
        found = made("noisy-comparison", record(f"{STUDY}/pals"), plain, epochs=epochs)
        entry = entry_of(found, "PALS", column)
        assert (found.epochs, found.study_epochs) == (None, 30)
        assert (entry.times_supervised, entry.cost, entry.total_seconds) == (pytest.approx(2.5), 2.33, 60.0)
        assert entry.effective_noise == 0.3
    elsewhere = made("noisy-comparison", record(f"{STUDY}/pals", hardware="Y2"), plain)
    assert entry_of(elsewhere, "PALS", column).times_supervised is None
    other = made("partial-check", record("partial-check/cifar10-q0.3-eta0.2/pals"), plain)
    assert entry_of(other, "PALS", "CIFAR-10, q=0.3, eta=0.2").times_supervised == pytest.approx(2.5)


@pytest.mark.parametrize("epochs", [60, 31])
def test_a_study_of_another_length_shows_methods_in_two_phases_too(epochs: int, made: Callable[..., Any]) -> None:
    """FREDIS has half of the epochs in each: 30 of 60, and 16 of 31."""
    runs = [record(f"{STUDY}/{method}", epochs=epochs) for method in ("pals", "fredis")]
    found = made("noisy-comparison", *runs, epochs=epochs)
    assert (found.epochs, [entry.row for entry in found.rows() if entry.n]) == (epochs, ["PALS", "FREDIS"])


def test_studies_of_two_phases_and_their_notes(made: Callable[..., Any]) -> None:
    found = made("noisy-comparison", *[record(f"{STUDY}/{method}") for method in ("pals", "fredis", "plrc", "apl")])
    assert [note.partition(":")[0] for note in found.notes] == ["PALS, APL", "FREDIS", "PLRC"]
    assert found.notes[0].endswith("Shortened from 500 epochs.")
    # Not the accuracies of the same runs, nor times of runs that shared their device.
    runs = [record("timing/resnet18/pals", seed, epoch_seconds=1.5) for seed in (1, 2)]
    runs += [record("timing/resnet18/alim-scale", seed, 50.0, epoch_seconds=1.5 + seed, at_a_time=seed) for seed in (1, 2)]
    found = made("timing", *runs, against="PALS")
    entry = entry_of(found, "PALS", "ResNet-18")
    assert (entry.mean, entry.paper_mean, entry.mark, entry.protocol) == (1.5, 40.0, "", "")
    assert (entry_of(found, "ALIM", "ResNet-18").n, entry_of(found, "ALIM", "ResNet-18").against_mean) == (1, 1.0)


def test_records_of_changed_settings_are_refused(grid: Path, pals: Pals, tmp_path: Path) -> None:
    """As their folders are."""
    assert pals("bench", "*/few/*", "--grid", grid, "--set", "train.lr=0.01", "--out", "bench").code == 0
    (kept,) = [one for one in read_records(tmp_path / "bench" / "results.jsonl") if one.method == "pals"]
    assert kept.changed == ("train.lr",)
    for runs in ("bench", "bench/results.jsonl"):
        answer = pals("table", "--grid", grid, "--runs", runs)
        assert (answer.code, "train.lr" in answer.err) == (2, True)


def test_links_lead_to_any_folder(tmp_path: Path) -> None:
    for name, expected in (("a b#1", "a%20b%231"), ("(x)", "%28x%29"), ("pico+", "pico+"), ("ü", "%C3%BC")):
        (tmp_path / name).mkdir()
        assert link(tmp_path / name, tmp_path / "page.md") == expected


def test_formats_and_what_is_refused(pals: Pals, tmp_path: Path) -> None:
    plain = pals("table", "2")  # the paper's numbers alone
    assert plain.code == 0 and "81.46 ± 0.13" in plain.out and "ours" not in plain.out
    runs = write(tmp_path / "r.jsonl", record(PALS_CELL, accuracy=96.3))
    common = ("--runs", runs, "--methods", "PALS", "--cells", "cifar10-q0.1-*")
    assert "96.30 (1)" in pals("table", "1", *common).out
    assert "**96.30** (1)" in pals("table", "1", *common, "--format", "markdown").out
    assert pals("table", "1", *common, "--out", "a.csv").code == 0
    assert len((tmp_path / "a.csv").read_text().splitlines()) == 4
    assert pals("table", "1", *common, "--out", "a.png").code == 0
    latex = pals("table", "1", *common, "--format", "latex", "--standalone").out
    assert latex.startswith("\\documentclass")
    for arguments, words in (
        (("1", "--format", "pdf"), "Unknown format"),
        (("1", "--format", "figure"), "--out that ends in"),
        (("1", "--out", "a.docx"), "name a --format"),
        (("1", "--out", "a.md", "--format", "rich"), "for the screen"),
        ((), "Which table?"),
        (("8",), "Unknown table"),
        (("1", "--all"), "drop the table's name"),
        (("1", "--runs", "nowhere"), "does not exist"),
        (("--all", "--out", "a.png"), "--all"),
    ):
        answer = pals("table", *arguments)
        assert answer.code == 2, arguments
        assert words in " ".join(answer.err.split()), arguments


@pytest.mark.parametrize("width", [60, 80, 100, 300])
def test_a_table_fits_on_the_screen(width: int, pals: Pals, monkeypatch: pytest.MonkeyPatch) -> None:
    from pals.cli import base

    monkeypatch.setattr(base.console, "width", width)
    lines = pals("table", "1", "--runs", RECORDS).out.splitlines()
    assert max(map(len, lines)) <= width and "…" not in "".join(lines) and any("94.39 (1)" in line for line in lines)


def test_pictures_of_tables(pals: Pals, grid: Path, whole: Path, tmp_path: Path) -> None:
    runs = write(tmp_path / "r.jsonl", record(f"{STUDY}/pals"), record(BASELINE_RUN))
    assert pals("figure", "speed", "--runs", runs, "--out", "s.svg").code == 0
    assert "PALS" in (tmp_path / "s.svg").read_text(encoding="utf-8")
    assert pals("figure", "ablation", "K", "--runs", RECORDS, "--out", "k.svg").code == 0
    assert "77.55" in (tmp_path / "k.svg").read_text(encoding="utf-8")
    times = write(tmp_path / "t.jsonl", record("timing/resnet18/pals", epoch_seconds=1.5))
    assert pals("table", "timing", "--runs", times, "--out", "t.svg").code == 0
    drawn = (tmp_path / "t.svg").read_text(encoding="utf-8")
    assert "seconds per epoch" in drawn and "accuracy" not in drawn
    assert "ours on X1, bf16" in drawn and "RTX 2080 Ti" in drawn
    assert pals("table", "--grid", grid, "--runs", whole, "--out", "g.svg").code == 0  # nothing is published
    assert "Average" in (tmp_path / "g.svg").read_text(encoding="utf-8")
    for arguments, said in (
        (("figure", "speed", "--table", "timing", "--runs", times), "has no accuracies to draw"),
        (("table", "figure2", "--runs", runs, "--out", "f.png"), "pals figure selected RUN"),
        (("figure", "speed", "--table", "2"), "no runs with times"),
    ):
        answer = pals(*arguments)
        assert (answer.code, said in " ".join(answer.err.split())) == (2, True)


def test_selected_pairs_are_kept_as_a_table_and_drawn_from_it(whole: Path, pals: Pals, tmp_path: Path) -> None:
    run = whole / "few" / "pals" / "full" / "seed-1"
    assert pals("figure", "selected", run, "--out", "c.csv").code == 0
    kept, direct = read_curve(tmp_path / "c.csv"), read_curve(run)
    assert replace(kept, name=direct.name) == direct and list(direct.epochs) == [1, 2]
    assert pals("figure", "selected", run, tmp_path / "c.csv", "--out", "c.svg").code == 0
    assert "paper: selected" not in (tmp_path / "c.svg").read_text(encoding="utf-8")  # these are not the paper's data
    assert pals("figure", "selected", run, "--paper", "--out", "c.svg").code == 0
    assert "paper: selected" in (tmp_path / "c.svg").read_text(encoding="utf-8")
    for arguments, words in (
        ((whole / "few" / "average" / "full" / "seed-1",), "does not record selected pairs"),
        ((tmp_path,), "not a run folder"),
        ((run, run, "--out", "d.csv"), "holds one run"),
    ):
        answer = pals("figure", "selected", *arguments)
        assert (answer.code, words in " ".join(answer.err.split())) == (2, True), arguments


def test_the_kept_records_are_of_experiments_and_lead_to_their_pages() -> None:
    records = read_records(RECORDS)
    assert len({one.run for one in records}) == len(records)
    for one in records:
        experiment = experiments()[str(one.recipe)]
        assert one.run == experiment.folder(Path(), one.seed).as_posix()
        assert (one.method, one.network) == (experiment.method, experiment.config(one.seed).network.name)
        if one.folder:
            page = (RECORDS.parent / one.folder).read_text(encoding="utf-8")
            assert all(text in page for text in (f"**{one.accuracy:.2f}**", f"`{one.commit}`", one.command))
            curve = read_curve((RECORDS.parent / one.folder).with_suffix(".csv"))
            assert (curve.epochs[-1], round(curve.accuracy[-1], 2)) == (one.epochs, one.accuracy)


def test_the_page_on_reproduction_is_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, run the command that stands at the top of benchmarks/results/reproduction.md."""
    monkeypatch.chdir(ROOT)
    page = Path("benchmarks/results/reproduction.md")
    assert page.read_text(encoding="utf-8") == reproduction_page(RECORDS.relative_to(ROOT), page)


def test_all_tables_as_latex_are_well_formed(pals: Pals) -> None:
    text = pals("table", "--all", "--runs", RECORDS, "--format", "latex", "--standalone").out
    assert environments(text)[0] == "document"
    assert environments(text).count("tabular") == 16  # two sets in 1, 4, 5, 6 and the partial check, one in each other
    assert all(filled == there for filled, there in columns_of(text)) and text.isascii()


@pytest.mark.slow
def test_the_page_grows_with_the_records(tmp_path: Path) -> None:
    none = reproduction_page(write(tmp_path / "none.jsonl"), tmp_path / "page.md")
    assert "accuracies, 0 have been run" in none
    assert "## The runs" not in none
    some = reproduction_page(write(tmp_path / "some.jsonl", record(PALS_CELL, accuracy=96.28)), tmp_path / "page.md")
    assert "1 within the spread, 0 better, 0 worse" in some
    assert "| 1 of 198 | 1 of 18 | `pals bench --table 1 --seeds 3` |" in some and "`abc1`" in some
    assert "| 96.28 | 2.00 | X1, bf16 |" in some
    shared = write(tmp_path / "shared.jsonl", record(PALS_CELL, accuracy=96.28, at_a_time=2))
    assert "| 96.28 |  | X1, bf16 |" in reproduction_page(shared, tmp_path / "page.md")
    short = reproduction_page(write(tmp_path / "short.jsonl", record(PALS_CELL, epochs=50)), tmp_path / "page.md", 50)
    assert "`pals bench --table 1 --seeds 3 --epochs 50`" in short and "SHORTENED to 50 epochs" in short
