"""What each data set and method was published with: `published_settings.yaml`, read when first asked for."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Literal, NamedTuple

import yaml

from pals.util.config import merge

Settings = Mapping[str, Any]


@cache
def published_settings() -> Mapping[str, Mapping[str, Any]]:
    """The whole file: `data_sets`, `encoders`, `methods` and `by_rates`."""
    text = files("pals.runs").joinpath("published_settings.yaml").read_text(encoding="utf-8")
    content: Mapping[str, Mapping[str, Any]] = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return content


def encoder_settings(kind: Literal["head", "fine_tuned", "frozen", "adapted"]) -> Settings:
    """How a head on features or a pretrained network is trained, whatever the data set.

    Args:
        kind: "head" or "fine_tuned" for the options of the optimizer alone; "frozen" or "adapted" for a whole section `train`.
    """
    settings: Settings = published_settings()["encoders"][kind]
    return settings


def settings_of(data: str, method: str, network: Settings) -> dict[str, Any]:
    """The published settings of a method on a data set.

    Args:
        data: name of the data set; one that is not in the file has no settings.
        method: registered name of the method.
        network: the user's section `network`: `frozen` and `adapt` replace the training of the data set's own network.

    Returns:
        Sections with the values that differ from the defaults.
    """
    content = published_settings()
    by_encoder = (
        encoder_settings("frozen") if network.get("frozen") else encoder_settings("adapted") if network.get("adapt") else {}
    )
    return merge(content["data_sets"].get(data, {}), content["methods"].get(data, {}).get(method, {}), by_encoder)


class ByRates(NamedTuple):
    """Settings that authors choose by the rates, and the rates (q, eta) that they are from; null rates stand for any."""

    settings: dict[str, Any]
    rates: tuple[float | None, float | None] | None
    "None: the file has no row for these rates."


def settings_by_rates(method: str, data: str, q: float, eta: float) -> ByRates:
    """What the method's authors choose by the rates.

    Args:
        method: registered name of the method.
        data: name of the data set.
        q: partial rate, the chance that a wrong label is a candidate.
        eta: noise rate, the chance that the true label is not one.

    Returns:
        Sections with the chosen values, empty where nothing depends on the rates, and the rates of the row they are from.
    """
    settings: dict[str, Any] = {}
    if method in ("alim-scale", "alim-onehot"):
        settings = {"method": {"noise_rate": eta}}
    if method == "pico+":
        settings = {"method": {"delta": 0.6 if eta == 0.2 else round(0.9 - eta, 2)}}
    table = published_settings()["by_rates"].get(method, {}).get(data, {"columns": [], "rows": []})
    rows = [row for row in table["rows"] if row[0] in (None, q) and row[1] in (None, eta)]
    if not rows and table.get("or_harder"):
        rows = sorted(row for row in table["rows"] if row[0] >= q and row[1] >= eta)
    if not rows:
        return ByRates(settings, None)
    for column, value in zip(table["columns"][2:], rows[0][2:], strict=True):
        section, name = column.split(".")
        settings.setdefault(section, {})[name] = value
    return ByRates(settings, (rows[0][0], rows[0][1]))
