"""CVAT's "CVAT for images" XML: image tags. It does not name the annotator, so one file is one annotator."""

from __future__ import annotations

from xml.parsers import expat

from pals.readers.columns import Columns
from pals.readers.reader_table import Records, Table
from pals.readers.source import Source
from pals.readers.unsure_answers import attributes_sure
from pals.util.errors import InputError
from pals.util.words import quoted

CVAT_HINT = 'Export each job from CVAT as "CVAT for images 1.1" again.'


class _EntityError(Exception):
    """The file declares entities; CVAT's own files have none, and expanding them can fill the memory or read other files."""


class _Handler:
    """Collects images, their tags and the declared labels while the parser runs."""

    def __init__(self) -> None:
        self.images: list[tuple[str, list[tuple[str, dict[str, object]]]]] = []  # name, tags with their attributes
        self.attribute = ""
        self.classes: list[str] = []
        self.path: list[str] = []
        self.text: list[str] = []

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self.path.append(name)
        self.text.clear()
        if name == "image":
            if len(self.path) != 2:
                raise ValueError(
                    f"an <image> stands inside <{self.path[-2][:40]}>" if self.path[1:] else "the whole file is one <image>"
                )
            if "name" not in attributes:
                raise ValueError("an <image> has no name")
            self.images.append((attributes["name"], []))
        elif name == "tag" and self.path[-2:-1] == ["image"]:
            if "label" not in attributes:
                raise ValueError(f"a <tag> of image {quoted(self.images[-1][0])} has no label")
            self.images[-1][1].append((attributes["label"], {}))
        elif self.in_attribute():
            self.attribute = attributes.get("name", "")

    def end(self, name: str) -> None:
        if self.declares_a_label() and "meta" in self.path:
            self.classes.append("".join(self.text).strip())
        elif self.in_attribute():
            self.images[-1][1][-1][1][self.attribute] = "".join(self.text)
        self.path.pop()

    def characters(self, text: str) -> None:
        """Kept only where it is needed: a file may be full of line breaks, which come one by one."""
        if self.declares_a_label() or self.in_attribute():
            self.text.append(text)

    def declares_a_label(self) -> bool:
        return self.path[-3:] == ["labels", "label", "name"]

    def in_attribute(self) -> bool:
        return self.path[-3:] == ["image", "tag", "attribute"]

    def forbid(self, *_: object) -> None:
        raise _EntityError


def read_cvat(source: Source, columns: Columns) -> Table:
    """Several tags of an image are one answer; an attribute `unsure` marks one. The annotator has the name of the file."""
    source.no_columns(columns)
    handler = _Handler()
    parser = expat.ParserCreate(source.encoding)
    parser.buffer_text = True
    parser.StartElementHandler = handler.start
    parser.EndElementHandler = handler.end
    parser.CharacterDataHandler = handler.characters
    parser.StartDoctypeDeclHandler = handler.forbid
    parser.EntityDeclHandler = handler.forbid
    parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
    try:
        parser.Parse(source.data, True)
    except _EntityError:
        raise InputError(
            f"{source.path}, line {parser.CurrentLineNumber}: the file declares a document type or entities, which CVAT never "
            f"writes and which can do harm. It was not read. {CVAT_HINT}"
        ) from None
    except (expat.ExpatError, ValueError, LookupError) as error:
        source.refuse(f"line {parser.CurrentLineNumber} is damaged ({error})", CVAT_HINT)
    if not handler.images:
        source.refuse("there is no <image> in this file", CVAT_HINT)
    records = Records(source.path, "image")
    for number, (name, tags) in enumerate(handler.images, start=1):
        sure = [attributes_sure(attributes) for _, attributes in tags]
        records.add(name, source.path.stem, [label for label, _ in tags], number, sure=sure or True)
    classes = [name for name in dict.fromkeys(handler.classes) if name]
    return records.table(classes=classes or None)
