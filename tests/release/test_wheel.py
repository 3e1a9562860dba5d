"""The content of the wheel and its metadata. (Whether it runs in a clean environment: `make release-check`.)"""

from __future__ import annotations

import email
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable
from email.message import Message
from pathlib import Path
from shutil import copy, copytree, ignore_patterns

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version
from release_check import EXTRAS, PROJECT, PYTHONS, ROOT, RUNTIME, lowest, newest, oldest

BUILD = "from setuptools.build_meta import build_sdist, build_wheel; build_sdist('dist'); build_wheel('dist')"
AT_THE_TOP = {"CHANGELOG.md", "CITATION.cff", "LICENSE", "MANIFEST.in", "README.md", "pyproject.toml"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """From a copy, so that nothing an earlier build left gets in, and none is left."""
    folder = tmp_path_factory.mktemp("source")
    for name in AT_THE_TOP:
        copy(ROOT / name, folder)
    copytree(ROOT / "src" / "pals", folder / "src" / "pals", ignore=ignore_patterns("__pycache__"))
    subprocess.run([sys.executable, "-c", BUILD], cwd=folder, check=True, capture_output=True)
    return folder / "dist"


@pytest.fixture(scope="module")
def wheel(built: Path) -> zipfile.ZipFile:
    (path,) = built.glob("*.whl")
    return zipfile.ZipFile(path)


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    return email.message_from_bytes(wheel.read(name))


def test_every_file_the_licence_and_the_command_are_in_it(wheel: zipfile.ZipFile) -> None:
    """Templates, pictures of the example, tables and the mark of typed packages too."""
    package = ROOT / "src" / "pals"
    files = {f"pals/{path.relative_to(package).as_posix()}" for path in package.rglob("*") if path.is_file()}
    shipped = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert shipped == {name for name in files if "__pycache__" not in name}
    assert {"pals/py.typed", "pals/data/example/answers.csv", "pals/report/templates/report.html"} <= shipped
    assert sum(name.startswith("pals/data/example/images/") for name in shipped) == 57
    (licence,) = [name for name in wheel.namelist() if name.endswith("licenses/LICENSE")]
    assert wheel.read(licence) == (ROOT / "LICENSE").read_bytes()
    (commands,) = [name for name in wheel.namelist() if name.endswith("entry_points.txt")]
    assert b"pals = pals.cli:main" in wheel.read(commands)


def test_the_sdist_has_the_same_and_what_is_written_about_it(built: Path, wheel: zipfile.ZipFile) -> None:
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    assert {f"src/{name}" for name in wheel.namelist() if name.startswith("pals/")} <= names
    assert {name for name in names if "/" not in name} >= AT_THE_TOP


def test_what_is_said_on_it(metadata: Message) -> None:
    assert metadata["License-Expression"] == "Apache-2.0 AND CC-BY-4.0"
    classifiers = set(metadata.get_all("Classifier", []))
    assert {f"Programming Language :: Python :: {version}" for version in PYTHONS} | {"Typing :: Typed"} <= classifiers
    assert set(metadata.get_all("Provides-Extra", [])) == set(PROJECT["optional-dependencies"])


def test_versions() -> None:
    """The package's, that of the citation and the newest of the changelog."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    released = re.findall(r"^## \[(\d[\d.]*)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.M)
    assert PROJECT["version"] == citation["version"] == released[0]
    assert citation["license"] == PROJECT["license"].split(" AND ")[0]  # the other is that of the example
    needed = parsed(["a>=1.2", "a>=2; python_version >= '3.13'", "b==0.1.0", "c", "d<3,>=2.1", "e>1"])
    assert lowest(needed, "3.11") == {"a": Version("1.2"), "b": Version("0.1.0"), "d": Version("2.1")}
    assert lowest(needed, "3.13") == {"a": Version("2"), "b": Version("0.1.0"), "d": Version("2.1")}
    least = lowest(RUNTIME, PYTHONS[0])
    # earlier ones run code that a file brings along
    assert least["torch"] >= Version("2.10") and least["pyarrow"] >= Version("14.0.1")
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert newest("3.11").splitlines() == [pin for pin in pins if pin.startswith("torch==")] != []
    (own,) = [r for r in parsed(PROJECT["optional-dependencies"]["dev"]) if r.name == PROJECT["name"]]
    assert own.extras == set(EXTRAS) - {"encoders"}


def parsed(texts: Iterable[str]) -> list[Requirement]:
    return [Requirement(text) for text in texts]


@pytest.mark.parametrize("python", PYTHONS)
def test_every_dependency_has_a_lower_bound(python: str) -> None:
    assert set(lowest(RUNTIME, python)) == {requirement.name for requirement in RUNTIME}
    assert "torch==2.10\n" in oldest(python)
