"""Which answer to ask for next, from a finished run.

`ask_next` decides for each item whether one more answer is worth its cost; `relabel_queue` lists the items in the order of
`pipeline.item_order` with the reasons of `queue_reasons`; `label_studio_tasks` makes a Label Studio project of the list.
Shape letters: M items of the queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pals.util.lazy import lazily

if TYPE_CHECKING:
    from pals.relabel.ask_next import next_answers

__all__ = ["next_answers"]

__getattr__ = lazily(__name__, {"ask_next": ("next_answers",)})
