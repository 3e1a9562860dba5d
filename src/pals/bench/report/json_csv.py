"""Tables as data for other programs: JSON with everything that is known, CSV with a line per number."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from pals.bench.report.layout import legend
from pals.bench.report.result_table import Speed, Table


def as_records(table: Table) -> list[dict[str, Any]]:
    """One flat record per entry, numbers as numbers."""
    columns = {column.name: column for column in table.columns}
    records = []
    for entry in table.entries:
        column, runs = columns[entry.column], entry.ours.runs if entry.ours else ()
        published = entry.published or (None, None)
        speed = asdict(entry.speed) if entry.speed else dict.fromkeys(Speed.__dataclass_fields__)
        paired = entry.against
        records.append(
            {
                "table": table.name,
                "group": entry.group,
                "row": entry.row,
                "column": entry.column,
                "schedule": table.schedule,
                "epochs": table.epochs,
                "quantity": table.quantity,
                "mean": entry.ours.mean if entry.ours else None,
                "std": entry.ours.std if entry.ours else None,
                "n": len(runs),
                "paper_mean": published[0],
                "paper_std": published[1],
                "difference": entry.difference,
                "mark": entry.mark,
                "against": table.against if paired else None,
                **dict(zip(("against_mean", "against_low", "against_high"), paired or (None, None, None), strict=True)),
                "protocol": column.protocol,
                "nominal_noise": column.nominal_noise,
                "effective_noise": column.effective_noise,
                **speed,
                "note": entry.note,
                "runs": [asdict(run) for run in runs],
            }
        )
    return [{key: _rounded(value) for key, value in record.items()} for record in records]


def to_json(tables: Sequence[Table]) -> str:
    """Everything that is known: one object, or a list where there are several tables."""
    found = [
        {
            "table": table.name,
            "title": table.title,
            "schedule": table.schedule,
            "epochs": table.epochs,
            "legend": legend(table),
            "entries": as_records(table),
        }
        for table in tables
    ]
    return json.dumps(found[0] if len(found) == 1 else found, indent=2, ensure_ascii=False) + "\n"


def to_csv(tables: Sequence[Table]) -> str:
    """One line per entry; folders and commits of its runs are separated by semicolons."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for number, record in enumerate(record for table in tables for record in as_records(table)):
        runs = record.pop("runs")
        record["folders"] = "; ".join(run["folder"] for run in runs)
        record["commits"] = "; ".join(run["commit"] or "" for run in runs)
        if not number:
            writer.writerow(record)
        writer.writerow(["" if value is None else value for value in record.values()])
    return out.getvalue()


def _rounded(value: Any) -> Any:
    return round(value, 6) if isinstance(value, float) else value
