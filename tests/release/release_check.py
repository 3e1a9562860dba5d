"""What would be released, installed and run as by a stranger: `make release-check` (half an hour; needs the network).

The wheel and the sdist are built, and installed outside the checkout under every Python that PALS supports and this machine
has, with the newest and with the oldest versions that `pyproject.toml` allows. Everything runs in a temporary folder.

torch is the exception among the newest: it is the version of `constraints.txt`, which the tests run with. From PyPI torch
brings gigabytes of CUDA libraries along on Linux. PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu spares them.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PYTHONS = ("3.11", "3.12", "3.13")
FOR_DEVELOPERS = ("dev", "docs")
EXTRAS = {name: needed for name, needed in PROJECT["optional-dependencies"].items() if name not in FOR_DEVELOPERS}
RUNTIME = [Requirement(text) for text in (*PROJECT["dependencies"], *(text for needed in EXTRAS.values() for text in needed))]

ALL_NAMES = "import pals; print(len([getattr(pals, name) for name in pals.__all__]))"
ALL_EXTRAS = """
import datasets, faiss, onnx, onnxruntime, onnxscript, pyarrow.parquet, ray, starlette, submitit, torch, uvicorn
from importlib.metadata import version
submitit.AutoExecutor(folder="slurm", cluster="local")
if torch.version.cuda or "+cpu" in version("torchvision"):
    import timm, torchvision
"""
"""PyPI's torchvision does not load beside a build of torch for CPUs alone, which needs its own."""
USER_SCRIPT = 'import pals\nvotes = pals.read_votes("answers.csv")\nnumber: int = votes\n'
"""The third line is wrong, and only someone who sees our type hints can know."""
COMPLAINT = 'user.py:3: error: Incompatible types in assignment (expression has type "Votes", variable has type "int")'


class FailedError(Exception):
    """A command with another exit status than expected, and the end of its output."""


def lowest(requirements: Iterable[Requirement], python: str) -> dict[str, Version]:
    """By package, the least version that is allowed under this Python; packages without a lower bound are left out."""
    found: dict[str, Version] = {}
    for requirement in requirements:
        if requirement.marker and not requirement.marker.evaluate({"python_version": python}):
            continue
        bounds = [Version(bound.version) for bound in requirement.specifier if bound.operator in (">=", "==", "~=")]
        if bounds:
            found[requirement.name] = max([*bounds, found.get(requirement.name, bounds[0])])
    return found


def oldest(python: str) -> str:
    return "".join(f"{name}=={version}\n" for name, version in lowest(RUNTIME, python).items())


def newest(python: str) -> str:
    """Free but for torch, whatever the Python."""
    return "".join(re.findall(r"^torch==.*\n", (ROOT / "constraints.txt").read_text(encoding="utf-8"), flags=re.M))


RANGES: Mapping[str, Callable[[str], str]] = {"newest": newest, "oldest": oldest}


def find_python(version: str) -> str | None:
    """An interpreter that starts, on the path or among those of pyenv; a shim of pyenv may not."""
    places = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser().glob(f"versions/{version}.*/bin/python{version}")
    for candidate in (shutil.which(f"python{version}"), *map(str, sorted(places))):
        if candidate and subprocess.run([candidate, "--version"], capture_output=True, check=False).returncode == 0:
            return candidate
    return None


@dataclass(frozen=True)
class Environment:
    """A virtual environment, and an empty folder in which its commands run."""

    folder: Path
    python: str

    def __post_init__(self) -> None:
        (self.folder / "work").mkdir(parents=True)
        run([self.python, "-m", "venv", self.folder / "venv"], self.folder)
        self.pip("install", "--upgrade", "pip")

    def __call__(self, program: str, *words: str | Path, code: int = 0) -> str:
        return run([self.folder / "venv" / "bin" / program, *words], self.folder / "work", code)

    def pip(self, *words: str | Path) -> str:
        return self("python", "-m", "pip", "--quiet", "--disable-pip-version-check", *words)

    def installed(self) -> str:
        """RECORD: each file of the package with its hash, but for what pip itself writes or compiles."""
        (record,) = (self.folder / "venv").glob("lib/python*/site-packages/pals_learn-*.dist-info/RECORD")
        return "\n".join(sorted(line for line in record.read_text(encoding="utf-8").splitlines() if line.startswith("pals/")
                                and "__pycache__" not in line))  # fmt: skip


