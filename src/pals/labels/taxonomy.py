"""A tree over the classes: its leaves are the classes, an inner node stands for all leaves below it.

Nodes are kept in depth-first order, so the leaves below a node are neighbours, and a node is no more than a span of classes.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pals.util.errors import InputError, unknown
from pals.util.files import mark_as_text
from pals.util.words import quoted

SURE = 0.9
"""Probability that a node must have for a result to be rolled up to it, unless another is asked for."""
NO_NODE = -1


class Entry(NamedTuple):
    """A node as somebody wrote it down."""

    label: str
    parent: str | None
    place: str = ""  # where, for messages: "birds.csv, row 7"


class RolledUp(NamedTuple):
    """Of each item the deepest node that is sure enough, and its probability; `NO_NODE` and NaN where not even a root is."""

    node_N: np.ndarray
    probability_N: np.ndarray


@dataclass(frozen=True)
class Taxonomy:
    """One or more trees: T nodes, depth first, each with the number of its parent (-1 for a root). C of them are leaves."""

    nodes: tuple[str, ...]
    parents: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "nodes", tuple(self.nodes))
        object.__setattr__(self, "parents", tuple(map(int, self.parents)))
        if not self.nodes or len(self.nodes) != len(self.parents) or len(set(self.nodes)) < len(self.nodes):
            raise InputError("A taxonomy needs nodes with different names, and a parent for each. Use Taxonomy.from_parents.")
        above: list[int] = [NO_NODE]
        for number, parent in enumerate(self.parents):
            while above and above[-1] != parent:
                above.pop()
            if not above:
                raise InputError(
                    "The nodes of a taxonomy must be in depth-first order. Use Taxonomy.from_parents, which orders them."
                )
            above.append(number)

    # ---- from what people write

    @classmethod
    def read(cls, path: str | Path, encoding: str | None = None) -> Taxonomy:
        """A table with the columns label and parent, paths (`birds;gulls;kittiwake`, a line each), or a JSON tree."""
        from pals.labels.taxonomy_files import read_entries

        return cls.of(read_entries(Path(path), encoding))

    @classmethod
    def from_parents(cls, parents: Mapping[str, str | None]) -> Taxonomy:
        """From the parent of each node by name; None (or "") for a root."""
        return cls.of([Entry(label, parent or None) for label, parent in parents.items()])

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> Taxonomy:
        """From nodes in any order; siblings keep theirs."""
        by_label = _once_each(entries)
        below: dict[str | None, list[str]] = {None: []}
        for entry in by_label.values():
            if entry.parent is not None and entry.parent not in by_label:
                raise InputError(
                    f"{_at(entry)}{unknown('parent', entry.parent, by_label, most=4)} Fix the name, or give it a row of its "
                    "own, with no parent if it is a root."
                )
            below.setdefault(entry.parent, []).append(entry.label)
        nodes, parents = list[str](), list[int]()
        open_ = [(label, NO_NODE) for label in reversed(below[None])]
        while open_:
            label, parent = open_.pop()
            open_ += [(child, len(nodes)) for child in reversed(below.get(label, []))]
            nodes.append(label)
            parents.append(parent)
        if len(nodes) < len(by_label):
            raise _cycle(by_label, set(nodes))
        return cls(tuple(nodes), tuple(parents))

    # ---- its shape

    @cached_property
    def span_T2(self) -> np.ndarray:
        """The first class below each node, and the one after the last."""
        parent_T, leaf_T = np.array(self.parents), np.zeros(len(self.parents), dtype=bool)
        leaf_T[self.leaf_C] = True
        first_T = np.cumsum(leaf_T) - leaf_T
        size_T = leaf_T.astype(np.int64)
        for number in range(len(parent_T) - 1, -1, -1):  # children come after their parents
            if parent_T[number] >= 0:
                size_T[parent_T[number]] += size_T[number]
        return np.column_stack([first_T, first_T + size_T])

    @cached_property
    def leaf_C(self) -> np.ndarray:
        """The node that each class is."""
        return np.flatnonzero(~np.isin(np.arange(len(self.parents)), self.parents))

    @cached_property
    def leaves(self) -> tuple[str, ...]:
        """The classes, in order."""
        return tuple(self.nodes[node] for node in self.leaf_C)

    @cached_property
    def depth_T(self) -> np.ndarray:
        """1 for a root."""
        depth_T = np.ones(len(self.nodes), dtype=np.int64)
        for number, parent in enumerate(self.parents):
            if parent >= 0:
                depth_T[number] = depth_T[parent] + 1
        return depth_T

    @property
    def below_TC(self) -> np.ndarray:
        """Whether a class is the node or below it."""
        class_C, span_T2 = np.arange(len(self.leaves)), self.span_T2
        below_TC: np.ndarray = (span_T2[:, :1] <= class_C) & (class_C < span_T2[:, 1:])
        return below_TC

    @cached_property
    def level_LC(self) -> np.ndarray:
        """The node above each class on every level that tells classes apart, from coarse to fine; the last are the classes
        themselves. A class that ends early stands for itself further down."""
        parent_T, row_C, levels = np.array(self.parents), self.leaf_C, [self.leaf_C]
        for depth in range(int(self.depth_T.max()) - 1, 0, -1):
            row_C = np.where(self.depth_T[row_C] > depth, parent_T[row_C], row_C)
            if 1 < len(np.unique(row_C)) < len(np.unique(levels[0])):
                levels.insert(0, row_C)
        return np.stack(levels)

    @property
    def num_levels(self) -> int:
        return len(self.level_LC)

    @cached_property
    def number(self) -> dict[str, int]:
        """The number of each node by its name."""
        return {name: number for number, name in enumerate(self.nodes)}

    def path(self, name: str) -> tuple[str, ...]:
        """The nodes from the root down to this one."""
        found, node = list[str](), self.number[name]
        while node >= 0:
            found.append(self.nodes[node])
            node = self.parents[node]
        return tuple(reversed(found))

    @cached_property
    def by_path(self) -> dict[str, str]:
        """Each node by its whole path, "animal/amphibian/newt", where no other node has that for a name."""
        return {path: name for name in self.nodes if (path := "/".join(self.path(name))) not in self.number}

    def below(self, name: str) -> tuple[str, ...]:
        """The classes that a node stands for; if the name is not a node, just the name."""
        if name not in self.number:
            return (name,)
        first, last = self.span_T2[self.number[name]]
        return self.leaves[first:last]

    def branch_of(self, class_names: Iterable[str]) -> np.ndarray:
        """The branch (from 0) on the coarsest level to which each of these classes belongs."""
        branch_C = np.unique(self.level_LC[0], return_inverse=True)[1]
        place = {name: c for c, name in enumerate(self.leaves)}
        names = list(class_names)
        for name in names:
            if name not in place:
                raise unknown("class", name, place, most=4)
        return np.array([branch_C[place[name]] for name in names], dtype=np.int64)

    def keep(self, class_names: Iterable[str]) -> Taxonomy:
        """The tree reduced to these classes and the nodes above them."""
        kept, leaves = set[int](), set(self.leaf_C.tolist())
        for name in class_names:
            node = self.number.get(name, NO_NODE)
            if node not in leaves:
                raise InputError(f"{unknown('class', name, self.leaves, most=4)} Fix it, or add it to the taxonomy as a leaf.")
            while node >= 0:
                kept.add(node)
                node = self.parents[node]
        place = {node: number for number, node in enumerate(sorted(kept))} | {NO_NODE: NO_NODE}
        return Taxonomy(tuple(self.nodes[node] for node in sorted(kept)), tuple(place[self.parents[n]] for n in sorted(kept)))

    def with_root(self, name: str) -> Taxonomy:
        """The tree with another class as a root."""
        return Taxonomy((*self.nodes, name), (*self.parents, NO_NODE))

    # ---- sets and probabilities of classes

    def node_of_spans(self, first_X: np.ndarray, last_X: np.ndarray) -> np.ndarray:
        """The deepest node that stands for exactly the classes from `first_X` to before `last_X`, or `NO_NODE`."""
        classes = len(self.leaves) + 1
        code_T = self.span_T2[:, 0] * classes + self.span_T2[:, 1]
        code_U, back_U = np.unique(code_T[::-1], return_index=True)  # in depth-first order the last is the deepest
        code_X = first_X * classes + last_X
        place_X = np.searchsorted(code_U, code_X).clip(max=len(code_U) - 1)
        node_X: np.ndarray = np.where(code_U[place_X] == code_X, len(code_T) - 1 - back_U[place_X], NO_NODE)
        return node_X

    def node_probabilities(self, probability_NC: np.ndarray) -> np.ndarray:
        """N x T: the sum over the classes below each node."""
        total_NC = np.cumsum(np.pad(np.asarray(probability_NC, dtype=np.float64), ((0, 0), (1, 0))), axis=1)
        found_NT: np.ndarray = (total_NC[:, self.span_T2[:, 1]] - total_NC[:, self.span_T2[:, 0]]).clip(0.0, 1.0)
        found_NT[:, self.leaf_C] = probability_NC
        return found_NT

    def roll_up(self, probability_NC: np.ndarray, sure: float = SURE) -> RolledUp:
        """The deepest node with a probability above `sure`."""
        check_sure(sure)
        found_NT = self.node_probabilities(probability_NC)
        depth_NT = np.where(found_NT > sure, self.depth_T, 0)
        node_N = depth_NT.argmax(axis=1)
        none_N = depth_NT.max(axis=1) == 0
        probability_N = found_NT[np.arange(len(found_NT)), node_N]
        return RolledUp(np.where(none_N, NO_NODE, node_N), np.where(none_N, np.nan, probability_N))

    def names_of(self, node_X: np.ndarray) -> np.ndarray:
        """Names by number; empty for `NO_NODE`."""
        name_X: np.ndarray = np.array([*self.nodes, ""], dtype=object)[node_X]
        return name_X

    def to_csv(self) -> str:
        """As a table with the columns label and parent, which `read` reads back."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(("label", "parent"))
        above = (self.nodes[parent] if parent >= 0 else "" for parent in self.parents)
        writer.writerows((mark_as_text(name), mark_as_text(parent)) for name, parent in zip(self.nodes, above, strict=True))
        return text.getvalue()


