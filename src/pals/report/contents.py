"""The sections of the page in their order. A section is a title, a function of the data that says what its template shows (None
where there is nothing to show), and that template: `section_KEY.html`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pals.report import none_of_these_section, sections
from pals.report.format import number, pictures, text, texts
from pals.report.taxonomy_section import tree

MOST_WARNINGS = 12

Shown = Mapping[str, Any]


@dataclass(frozen=True)
class Page:
    """The content of report.json, and what several sections need of it."""

    data: Mapping[str, Any]

    @cached_property
    def entries(self) -> list[dict[str, Any]]:
        """The items to review."""
        return sections.gallery(self.data)

    @cached_property
    def counted(self) -> tuple[Counter[str], Counter[str], Counter[tuple[str, str]]]:
        """How many of them a filter by person, by result, by result and answer will show."""
        return sections.doubted(self.entries)

    @cached_property
    def confusion(self) -> dict[str, Any] | None:
        return sections.confusion(self.data, self.counted[2])

    @cached_property
    def examples(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        return sections.examples(self.data.get("easy")), sections.examples(self.data.get("hard"))

    @cached_property
    def missing(self) -> list[dict[str, Any]]:
        """Groups of items that are probably of a class that is missing."""
        return none_of_these_section.groups(self.data)

    @cached_property
    def thumbs(self) -> dict[str, str]:
        """The pictures of all items that are shown."""
        wanted = [entry["item"] for entry in self.entries]
        wanted += [one["item"] for entry in self.entries for one in entry["neighbors"]]
        wanted += [one["item"] for part in self.examples for one in part]
        wanted += [one["item"] for group in self.missing for one in group["shown"]]
        return pictures(self.data.get("thumbs"), wanted)

    @property
    def for_script(self) -> dict[str, Any]:
        heat = self.confusion["script"] if self.confusion else None
        return {"gallery": self.entries, "thumbs": self.thumbs, "heat": heat, "statusWords": sections.STATUS_WORDS}


@dataclass(frozen=True)
class Section:
    key: str
    title: str
    build: Callable[[Page], Shown | None]


def overview(page: Page) -> Shown:
    warnings = texts(page.data.get("warnings"))
    return {
        "tiles": sections.tiles(page.data),
        "noise": sections.noise(page.data),
        "summary": texts(page.data.get("summary")),
        "warnings": warnings[:MOST_WARNINGS],
        "more_warnings": max(len(warnings) - MOST_WARNINGS, 0),
    }


def review(page: Page) -> Shown:
    entries = page.entries
    return {
        "entries": len(entries),
        "of": int(number(page.data.get("gallery_of")) or 0),
        "status_words": sections.status_words(entries),
    }


def mix_ups(page: Page) -> Shown | None:
    return page.confusion and {"confusion": page.confusion}


def missing(page: Page) -> Shown | None:
    return {"missing": page.missing, "thumbs": page.thumbs} if page.missing else None


def taxonomy(page: Page) -> Shown | None:
    found = tree(page.data, page.counted[2])
    return found and {"tree": found}


def people(page: Page) -> Shown | None:
    with_confusion = page.confusion["people"] if page.confusion else []
    found = sections.people(page.data, page.counted[0], with_confusion=with_confusion)
    return found and {"people": found, "pairs": sections.pairs_of_people(page.data)}


def classes(page: Page) -> Shown | None:
    found = sections.class_table(page.data, page.counted[1])
    return {"class_table": found, "agreement": sections.agreement_by_class(page.data)} if found else None


def examples(page: Page) -> Shown | None:
    easy, hard = page.examples
    of = int(number(page.data.get("examples_of")) or 0)
    return {"easy": easy, "hard": hard, "of": of, "thumbs": page.thumbs} if easy or hard else None


def training(page: Page) -> Shown | None:
    found = sections.curves(page.data)
    return {"curves": found} if found else None


def repeat(page: Page) -> Shown | None:
    command, settings = text(page.data.get("command")), text(page.data.get("settings"))
    return {"command": command, "settings": settings} if command or settings else None


SECTIONS = (
    Section("overview", "Overview", overview),
    Section("doubtful", "Items to review", review),
    Section("none-of-these", "None of these", missing),
    Section("people", "People", people),
    Section("confusion", "Mix-ups", mix_ups),
    Section("tree", "Taxonomy", taxonomy),
    Section("classes", "Classes", classes),
    Section("examples", "Easy and hard", examples),
    Section("training", "Training", training),
    Section("repeat", "Repeat this run", repeat),
)
