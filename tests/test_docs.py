"""The documentation agrees with the code: examples run, links lead somewhere, tables match the settings."""

from __future__ import annotations

import html
import re
import runpy
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from PIL import Image

from _shards import write_samples
from pals import fit
from pals.cli import app
from pals.data.example import example
from pals.labels.candidates import Truth
from pals.labels.noise import make_candidates
from pals.methods import METHODS, method_options
from pals.model import Description, Model, Part
from pals.runs.published_settings import published_settings
from pals.runs.run_config import DataConfig, NetworkConfig, RunConfig, VotesConfig
from pals.training.engine import EngineConfig
from pals.training.optim import TrainConfig
from pals.util.config import to_dict
from pals.util.plugins import forget_plugins
from pals.util.registry import PROGRAM, TABLES
from pals.vision.networks import build_network

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NOT_RUN = "<!-- not run -->"
AFTER_A_FIT = "<!-- run after a fit -->"  # in a folder with a run of the example, and what the reader has
NEED_A_RUN = ("docs/predict.md", "docs/api.md")  # examples that begin with a run of `pals fit`
IN_ORDER = ("README.md", *(f"docs/{name}.md" for name in ("practitioner", "researcher", "howto")))  # one builds on the other
SAVED = re.compile(r"[Ss]ave this as `([\w.-]+)`:\n\n```\w+\n(.*?)^```", flags=re.M | re.S)
BLOCK = re.compile(rf"(?P<skip>{re.escape(NOT_RUN)}\n+)?^```(?P<language>\w*)\n(?P<code>.*?)^```", flags=re.M | re.S)


def code_of(page: Path, language: str) -> str:
    """All code of this language with everything else made blank, so that line numbers are those of the page."""
    lines: list[str] = []
    inside: str | None = None  # the language of the block that we are in
    last = ""  # the last line of text that was not blank
    for line in page.read_text(encoding="utf-8").splitlines():
        fence = re.match(r" *```(\w*)", line)
        lines.append(line if inside == language and not fence else "")
        if fence:
            inside = None if inside is not None else "" if last in (NOT_RUN, AFTER_A_FIT) else fence[1]
        last = line.strip() or last
    return "\n".join(lines) + "\n"


def table_rows(page: Path, first: str) -> Iterator[dict[str, str]]:
    """The rows of every table whose first column is headed so; without the backquotes."""
    heading: list[str] = []
    for line in page.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip().strip("`") for cell in line.strip()[1:-1].split("|")]
        if not line.startswith("|"):
            heading = []
        elif not heading:
            heading = cells
        elif heading[0] == first and not line.startswith("|---"):
            yield dict(zip(heading, cells, strict=True))


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.fixture(autouse=True)
def _leave_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Examples write to `runs/` and may add methods."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PALS_CACHE", str(tmp_path / "cache"))
    yield
    for table in TABLES:
        table.forget(PROGRAM)
    forget_plugins()


def write_model(path: Path) -> None:
    """All of a finished run of `pals fit` that the examples read: a classifier."""
    reads = Part("small-cnn", (3, 32, 32), mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))
    about = Description(("frog", "newt", "toad"), reads, temperature=0.8)
    Model(about, build_network("small-cnn", (3, 32, 32), 3), device="cpu").save(path)


def test_blocks_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        f"a\n```python\nx = 1\n```\n```bash\npals x\n```\n\n{NOT_RUN}\n\n```python\nx = 2\n```\n```python\nx = 3\n```\n"
    )
    assert [line for line in code_of(page, "python").splitlines() if line] == ["x = 1", "x = 3"]
    assert code_of(page, "python").splitlines()[2] == "x = 1" and code_of(page, "bash").split() == ["pals", "x"]