def check_sure(sure: float) -> None:
    if not 0.5 <= sure < 1:
        raise InputError(f"sure = {sure}: give a probability from 0.5 to below 1, so that no two branches can both reach it.")


def _at(entry: Entry) -> str:
    return f"{entry.place}: " if entry.place else ""


def _once_each(entries: Iterable[Entry]) -> dict[str, Entry]:
    by_label: dict[str, Entry] = {}
    for entry in entries:
        first = by_label.setdefault(entry.label, entry)
        if first is not entry:
            under = [f"under {quoted(one.parent)}" if one.parent else "as a root" for one in (first, entry)]
            where = f" ({first.place})" if first.place else ""
            raise InputError(
                f"{_at(entry)}the label {quoted(entry.label)} appears here {under[1]} and earlier{where} {under[0]}; keep "
                "one of them, or give them different names."
            )
    if not by_label:
        raise InputError("The taxonomy has no labels. Give each class with its parent.")
    return by_label


def _cycle(by_label: Mapping[str, Entry], reached: set[str]) -> InputError:
    """Nodes that no root leads to go round in a circle somewhere."""
    label = next(label for label in by_label if label not in reached)
    seen: list[str] = []
    while label not in seen:
        seen.append(label)
        label = by_label[label].parent or ""
    circle = seen[seen.index(label) :]
    first = min((by_label[one] for one in circle), key=list(by_label.values()).index)
    shown = " > ".join(map(quoted, [*circle[:4], *(["..."] if len(circle) > 4 else []), circle[0]]))
    return InputError(f"{_at(first)}the parents form a cycle: {shown}; give one of these labels another parent, or none.")
