"""Annotation files to `Votes`: one reader per format (`formats`), chosen by the file's content or by name.

`Source` is a file, `Table` its answers as written, `build_votes` joins tables to `Votes`. Answers are not judged here; that is
for `crowd`.

Shape letters: I (or N) items, C classes, R rows (one per label), U "don't know"s, W annotators, A answers, L different labels,
V different values, F files; E, G, X, Y are local to a function.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from pals.labels.taxonomy import Taxonomy
from pals.readers.build_votes import build
from pals.readers.columns import Columns, renamed
from pals.readers.detect import detect
from pals.readers.formats import FORMATS, Reader
from pals.readers.formats.records import metadata_file
from pals.readers.limits import Limits
from pals.readers.matching import Match
from pals.readers.read_summary import ReadSummary, Skipped
from pals.readers.reader_table import Records, Table
from pals.readers.source import Source
from pals.readers.unsure_answers import NO_ANSWER
from pals.readers.votes import Votes
from pals.util.errors import InputError
from pals.util.registry import Registry

__all__ = [
    "NO_ANSWER",
    "READERS",
    "Limits",
    "Match",
    "ReadSummary",
    "Records",
    "Skipped",
    "Source",
    "Table",
    "Votes",
    "answer_files",
    "read_votes",
]


def _check(name: str, reader: Any) -> None:
    if not callable(reader):
        raise InputError(f"The reader {name!r} is {reader!r}, not a function read(source, columns).")


READERS: Registry[Reader] = Registry("format", "pals.readers", FORMATS, _check)


def read_votes(
    path: str | Path | Sequence[str | Path | Source],
    *,
    format: str | None = None,
    columns: Columns | Sequence[Columns] | None = None,
    class_names: Sequence[str] | None = None,
    no_answer: Collection[str] = NO_ANSWER,
    separator: str | None = "|",
    encoding: str | Sequence[str | None] | None = None,
    limits: Limits | None = None,
    taxonomy: Taxonomy | str | Path | None = None,
    notation: str | None = None,
) -> Votes:
    """Read all answers from a file, several files, or a folder (of CVAT files, or with a metadata file).

    Args:
        path: One or more files or folders.
        format: One of `READERS`; by default it is detected from the content.
        columns: Which column or key holds what, `{"item": "photo", "annotator": "who", "label": "species"}`, if its name
            does not show it; for several files that differ, one such mapping for each.
        class_names: All classes in order, including any without an answer; any other label is an error. If these are names and
            labels are numbers, the numbers count the names from 0.
        no_answer: Labels that mean "don't know", in upper or lower case; such an answer is not a vote and is stored separately.
        separator: Text between several labels in one cell of a table; None turns splitting off.
        encoding: Of a text file that is neither UTF-8 nor marked; for several files that differ, one for each (None: UTF-8).
        limits: How much a file may claim to hold; by default from PALS_MAX_CELLS and PALS_MAX_BYTES.
        taxonomy: A tree, or a file with one, whose leaves are the classes. A label may then be any node: an inner one stands
            for all leaves below it. `class_names`, if given too, selects the leaves to keep.
        notation: Whether labels such as "deer>dog" ("ranked") and "deer:70" ("percent") are read as rankings and percentages;
            "plain": they are names; by default the labels show it.

    Returns:
        The answers, with a `summary` of what was read and what was skipped.

    Raises:
        InputError: A file cannot be read or understood; the message names the file, the place in it and the remedy.

    >>> from pathlib import Path
    >>> text = "item,annotator,label\\na.jpg,ann,newt\\na.jpg,bob,frog\\n"
    >>> _ = Path("votes.csv").write_text(text)
    >>> votes = pals.read_votes("votes.csv")
    >>> votes.class_names, votes.num_answers
    (('frog', 'newt'), 2)
    """
    if format is not None:
        READERS.find(format)
    if class_names is not None and len(set(class_names)) < len(class_names):
        raise InputError("Two classes have the same name; class names must differ.")
    if class_names is not None and not all(name.strip() for name in class_names):
        raise InputError("--classes (class_names) has an empty name. Remove the extra comma.")
    tree = Taxonomy.read(taxonomy) if isinstance(taxonomy, (str, Path)) else taxonomy
    if tree is not None and class_names is not None:
        tree = tree.keep(class_names)
    paths = [path] if isinstance(path, (str, Path)) else list(path)
    each = [columns or {}] * len(paths) if columns is None or isinstance(columns, Mapping) else list(columns)
    each = [renamed(one) for one in each]
    if len(each) != len(paths):
        raise InputError(f"{len(paths)} files with answers, but {len(each)} mappings of columns; give one for each file.")
    written = [encoding] * len(paths) if encoding is None or isinstance(encoding, str) else list(encoding)
    if len(written) != len(paths):
        raise InputError(f"Give one encoding for each of the {len(paths)} files with answers; found {len(written)}.")
    sources = [
        (source, known)
        for entry, known, name in zip(paths, each, written, strict=True)
        for source in ([entry] if isinstance(entry, Source) else (Source(file, name, limits) for file in _files(Path(entry))))
    ]
    if not sources:
        raise InputError("No file with answers is given.")
    try:
        names = [format or detect(source, known) for source, known in sources]
        tables = [READERS[name](source, known) for name, (source, known) in zip(names, sources, strict=True)]
        together = ", ".join(dict.fromkeys(names))
        return build(
            tables,
            together,
            class_names=class_names,
            no_answer=no_answer,
            separator=separator,
            taxonomy=tree,
            notation=notation,
        )
    except MemoryError:
        files = ", ".join(str(source.path) for source, _ in sources[:3])
        raise InputError(f"{files}: there is not enough memory to read it. Close other programs, or split the file.") from None


def answer_files(path: Path) -> list[Path]:
    """The file itself; in a folder the metadata file or the XML files of CVAT; none in a folder of other things."""
    if not path.is_dir():
        return [path]
    metadata = metadata_file(path)
    return [metadata] if metadata is not None else sorted(path.glob("*.xml"))


def _files(path: Path) -> list[Path]:
    files = answer_files(path)
    if not files:
        raise InputError(
            f"{path} is a folder with neither metadata.jsonl, .csv or .parquet (Hugging Face) nor .xml files (CVAT, one per "
            f"annotator). Name the file with the answers."
        )
    return files
