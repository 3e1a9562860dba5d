"""Arrays end in their shape: `posterior_NC` has a row for each item and a column for each class. Every letter is explained.

A package explains the letters beyond the common ones in the docstring of its `__init__`, or a module in its own:

    Shape letters: T nodes of a taxonomy, L its levels.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "pals"
COMMON = "NCKBDWAH"
"""Items, classes (or channels), neighbours, batch, features, annotators (or width), answers, height."""
UNEXPLAINED = {
    "crowd": "EFGHILMPQRSTUVX", "data": "IM", "estimator": "F", "labels": "U", "methods": "EGMPQRTUV",
    "pipeline": "GILMRTUVXY", "pseudo_labels": "GLMPRSX", "readers": "EFGILRUVXY", "report": "GMRU", "review": "RT",
    "runs": "M", "training": "M", "util": "M", "vision": "FGILMOPQRSTVX",
}  # fmt: skip
"""Letters that a package has yet to explain; no letter may be added."""
SHAPED = re.compile(r"_*[a-z]\w*_([A-Z][A-Z0-9]*)")
LEGEND = re.compile(r"Shape letters: (.*?)\.(?:\s|$)", flags=re.S)


def letters_of(tree: ast.AST) -> dict[str, str]:
    """Each shape letter in the names of a module, with a name that has it."""
    found = {}
    for node in ast.walk(tree):
        name = getattr(node, "id", getattr(node, "attr", getattr(node, "arg", None)))
        if isinstance(name, str) and (shaped := SHAPED.fullmatch(name)):
            found.update({letter: name for letter in shaped[1] if letter.isalpha()})
    return found


def legend_of(tree: ast.Module) -> dict[str, str]:
    """Letter and meaning, from a docstring."""
    legend = LEGEND.search(ast.get_docstring(tree) or "")
    parts = " ".join(legend[1].split()).split(", ") if legend else []
    return {part[0]: part[2:] for part in parts if re.match(r"[A-Z] \w", part)}


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("package", sorted(path.parent.name for path in ROOT.glob("*/__init__.py")))
def test_shape_letters_are_explained(package: str) -> None:
    unknown = defaultdict(set)
    for path in (ROOT / package).rglob("*.py"):
        folders = [folder for folder in (path.parent, *path.parents) if folder.is_relative_to(ROOT / package)]
        known = {*COMMON, *legend_of(tree_of(path)), *UNEXPLAINED.get(package, "")}
        known.update(*(legend_of(tree_of(folder / "__init__.py")) for folder in folders))
        for letter, name in letters_of(tree_of(path)).items():
            if letter not in known:
                unknown[letter].add(f"{name} in {path.relative_to(ROOT)}")
    assert not unknown


def test_the_rule_can_fail() -> None:
    tree = ast.parse(
        '"""Sums.\n\nShape letters: T nodes of a\ntaxonomy, M some of the items.\n"""\ndef f(x_NQ, self): self.y_MC2 = 1'
    )
    assert letters_of(tree) == {"N": "x_NQ", "Q": "x_NQ", "M": "y_MC2", "C": "y_MC2"}
    assert legend_of(tree) == {"T": "nodes of a taxonomy", "M": "some of the items"}
