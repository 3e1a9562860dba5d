"""A tree over the classes: its leaves are the classes, and an inner node stands for all leaves below it.

Nodes are kept in depth-first order, so the leaves below a node are consecutive, and a node is a span of classes:
    P(node t) = sum of P(c) over first_t <= c < last_t

Symbols: N items, C classes (leaves), T nodes, L levels, X any number of nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pals.util.errors import InputError, unknown
from pals.util.words import quoted

SURE = 0.9
"""Default probability that a node must exceed for an item to be rolled up to it."""
NO_NODE = -1


class TaxonomyNode(NamedTuple):
    """A node as it is written in a file."""

    label: str
    parent: str | None
    place: str = ""  # for messages: "birds.csv, row 7"

    @property
    def prefix(self) -> str:
        return f"{self.place}: " if self.place else ""


class RolledUp(NamedTuple):
    """Each item's deepest node with a high enough probability, and that probability; `NO_NODE` and NaN if no root has one."""

    node_N: np.ndarray
    probability_N: np.ndarray


@dataclass(frozen=True)
class Taxonomy:
    """One or more trees over the classes.

    Args:
        nodes: Names of the T nodes, depth first.
        parents: Number of each node's parent; -1 for a root.

    Raises:
        InputError: Names that occur twice, or nodes that are not in depth-first order (`from_parents` orders them).

    >>> import numpy as np
    >>> from pals import Taxonomy
    >>> tree = Taxonomy.from_parents({"birds": None, "gull": "birds", "tern": "birds", "seal": None})
    >>> tree.leaves, tree.below("birds")
    (('gull', 'tern', 'seal'), ('gull', 'tern'))
    >>> tree.names_of(tree.roll_up(np.array([[0.5, 0.45, 0.05]]), sure=0.9).node_N).tolist()
    ['birds']
    """

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
                raise InputError("The nodes of a taxonomy must be in depth-first order, as Taxonomy.from_parents sorts them.")
            above.append(number)

    # ---- readers

    @classmethod
    def read(cls, path: str | Path, encoding: str | None = None) -> Taxonomy:
        """Reads a file.

        Args:
            path: A table with the columns label and parent, paths (`birds;gulls;kittiwake`, a line each), or a JSON tree.
            encoding: Of the text; default UTF-8.

        Raises:
            InputError: The file is no taxonomy, a label occurs twice, a parent is unknown, or the parents form a cycle.
        """
        from pals.labels.taxonomy_files import read_nodes

        return cls.of(read_nodes(Path(path), encoding))

    @classmethod
    def from_parents(cls, parents: Mapping[str, str | None]) -> Taxonomy:
        """From the parent of each node by name; None (or "") for a root."""
        return cls.of([TaxonomyNode(label, parent or None) for label, parent in parents.items()])

    @classmethod
    def of(cls, written: Sequence[TaxonomyNode]) -> Taxonomy:
        """From nodes in any order; siblings keep theirs."""
        by_label = _by_label(written)
        below: dict[str | None, list[str]] = {None: []}
        for node in by_label.values():
            if node.parent is not None and node.parent not in by_label:
                raise InputError(f"{node.prefix}{unknown('parent', node.parent, by_label, most=4)} Fix it, or give it a row.")
            below.setdefault(node.parent, []).append(node.label)
        nodes, parents = list[str](), list[int]()
        waiting = [(label, NO_NODE) for label in reversed(below[None])]
        while waiting:
            label, parent = waiting.pop()
            waiting += [(child, len(nodes)) for child in reversed(below.get(label, []))]
            nodes.append(label)
            parents.append(parent)
        if len(nodes) < len(by_label):
            raise _cycle(by_label, set(nodes))
        return cls(tuple(nodes), tuple(parents))

    # ---- shape

    @cached_property
    def span_T2(self) -> np.ndarray:
        """The first class below each node, and the one after the last: first_t and last_t."""
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
        """Node of each class."""
        return np.flatnonzero(~np.isin(np.arange(len(self.parents)), self.parents))

    @cached_property
    def leaves(self) -> tuple[str, ...]:
        """The classes, in order."""
        return tuple(self.nodes[node] for node in self.leaf_C)

    @cached_property
    def depth_T(self) -> np.ndarray:
        """Depth of each node; 1 for a root."""
        depth_T = np.ones(len(self.nodes), dtype=np.int64)
        for number, parent in enumerate(self.parents):
            if parent >= 0:
                depth_T[number] = depth_T[parent] + 1
        return depth_T

    @cached_property
    def level_LC(self) -> np.ndarray:
        """The node above each class on every level that separates classes, from coarse to fine; the last level is the classes.

        A class less deep than a level stands for itself on it.
        """
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
        """Number of each node by its name."""
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
        """Each node by its whole path, "animal/amphibian/newt", unless that is the name of a node."""
        return {path: name for name in self.nodes if (path := "/".join(self.path(name))) not in self.number}

    def below(self, name: str) -> tuple[str, ...]:
        """The classes that a node stands for; of a name that is not a node, the name."""
        if name not in self.number:
            return (name,)
        first, last = self.span_T2[self.number[name]]
        return self.leaves[first:last]

    def branch_of(self, class_names: Iterable[str]) -> np.ndarray:
        """The branch (from 0) on the coarsest level to which each of these classes belongs: `group_C` of `make_candidates`."""
        branch_of = dict(zip(self.leaves, np.unique(self.level_LC[0], return_inverse=True)[1].tolist(), strict=True))
        names = list(class_names)
        for name in names:
            if name not in branch_of:
                raise unknown("class", name, branch_of, most=4)
        return np.array([branch_of[name] for name in names], dtype=np.int64)

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
        """N x T: P(node t), the sum over the classes below it."""
        total_NC = np.cumsum(np.pad(np.asarray(probability_NC, dtype=np.float64), ((0, 0), (1, 0))), axis=1)
        found_NT: np.ndarray = (total_NC[:, self.span_T2[:, 1]] - total_NC[:, self.span_T2[:, 0]]).clip(0.0, 1.0)
        found_NT[:, self.leaf_C] = probability_NC
        return found_NT

    def roll_up(self, probability_NC: np.ndarray, sure: float = SURE) -> RolledUp:
        """Each item's deepest node with a probability above `sure`.

        Args:
            probability_NC: Probabilities of the classes, in the order of `leaves`.
            sure: From 0.5 to below 1; default 0.9.

        Raises:
            InputError: `sure` is outside this range.
        """
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
        """A table with the columns label and parent, which `read` reads back."""
        import pandas as pd  # only here: a tree needs no tables

        from pals.util.csv_text import csv_text

        return csv_text(pd.DataFrame({"label": self.nodes, "parent": self.names_of(np.array(self.parents))}))


