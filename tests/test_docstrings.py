"""Docstrings of the public names: their examples run, and functions list what they take and return."""

from __future__ import annotations

import doctest
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pals
from pals.util.plugins import forget_plugins
from pals.util.registry import PROGRAM, TABLES

VALUES = {"STRICT", "__version__"}
"""Plain values, which have no docstring of their own."""
WITHOUT_EXAMPLE = """
Batch Context DATASETS Dataset ENCODERS Group Items KnownEncoder Loader
METHODS Method NETWORKS Network Output PALSClassifier Phase Problem READERS Records Run
RunConfig Selection Source Table View Votes closed_form dawid_skene
estimator load_dataset
majority_vote nearest prune pseudo_label
read_votes
"""
"""Still to be written; no name may be added."""
WITHOUT_ARGS = """
closed_form dawid_skene load_dataset
majority_vote nearest
prune pseudo_label read_votes
"""
"""Functions whose parameters are still to be listed; no name may be added."""

NAMES = sorted({*pals.__all__} - VALUES)
FUNCTIONS = [name for name in NAMES if inspect.isfunction(getattr(pals, name))]


def examples(name: str) -> list[doctest.DocTest]:
    """Examples of a public name and, for a class or a module, of what is defined in it."""
    finder = doctest.DocTestFinder()
    return [found for found in finder.find(getattr(pals, name), name, globs={"pals": pals}) if found.examples]


def unlisted(function: Callable[..., Any]) -> list[str]:
    """Parameters of a function that its `Args:` lack, `Returns` included."""
    text = inspect.getdoc(function) or ""
    sections = dict(re.findall(r"^(Args|Returns):\n(.*?)(?=^\S|\Z)", text, flags=re.M | re.S))
    signature = inspect.signature(function)
    missing = [name for name in signature.parameters if not re.search(rf"\b{name}\b.*:", sections.get("Args", ""))]
    returns = signature.return_annotation not in (None, "None")
    return [*missing, *(["Returns"] if returns and "Returns" not in sections else [])]


@pytest.fixture(autouse=True)
def _without_plugins() -> Iterator[None]:
    yield
    forget_plugins()
    for table in TABLES:
        table.forget(PROGRAM)


@pytest.mark.parametrize("name", NAMES)
def test_examples_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PALS_CACHE", str(tmp_path / "cache"))
    torch.manual_seed(0)
    np.random.seed(0)
    runner, printed = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE), list[str]()
    for example in examples(name):
        runner.run(example, out=printed.append)
    assert not runner.summarize(verbose=False).failed, "".join(printed)


def test_every_name_has_an_example() -> None:
    assert {name for name in NAMES if not examples(name)} <= {*WITHOUT_EXAMPLE.split()}


def test_every_function_lists_its_parameters() -> None:
    assert {
        name: missing for name in FUNCTIONS if (missing := unlisted(getattr(pals, name))) and name not in WITHOUT_ARGS
    } == {}


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
