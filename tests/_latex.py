"""What can be said of LaTeX without a LaTeX: environments nest, every line fills its columns."""

from __future__ import annotations

import re


def environments(text: str) -> list[str]:
    """The names of environments, in order; fails where they do not nest."""
    found, open_ones = [], []
    for kind, name in re.findall(r"\\(begin|end)\{(\w+)\}", text):
        if kind == "begin":
            found.append(name)
            open_ones.append(name)
        else:
            assert open_ones.pop() == name
    assert not open_ones
    return found


def columns_of(text: str) -> list[tuple[int, int]]:
    """For each line of each tabular: the columns that it fills and those that there are."""
    counts = []
    for spec, body in re.findall(r"\\begin\{tabular\}\{@\{\}([lr]+)@\{\}\}(.*?)\\end\{tabular\}", text, flags=re.S):
        for line in body.splitlines():
            if line.endswith(r"\\"):
                cells = re.split(r"(?<!\\)&", line)
                spans = [int(found[1]) if (found := re.search(r"\\multicolumn\{(\d+)\}", cell)) else 1 for cell in cells]
                counts.append((sum(spans), len(spec)))
    return counts
