"""What people write who are not sure, or who do not know."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import numpy as np

from pals.labels.taxonomy import Taxonomy
from pals.readers.column_types import NO, YES, names_in
from pals.readers.columns import KNOWN, Columns, plain
from pals.readers.read_summary import some
from pals.readers.source import Source, text_of
from pals.util.errors import InputError
from pals.util.words import quoted

NO_ANSWER = frozenset(
    {"?", "don't know", "do not know", "i don't know", "i do not know", "idk", "dunno", "no idea", "not sure", "i'm not sure",
     "unsure", "can't tell", "cannot tell", "can not tell", "skip", "skipped"}
)  # fmt: skip
"""What people write who do not know. Capitals and apostrophes do not matter."""

SURE = frozenset({"sure", "very sure", "quite sure", "certain", "definite", "definitely", "confident", "high", "✓"})
UNSURE = frozenset(
    {"?", "unsure", "not sure", "not so sure", "fairly sure", "uncertain", "not certain", "doubtful", "maybe", "perhaps",
     "probable", "probably", "possible", "possibly", "likely", "guess", "guessed", "guessing", "low", "medium"}
)  # fmt: skip
"""Words beside an answer that say how sure it is; YES and NO say it too, in a column or question that asks."""

ROLES = ("sure", "unsure")
CLEAR = ("sure", "unsure")
"""Columns that can mean nothing else: what is in them must be understood. Others are left alone if it is not."""

MARKED = "\0?"  # at the end of a name that we have marked, which nobody writes
LEADING = re.compile(r"\?+\s*([^?\s].*)", re.DOTALL)
TRAILING = re.compile(r"(.*[^?\s(\[])\s*(?:\?+|[(\[](?P<word>\?+|[^()\[\]]+)[)\]])", re.DOTALL)


class Marks:
    """Which labels are marked as unsure ("gull?", "? gull", "gull (unsure)"), and which say that somebody does not know.

    The mark could be part of a name. It is, where that name is declared, and where none of all labels occurs both with and
    without its mark.
    """

    def __init__(
        self,
        written: Iterable[str],
        declared: Collection[str],
        no_answer: Collection[str],
        taxonomy: Taxonomy | None = None,
    ) -> None:
        self.taxonomy = taxonomy
        self.dont_know = {_folded(word) for word in no_answer}
        names, known = set(written), set(declared)
        marked = {name: unmarked(name) for name in names - known}
        self.bare = {name: bare for name, bare in marked.items() if bare is not None and not self.is_unknown(name)}
        self.kept: list[str] = []
        if not any(bare in names or bare in known for bare in self.bare.values()):
            self.kept, self.bare = sorted(self.bare), {}

    def is_unknown(self, name: str) -> bool:
        """Whether it says that somebody does not know."""
        word = _folded(name)
        plain = word.rstrip("?.! ") or ("?" if "?" in word else word)  # a label "!" says something
        return bool(word) and not self.dont_know.isdisjoint((word, plain))

    def classes(self, listed: Sequence[str] | None) -> tuple[str, ...] | None:
        """The classes that a file lists, without words of those who do not know."""
        return None if listed is None else tuple(name for name in listed if not self.is_unknown(name))

    def leaves(self, names: Sequence[str]) -> list[str]:
        """The same with the classes below it for every node of the taxonomy; what was marked stays so."""
        if self.taxonomy is None:
            return list(names)
        found: dict[str, None] = {}
        for name in names:
            mark = MARKED if name in self.bare else ""
            below = {leaf + mark: leaf for leaf in self.taxonomy.below(self.bare.get(name, name))}
            if mark:
                self.bare |= below
            found |= dict.fromkeys(below)
        return list(found)

    def notes(self) -> list[str]:
        if not self.kept:
            return []
        return [
            f"No label occurs both with and without a mark such as '?', which is taken for a part of the name "
            f"({some(self.kept, len(self.kept))}); if it means unsure, name the classes (--classes)"
        ]


def _folded(word: str) -> str:
    """In small letters, without apostrophes of any kind."""
    return re.sub("['’`´]", "", word.casefold()).strip()


def unmarked(name: str) -> str | None:
    """The label without its mark; None if it has none."""
    found = TRAILING.fullmatch(name)
    if found is not None and (found["word"] or "?").strip("? ").casefold() in ("", *UNSURE):  # not "gull (adult)"
        return found[1]
    found = LEADING.fullmatch(name)
    return None if found is None else found[1]


def sure_of(value: object, role: str) -> bool | None:
    """Whether a cell or answer beside a label says that it is sure; True where it says nothing, None if it is not understood.
    Yes means what its `role` asks: sure or unsure."""
    word = (text_of(value) or "").strip().casefold()
    if word in ("", "nan", "na", "n/a", "none", "null") or word in SURE:
        return True
    if word in UNSURE:
        return False
    if word in YES or word == "x":
        return role == "sure"
    return role == "unsure" if word in NO else None


def role_of(name: str) -> str | None:
    """Whether a question of this name asks how sure an answer is ("sure") or whether it is not ("unsure")."""
    word = plain(name)
    if word in KNOWN["unsure"] or re.search(r"(^|_)(unsure|uncertain|not_(sure|certain))(_|\?|$)", word):
        return "unsure"
    return "sure" if word in KNOWN["sure"] or re.search(r"(^|_)(sure|certain|confident)(_|\?|$)", word) else None


def asks_how_sure(name: str, values: Collection[object]) -> str | None:
    """The role of a question with these answers, if all of them are understood so: by its name, or by words that tell."""
    role = role_of(name)
    if role is None and values and all(isinstance(v, str) and v.strip().casefold() in SURE | UNSURE for v in values):
        role = "sure"
    return role if role is not None and all(_understood(value, role) for value in values) else None


def sureness_questions(
    given: Mapping[str, Collection[object]], wanted: object, titles: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Which of several questions, by all answers to each, ask how sure another answer is, and their roles. Not that which the
    user wants, and not all of them. `titles` where names do not tell."""
    found = {name: asks_how_sure((titles or {}).get(name, name), values) for name, values in given.items() if name != wanted}
    marking = {name: role for name, role in found.items() if role is not None}
    return marking if len(marking) < len(given) else {}


