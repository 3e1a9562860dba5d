"""Docstrings of the public names: their examples run, and functions list what they take and return."""

from __future__ import annotations

import doctest
import inspect
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pals
from pals.util.plugins import forget_plugins
from pals.util.registry import PROGRAM, TABLES

RECEIVERS = {"self", "cls"}
VALUES = {"STRICT", "__version__"}
"""Plain values, which have no docstring of their own."""
WITHOUT_EXAMPLE = """
Context
METHODS READERS
View closed_form dawid_skene
estimator
majority_vote
"""
"""Still to be written; no name may be added."""
WITHOUT_ARGS = """
closed_form dawid_skene
majority_vote
"""
"""Functions whose parameters are still to be listed; no name may be added."""
METHODS_WITHOUT_ARGS = """
CandidateSets.from_truth CandidateSets.statistics CandidateSets.take
FileImages.decode ItemSource.batches ItemSource.rows
ItemSource.take Loader.load
Network.each Network.encode Network.forward Network.own_name
ShardImages.at ShardImages.decode ShardImages.encoded
Taxonomy.below Taxonomy.branch_of Taxonomy.from_parents Taxonomy.keep
Taxonomy.names_of Taxonomy.node_of_spans Taxonomy.node_probabilities Taxonomy.of Taxonomy.path Taxonomy.with_root Truth.of
Views.including Views.make
"""
"""Methods of public classes whose parameters are still to be listed; no name may be added."""

NAMES = sorted({*pals.__all__} - VALUES)
SOURCE = Path(pals.__file__).parent
WITH_EXAMPLES = [
    ".".join(("pals", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
    for path in sorted(SOURCE.rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]
"""Modules whose docstrings have examples."""


def public_functions() -> dict[str, Callable[..., Any]]:
    """Public functions, and the public methods that public classes define with parameters of their own."""
    found = {name: getattr(pals, name) for name in NAMES if inspect.isfunction(getattr(pals, name))}
    for name in NAMES:
        for key, value in vars(getattr(pals, name)).items() if inspect.isclass(getattr(pals, name)) else ():
            method = getattr(value, "__func__", value)  # of a class method
            if inspect.isfunction(method) and not key.startswith("_") and set(inspect.signature(method).parameters) - RECEIVERS:
                found[f"{name}.{key}"] = method
    return found


def examples(name: str) -> list[doctest.DocTest]:
    """Examples of a public name and, for a class or a module, of what is defined in it."""
    finder = doctest.DocTestFinder()
    return [found for found in finder.find(getattr(pals, name), name, globs={"pals": pals}) if found.examples]


def is_method(function: Callable[..., Any]) -> bool:
    return not RECEIVERS.isdisjoint(inspect.signature(function).parameters)


def unlisted(function: Callable[..., Any]) -> list[str]:
    """Parameters that the `Args:` of a function lack; of a function that is no method also `Returns`."""
    text = inspect.getdoc(function) or ""
    sections = dict(re.findall(r"^(Args|Returns):\n(.*?)(?=^\S|\Z)", text, flags=re.M | re.S))
    signature = inspect.signature(function)
    names = [name for name in signature.parameters if name not in RECEIVERS]
    missing = [name for name in names if not re.search(rf"\b{name}\b.*:", sections.get("Args", ""))]
    returns = signature.return_annotation not in (None, "None") and not is_method(function)
    return [*missing, *(["Returns"] if returns and "Returns" not in sections else [])]


@pytest.fixture(autouse=True)
def _without_plugins() -> Iterator[None]:
    yield
    forget_plugins()
    for table in TABLES:
        table.forget(PROGRAM)


@pytest.mark.parametrize("module", WITH_EXAMPLES)
def test_examples_run(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALS_CACHE", str(tmp_path / "cache"))
    torch.manual_seed(0)
    np.random.seed(0)
    runner, printed = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE), list[str]()
    found = [one for one in doctest.DocTestFinder().find(import_module(module), extraglobs={"pals": pals}) if one.examples]
    assert found
    for example in found:
        example.globs.pop("annotations", None)  # a reader's program need not import it from __future__
        (tmp_path / example.name).mkdir()  # their files do not meet
        monkeypatch.chdir(tmp_path / example.name)
        runner.run(example, out=printed.append)
    assert not runner.summarize(verbose=False).failed, "".join(printed)


def test_every_name_has_an_example_and_lists_its_parameters() -> None:
    assert {name for name in NAMES if not examples(name)} <= {*WITHOUT_EXAMPLE.split()}
    functions, allowed = public_functions(), {*WITHOUT_ARGS.split(), *METHODS_WITHOUT_ARGS.split()}
    assert len(functions) > len(NAMES) / 2
    assert {name: missing for name, found in functions.items() if (missing := unlisted(found)) and name not in allowed} == {}


def test_the_rules_can_fail(capsys: pytest.CaptureFixture[str]) -> None:
    def wrong(x: int, y: int) -> int:
        """Sum.

        Args:
            x: one.

        >>> 1 + 1
        3
        """
        return x + y

    assert unlisted(wrong) == ["y", "Returns"]
    (example,) = doctest.DocTestFinder().find(wrong, "wrong", globs={})
    assert doctest.DocTestRunner().run(example, out=lambda text: None).failed == 1
