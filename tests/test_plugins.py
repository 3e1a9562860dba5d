"""Plug-ins: files, packages, and what happens when they are broken or share a name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import pals as library
from _plugins import ANSWERS, TRAIN, plugin_code, project_file, write_installed, write_package
from _refused import refused
from _toy import TINY, Answer
from pals.bench.work import Work, run_job
from pals.methods import METHODS, Method
from pals.methods.average import Average
from pals.runs.run_config import RunConfig
from pals.util.errors import InputError
from pals.util.plugins import forget_plugins, load_plugin, plugin_files
from pals.util.registry import PROGRAM, TABLES, PluginWarning, Registry

Command = Callable[..., Answer]
MINE = 'import pals\n\n\nclass Mine(pals.METHODS["average"]):\n    pass\n\n\n'


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    yield
    forget_plugins()
    monkeypatch.undo()  # the path, before packages are looked for again
    for table in TABLES:
        table.forget(PROGRAM)
        table.forget_entry_points()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder where packages are found."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    for table in TABLES:
        table.forget_entry_points()
    yield folder
    for path in folder.glob("*.py"):
        sys.modules.pop(path.stem, None)


def installed(site: Path, name: str = "pals-stripes") -> None:
    entries = tomllib.loads(project_file())["project"]["entry-points"]
    module = name.replace("-", "_")
    own = {
        group: {key: value.replace("pals_stripes", module) for key, value in those.items()} for group, those in entries.items()
    }
    write_installed(site, name, own, plugin_code(registers=False))


def plugin_file(folder: Path, text: str, name: str = "mine.py") -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def test_all_kinds_come_from_a_file_and_options_are_checked(pals: Command, tmp_path: Path) -> None:
    file = plugin_file(tmp_path, plugin_code(), "stripes.py")
    answer = pals("train", "stripes", *TRAIN, "--out", "run", "--plugin", file, code=0)
    assert "20 items to learn from" in answer.out
    (used,) = json.loads(Path("run/run.json").read_text())["plugins"]
    assert used["file"] == str(file) and len(used["sha256"]) == 64
    assert "Weight of the darker view." in pals("methods", "two-views", "--plugin", "stripes.py").out
    assert pals("evaluate", "run", "--plugin", file).code == 0
    Path("answers.txt").write_text(ANSWERS)
    assert library.read_votes("answers.txt", format="colons").num_answers == 2
    file = plugin_file(tmp_path, plugin_code(), "stripes.py")
    for option, message in (
        ("items=3", "Setting data.items = 3: Input should be greater than or equal to 4"),
        ("itmes=30", "Unknown setting 'data.itmes': did you mean 'data.items'?"),
        ("slice=2", "Setting data.slice is not an option of the data set stripes, but of benthic"),
    ):
        answer = pals("train", "stripes", "--set", f"data.{option}", "--plugin", file)
        assert answer.code == 2 and message in answer.err
    config = RunConfig.of({"data": {"name": "stripes", "items": 30}})
    assert config.to_dict()["data"]["items"] == 30 and RunConfig.of(config.to_dict()) == config


def test_a_run_names_the_file_that_it_was_made_with(pals: Command, tmp_path: Path) -> None:
    """And does not run it, although it is still there."""
    file = plugin_file(tmp_path, f'{MINE}pals.METHODS["mine"] = Mine\n')
    quick = (*TINY[:2], "--device", "cpu", "--epochs", "1")
    pals("train", "toy", "--method", "mine", *quick, "--out", "run", "--plugin", file, code=0)
    forget_plugins()
    answer = pals("evaluate", "run")
    assert answer.code == 2 and "Unknown method 'mine'" in answer.err
    assert f"This run was made with plug-ins that were not named now: add --plugin {file}" in answer.err
    assert plugin_files() == () and pals("evaluate", "run", "--plugin", file).code == 0


def test_files_that_are_forgotten_absent_or_share_a_name(pals: Command, tmp_path: Path) -> None:
    assert pals("methods", "two-views").err.endswith("Load your own with --plugin FILE.py.\n")
    answer = pals("methods", "--plugin", "no.py", code=2)
    assert "Cannot read the plug-in no.py: No such file or directory. Give a Python file." in answer.err
    for name in ("one.py", "two.py"):
        plugin_file(tmp_path, f'{MINE}pals.METHODS["mine"] = Mine\n', name)
    answer = pals("methods", "--plugin", "one.py", "--plugin", "two.py", code=2)
    assert (
        f"one from the plug-in {tmp_path / 'one.py'}, one from the plug-in {tmp_path / 'two.py'}. Rename one of them"
        in answer.err
    )
    assert pals("methods", "--plugin", "one.py", "--plugin", "./one.py").code == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [("x = 1\n", "The plug-in mine.py adds nothing. Write pals.METHODS["),
     ("x = 1\ny = z\n", "The plug-in mine.py cannot be loaded, line 2: NameError: name 'z' is not defined."),
     ("x = 1\nif\n", "The plug-in mine.py cannot be loaded, line 2: SyntaxError: invalid syntax"),
     ("import not_there\n", "line 1: ModuleNotFoundError: No module named 'not_there'."),
     ("import sys\nsys.exit(3)\n", "line 2: SystemExit: 3."),
     (f'{MINE}pals.METHODS["pals"] = Mine\n', "line 8: Two methods are called 'pals': one from PALS itself, one from the"),
     (f'{MINE}pals.METHODS["m"] = Mine\npals.METHODS["m"] = Mine\n', "line 9: Two methods are called 'm'"),
     ('import pals\npals.METHODS["m"] = 3\n', "line 2: The method 'm' is 3, not a subclass of pals.Method."),
     ('import pals\npals.READERS["m"] = 3\n', "The reader 'm' is 3, not a function read(source, columns)."),
     ('import pals\npals.NETWORKS["m"] = 3\n', "The network 'm' is 3, not a function build(input_shape, num_classes)."),
     ('import pals\npals.DATASETS["m"] = pals.Items\n', "neither load(data_dir=None) nor a subclass of pals.Loader.")],
)  # fmt: skip
def test_a_file_that_cannot_be_used_is_one_sentence(pals: Command, tmp_path: Path, text: str, message: str) -> None:
    plugin_file(tmp_path, text)
    answer = pals("methods", "--plugin", "mine.py")
    assert answer.code == 2 and message in answer.err and "Traceback" not in answer.err
    assert plugin_files() == ()
    assert "m" not in METHODS  # nothing of it is left


def test_options_of_data_sets_and_estimators_of_methods(tmp_path: Path) -> None:
    text = plugin_code().replace("        items: int", "        seed: int = 3\n        items: int")
    refused(r"data set 'stripes' has an option 'seed', which all data sets have", load_plugin, plugin_file(tmp_path, text))
    load_plugin(plugin_file(tmp_path, plugin_code(), "stripes.py"))
    assert issubclass(METHODS["two-views"], Method)
    assert library.estimator.TwoViewsClassifier().get_params()["darker_weight"] == 0.5


def test_a_worker_loads_the_files_of_its_work(tmp_path: Path) -> None:
    file = plugin_file(tmp_path, plugin_code(), "stripes.py")
    load_plugin(file)
    values = RunConfig.of(
        {"data": {"name": "stripes", "items": 10}, "method": {"name": "two-views"}, "train": {"epochs": 1}}
    ).to_dict()
    forget_plugins()  # as in a new process
    work = Work("one", "one", str(tmp_path / "runs" / "one"), str(tmp_path / "runs"), values)
    assert run_job(work).message.startswith("Unknown data set 'stripes'")
    done = run_job(Work("two", "two", str(tmp_path / "runs" / "two"), str(tmp_path / "runs"), values, plugins=(str(file),)))
    assert (done.kind, done.message) == ("done", "")


def test_an_installed_package_is_found(pals: Command, site: Path) -> None:
    """The quick twin of the test that really installs one."""
    installed(site)
    assert "two-views" in METHODS and "pals_stripes" in sys.modules
    assert pals("train", "stripes", *TRAIN, "--out", "run").code == 0
    assert "plugins" not in json.loads(Path("run/run.json").read_text())  # no file was named
    assert "two-views" in pals("methods").out
    assert {"stripes", "pixels", "colons"} <= {*library.DATASETS, *library.NETWORKS, *library.READERS}


def test_packages_are_not_looked_at_for_built_in_names(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: Any) -> None:
        raise AssertionError("looked for entry points")

    monkeypatch.setattr("pals.util.registry.entry_points", refuse)
    assert METHODS["pals"] is METHODS.find("pals")
    with pytest.raises(AssertionError, match="looked for"):
        METHODS.find("mine")


def test_a_broken_package_is_named_and_skipped(pals: Command, site: Path) -> None:
    write_installed(site, "bad-one", {"pals.methods": {"bad": "bad_one:Bad"}}, "import not_there\n")
    write_installed(site, "good-one", {"pals.methods": {"good": "good_one:Mine"}}, MINE)
    reason = (
        "The method 'bad' from the package bad-one 0.1 cannot be loaded (ModuleNotFoundError: No module named 'not_there')."
    )
    with pytest.warns(PluginWarning) as warned:
        names = list(METHODS)
    assert [str(warning.message) for warning in warned] == [f"Skipped: {reason} Update or uninstall that package."]
    assert "good" in names and "bad" not in names
    assert list(METHODS) == names  # said once
    answer = pals("train", "toy", "--method", "bad")
    assert answer.code == 2 and reason in answer.err and "Traceback" not in answer.err


@pytest.mark.filterwarnings("default::pals.util.registry.PluginWarning")
def test_the_command_line_says_it_in_a_line(pals: Command, site: Path) -> None:
    write_installed(site, "bad-one", {"pals.methods": {"bad": "bad_one:Bad"}}, "import not_there\n")
    answer = pals("methods", code=0)
    assert answer.err.startswith("Warning: Skipped: The method 'bad' from the package bad-one 0.1 cannot be loaded")
    assert answer.err.count("\n") == 1


def test_what_is_no_method_is_broken(site: Path) -> None:
    write_installed(site, "bad-one", {"pals.methods": {"bad": "bad_one:x"}}, "x = 3\n")
    refused(r"The method 'bad' is 3, not a subclass of pals\.Method", METHODS.find, "bad")


def test_two_packages_with_one_name_are_refused(site: Path) -> None:
    for name in ("one-pals", "two-pals"):
        write_installed(site, name, {"pals.methods": {"mine": f"{name.replace('-', '_')}:Mine"}}, MINE)
    refused("'mine': one from the package one-pals 0.1, one from the package two-pals 0.1", METHODS.find, "mine")
    refused(r"one from the package one-pals 0\.1, one from this program", METHODS.__setitem__, "mine", Average)


def test_a_package_cannot_take_a_built_in_name(site: Path) -> None:
    write_installed(site, "bad-one", {"pals.methods": {"pals": "bad_one:Mine"}}, MINE)
    built_in = METHODS["pals"]
    with pytest.warns(
        PluginWarning, match="Two methods are called 'pals': one from PALS itself, one from the package bad-one 0.1"
    ):
        names = list(METHODS)
    assert names.count("pals") == 1 and METHODS["pals"] is built_in
    assert "bad_one" not in sys.modules  # not even loaded


@pytest.mark.slow
def test_a_package_is_installed_and_its_method_trained(tmp_path: Path) -> None:
    """By pip and by the real command, in processes of their own."""
    project = write_package(tmp_path / "project")
    flags = ["--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "--quiet"]
    subprocess.run([sys.executable, "-m", "pip", "install", *flags, "--target", tmp_path / "site", project], check=True)
    paths = [str(tmp_path / "site"), str(Path(library.__file__).parents[1])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}

    def command(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "pals", *words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "20 items to learn from" in command("train", "stripes", *TRAIN, "--out", "run")
    assert (tmp_path / "run" / "summary.json").exists() and "two-views" in command("evaluate", "run")
    assert "darker_weight" in command("methods", "two-views")
    (tmp_path / "answers.txt").write_text(ANSWERS)
    code = "import pals; print(pals.read_votes('answers.txt', format='colons').annotators)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "('ann', 'bob')\n"


@pytest.mark.slow
def test_workers_in_processes_of_their_own_load_the_file(pals: Command, tmp_path: Path) -> None:
    file = plugin_file(tmp_path, plugin_code(), "stripes.py")
    data = "data: {name: stripes, items: 10}, network: {name: pixels}, train: {epochs: 1}, engine: {device: cpu}"
    Path("grid.yaml").write_text(
        f"base: {{{data}}}\nrows:\n  ours: {{method: {{name: two-views}}}}\ncolumns:\n  few: {{data: {{partial_rate: 0.1}}}}\n"
    )
    pals("bench", "--grid", "grid.yaml", "--seeds", "2", "--jobs", "2", "--out", "bench", "--plugin", file, code=0)
    assert len(list(Path("bench").rglob("summary.json"))) == 2
    assert "ours" in pals("table", "--grid", "grid.yaml", "--runs", "bench", "--plugin", file).out


def test_a_table_is_a_mapping() -> None:
    table: Registry[int] = Registry("number", "pals.no-such-group", {"one": 1})
    try:
        table["two"] = 2
        assert dict(table) == {"one": 1, "two": 2}
        assert (len(table), table.get("three"), "two" in table, 2 in table) == (2, None, True, False)
        table["two"] = 22  # a cell of a notebook, run again
        assert table.find("two") == 22
        del table["two"]
        assert list(table) == ["one"]
        with pytest.raises(InputError, match="Two numbers are called 'one': one from PALS itself, one from this program"):
            table["one"] = 11
        with pytest.raises(KeyError):
            del table["one"]
        refused("Unknown number 'ones': did you mean 'one'", table.find, "ones")
    finally:
        TABLES.remove(table)