def run(command: Sequence[str | Path], folder: Path, code: int = 0) -> str:
    """What the command prints. It sees nothing of the checkout or of what PALS has cached before."""
    hidden = ("PYTHONPATH", "PALS_DATA", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    environment |= {"PALS_CACHE": str(folder / "cache"), "NO_COLOR": "1", "COLUMNS": "200"}
    done = subprocess.run(
        [str(word) for word in command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != code:
        said = "\n".join((done.stdout + done.stderr).splitlines()[-25:])
        raise FailedError(f"{' '.join(map(str, command))}\nended with {done.returncode}:\n{said}")
    return done.stdout


def expect(condition: bool, what: str) -> None:
    if not condition:
        raise FailedError(what)


def build(folder: Path) -> tuple[Path, Path]:
    """The wheel and the sdist, by `python -m build`."""
    tools = Environment(folder / "build", sys.executable)
    tools.pip("install", "build")
    tools("python", "-m", "build", "--outdir", folder / "dist", ROOT)
    (wheel,), (sdist,) = (folder / "dist").glob("*.whl"), (folder / "dist").glob("*.tar.gz")
    return wheel, sdist


def check(environment: Environment, constraints: str, wheel: Path, sdist: Path) -> str:
    """Install both and try them; gives the versions that were tried."""
    bounds = environment.folder / "constraints.txt"
    bounds.write_text(constraints, encoding="utf-8")
    package = f"{wheel}[{','.join(EXTRAS)}]"
    environment.pip("install", "--only-binary", ":all:", "--constraint", bounds, package, "mypy")
    try_it(environment)
    files = environment.installed()
    environment.pip("uninstall", "--yes", "pals-learn")
    environment.pip("install", "--no-deps", sdist)
    expect(environment.installed() == files, "The sdist installs other files than the wheel.")
    environment("pals", "--version")
    frozen = dict(line.split("==") for line in environment.pip("freeze").splitlines() if "==" in line)
    return ", ".join(f"{name} {frozen[name]}" for name in ("torch", "numpy", "pandas", "typer"))


def try_it(environment: Environment) -> None:
    environment("python", "-m", "pip", "check")
    said = environment("pals", "--version")
    expect(said == f"pals {PROJECT['version']}\n", f"pals --version says {said!r}.")
    environment("python", "-c", ALL_NAMES)
    environment("python", "-c", ALL_EXTRAS)
    expect("efficientnet-lite0" in environment("pals", "encoders"), "pals encoders does not list efficientnet-lite0.")
    expect("PALS" in environment("pals", "demo", "--quick"), "pals demo --quick has no result.")
    report = environment("pals", "fit", "--example").partition("; open ")[2].partition("\n")[0]
    expect((environment.folder / "work" / report).is_file(), f"pals fit --example left no {report}.")
    (environment.folder / "work" / "user.py").write_text(USER_SCRIPT, encoding="utf-8")
    said = environment("python", "-m", "mypy", "--strict", "user.py", code=1)
    complaints = [line.partition("  [")[0] for line in said.splitlines() if "error:" in line]
    expect(complaints == [COMPLAINT], f"mypy says of a user's script:\n{said}")


def results(pythons: Sequence[str], ranges: Sequence[str]) -> Iterator[bool]:
    """Whether each combination works, which is also printed."""
    with tempfile.TemporaryDirectory(prefix="pals-release-") as temporary:
        folder = Path(temporary)
        wheel, sdist = build(folder)
        print(f"Built {wheel.name} and {sdist.name}.", flush=True)
        for version in pythons:
            python = find_python(version)
            if python is None:
                print(f"Python {version}: skipped, there is none on this machine.")
                continue
            for which in ranges:
                place = folder / f"{version}-{which}"
                yield works(place, python, f"Python {version}, {which}", RANGES[which](version), wheel, sdist)


def works(folder: Path, python: str, title: str, constraints: str, wheel: Path, sdist: Path) -> bool:
    started = time.perf_counter()
    try:
        versions = check(Environment(folder, python), constraints, wheel, sdist)
    except FailedError as error:
        print(f"{title}: FAILED. {error}", flush=True)
        return False
    finally:
        shutil.rmtree(folder)  # with CUDA's libraries an environment takes seven gigabytes
    print(f"{title}: works ({versions}; {time.perf_counter() - started:.0f} s)", flush=True)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description="Build, install and try what would be released.")
    parser.add_argument("--python", nargs="+", choices=PYTHONS, default=PYTHONS, help="Only under these (default: all).")
    parser.add_argument("--versions", nargs="+", choices=RANGES, default=list(RANGES), help="Of the dependencies.")
    options = parser.parse_args()
    tried = list(results(options.python, options.versions))
    return 0 if tried and all(tried) else 1


if __name__ == "__main__":
    sys.exit(main())
