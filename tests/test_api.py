"""The public API: frozen, typed, lazy, documented, and all that the documentation uses."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import pals
from pals.model import Description, Model, Part
from pals.vision.networks import build_network
from test_docs import PAGES, ROOT, code_of, name_of

WORDS = """
fit review update export_labels next_answers read_votes Votes Taxonomy load_model predict_folder Model PALSClassifier estimator
CandidateSets Truth make_candidates official_candidates draw_annotators pseudo_label prune nearest
majority_vote dawid_skene closed_form encode
METHODS DATASETS READERS NETWORKS ENCODERS KnownEncoder Run RunConfig load_dataset load_plugin
Method Problem EpochPlan Group Selection Batch Context Phase Network Output MethodView ImageSteps View STRICT InputError
Dataset Items Loader Views image_views vector_views list_images load_images image_statistics
ItemSource FileImages ShardImages open_array
Source Records Table
__version__
"""
FROZEN = WORDS.split()
"""A name that is added here stays; one that is taken away is a new major version."""


def test_the_names_are_frozen_and_old_ones_warn() -> None:
    assert sorted(pals.__all__) == sorted(FROZEN) == sorted(dir(pals))
    packages = {path.stem for path in Path(pals.__file__).parent.iterdir()}
    assert not packages & {name for name in FROZEN if pals._HOME.get(name) != "pals"}  # else `pals.fit` would be the package
    with pytest.raises(AttributeError, match=r"no attribute 'Trainer'.*docs/api\.md"):
        _ = pals.Trainer  # type: ignore[attr-defined]
    assert all(getattr(pals, name) is getattr(pals, name) for name in FROZEN)
    for old, new in pals._RENAMED.items():
        with pytest.warns(DeprecationWarning, match=f"pals.{new}"):
            assert getattr(pals, old) is getattr(pals, new)


def test_a_type_checker_sees_the_same_names_and_each_loads_little() -> None:
    """Each from the module that it is loaded from, and as `X as X`, which makes it public."""
    tree = ast.parse(Path(pals.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    shown = {alias.name: node.module for node in imports for alias in node.names if alias.asname == alias.name}
    assert shown == pals._HOME
    code = "import sys, pals; pals.InputError, pals.__version__; print('torch' in sys.modules, 'pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout == "False False\n"


def test_the_six_names_of_a_practitioner_come_first() -> None:
    """In `help(pals)`, which begins with the docstring, and on the page."""
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    first = re.findall(r"<!-- table: names (.*) -->", text)[0].split()
    assert sorted(first) == sorted(re.findall(r"pals\.(\w+)\(", pals.__doc__ or "")) and len(first) == 6


def test_the_page_has_every_name_and_the_rule_can_fail() -> None:
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    in_tables = [name for asked in re.findall(r"<!-- table: names (.*) -->", text) for name in asked.split()]
    assert len(in_tables) == len(set(in_tables)) and set(in_tables) <= set(FROZEN)
    assert [name for name in FROZEN if name not in in_tables and f"`{name}`" not in text] == []
    for code in ("import pals.runs", "from pals.runs import Run", "from pals import runs", "import pals\nx = pals.runs"):
        assert [name for name in imports_of(code) if not is_public(name)], code
    for code in ("import pals", "from pals import Run", "import pals\nx = pals.Run", "from pals.estimator import RCClassifier"):
        assert not [name for name in imports_of(code) if not is_public(name)], code


def imports_of(code: str) -> list[str]:
    """What is imported from the package, name by name: `pals.Run`, `pals.bench.jobs`; `import pals` itself is no news."""
    found = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.startswith("pals.")]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "pals":
            found += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "pals":
            found.append(f"pals.{node.attr}")
    return found


def is_public(name: str) -> bool:
    module, _, last = name.rpartition(".")
    if module == "pals.estimator":
        return last in pals.estimator.__all__ or last.endswith("Classifier")
    return module == "pals" and last in FROZEN


@pytest.mark.parametrize("page", [page for page in PAGES if "pals" in code_of(page, "python")], ids=name_of)
def test_pages_use_the_public_names_only(page: Path) -> None:
    assert [name for name in imports_of(code_of(page, "python")) if not is_public(name)] == []


def test_load_model_takes_a_folder_or_a_file(tmp_path: Path) -> None:
    reads = Part("small-cnn", (3, 8, 8), mean=(0.5,) * 3, std=(0.25,) * 3)
    made = Model(Description(("frog", "newt"), reads), build_network("small-cnn", (3, 8, 8), 2), device="cpu")
    made.save(tmp_path / "model.safetensors")
    images = torch.randint(0, 256, (4, 3, 8, 8), dtype=torch.uint8)
    for path in (tmp_path, str(tmp_path / "model.safetensors")):
        loaded = pals.load_model(path, device="cpu")
        assert loaded.class_names == ("frog", "newt")
        assert torch.equal(loaded.probabilities(images), made.probabilities(images))
    with pytest.raises(pals.InputError, match=re.escape(f"{tmp_path / 'no'} does not exist")):
        pals.load_model(tmp_path / "no")
