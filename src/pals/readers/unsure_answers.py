"""Unsure answers ("gull?", or a column beside the label) and words for "don't know"."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import numpy as np

from pals.labels.taxonomy import Taxonomy
from pals.readers.column_types import NO, YES, names_in
from pals.readers.columns import KNOWN, Columns, plain
from pals.readers.json_values import text_of
from pals.readers.read_summary import some
from pals.readers.reader_table import Coded
from pals.readers.source import Source
from pals.util.errors import InputError
from pals.util.words import quoted

NO_ANSWER = frozenset(
    {"?", "don't know", "do not know", "i don't know", "i do not know", "idk", "dunno", "no idea", "not sure", "i'm not sure",
     "unsure", "can't tell", "cannot tell", "can not tell", "skip", "skipped"}
)  # fmt: skip
"""Words for "don't know". Capitals and apostrophes do not matter."""

SURE_WORDS = frozenset({"sure", "very sure", "quite sure", "certain", "definite", "definitely", "confident", "high", "✓"})
UNSURE_WORDS = frozenset(
    {"?", "unsure", "not sure", "not so sure", "fairly sure", "uncertain", "not certain", "doubtful", "maybe", "perhaps",
     "probable", "probably", "possible", "possibly", "likely", "guess", "guessed", "guessing", "low", "medium"}
)  # fmt: skip
"""Words beside an answer for how sure it is. YES and NO mean the same in a column or question that asks for it."""

SURE_ROLES = ("sure", "unsure")
UNAMBIGUOUS = ("sure", "unsure")
"""Names of columns whose cells must be understood. A column with another name is not used if its cells are not."""

LEADING_MARK = re.compile(r"\?+\s*([^?\s].*)", re.DOTALL)
TRAILING_MARK = re.compile(r"(.*[^?\s(\[])\s*(?:\?+|[(\[](?P<word>\?+|[^()\[\]]+)[)\]])", re.DOTALL)


class UnsureMarks:
    """The labels that are marked as unsure ("gull?", "? gull", "gull (unsure)"), and the words for "don't know".

    A mark may be a part of a name. It is, if that name is declared, or if no label occurs both with and without its mark.

    Args:
        written: All labels as written.
        declared: Names of classes that the user or a file declares.
        no_answer: Words for "don't know".
        taxonomy: Tree whose nodes are labels.

    >>> marks = UnsureMarks(["gull", "gull?", "idk"], (), NO_ANSWER)
    >>> marks.labels(["gull?"]), marks.is_unknown("idk")
    ([('gull', False)], True)
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
        """Whether it is a word for "don't know"."""
        word = _folded(name)
        plain = word.rstrip("?.! ") or ("?" if "?" in word else word)  # "!" is a label
        return bool(word) and not self.dont_know.isdisjoint((word, plain))

    def labels(self, names: Sequence[str]) -> list[tuple[str, bool]]:
        """Each label without its mark, and whether it is sure; for a node of the taxonomy the leaves below it, once each."""
        found = [(self.bare.get(name, name), name not in self.bare) for name in names]
        if self.taxonomy is None:
            return found
        return list(dict.fromkeys((leaf, sure) for name, sure in found for leaf in self.taxonomy.below(name)))

    def notes(self) -> list[str]:
        """A warning about marks that are read as parts of names."""
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
    """The label without its mark; None if it has none.

    >>> unmarked("gull (unsure)"), unmarked("gull (adult)")
    ('gull', None)
    """
    found = TRAILING_MARK.fullmatch(name)
    if found is not None and (found["word"] or "?").strip("? ").casefold() in ("", *UNSURE_WORDS):  # not "gull (adult)"
        return found[1]
    found = LEADING_MARK.fullmatch(name)
    return None if found is None else found[1]


def sure_of(value: object, role: str) -> bool | None:
    """Whether a cell or answer beside a label marks it as sure.

    Args:
        value: The cell. A blank one is sure.
        role: What a yes means: "sure" or "unsure".

    Returns:
        True or False; None if the value is not understood.
    """
    try:
        word = (text_of(value) or "").strip().casefold()
    except TypeError:  # a list, an object
        return None
    if word in ("", "nan", "na", "n/a", "none", "null") or word in SURE_WORDS:
        return True
    if word in UNSURE_WORDS:
        return False
    if word in YES or word == "x":
        return role == "sure"
    return role == "unsure" if word in NO else None


def role_of(name: str) -> str | None:
    """Whether a question of this name asks if an answer is "sure" or "unsure"; None if neither."""
    word = plain(name)
    if word in KNOWN["unsure"] or re.search(r"(^|_)(unsure|uncertain|not_(sure|certain))(_|\?|$)", word):
        return "unsure"
    return "sure" if word in KNOWN["sure"] or re.search(r"(^|_)(sure|certain|confident)(_|\?|$)", word) else None


def sureness_questions(
    given: Mapping[str, Collection[object]], wanted: object, titles: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Which of several questions ask how sure another answer is.

    Args:
        given: All answers to each question.
        wanted: The question that holds the labels, if the user named it.
        titles: Texts of the questions, for names that are numbers, such as T0.

    Returns:
        The role of each such question, by its name or by words that all its answers are; empty if all questions are such.
    """
    found: dict[str, str] = {}
    for name, values in given.items():
        role = role_of((titles or {}).get(name, name))
        if (
            role is None
            and values
            and all(isinstance(v, str) and v.strip().casefold() in SURE_WORDS | UNSURE_WORDS for v in values)
        ):
            role = "sure"
        if name != wanted and role is not None and all(sure_of(value, role) is not None for value in values):
            found[name] = role
    return found if len(found) < len(given) else {}


def attributes_sure(attributes: Mapping[str, object]) -> bool:
    """Whether attributes of an annotation, {"unsure": true}, leave it sure."""
    roles = [(role_of(name), value) for name, value in attributes.items()]
    return all(sure_of(value, role) is not False for role, value in roles if role is not None)


def check_sureness(
    found: Mapping[str, str], columns: Columns, role: str, values: Sequence[object], place: Callable[[int], str]
) -> bool:
    """Whether all cells of a column are understood as sure or unsure; a column of probabilities is not.

    Args:
        found: The column of each role.
        columns: Columns that the user named.
        role: "sure" or "unsure".
        values: The cells.
        place: Where each of them is, for messages.

    Raises:
        InputError: The user named the column, or its name is unambiguous, and a cell is not understood.
    """
    bad = next((number for number, value in enumerate(values) if sure_of(value, role) is None), None)
    if bad is not None and (role in columns or plain(found[role]) in UNAMBIGUOUS):
        raise InputError(
            f"{place(bad)}: the column {quoted(found[role])} holds {quoted(values[bad])}. Write true or false, or a word such "
            f"as sure, unsure, maybe, probably."
        )
    return bad is None


def sure_in(source: Source, found: dict[str, str], columns: Columns) -> np.ndarray | None:
    """Per row of a table whether it is marked as sure; None without such a column. A column that is not understood is taken
    out of `found`."""
    sure: list[np.ndarray] = []
    for role in [role for role in SURE_ROLES if role in found]:
        cells = names_in(source, found[role])

        def place(code: int, cells: Coded = cells) -> str:
            return f"{source.path}, row {cells.first_row(code) + source.first_row}"

        if check_sureness(found, columns, role, cells.names.tolist(), place):
            sure.append(cells.flags((sure_of(name, role) is True for name in cells.names), empty=True))
        else:
            del found[role]
    return np.logical_and.reduce(sure) if sure else None
