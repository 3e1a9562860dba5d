"""The batches of an epoch. Items are read in advance unless they are on the device; views are made for many steps at once."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pals.data.dataset import Items
from pals.data.row_source import Inputs, in_blocks
from pals.methods import Batch, EpochPlan, Group
from pals.training.engine import Engine
from pals.util.errors import InputError
from pals.util.threads import read_ahead
from pals.vision.augment import Views

REFERENCE_ITEM_SIZE = 3 * 32 * 32
"""Numbers per item for which `Engine.chunk` is meant; of larger items fewer are taken at once."""


@dataclass(frozen=True)
class BatchMaker:
    """Makes batches of `inputs`, which `Engine.place_inputs` returned. Random numbers are drawn when a batch is made, in the
    calling thread, so that reading in advance changes only the time."""

    engine: Engine
    inputs: Inputs
    views: Views
    generator: torch.Generator
    item_size: int
    "Numbers of an item, or of its view if that is larger."

    def make(
        self, plan: EpochPlan, steps: int, batch_size: int, wanted: Sequence[str], random: Mapping[str, Tensor]
    ) -> Generator[Batch, None, None]:
        """Make the batches of one epoch.

        Args:
            plan: groups of items in the order of the epoch.
            steps: number of batches.
            batch_size: items of the main group per batch, and of others that have no size of their own.
            wanted: views of each item, unless a group names its own.
            random: random inputs of the loss, one row per step.

        Yields:
            Batches with their views, targets, side groups and random inputs.
        """
        sizes = {name: group.batch_size or batch_size for name, group in plan.groups.items()}
        together = max(1, self.engine.chunk // max(1, self.item_size // REFERENCE_ITEM_SIZE))  # items
        per_chunk = max(1, together // max(sizes.values()))
        chunks = [range(first, min(steps, first + per_chunk)) for first in range(0, steps, per_chunk)]
        for chunk, rows in zip(chunks, self._rows(plan, sizes, chunks), strict=True):
            made = {
                name: self._make(group, _index(name, group.order_M, chunk, sizes[name]), rows[name], sizes[name], wanted)
                for name, group in plan.groups.items()
            }
            for number, step in enumerate(chunk):
                parts = {name: batches[number] for name, batches in made.items()}
                now = {name: values[step] for name, values in random.items()}
                yield replace(parts.pop("main"), random=now, groups=parts)

    def _rows(self, plan: EpochPlan, sizes: Mapping[str, int], chunks: Sequence[range]) -> Iterator[dict[str, Tensor]]:
        """The inputs of each chunk and group, on the device."""
        inputs, orders = self.inputs, {name: group.order_M for name, group in plan.groups.items()}
        if isinstance(inputs, Tensor):
            for chunk in chunks:
                yield {name: inputs[_index(name, order_M, chunk, sizes[name])] for name, order_M in orders.items()}
            return
        hosts, ranks = {name: order_M.cpu() for name, order_M in orders.items()}, self.engine.ranks

        def read(chunk: range) -> dict[str, tuple[Tensor, int]]:
            """(inputs, number of items) of each group; of several processes each reads its rows."""
            index = {name: _index(name, order_M, chunk, sizes[name]) for name, order_M in hosts.items()}
            return {name: (inputs.take(ranks.rows(index_M)), len(index_M)) for name, index_M in index.items()}

        for rows in read_ahead(read, chunks):
            yield {name: self.engine.send(ranks.gathered(part, count)) for name, (part, count) in rows.items()}

    def _make(self, group: Group, index: Tensor, inputs: Tensor, size: int, wanted: Sequence[str]) -> list[Batch]:
        wanted = wanted if group.views is None else group.views
        views = [torch.split(self.views.make(view, inputs, self.generator), size) for view in wanted]
        target = None if group.target is None else torch.split(group.target[index], size)
        return [
            Batch(index_B, tuple(view[i] for view in views), None if target is None else target[i])
            for i, index_B in enumerate(torch.split(index, size))
        ]


def _index(name: str, order_M: Tensor, chunk: range, size: int) -> Tensor:
    """The items of a group in these steps."""
    start, stop = chunk.start * size, chunk.stop * size
    if name != "main" and len(order_M) < stop:  # a side group shorter than the epoch wraps around
        return order_M[torch.arange(start, stop, device=order_M.device) % len(order_M)]
    return order_M[start:stop]


def check_inputs(items: Items, expected: int) -> None:
    """Refuse inputs that are not `expected` in number, or not finite."""
    inputs = items.inputs
    if len(inputs) != expected:
        raise InputError(f"There are {len(inputs)} inputs but candidate sets for {expected} items.")
    if not inputs.dtype.is_floating_point:
        return
    bad = [~part.flatten(1).isfinite().all(dim=1) for part in in_blocks(inputs)]
    bad_N = torch.cat(bad) if bad else torch.zeros(0, dtype=torch.bool)
    if bad_N.any():
        row = int(bad_N.int().argmax())
        raise InputError(f"{int(bad_N.sum())} of {expected} items hold NaN or infinity, first {items.ids[row]!r}. Drop them.")
