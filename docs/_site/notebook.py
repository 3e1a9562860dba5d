"""Run docs/notebook.ipynb from top to bottom, and turn it into a page of the site.

    python docs/_site/notebook.py docs/notebook.ipynb

Cells run in one namespace in this process; what they print and draw is stored in the file. Jupyter is not needed.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib import pyplot as plt

Notebook = dict[str, Any]


def read(path: Path) -> Notebook:
    return dict(json.loads(path.read_text(encoding="utf-8")))


def write(notebook: Notebook, path: Path) -> None:
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def run(notebook: Notebook) -> None:
    """Run all code cells, in an empty folder; their outputs replace those that were there."""
    names: dict[str, Any] = {"__name__": "__main__"}
    matplotlib.use("Agg")
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            code = (cell for cell in notebook["cells"] if cell["cell_type"] == "code")
            for number, cell in enumerate(code, start=1):
                cell |= {"execution_count": number, "outputs": _outputs("".join(cell["source"]), names)}
        finally:
            os.chdir(before)


def _outputs(source: str, names: dict[str, Any]) -> list[dict[str, Any]]:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(source, "<cell>", "exec", dont_inherit=True), names)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": printed.getvalue().splitlines(keepends=True)})
    for number in plt.get_fignums():
        png = io.BytesIO()
        plt.figure(number).savefig(png, dpi=80, bbox_inches="tight")
        picture = base64.b64encode(png.getvalue()).decode()
        outputs.append({"output_type": "display_data", "metadata": {}, "data": {"image/png": picture}})
    plt.close("all")
    return outputs


def as_markdown(notebook: Mapping[str, Any], name: str) -> tuple[str, dict[str, bytes]]:
    """The page, and its pictures by file name."""
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", ()):
            if output["output_type"] == "stream":
                parts.append(f"```\n{''.join(output['text'])}```")
            else:
                file = f"{name}-{len(pictures) + 1}.png"
                pictures[file] = base64.b64decode(output["data"]["image/png"])
                parts.append(f"![What the cell above draws]({file})")
    return "\n\n".join(parts) + "\n", pictures


if __name__ == "__main__":
    path = Path(sys.argv[1])
    notebook = read(path)
    run(notebook)
    write(notebook, path)
