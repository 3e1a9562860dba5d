"""Pages of the site that are generated from the code: the public names by task, a page per command, the layers."""

from __future__ import annotations

import ast
import html
import inspect
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType

import pals

SOURCE = Path(pals.__file__).parent
API = Path(__file__).resolve().parents[1] / "api.md"
SECTION = re.compile(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", flags=re.M | re.S)
COMMAND = re.compile(r"^## `pals (\S+)`\n(.*?)(?=^## |\Z)", flags=re.M | re.S)
DESIGN = """# Design

A package imports only those below it in the drawing, never one beside or above it; a test enforces this. The drawing is made
from the actual imports: a thicker line means more of them, and a line that other lines imply is left out.

![The packages and their imports](layers.svg)

| package | what it holds |
|---|---|
"""
STYLE = """
path { stroke: #26a69a; fill: none; opacity: .8 }
rect { fill: #e0f2f1; stroke: #00695c }
text { font: 14px sans-serif; text-anchor: middle; fill: #004d40 }
"""


def write_reference(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for kind, pages in (("python", python_pages()), ("commands", command_pages())):
        (folder / kind).mkdir()
        for name, text in pages.items():
            (folder / kind / f"{name}.md").write_text(text, encoding="utf-8")
        (folder / kind / ".order").write_text("\n".join(f"{name}.md" for name in pages), encoding="utf-8")
    (folder / "design.md").write_text(design_page(), encoding="utf-8")
    (folder / "layers.svg").write_text(layers_svg(), encoding="utf-8")


# ---- public names


def api_groups() -> dict[str, list[str]]:
    """The public names of each section of docs/api.md: those in its table, then those in its text."""
    groups = {}
    for heading, text in SECTION.findall(API.read_text(encoding="utf-8")):
        in_table = re.findall(r"<!-- table: names (.*) -->", text)
        in_text = [name for name in re.findall(r"`(\w+)`", text) if name in pals.__all__ and name != "__version__"]
        groups[heading] = list(dict.fromkeys([*" ".join(in_table).split(), *in_text]))
    missing = set(pals.__all__) - {name for names in groups.values() for name in names} - {"__version__"}
    if missing:
        raise SystemExit(f"docs/api.md lacks {', '.join(sorted(missing))}.")
    return groups


def page_name(heading: str) -> str:
    return re.sub(r"\W+", "-", heading.lower()).strip("-")


def python_pages() -> dict[str, str]:
    """A page per section of docs/api.md; every name with its signature and docstring, by mkdocstrings."""
    introduced = "[The Python API](../../docs/api.md) has an example of each group."
    return {
        page_name(heading): "\n".join([f"# {heading}\n\n{introduced}\n", *(_entry(name) for name in names)])
        for heading, names in api_groups().items()
    }


def _entry(name: str) -> str:
    thing = getattr(pals, name)
    if isinstance(thing, ModuleType):
        return f"## pals.{name}\n\n{_documented(name, thing)}\n"
    if inspect.isclass(thing) or inspect.isfunction(thing):
        text = _documented(name, thing)
        if thing.__module__ == "pals.estimator":  # classes that are made when the module is loaded, one of each method
            text = re.sub(r"^(\w+) \(default (.*?)\): ", r"* `\1` (default `\2`): ", text, flags=re.M)
            return f"## pals.{name}\n\n```python\n{name}{inspect.signature(thing)}\n```\n\n{text}\n"
        return f"## pals.{name}\n\n::: {thing.__module__}.{thing.__qualname__}\n"
    return f"## pals.{name}\n\n{_kind(thing)}; see [The Python API](../../docs/api.md).\n"


def _documented(name: str, thing: object) -> str:
    text = inspect.getdoc(thing)
    if not text:
        raise SystemExit(f"pals.{name} is public and has no docstring.")
    return text


def _kind(thing: object) -> str:
    if hasattr(thing, "keys"):
        return "A table by name: " + ", ".join(f"`{key}`" for key in sorted(thing.keys()))
    return f"`{thing!r}`"


# ---- commands


def command_pages() -> dict[str, str]:
    """As Typer's own generator writes it, a page per command, with its whole first sentence, and examples as code."""
    command = (sys.executable, "-m", "typer", "pals.cli", "utils", "docs", "--name", "pals", "--title", "Commands")
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    first = dict(re.findall(r"^#+ `pals (?:\S+ )*(\S+)`\n\n(.+)$", text, flags=re.M))
    text = re.sub(r"^Example: +(pals .*)$", lambda found: f"Example: `{html.unescape(found[1])}`", text, flags=re.M)
    sections = dict(COMMAND.findall(text))
    index = COMMAND.sub("", text).rstrip()
    index = re.sub(
        r"^\* `(\S+)`: .*$", lambda found: _listed(found[1], first) if found[1] in sections else found[0], index, flags=re.M
    )
    pages = {name: f"# pals {name}\n{re.sub('^##', '#', body, flags=re.M)}" for name, body in sections.items()}
    return {"index": index + "\n", **pages}


def _listed(name: str, first: Mapping[str, str]) -> str:
    return f"* [`pals {name}`]({name}.md): {first[name]}"


# ---- layers


def imports() -> Counter[tuple[str, str]]:
    """How often modules of one package import from another; of two that import each other, the direction with more imports."""
    found: Counter[tuple[str, str]] = Counter()
    for path in SOURCE.glob("*/**/*.py"):
        package = path.relative_to(SOURCE).parts[0]
        for module in _imported(path):
            _, _, below = module.partition("pals.")
            other = below.split(".")[0]
            if other and other != package:
                found[package, other] += 1
    return Counter({(one, other): count for (one, other), count in found.items() if count >= found.get((other, one), 0)})


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def layers(edges: Counter[tuple[str, str]]) -> list[list[str]]:
    """Packages from the ground up: each above all that it imports."""
    left = {name for edge in edges for name in edge}
    rows: list[list[str]] = []
    while left:
        row = sorted(name for name in left if not any(a == name and b in left for a, b in edges))
        if not row:
            raise SystemExit(f"These packages import each other in a circle: {sorted(left)}.")
        rows.append(row)
        left -= set(row)
    return rows


def design_page() -> str:
    rows = [f"| `{name}` | {_purpose(name)} |" for row in layers(imports()) for name in row]
    return DESIGN + "\n".join(rows) + "\n"


def _purpose(package: str) -> str:
    """The first paragraph of the package's docstring."""
    tree = ast.parse((SOURCE / package / "__init__.py").read_text(encoding="utf-8"))
    return (ast.get_docstring(tree) or "").split("\n\n")[0].replace("\n", " ")


def layers_svg() -> str:
    """Boxes in rows, from the ground up; thicker lines for more imports; only those that no other path implies."""
    edges = imports()
    rows = layers(edges)
    width, box, high, gap = 760, 110, 34, 36
    place = {}
    for level, row in enumerate(rows):
        for number, name in enumerate(row):
            x = width * (number + 1) / (len(row) + 1)
            place[name] = (x, (len(rows) - level - 1) * (high + gap) + 10)
    lines = []
    for (upper, lower), count in sorted(edges.items()):
        if _implied(edges, upper, lower):
            continue
        (x1, y1), (x2, y2) = place[upper], place[lower]
        lines.append(
            f'<path d="M{x1:.0f},{y1 + high} C{x1:.0f},{y1 + high + 20} {x2:.0f},{y2 - 20} {x2:.0f},{y2}" '
            f'stroke-width="{1 + min(count, 40) / 15:.1f}"/>'
        )
    boxes = [
        f'<rect x="{x - box / 2:.0f}" y="{y}" width="{box}" height="{high}" rx="6"/>'
        f'<text x="{x:.0f}" y="{y + 22}">{name}</text>'
        for name, (x, y) in place.items()
    ]
    size = f'viewBox="0 0 {width} {len(rows) * (high + gap)}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{STYLE}</style>{"".join(lines + boxes)}</svg>\n'


def _implied(edges: Counter[tuple[str, str]], upper: str, lower: str) -> bool:
    """Whether a longer way leads there, too."""
    seen, front = set(), [b for a, b in edges if a == upper and b != lower]
    while front:
        name = front.pop()
        if name == lower:
            return True
        if name not in seen:
            seen.add(name)
            front += [b for a, b in edges if a == name]
    return False
