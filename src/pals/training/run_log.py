"""The log of a run, log.jsonl: one JSON object per line, each line complete before the next begins."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pals.util.errors import InputError
from pals.util.files import read_json_lines, write_text


class RunLog:
    """Appends events to `log.jsonl`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, event: str, **values: Any) -> None:
        line = json.dumps({"event": event, **values}) + "\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(line)
        except OSError as error:
            raise InputError(f"Could not write {self.path}: {error.strerror or error}. Make room and run again.") from None

    def clear(self) -> None:
        write_text(self.path, "")

    def truncate(self, epochs: int) -> None:
        """Remove what was logged after this many epochs: the run continues from there and logs it again."""
        events = [
            event
            for event in read_json_lines(self.path)
            if event.get("event") == "start" or (_is_epoch(event) and event["total_epoch"] <= epochs)
        ]
        write_text(self.path, "".join(json.dumps(event) + "\n" for event in events))


def read_epochs(folder: Path) -> list[Mapping[str, Any]]:
    """The records of the epochs of the run in a folder."""
    return [event for event in read_json_lines(folder / "log.jsonl") if _is_epoch(event)]


def _is_epoch(event: Mapping[str, Any]) -> bool:
    """Whether it is the valid record of an epoch."""
    return event.get("event") == "epoch" and isinstance(event.get("total_epoch"), int)
