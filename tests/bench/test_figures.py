"""Pictures: written as asked, the same each time, names where they can be read, what is shown is what there is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from _bench import entry, table, timed
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import imread

from _slow import rest_slow
from pals.bench.paper.experiments import experiments
from pals.bench.report.plots import Curve, Marks, bars, heat_map, save, selected
from pals.bench.report.result_table import ResultTable
from pals.bench.report.run_curves import paper_points
from pals.bench.report.speed_plots import speed_figure
from pals.util.config import merge
from pals.util.errors import InputError

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


GRID = table(
    entry("A", "Set, q=1", 90.0, paper=(91.0, 0.5), mark="worse"),
    entry("A", "Set, q=2", paper=(80.0, 0.5)),
    entry("B", "Set, q=1", 70.2, paper=(70.0, 0.5), mark="within"),
    title="A title that is much longer than the picture of a small table is wide, so that it must go on in a second line of it",
)
ABLATION = table(
    entry("K = 1", "Set, q=1", 70.0, 0.5, paper=(71.0, None), mark="worse", group="K"),
    entry("K = 2", "Set, q=1", paper=(72.0, None), group="K"),
    entry("Long-ResNet-34x10", "Set, q=1", paper=(73.0, None), group="Net"),
)


def study(points: Sequence[tuple[str, float, float]], std: float | None = 0.1) -> ResultTable:
    """Of runs with an accuracy and seconds of 30 epochs."""
    rows = [entry(name, "Set, q=1", mean, std, **timed(s / 30, s, s / 30, 2.0)) for name, mean, s in points]
    return table(*rows, study_epochs=30)


CURVE = Curve("run", [1, 2, 3], [10, 20, 30], [5, 15, 29], [50.0, 60.0, 70.25])


def words(figure: Figure) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts]


@pytest.mark.parametrize(
    ("ending", "start"), rest_slow(2, [(".svg", b"<?xml"), (".PNG", b"\x89PNG"), (".png", b"\x89PNG"), (".pdf", b"%PDF")])
)
def test_the_ending_decides_and_the_file_is_the_same_each_time(tmp_path: Path, ending: str, start: bytes) -> None:
    first, second = tmp_path / f"a{ending}", tmp_path / f"b{ending}"
    save(heat_map(GRID), first)
    save(heat_map(GRID), second)
    assert first.read_bytes().startswith(start) and first.read_bytes() == second.read_bytes()


def test_the_heat_map_shows_differences_and_what_was_not_run(tmp_path: Path) -> None:
    figure = heat_map(GRID)
    assert words(figure) == ["−1.00", "90.00", "80.00", "+0.20 ≈", "70.20"]
    suptitle = figure.get_suptitle()
    assert "\n" in suptitle
    save(figure, tmp_path / "a.png")
    assert imread(tmp_path / "a.png").shape[1] >= 900
    with pytest.raises(InputError, match=r"\.png, \.svg, \.pdf"):
        save(figure, tmp_path / "a.gif")
    with pytest.raises(InputError, match="no published numbers"):
        heat_map(study([("A", 1.0, 1.0)]))
    with pytest.raises(InputError, match="seconds, which depend on the machine"):
        heat_map(replace(GRID, quantity="seconds"))


def test_bars_show_ours_and_the_papers() -> None:
    figure = bars(ABLATION)
    shown = words(figure)
    assert {"70.00", "71.00", "72.00", "73.00", "not run"} <= set(shown)
    assert shown.count("not run") == 1  # a panel without any run has no gaps to explain
    assert "the axis starts at 65" in figure.get_suptitle()
    labels = [label.get_text() for label in figure.axes[1].get_xticklabels()]
    assert labels == ["Long-ResNet-34x10"] and [axes.get_title() for axes in bars(ABLATION, "k").axes] == ["K"]
    with pytest.raises(InputError, match="K, Net"):
        bars(ABLATION, "J")


def test_the_legend_names_the_dots_the_best_first() -> None:
    """With as many methods as our largest study has; no two have one marker and colour."""
    many = [(f"Method-{k:02}", 90 - 0.05 * k, 60 + 1.5 * k) for k in range(16)] + [("PALS", 90.07, 65.0)]
    axes = speed_figure(study(many, None)).axes[0]
    legend = axes.get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["PALS", *(name for name, _, _ in many[:-1])]  # type: ignore[union-attr]
    looks = {(dots.get_paths()[0].vertices.tobytes(), dots.get_facecolor().tobytes()) for dots in axes.collections}  # type: ignore[union-attr]
    assert len(looks) == len(many)


def test_speed_has_logarithmic_time_and_names_what_is_not_shown() -> None:
    points, _ = speed_figure(study([("A", 90.0, 40.0), ("B", 91.0, 4000.0)], None)).axes
    assert points.get_xscale() == "log" and {"1 min", "1 h"} <= {label.get_text() for label in points.get_xticklabels()}
    with pytest.raises(InputError, match="no runs with times: none is finished, or each shared its device"):
        speed_figure(table(entry("A", "Set, q=1", 90.0)))
    rows = {"far": (3.0, 9.0), "inside": (1.5, 1.0), "none": (1.0, None)}  # seconds, and as counted
    whole = table(*[entry(name, "Set, q=1", 90.0, **timed(s, 30 * s, s, count)) for name, (s, count) in rows.items()])
    axes = speed_figure(whole).axes[1]
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == ["far  3.00 s  (3.0×)", "inside  1.50 s  (1.5×)", "none  1.00 s  (1.0×)"]  # the quickest on top
    assert [bar.get_width() for bar in axes.patches] == [3.0, 1.5, 1.0]  # type: ignore[attr-defined]
    assert [set(line.get_xdata()) for line in axes.lines] == [{9.0}, {1.0}]  # type: ignore[arg-type]
    assert "not shown" not in speed_figure(study([("PALS", 90.0, 45.0), ("B", 80.0, 30.0)])).get_suptitle()
    shared = table(entry("PALS", "Set, q=1", 90.0), entry("B", "Set, q=1", 80.0, **timed(1.0, 30.0)))
    assert "not shown, since they shared their device: PALS" in speed_figure(shared).get_suptitle()


def test_the_papers_points_lie_at_the_first_and_the_last_epoch() -> None:
    figure = selected([CURVE], Marks({1: (11, 6), -1: (31, 28)}), "T")
    pairs, accuracy = figure.axes
    marked = {(float(line.get_xdata()[0]), float(line.get_ydata()[0])) for line in pairs.lines if len(line.get_xdata()) == 1}  # type: ignore[arg-type,index]
    assert marked == {(1, 11), (1, 6), (3, 31), (3, 28)}
    assert [text.get_text() for text in accuracy.get_legend().get_texts()] == ["last epoch 70.25"]  # type: ignore[union-attr]
    assert len(selected([replace(CURVE, accuracy=[])]).axes) == 1
    assert len(selected([CURVE, replace(CURVE, name="other")]).axes[0].lines) == 4 and len(accuracy.lines) == 1
    FigureCanvasAgg(figure).draw()
    assert all(tick == int(tick) for axes in figure.axes for tick in axes.get_xticks())  # epochs are whole numbers


@pytest.mark.parametrize(
    ("published", "said"),
    [((77.867, 0.29), "paper 77.87 ± 0.29"), ((30.0, None), "paper 30.00"), ((96.0, 0.1), "paper 96.00 ± 0.10")],
)
def test_the_papers_accuracy_is_a_line_with_its_number(published: tuple[float, float | None], said: str) -> None:
    figure = selected([CURVE], Marks(accuracy=published))
    pairs, accuracy = figure.axes
    assert words(figure) == [said]
    assert len(pairs.lines) == 2  # nothing is known of pairs
    (line,) = [line for line in accuracy.lines if line.get_linestyle() == "--"]
    assert set(line.get_ydata()) == {published[0]}  # type: ignore[arg-type]
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw_without_rendering()
    box, height = accuracy.texts[0].get_window_extent(renderer), accuracy.transData.transform((1, published[0]))[1]
    assert height < box.y0 and box.y1 <= accuracy.bbox.y1
    assert words(selected([replace(CURVE, accuracy=[])], Marks(accuracy=published))) == []


def test_what_the_paper_has_for_a_kept_table_is_found_by_its_record(tmp_path: Path) -> None:
    hundred, ten = (RESULTS / f"{name}_h200_2026-11-15.csv" for name in ("cifar100_q0.05_eta0.3", "cifar10_q0.5_eta0.3"))
    figure2 = {1: (7211, 4036), -1: (45285, 40330)}
    for wanted in (True, None):
        assert paper_points([hundred], wanted) == Marks(figure2, (77.87, 0.29))
        assert paper_points([ten], wanted) == Marks({}, (94.18, 0.10))
    assert paper_points([hundred], False) is None and paper_points([hundred, ten], None) == Marks()
    with pytest.raises(InputError, match="or different ones"):
        paper_points([hundred, ten], True)
    stranger = tmp_path / ten.name  # no record beside it
    stranger.write_bytes(ten.read_bytes())
    assert paper_points([stranger], None) == Marks() and paper_points([stranger], True) == Marks(figure2)
    assert paper_points([ten, stranger], True) == Marks({}, (94.18, 0.10))


def test_what_the_paper_has_for_a_run_is_found_by_its_settings(tmp_path: Path) -> None:
    def run(name: str, **changes: object) -> Path:
        folder = tmp_path / name.replace("/", "-") / "-".join(changes)
        folder.mkdir(parents=True)
        values = merge(experiments()[name].config(2).to_dict(), {"method": changes, "train": {"checkpoint_every": 20}})
        (folder / "config.yaml").write_text(json.dumps(values), encoding="utf-8")  # YAML too
        return folder

    hundred = "table1/cifar100-q0.05-eta0.3/pals"
    first = run(hundred)
    found = paper_points([first], None)
    assert found is not None and len(found.pairs) == 2
    assert found.accuracy == (77.87, 0.29)  # of table 1, not of table 7, which has the same run
    ablation = run("table7/cifar100-q0.05-eta0.3/K-25")
    assert paper_points([ablation], None) == Marks({}, (78.29, None))
    assert paper_points([run(hundred, neighbors=26)], None) == Marks()
    assert paper_points([first, ablation], None) == Marks()
