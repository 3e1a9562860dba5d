"""The layers of the code, read from its imports: data flows downward, a module imports its own layer or those above."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "pals"

LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors", "words", "files", "candidates", "config", "interrupt"),
    ("noise", "data", "augment", "backbones", "neighbors", "nnls", "labeling", "sampling", "losses", "mixing", "schedules",
     "metrics", "recipes", "readers", "images", "crowd"),
    ("methods",),
    ("engine", "optim", "checkpoint", "runlog", "trainer"),
    ("settings", "runs", "display", "demo", "doctor", "model", "relabel", "estimator", "fit", "paper", "bench", "cli",
     "__main__"),
)  # fmt: skip
LAYER = {name: number for number, names in enumerate(LAYERS) for name in names}
REPORT = {"errors", "files", "report"}  # all that report/ may import: it reads folders, not code
NAMES_DEVICES = {"engine", "doctor"}
READS_TRUTH = {"candidates", "noise", "metrics"}
SPEAKS = {"cli", "display"}  # may print

FILES = sorted(ROOT.rglob("*.py"))
TREES = {path: ast.parse(path.read_text(encoding="utf-8"), str(path)) for path in FILES}


def part(path: Path) -> str:
    """The module or package right under pals to which a file belongs; empty for pals itself."""
    first = path.relative_to(ROOT).parts[0]
    return "" if first == "__init__.py" else first.removesuffix(".py")


def imported(tree: ast.AST, parts: set[str]) -> Iterator[tuple[int, str]]:
    """(line, part of pals) of every import, inside functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: write imports in full"
            names = [node.module or ""]
            if node.module == "pals":  # `from pals import metrics` is about metrics, `from pals import __version__` is not
                names = [f"pals.{alias.name}" for alias in node.names if alias.name in parts]
        else:
            continue
        for name in names:
            head, _, rest = name.partition(".")
            if head == "pals" and rest:
                yield node.lineno, rest.partition(".")[0]


def may_import(importer: str, target: str) -> bool:
    if importer == "report":
        return target in REPORT
    if importer == "":
        return False  # pals/__init__.py is imported by everyone
    if target == "report":
        return LAYER[importer] == len(LAYERS) - 1
    return LAYER[target] <= LAYER[importer]


def forbidden_imports(importer: str, tree: ast.AST) -> list[str]:
    return [
        f"line {line}: {importer or 'pals'} imports {target}"
        for line, target in imported(tree, {*LAYER, "report"})
        if target not in {*LAYER, "report"} or not may_import(importer, target)
    ]


def where(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_every_module_has_its_layer() -> None:
    """A new module must be put into the table above, and one that is gone must be taken out."""
    assert {part(path) for path in FILES} - {"", "report"} == set(LAYER)
    assert len(LAYER) == sum(map(len, LAYERS))


@pytest.mark.parametrize("path", FILES, ids=where)
def test_imports_go_upward_only(path: Path) -> None:
    assert forbidden_imports(part(path), TREES[path]) == []


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


@pytest.mark.parametrize("path", [path for path in FILES if part(path) not in NAMES_DEVICES], ids=where)
def test_only_the_engine_knows_kinds_of_devices(path: Path) -> None:
    assert device_names(TREES[path]) == []


def truth_readers(tree: ast.AST) -> list[int]:
    """Lines that look into a truth: `truth.label_N`, `self.truth.label_N`, `dataset.test_truth.label_N`, Truth(...).label_N."""
    lines = []
    for node in inside(tree, ast.Attribute):
        if node.attr == "label_N":  # type: ignore[attr-defined]
            owner = ast.unparse(node.value)  # type: ignore[attr-defined]
            if "truth" in owner.lower():
                lines.append(node.lineno)  # type: ignore[attr-defined]
    return lines


@pytest.mark.parametrize("path", [path for path in FILES if part(path) not in READS_TRUTH], ids=where)
def test_only_grading_and_noise_look_at_the_truth(path: Path) -> None:
    assert truth_readers(TREES[path]) == []


@pytest.mark.parametrize("path", [path for path in FILES if part(path) == "methods"], ids=where)
def test_methods_do_not_even_know_the_word(path: Path) -> None:
    """Neither the truth nor the data sets, nor how files are read."""
    names = {ast.unparse(node) for node in inside(TREES[path], (ast.Name, ast.Attribute))}
    names |= {alias.name for node in inside(TREES[path], (ast.Import, ast.ImportFrom)) for alias in node.names}  # type: ignore[attr-defined]
    assert not [name for name in names if re.search(r"\btruth|Truth|test_|open$|read_text|DATASETS", name)]
    assert {"data", "metrics", "noise", "recipes", "files"}.isdisjoint(
        target for _, target in imported(TREES[path], set(LAYER))
    )


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
    assert bad_habits(TREES[path], part(path) in SPEAKS) == []
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400


@pytest.mark.parametrize("path", [path for path in FILES if path.name not in ("__main__.py",)], ids=where)
def test_every_file_says_what_it_is(path: Path) -> None:
    assert ast.get_docstring(TREES[path])
    futures = [node for node in TREES[path].body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    has_code = any(not isinstance(node, ast.Expr) for node in TREES[path].body)
    assert futures or not has_code


@pytest.mark.parametrize(
    ("importer", "code", "bad"),
    [
        ("noise", "from pals.trainer import Trainer", True),
        ("noise", "def f():\n    import pals.engine", True),
        ("trainer", "from pals import metrics, runs", True),
        ("trainer", "from pals import metrics, schedules", False),
        ("trainer", "from pals.methods.base import Batch", False),
        ("methods", "from pals.engine import Engine", True),
        ("report", "from pals.metrics import BINS", True),
        ("report", "from pals.files import read_json", False),
        ("metrics", "from pals.report.curves import x", True),
        ("demo", "from pals.report.curves import x", False),
        ("cli", "from pals import __version__", False),
        ("noise", "from pals.brand_new import x", True),
        ("", "from pals.errors import InputError", True),
    ],
)
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
        "from x import *",
        "try:\n    f()\nexcept:\n    pass",
        "print(3)",
        "console.print(3)",
        "sys.stderr.write('x')",
    ):
        assert len(bad_habits(ast.parse(code), speaks=False)) == 1, code
    assert bad_habits(ast.parse("print(3)"), speaks=True) == []
