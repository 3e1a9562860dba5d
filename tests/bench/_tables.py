"""Tables built by hand, for the renderer and the figures."""

from __future__ import annotations

from typing import Any

import pandas as pd

from pals.bench.report.result_table import ResultTable

NOTHING = dict.fromkeys(
    ("mean", "std", "paper_mean", "paper_std", "difference", "against", "against_mean", "against_low", "against_high",
     "epoch_seconds", "total_seconds", "times_supervised", "cost", "hardware")
)  # fmt: skip


def entry(
    row: str, column: str, mean: float | None = None, std: float | None = None, runs: int = 1, *, paper: Any = None, **more: Any
) -> dict[str, Any]:
    """A row of `ResultTable.entries`; its group is what stands before the comma of its column."""
    links = [
        {"seed": seed, "accuracy": (mean or 0.0) + 0.5 * (seed - 1), "epochs": 500, "shortened": False,
         "folder": f"runs/r/seed-{seed}", "href": f"../r/seed-{seed}", "commit": "abc1"}
        for seed in range(1, runs + 1)
    ]  # fmt: skip
    return {
        "group": column.partition(",")[0],
        "row": row,
        "column": column,
        **NOTHING,
        "mean": mean,
        "std": std,
        "n": runs if mean is not None else 0,
        "paper_mean": paper[0] if paper else None,
        "paper_std": paper[1] if paper else None,
        "difference": mean - paper[0] if mean is not None and paper else None,
        "mark": "" if mean is not None else "not run",
        "protocol": "g1",
        "nominal_noise": 0.3,
        "effective_noise": None,
        "note": "",
        "runs": links if mean is not None else [],
        **more,
    }


def timed(seconds: float, total: float, times: float | None = None, cost: float | None = None) -> dict[str, Any]:
    return {"epoch_seconds": seconds, "total_seconds": total, "times_supervised": times, "cost": cost, "hardware": "X1, bf16"}


def table(*entries: dict[str, Any], name: str = "9", title: str = "A & B: 100%", **more: Any) -> ResultTable:
    return ResultTable(name, title, pd.DataFrame(list(entries), dtype=object), **more)
