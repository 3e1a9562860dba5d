"""Which answer to ask for next, from a finished run.

`decide` says for each item whether one more answer is worth its cost; `queue` orders the items, `relabel_queue` reads the run
and makes the table, `label_studio_tasks` makes a Label Studio project of it; `replay` plays a finished data set back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pals.util.lazy import lazily

if TYPE_CHECKING:
    from pals.relabel.decide import next_answers

__all__ = ["next_answers"]

__getattr__ = lazily(__name__, {"decide": ("next_answers",)})