WITH_PYTHON = [page for page in PAGES if name_of(page) not in IN_ORDER and code_of(page, "python").strip()]
AT_LEISURE = ("estimator.md", "none-of-these.md")
"""Pages whose examples fit several times."""


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=pytest.mark.slow) if page.name in AT_LEISURE else page for page in WITH_PYTHON],
    ids=[name_of(page) for page in WITH_PYTHON],
)
def test_python_examples_run(page: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if name_of(page) in NEED_A_RUN:
        write_model(tmp_path / "run" / "model.safetensors")
    script = tmp_path / "example.py"
    script.write_text(code_of(page, "python"), encoding="utf-8")
    runpy.run_path(str(script))
    text, printed = page.read_text(encoding="utf-8"), capsys.readouterr().out
    assert "\nIt prints\n" not in text or f"\nIt prints\n\n```\n{printed}```\n" in text


def at_leisure(page: Path) -> Any:
    """The pages of methods train something each; they are slow, all in all."""
    return pytest.param(page, marks=pytest.mark.slow) if page.parent.name == "methods" else page


WITH_COMMANDS = [page for page in PAGES if name_of(page) not in IN_ORDER and re.search("^pals ", code_of(page, "bash"), re.M)]


@pytest.mark.parametrize("page", [at_leisure(page) for page in WITH_COMMANDS], ids=[name_of(page) for page in WITH_COMMANDS])
def test_commands_run(page: Path, tmp_path: Path) -> None:
    if name_of(page) in NEED_A_RUN:
        write_model(tmp_path / "run" / "model.safetensors")
        (tmp_path / "shards").mkdir()
        for number in range(4):
            write_samples(tmp_path / "shards" / f"photos-{number:03}.tar", range(3 * number, 3 * number + 3))
    for line in code_of(page, "bash").splitlines():
        if line.startswith("pals "):
            assert not app(shlex.split(line)[1:], standalone_mode=False), line


def bring_example(folder: Path) -> None:
    """What the pages call the reader's own: the photographs that come along, ten of them as new ones, an expert's answers."""
    shutil.copytree(example().images, folder / "photos")
    shutil.copy(example().answers, folder / "answers.csv")
    shutil.copy(example().truth, folder / "truth.csv")
    shutil.copytree(example().images, folder / "images")
    shutil.copy(example().answers, folder / "votes.csv")
    pictures = sorted((folder / "photos").glob("*.jpg"))
    (folder / "new-photos").mkdir()
    for path in pictures[:10]:
        shutil.copy(path, folder / "new-photos")
    pixels_NHW = np.stack([np.asarray(Image.open(path).convert("L")) for path in pictures])
    np.save(folder / "vectors.npy", pixels_NHW.reshape(len(pictures), -1).astype(np.float32))
    (folder / "names.txt").write_text("\n".join(path.name for path in pictures), encoding="utf-8")
    by_expert = "".join(f"{path.name},fay,street\n" for path in pictures[:5])
    (folder / "more-answers.csv").write_text(f"image,annotator,label\n{by_expert}", encoding="utf-8")


def fill_in(queue: Path) -> None:
    """What a person does with a spreadsheet of `pals relabel`: three labels, as suggested."""
    rows = pd.read_csv(queue, dtype=str, keep_default_na=False)
    rows.loc[:2, "label"], rows.loc[:2, "annotator"] = rows["suggestion"][:3], "eve"
    rows.to_csv(queue, index=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", IN_ORDER)
def test_pages_run_from_top_to_bottom(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bring_example(tmp_path)
    text, names, printed = (ROOT / name).read_text(encoding="utf-8"), {"__name__": "page"}, ""
    for file, content in SAVED.findall(text):
        (tmp_path / file).write_text(content, encoding="utf-8")
    for block in BLOCK.finditer(text):
        if block["skip"]:
            continue
        if block["language"] == "python":
            capsys.readouterr()
            exec(block["code"], names)
            printed += capsys.readouterr().out
        for line in block["code"].splitlines() if block["language"] == "bash" else ():
            if line.startswith("pals ") and not line.startswith("pals review "):  # a server
                assert not app(shlex.split(line)[1:], standalone_mode=False), line
    assert "\nIt prints\n" not in text or f"\nIt prints\n\n```\n{printed}```\n" in text


USES_A_FIT = [page for page in PAGES if AFTER_A_FIT in page.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`runs/ponds`, of the example."""
    folder = tmp_path_factory.mktemp("fitted")
    bring_example(folder)
    settings = {"data": {"mirror": False}, "engine": {"device": "cpu"}}
    fit(folder / "photos", folder / "answers.csv", out=folder / "runs" / "ponds", encoder="patches", settings=settings)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("page", USES_A_FIT, ids=name_of)
def test_commands_run_after_a_fit(page: Path, fitted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(shutil.copytree(fitted, tmp_path / "fitted"))
    monkeypatch.chdir(folder)
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(rf"{re.escape(AFTER_A_FIT)}\n```bash\n(.*?)```", text, flags=re.S)
    assert len(blocks) == text.splitlines().count(AFTER_A_FIT)
    for line in "".join(blocks).splitlines():
        if line.startswith("pals update"):
            fill_in(folder / "queue.csv")
        assert not app(shlex.split(line)[1:], standalone_mode=False), line


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_files(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    broken = [link for link in links if "://" not in link and not (page.parent / link.partition("#")[0]).exists()]
    assert not broken


def page_of(method: str) -> Path:
    """Its own, with + spelled out, or (alim-scale) the one of its family (alim)."""
    folder = ROOT / "docs" / "methods"
    own = folder / f"{method.replace('+', '_plus')}.md"
    return own if own.exists() else folder / f"{method.partition('-')[0]}.md"


PARTS = {
    "equations": r"\$[^$\n]+=[^$\n]+\$", "differences from paper and code": r"^## .*(\bwe\b|differ)",
    "when to use it": r"^## When to use it\n\n\w", "measured numbers": r"^## Measured here\n\n\S",
}  # fmt: skip
MEASURED = re.compile(r"^- ([^[]+)\(\[results\]\((\S+)\)\)$", flags=re.M)  # bold numbers, and their file


@pytest.mark.parametrize("name", METHODS)
def test_method_pages_have_all_parts(name: str) -> None:
    text = page_of(name).read_text(encoding="utf-8")
    assert [part for part, pattern in PARTS.items() if not re.search(pattern, text, flags=re.M)] == []


@pytest.mark.parametrize("name", METHODS)
def test_method_pages_have_the_numbers_of_the_files_they_name(name: str) -> None:
    page = page_of(name)
    _, _, text = page.read_text(encoding="utf-8").partition("\n## Measured here\n")
    measured = MEASURED.findall(text.partition("\n## ")[0])
    assert measured
    for text, file in measured:
        numbers, known = re.findall(r"\*\*(.+?)\*\*", text), (page.parent / file).read_text(encoding="utf-8")
        assert numbers and [number for number in numbers if number not in known] == []


@pytest.fixture(scope="module")
def made() -> Any:
    """The script that makes them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "docs" / "_site"))
        return SimpleNamespace(**runpy.run_path(str(ROOT / "docs" / "_site" / "tables.py")))


def rows_of(table: str) -> list[dict[str, str]]:
    head, _, *rows = [[html.unescape(cell.strip().strip("`")) for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    return [dict(zip(head, row, strict=True)) for row in rows]


def value_of(text: str) -> Any:
    """As `--set` reads it, for which 1e-05 is a number."""
    value = yaml.safe_load(text)
    return float(value) if isinstance(value, str) and re.fullmatch(r"[\d.]+e-\d+", value) else value


@pytest.mark.parametrize("name", METHODS)
def test_method_pages_ask_for_the_tables_of_the_method(name: str, made: Any) -> None:
    text, main = page_of(name).read_text(encoding="utf-8"), {"alim-onehot": "alim-scale"}.get(name, name)
    assert bool(fields(METHODS[name].Config)) == (f"<!-- table: options {main} -->" in text)
    special = any(main in methods for methods in published_settings()["methods"].values())
    assert special == (f"<!-- table: settings {main} -->" in text)
    assert (ROOT / "docs" / "methods" / made.page_of(name)) == page_of(name)


@pytest.mark.parametrize("name", [name for name in METHODS if fields(METHODS[name].Config)])
def test_options_have_their_values_and_texts(name: str, made: Any) -> None:
    rows = rows_of(made.options(name))
    assert [row["option"] for row in rows] == [field.name for field in fields(METHODS[name].Config)]
    for column, preset in {preset: preset for preset in METHODS[name].PRESETS}.items() or [("default", "")]:
        options = method_options(name, {"preset": preset} if preset else {})
        assert [value_of(row[column]) for row in rows] == [getattr(options, field.name) for field in fields(options)]
    assert all(row["meaning"] for row in rows)


def test_tables_are_what_a_run_gets(made: Any) -> None:
    (row,) = [row for row in rows_of(made.options("proden")) if row["option"] == "update"]
    assert all(f"`{word}`" in row["meaning"] for word in ("progressive", "sudden", "iterative", "naive"))
    for name in ("proden", "irnet", "srse"):
        for row in rows_of(made.settings(name)):
            section, _, key = row.pop("setting").partition(".")
            for column, value in row.items():
                for data in re.findall(r"\w+", column):
                    config = RunConfig.of({"data": {"name": data}, "method": {"name": name}}).to_dict()
                    assert config[section][key] == value_of(value), (name, data, key)
    rows = rows_of(made.section("data", "network", "train", "engine"))
    parts = {"data": DataConfig(), "network": NetworkConfig(), "train": TrainConfig(), "engine": EngineConfig()}
    expected = {f"{name}.{key}": value for name, part in parts.items() for key, value in to_dict(part).items()}
    assert {row["key"]: value_of(row["default"]) for row in rows} == expected
    fit = {row["key"]: value_of(row["default"]) for row in rows_of(made.section("fit"))}
    assert fit == {
        f"data.{key}": value or None if key == "votes" else value for key, value in to_dict(VotesConfig(votes=())).items()
    }
    rows = rows_of(made.recipes())
    for name, recipe in published_settings()["data_sets"].items():
        actual = {f"{section}.{key}": value for section, values in recipe.items() for key, value in values.items()}
        assert {row["recipe"]: value_of(row[name]) for row in rows if row[name]} == actual


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_tables_that_pages_ask_for_are_made(page: Path, made: Any) -> None:
    assert "<!-- table:" not in made.tables(page.read_text(encoding="utf-8"))


def test_noise_page_shows_the_expected_rates() -> None:
    columns = [(10, 0.1), (10, 0.3), (10, 0.5), (100, 0.01), (100, 0.03), (100, 0.05), (5, 0.5)]
    rows = list(table_rows(ROOT / "docs" / "noise.md", "protocol"))
    assert len(rows) == 8
    for row in rows:
        protocol, rate, *shown = row.values()
        for (classes, q), value in zip(columns, shown, strict=True):
            truth = Truth.of(torch.arange(classes))
            noise = make_candidates(
                truth, partial_rate=q, noise_rate=float(rate), protocol=protocol, generator=torch.Generator().manual_seed(0)
            )
            assert f"{noise.expected_rate:.3f}".lstrip("0") == value
