"""The pictures of docs/tutorial.md: parts of the reports of two runs. Needs chromium and selenium.

    python docs/_site/report_pictures.py runs/crowd runs/trained docs/pictures

`runs/crowd` is that of the tutorial; `runs/trained` is the same with `--method pals --epochs 30 --folds 0`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from PIL import Image
from side_by_side import browser, shot

WIDTH = 1280
TO_A_SECTION = """
const top = document.querySelector("#{}").getBoundingClientRect().top + scrollY - 70;  // below the bar of sections
scrollTo({{ top, behavior: "instant" }});
"""
PARTS = (("overview", 690), ("doubtful", 1010), ("training", 610))


def report_pictures(run: Path, trained: Path, out: Path) -> None:
    for section, height in PARTS:
        page = (trained if section == "training" else run) / "report.html"
        with browser(WIDTH, height) as chrome:
            picture = shot(chrome, page.resolve().as_uri(), "" if section == "overview" else TO_A_SECTION.format(section))
        small = picture.quantize(256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
        small.save(out / f"report_{section}.png", optimize=True)


if __name__ == "__main__":
    report_pictures(*map(Path, sys.argv[1:]))
