"""What a method is trained with in a cell, where the defaults do not already say it: settings that its authors choose by the
rates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pals.bench.paper.data_columns import CROWD, Cell, CrowdCell
from pals.runs.published_settings import settings_by_rates
from pals.util.config import merge

ALIM = ("alim-scale", "alim-onehot")

_OURS = "Our recommendation: the method's authors give no settings for this data set."
_AS_CUB = "Its authors' settings for CUB-200: the paper does not say which it used here."
_NOTES: Mapping[tuple[str, str], str] = {
    ("rc", "cifar100"): _OURS,
    ("lws", "cifar100"): _OURS,
    ("pico", "cifar100h"): "Settings of CIFAR-100: its authors give none for this data set.",
    ("pico+", "cifar100h"): "Settings of CIFAR-100: its authors give none for this data set.",
    ("pico+", "cub200"): "Settings of PiCO, with 5 neighbours: its authors give none for this data set.",
    **{("pico", data): _AS_CUB for data in CROWD},
    **{("alim-onehot", data): _AS_CUB + " The noise rate is estimated." for data in CROWD},
}


def settings_in(method: str, cell: Cell | CrowdCell) -> dict[str, Any]:
    """The settings of a run, as far as the defaults do not have them."""
    by_rates = settings_by_rates(method, cell.data, cell.q, cell.eta).settings if isinstance(cell, Cell) else {}
    return merge({"data": cell.values(), "method": {"name": method}}, by_rates)


def note_on(method: str, cell: Cell | CrowdCell) -> str:
    """What a reader should know of these settings; often nothing."""
    if isinstance(cell, CrowdCell) or (method, cell.data) in _NOTES:
        return _NOTES.get((method, cell.data), "")
    if method in ALIM:
        return "Given the nominal noise rate, as by its authors; their candidate sets (protocol g2) have exactly that rate."
    if method == "pico+":
        return "Share of reliable items, by noise rate: 0.6 at 0.2, as its authors set it; otherwise 0.9 minus the rate."
    q, eta = settings_by_rates(method, cell.data, cell.q, cell.eta).rates or (None, None)
    if method == "fredis" and (q, eta) != (cell.q, cell.eta):
        return f"Its authors give no settings for these rates; these are for q={q:g}, eta={eta:g}."
    return ""
