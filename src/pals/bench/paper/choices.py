"""What a method is trained with in a cell, where the defaults do not already say it: settings that its authors choose by the
rates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pals.bench.paper.cells import CROWD, Cell, CrowdCell
from pals.runs.settings import DataConfig, RunConfig
from pals.util.config import merge

ALIM = ("alim-scale", "alim-onehot")

# tau of IRNet on CIFAR-10, by (q, eta).
_IRNET_TAU = {
    (0.1, 0.1): 0.020,
    (0.1, 0.2): 0.016,
    (0.1, 0.3): 0.010,
    (0.3, 0.1): 0.016,
    (0.3, 0.2): 0.010,
    (0.3, 0.3): 0.008,
    (0.5, 0.1): 0.010,
    (0.5, 0.2): 0.008,
    (0.5, 0.3): 0.008,
}

_FREDIS_NAMES = (
    ("train", "lr"),
    ("train", "weight_decay"),
    ("method", "consistency_weight"),
    ("method", "wrong_weight"),
    ("method", "temperature"),
    ("method", "changes"),
    ("method", "add_step"),
    ("method", "remove_step"),
    ("method", "removals"),
    ("method", "update_every"),
    ("method", "averaging"),
)
# FREDIS by (q, eta): the rows of docs/methods/fredis.md.
_FREDIS: Mapping[str, Mapping[tuple[float, float], tuple[float, ...]]] = {
    "cifar10": {
        (0.1, 0.1): (0.001, 1e-5, 10.0, 0.01, 1.0, 500, 0.001, 0.01, 5, 10, 0.001),
        (0.3, 0.1): (0.001, 1e-4, 10.0, 0.001, 6.0, 500, 0.0001, 0.0001, 1, 20, 0.01),
        (0.5, 0.1): (0.01, 1e-3, 10.0, 0.001, 8.0, 1000, 0.001, 0.0001, 1, 10, 0.2),
        (0.1, 0.3): (0.001, 1e-3, 10.0, 0.1, 2.0, 100, 0.1, 0.01, 3, 20, 0.2),
        (0.3, 0.3): (0.01, 1e-5, 10.0, 0.1, 3.0, 100, 0.1, 0.001, 1, 10, 0.2),
        (0.5, 0.3): (0.01, 1e-5, 10.0, 0.1, 3.0, 100, 0.1, 0.001, 1, 10, 0.2),
    },
    "cifar100": {
        (0.01, 0.1): (0.01, 1e-3, 10.0, 10.0, 2.0, 500, 0.01, 0.01, 3, 50, 0.2),
        (0.05, 0.1): (0.01, 1e-3, 10.0, 10.0, 10.0, 500, 0.1, 0.001, 5, 20, 0.2),
        (0.01, 0.3): (0.01, 1e-5, 10.0, 1.0, 3.0, 500, 0.01, 0.0001, 2, 20, 0.01),
        (0.05, 0.3): (0.01, 1e-5, 1.0, 0.1, 0.8, 500, 0.1, 0.1, 1, 10, 0.2),
        (0.05, 0.5): (0.01, 1e-3, 10.0, 1.0, 7.0, 1000, 0.01, 0.1, 2, 10, 0.01),
    },
}

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
    by_rates = _by_rates(method, cell) if isinstance(cell, Cell) else {}
    return merge({"data": cell.values(), "method": {"name": method}}, by_rates)


def chosen_by_rates(config: RunConfig) -> dict[str, Any]:
    """Settings that the tables choose by the rates of this run, where it has others: dotted key and value."""
    data = config.data
    if not isinstance(data, DataConfig) or data.name not in ("cifar10", "cifar100") or data.supervision == "truth":
        return {}
    try:
        chosen = _by_rates(config.method_name, Cell(data.name, data.partial_rate, data.noise_rate))
    except (KeyError, ValueError):  # rates that no author has
        return {}
    present = config.to_dict()
    return {
        f"{section}.{name}": value
        for section, options in chosen.items()
        for name, value in options.items()
        if present[section][name] != value
    }


def note_on(method: str, cell: Cell | CrowdCell) -> str:
    """What a reader should know of these settings; often nothing."""
    if isinstance(cell, CrowdCell) or (method, cell.data) in _NOTES:
        return _NOTES.get((method, cell.data), "")
    if method in ALIM:
        return "Given the nominal noise rate, as by its authors; their candidate sets (protocol g2) have exactly that rate."
    if method == "pico+":
        return "Share of reliable items, by noise rate: 0.6 at 0.2, as its authors set it; otherwise 0.9 minus the rate."
    if method == "fredis" and (cell.q, cell.eta) not in _FREDIS[cell.data]:
        q, eta = _fredis_rates(cell)
        return f"Its authors give no settings for these rates; these are for q={q:g}, eta={eta:g}."
    return ""


def _by_rates(method: str, cell: Cell) -> dict[str, Any]:
    """What authors choose by the rates q and eta."""
    if method in ALIM:
        start = {"adjust_from": 140 if cell.q == 0.5 else 80} if cell.data == "cifar10" else {}
        return {"method": {"noise_rate": cell.eta, **start}}
    if method == "pico+":
        return {"method": {"delta": 0.6 if cell.eta == 0.2 else round(0.9 - cell.eta, 2)}}
    if method == "pico" and (cell.data, cell.q) == ("cifar100", 0.1):
        return {"method": {"prototypes_from": 101}}
    if method == "irnet":
        tau_100 = 0.004 if (cell.q, cell.eta) == (0.01, 0.1) else 0.002
        return {"method": {"tau": _IRNET_TAU[cell.q, cell.eta] if cell.data == "cifar10" else tau_100}}
    if method == "fredis":
        found: dict[str, dict[str, Any]] = {"train": {}, "method": {}}
        for (section, name), value in zip(_FREDIS_NAMES, _FREDIS[cell.data][_fredis_rates(cell)], strict=True):
            found[section][name] = value
        return found
    return {}


def _fredis_rates(cell: Cell) -> tuple[float, float]:
    """The rates of the authors whose settings serve here: these, or the next that are harder."""
    return min((q, eta) for q, eta in _FREDIS[cell.data] if q >= cell.q and eta >= cell.eta)
