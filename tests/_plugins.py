"""A plug-in with one of each kind: the code of docs/plugins.md, as a file and as a package."""

from __future__ import annotations

import re
from pathlib import Path

from test_docs import ROOT, code_of

PAGE = ROOT / "docs" / "plugins.md"
TRAIN = ("--method", "two-views", "--set", "network.name=pixels", "--set", "data.items=20", "--epochs", "1", "--device", "cpu")
ANSWERS = "a01.jpg: ann says newt\na01.jpg: bob says frog\n"


def plugin_code(registers: bool = True) -> str:
    """Of the page, all but what uses it; for a package without the lines that put it into the tables."""
    code = code_of(PAGE, "python").partition("settings = {")[0]
    return code if registers else re.sub(r"^pals\.[A-Z]+\[.*$", "", code, flags=re.M)


def project_file() -> str:
    return code_of(PAGE, "toml")


def write_package(folder: Path) -> Path:
    """A project that pip can install."""
    (folder / "pals_stripes").mkdir(parents=True)
    (folder / "pals_stripes" / "__init__.py").write_text(plugin_code(registers=False), encoding="utf-8")
    build = '\n[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
    (folder / "pyproject.toml").write_text(project_file() + build, encoding="utf-8")
    return folder


def write_installed(site: Path, name: str, entries: dict[str, dict[str, str]], code: str) -> None:
    """What an installed package looks like: a module, and beside it a folder that names its entry points."""
    module = name.replace("-", "_")
    (site / f"{module}-0.1.dist-info").mkdir(parents=True)
    (site / f"{module}.py").write_text(code, encoding="utf-8")
    (site / f"{module}-0.1.dist-info" / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
    groups = [
        f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in those.items()) for group, those in entries.items()
    ]
    (site / f"{module}-0.1.dist-info" / "entry_points.txt").write_text("\n".join(groups))