def _understood(value: object, role: str) -> bool:
    try:
        return sure_of(value, role) is not None
    except TypeError:  # a list, an object
        return False


def attributes_sure(attributes: Mapping[str, object]) -> bool:
    """Whether attributes of an annotation, {"unsure": true}, leave it sure."""
    roles = [(role_of(name), value) for name, value in attributes.items()]
    return all(sure_of(value, role) is not False for role, value in roles if role is not None and _understood(value, role))


def understood(
    found: dict[str, str], columns: Columns, role: str, values: Sequence[object], place: Callable[[int], str]
) -> bool:
    """Whether a column that was found does say how sure answers are. If not, as it holds probabilities, say, it is taken out of
    those found; where the user chose it, or it can mean nothing else, that is an error. `place` of each value."""
    bad = next((number for number, value in enumerate(values) if not _understood(value, role)), None)
    if bad is None:
        return True
    if role in columns or plain(found[role]) in CLEAR:
        raise InputError(
            f"{place(bad)}: the column {quoted(found[role])} holds {quoted(values[bad])}. Write true or false, or a word such "
            f"as sure, unsure, maybe, probably."
        )
    del found[role]
    return False


def sure_in(source: Source, found: dict[str, str], columns: Columns) -> np.ndarray | None:
    """Per row of a table whether it is marked as sure; None without such a column."""
    said = []
    for role in ROLES:
        if role in found:
            cells = names_in(source, found[role])

            def place(code: int, code_R: np.ndarray = cells.code_R) -> str:
                return f"{source.path}, row {int((code_R == code).argmax()) + source.first_row}"

            if understood(found, columns, role, cells.names.tolist(), place):
                said.append(np.append([sure_of(name, role) is True for name in cells.names], True).astype(bool)[cells.code_R])
    return np.logical_and.reduce(said) if said else None
