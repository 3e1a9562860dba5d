"""The section on items that are probably of a class that is missing: groups that look alike, as proposals for new classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pals.report.format import isolated, number, rows, text
from pals.report.sections import said

MOST_LABELS = 4
"""Labels that a group is said to have been given."""


def groups(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """As the template shows them, the largest first."""
    return [_group(row) for row in rows(data.get("none_of_these"))]


def _group(row: Mapping[str, Any]) -> dict[str, Any]:
    found = row.get("labels")
    pairs = [pair for pair in found if isinstance(pair, (list, tuple)) and len(pair) == 2] if isinstance(found, list) else []
    counted = [f"{isolated(text(name))} ×{times:,.0f}" for name, of in pairs if (times := number(of)) is not None]
    shown = [_item(one) for one in rows(row.get("items"))]
    return {
        "size": max(number(row.get("size")) or 0, len(shown)),
        "file": text(row.get("file")),
        "labels": counted[:MOST_LABELS] + ["others"] * (len(counted) > MOST_LABELS),
        "disputed": text(row.get("disputed") or ""),
        "shown": shown,
    }


def _item(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "item": text(row.get("item")),
        "probability": number(row.get("none_of_these")),
        "said": said(row),
    }
