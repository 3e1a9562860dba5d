"""The layers of the code, read from its imports: data flows downward, a package imports itself and those above it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "pals"

LAYERS: tuple[tuple[str, ...], ...] = (
    ("util",),
    ("labels", "vision"),
    ("readers", "pseudo_labels"),
    ("crowd", "data", "methods"),
    ("training",),
    ("model", "runs"),
    ("pipeline", "relabel", "report", "review", "label_formats", "bench", "estimator"),
    ("cli",),
    ("__main__",),
)
"""A package imports itself and those of earlier lines: never one of a later line, and none beside it but these:"""
BESIDE = {
    "runs": ("model",),  # a run saves its classifier
    "relabel": ("pipeline",),  # made from a finished run
    "label_formats": ("pipeline", "relabel"),  # made from a finished run; Label Studio tasks are those of the queue
    "report": ("pipeline",),  # its content is built from findings
    "review": ("pipeline", "relabel", "report"),  # shows a finished run, its queue, and the style sheet of the report
}
LAYER = {name: number for number, names in enumerate(LAYERS) for name in names}
EXCEPTIONS: dict[str, tuple[str, ...]] = {  # imports against the table, to be removed: file -> modules
    "pipeline/write_results.py": ("report.data", "report.render"),  # a fit writes its report: the caller of both should
    "pipeline/reviewed_answers.py": (
        "review.answer_log",
        "review.answers_csv",
        "review.store",
    ),  # of review
    "pipeline/new_round.py": ("review.answer_log", "review.old_rounds", "review.store"),  # as above
}
_PAGE = ("charts", "format", "heatmap", "render", "sections", "taxonomy_section")
ALONE = {  # folders and files with a narrower rule than their package: all that they may import
    **{  # the page is made from report.json, not from the code that wrote it
        f"report/{name}.py": ("util", *(f"report.{other}" for other in _PAGE))
        for name in _PAGE
    },
    "methods/parts": ("util", "labels", "vision", "pseudo_labels", "methods.method", "methods.parts"),  # no base class
    "methods/bases": (
        "util", "labels", "vision", "pseudo_labels", "methods.method", "methods.epoch_plan", "methods.parts", "methods.bases"),
    "readers/formats": ("util", "readers.formats", *(f"readers.{name}" for name in (
        "column_types", "columns", "graded_columns", "json_values", "source", "read_summary", "reader_table", "unsure_answers",
        "votes"))),
    **{
        f"bench/report/{name}.py": ("util", *(f"bench.report.{name}" for name in ("plots", "table_text", "result_table")))
        for name in ("result_table", "table_text", "plots", "speed_plots")  # a table in hand
    },
}  # fmt: skip
UNKNOWN_TO_METHODS = ("data", "labels.metrics", "labels.noise", "util.files")
NAMES_DEVICES = {"training/engine.py", "training/cuda_graph.py", "cli/diagnosis.py"}
READS_TRUTH = {"labels"}
SPEAKS = {"cli", "util/display.py"}  # may print
FRONT_DOOR = 22  # names right under pals, at most

FILES = sorted(ROOT.rglob("*.py"))
TREES = {path: ast.parse(path.read_text(encoding="utf-8"), str(path)) for path in FILES}


def where(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def part(path: Path) -> str:
    """The package right under pals to which a file belongs; empty for pals itself."""
    first = path.relative_to(ROOT).parts[0]
    return "" if first == "__init__.py" else first.removesuffix(".py")


def lies_in(place: str, places: set[str] | dict[str, tuple[str, ...]]) -> str | None:
    """Which of these files and folders a file is, or lies in."""
    return next((one for one in places if place == one or place.startswith(f"{one}/")), None)


def imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, module below pals) of every import, inside functions too. Names are followed by one step more than modules:
    `from pals.labels import metrics` is about `labels.metrics`, and `from pals.runs import Run` about `runs.Run`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: write imports in full"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            head, _, rest = name.partition(".")
            if head == "pals" and rest and rest != "__version__":
                yield node.lineno, rest


def at_run_time(tree: ast.AST) -> ast.Module:
    """Without the blocks that only a type checker reads."""
    assert isinstance(tree, ast.Module)
    body = [node for node in tree.body if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")]
    return ast.Module(body, [])


def within(module: str, modules: tuple[str, ...]) -> bool:
    return any(module == one or module.startswith(f"{one}.") for one in modules)


def may_import(importer: str, target: str) -> bool:
    """`importer` is a file below pals, `target` a module or a name in one."""
    package, other = importer.partition("/")[0].removesuffix(".py"), target.partition(".")[0]
    if package == "__init__":
        return False  # pals/__init__.py is imported by everyone; what it offers it loads when asked
    narrow = lies_in(importer, ALONE)
    if narrow is not None and not within(target, ALONE[narrow]):
        return False
    return other in LAYER and (package == other or LAYER[other] < LAYER[package] or other in BESIDE.get(package, ()))


def forbidden_imports(importer: str, tree: ast.AST) -> list[str]:
    if importer == "__init__.py":
        tree = at_run_time(tree)
    allowed = EXCEPTIONS.get(importer, ())
    return [
        f"line {line}: {importer} imports {target}"
        for line, target in imported(tree)
        if not may_import(importer, target) and not within(target, allowed)
    ]


def test_every_package_has_its_layer_and_importing_is_cheap() -> None:
    """A new package must be put into the table above, and one that is gone must be taken out."""
    assert {part(path) for path in FILES} - {""} == set(LAYER) and len(LAYER) == sum(map(len, LAYERS))
    assert all(LAYER[package] == LAYER[other] for package, others in BESIDE.items() for other in others)
    assert all((ROOT / place).exists() for place in (*ALONE, *NAMES_DEVICES, *READS_TRUTH, *SPEAKS))
    heavy = ("torch", "numpy", "pandas", "pydantic", "pals.util")
    code = f"import sys, pals; dir(pals); print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout == "[]\n"


@pytest.mark.parametrize("importer", EXCEPTIONS)
def test_every_exception_is_needed(importer: str) -> None:
    """One that is not must leave the list."""
    targets = [target for _, target in imported(TREES[ROOT / importer]) if not may_import(importer, target)]
    assert [one for one in EXCEPTIONS[importer] if not any(within(target, (one,)) for target in targets)] == []


def test_file_names_are_unique_and_the_front_door_narrow() -> None:
    names = [path.name for path in FILES if path.name not in ("__init__.py", "__main__.py")]
    assert sorted(names) == sorted(set(names))
    names = [path.name for path in Path(__file__).parent.rglob("*.py") if path.name != "conftest.py"]
    assert sorted(names) == sorted(set(names))
    names = {path.name for path in ROOT.iterdir() if path.is_file() or any(path.rglob("*.py"))}
    assert len(names - {"__pycache__", "__init__.pyi"}) <= FRONT_DOOR


@pytest.mark.parametrize("path", FILES, ids=where)
def test_imports_go_upward_only(path: Path) -> None:
    assert forbidden_imports(where(path), TREES[path]) == []


@pytest.mark.parametrize("path", sorted(ROOT.rglob("__init__.py")), ids=where)
def test_every_package_says_what_lives_there(path: Path) -> None:
    """And what may not: in about three lines."""
    text = ast.get_docstring(TREES[path]) or ""
    assert path.parent == ROOT or len(text.splitlines()) >= 3


def inside(node: ast.AST, names: type[ast.AST] | tuple[type[ast.AST], ...]) -> Iterator[ast.AST]:
    return (child for child in ast.walk(node) if isinstance(child, names))


def device_names(tree: ast.AST) -> list[int]:
    """Lines on which code (not a help text) names a kind of device: torch.cuda, .cuda(), is_cuda, "cuda", "cuda:0"."""
    lines = []
    for node in ast.walk(tree):
        name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
        if re.search(r"(^|_)(cuda|mps)($|_)", name) or re.fullmatch(r"(cuda|mps)(:\d+)?", text):
            lines.append(node.lineno)  # type: ignore[attr-defined]
    return lines


@pytest.mark.parametrize("path", [path for path in FILES if not lies_in(where(path), NAMES_DEVICES)], ids=where)
def test_only_the_engine_knows_kinds_of_devices(path: Path) -> None:
    assert device_names(TREES[path]) == []


def truth_readers(tree: ast.AST) -> list[int]:
    """Lines that read a truth: `truth.label_N`, `self.truth.label_N`, `dataset.test_truth.label_N`, Truth(...).label_N."""
    lines = []
    for node in inside(tree, ast.Attribute):
        if node.attr == "label_N":  # type: ignore[attr-defined]
            owner = ast.unparse(node.value)  # type: ignore[attr-defined]
            if "truth" in owner.lower():
                lines.append(node.lineno)  # type: ignore[attr-defined]
    return lines


@pytest.mark.parametrize("path", [path for path in FILES if not lies_in(where(path), READS_TRUTH)], ids=where)
def test_only_grading_and_noise_look_at_the_truth(path: Path) -> None:
    assert truth_readers(TREES[path]) == []


@pytest.mark.parametrize("path", [path for path in FILES if part(path) == "methods"], ids=where)
def test_methods_do_not_even_know_the_word(path: Path) -> None:
    """Neither the truth nor the data sets, nor how files are read."""
    names = {ast.unparse(node) for node in inside(TREES[path], (ast.Name, ast.Attribute))}
    names |= {alias.name for node in inside(TREES[path], (ast.Import, ast.ImportFrom)) for alias in node.names}  # type: ignore[attr-defined]
    assert not [name for name in names if re.search(r"\btruth|Truth|test_|open$|read_text|DATASETS", name)]
    assert not [target for _, target in imported(TREES[path]) if within(target, UNKNOWN_TO_METHODS)]


def bad_habits(tree: ast.AST, speaks: bool) -> list[str]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
            found.append(f"line {node.lineno}: star import")
        if isinstance(node, ast.ExceptHandler) and node.type is None:
            found.append(f"line {node.lineno}: bare except")
        if isinstance(node, ast.Call) and not speaks:
            called = ast.unparse(node.func)
            if called == "print" or called.endswith((".print", "stdout.write", "stderr.write", ".echo")):
                found.append(f"line {node.lineno}: {called}")
    return found


@pytest.mark.parametrize("path", FILES, ids=where)
def test_no_bad_habits(path: Path) -> None:
    assert bad_habits(TREES[path], lies_in(where(path), SPEAKS) is not None) == []
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400


@pytest.mark.parametrize("path", [path for path in FILES if path.name not in ("__main__.py",)], ids=where)
def test_every_file_says_what_it_is(path: Path) -> None:
    assert ast.get_docstring(TREES[path])
    futures = [node for node in TREES[path].body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    has_code = any(not isinstance(node, ast.Expr) for node in TREES[path].body)
    assert futures or not has_code


@pytest.mark.parametrize(
    ("importer", "code", "bad"),
    [("labels/noise.py", "from pals.training.trainer import Trainer", True),
     ("labels/noise.py", "def f():\n    import pals.training.engine", True),
     ("labels/noise.py", "from pals.labels.candidates import Truth", False),
     ("labels/noise.py", "from pals.brand_new import x", True),
     ("labels/noise.py", "from pals import brand_new", True),
     ("training/trainer.py", "from pals import labels, runs", True),
     ("training/trainer.py", "from pals import labels", False),
     ("training/trainer.py", "from pals.methods.method import Batch", False),
     ("methods/pico.py", "from pals.training.engine import Engine", True),
     ("model/saved.py", "from pals.runs import Run", True), ("runs/run.py", "from pals.model import Model", False),
     ("runs/run_config.py", "from pals.bench.paper.experiments import select", True),
     ("readers/votes.py", "from pals.pseudo_labels import vote", True),
     ("bench/jobs.py", "from pals.pipeline.tables.result_tables import DIGITS", True),
     ("pipeline/stages/learn.py", "from pals.bench import jobs", True),
     ("pipeline/stages/learn.py", "from pals.estimator import PALSClassifier", True),
     ("pipeline/stages/learn.py", "from pals.report.render import write_report", True),
     ("pipeline/write_results.py", "from pals.report.render import write_report", False),
     ("review/session.py", "from pals.pipeline import update", False),
     ("relabel/queue_reasons.py", "from pals.review.store import Store", True),
     ("report/render.py", "from pals.labels.metrics import BINS", True),
     ("report/render.py", "from pals.pipeline.tables.result_tables import DIGITS", True),
     ("report/render.py", "from pals.util.files import read_json", False),
     ("report/render.py", "from pals.report import sections", False),
     ("report/data.py", "from pals.pipeline.stages.findings import Findings", False),
     ("methods/bases/holdout.py", "from pals.methods.pico import PiCO", True),
     ("methods/bases/holdout.py", "from pals.methods.method import EpochPlan", False),
     ("methods/parts/losses.py", "from pals.methods.bases.holdout import Holdout", True),
     ("bench/report/table_text.py", "from pals.bench.run_records import Result", True),
     ("bench/report/results_frame.py", "from pals.bench.run_records import Result", False),
     ("cli/base.py", "from pals import __version__", False),
     ("__init__.py", "from pals.util.errors import InputError", True),
     ("__init__.py", "if TYPE_CHECKING:\n    from pals.util.errors import InputError", False),
     ("__init__.py", "def f():\n    from pals.util.errors import InputError", True)],
)  # fmt: skip
def test_the_rule_about_imports_can_fail(importer: str, code: str, bad: bool) -> None:
    assert bool(forbidden_imports(importer, ast.parse(code))) == bad


def test_the_other_rules_can_fail() -> None:
    for code in ("x = torch.cuda.is_available()", "x.cuda()", "x.is_cuda", "d = 'cuda:1'", "d = 'cuda'", "t.backends.mps"):
        assert device_names(ast.parse(code)) == [1], code
    assert device_names(ast.parse("'auto, cpu, cuda or mps.'")) == []
    for code in ("self.truth.label_N", "truth.label_N", "dataset.test_truth.label_N", "Truth.of(x).label_N"):
        assert truth_readers(ast.parse(code)) == [1], code
    assert truth_readers(ast.parse("labeling.label_N")) == []
    for code in (
        "from x import *", "try:\n    f()\nexcept:\n    pass", "print(3)", "console.print(3)",
        "sys.stderr.write('x')",
    ):  # fmt: skip
        assert len(bad_habits(ast.parse(code), speaks=False)) == 1, code
    assert bad_habits(ast.parse("print(3)"), speaks=True) == []


def test_one_inference_loop() -> None:
    """Batches, memory, padding and buffers are thought of in one place."""
    callers = {
        where(path)
        for path, tree in TREES.items()
        for call in inside(tree, ast.Call)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "inference"
    }
    assert callers == {"training/inference.py"}