def check_sure(sure: float) -> None:
    if not 0.5 <= sure < 1:
        raise InputError(f"sure = {sure}: give a probability from 0.5 to below 1, so that no two branches can both reach it.")


def _by_label(nodes: Iterable[TaxonomyNode]) -> dict[str, TaxonomyNode]:
    """The nodes by their labels, each of which may occur once."""
    by_label: dict[str, TaxonomyNode] = {}
    for node in nodes:
        first = by_label.setdefault(node.label, node)
        if first is not node:
            under = [f"under {quoted(one.parent)}" if one.parent else "as a root" for one in (first, node)]
            where = f" ({first.place})" if first.place else ""
            raise InputError(
                f"{node.prefix}the label {quoted(node.label)} appears here {under[1]} and earlier{where} {under[0]}; keep "
                "one of them, or give them different names."
            )
    if not by_label:
        raise InputError("The taxonomy has no labels. Give each class with its parent.")
    return by_label


def _cycle(by_label: Mapping[str, TaxonomyNode], reached: set[str]) -> InputError:
    """The error for nodes that no root leads to: following their parents ends in a cycle."""
    label = next(label for label in by_label if label not in reached)
    visited: list[str] = []
    while label not in visited:
        visited.append(label)
        label = by_label[label].parent or ""
    cycle = visited[visited.index(label) :]
    first = min((by_label[one] for one in cycle), key=list(by_label.values()).index)
    shown = " > ".join(map(quoted, [*cycle[:4], *(["..."] if len(cycle) > 4 else []), cycle[0]]))
    return InputError(f"{first.prefix}the parents form a cycle: {shown}; give one of these labels another parent, or none.")
