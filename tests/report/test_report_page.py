"""report.html as a text: whole, safe, the same each time. What a browser makes of it is in test_report_browser.py."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from _refused import refused
from _report import HOSTILE, empty, picture, report
from pals.report import format, sections
from pals.report.charts import tag
from pals.report.data import annotator_rows, confusion_cells, plain_value
from pals.report.render import embedded, render, write_report

SECTIONS = ["overview", "doubtful", "people", "confusion", "classes", "examples", "training", "repeat"]
VOID = {"meta", "link", "img", "input"}


class Page(HTMLParser):
    """All elements with their attributes and their own text; complains about tags that do not fit together."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str], list[str]]] = []
        self.open: list[int] = []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        assert len({key for key, _ in attributes}) == len(attributes), (name, attributes)
        self.elements.append((name, {key: value or "" for key, value in attributes}, []))
        if name not in VOID:
            self.open.append(len(self.elements) - 1)

    def handle_endtag(self, name: str) -> None:
        assert self.elements[self.open.pop()][0] == name

    def handle_data(self, data: str) -> None:
        if self.open:
            self.elements[self.open[-1]][2].append(data)

    def all(self, name: str) -> list[dict[str, str]]:
        return [attributes for found, attributes, _ in self.elements if found == name]

    def texts(self, name: str) -> list[str]:
        return ["".join(words) for found, _, words in self.elements if found == name]

    @property
    def data(self) -> Any:
        return json.loads(next("".join(words) for _, attributes, words in self.elements if attributes.get("id") == "data"))

    @property
    def sections(self) -> list[str]:
        return [attributes["id"] for attributes in self.all("section")]


def test_the_page_has_all_its_parts_also_for_a_screen_reader() -> None:
    page = Page(render(report()))
    assert page.sections == SECTIONS
    assert [link["href"] for link in page.all("a")][1:9] == [f"#{key}" for key in SECTIONS]
    assert len(page.all("h1")) == len(page.all("main")) == len(page.all("nav")) == len(page.all("style")) == 1
    ids = [attributes["id"] for _, attributes, _ in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert len(page.all("script")) == 2  # the data and the code
    assert sum(attributes.get("class") == "how" for attributes in page.all("p")) == len(SECTIONS)
    assert page.texts("title")[0] == "Owls & moths · PALS report"
    page = Page(render(report()))
    ids = {attributes["id"] for _, attributes, _ in page.elements if "id" in attributes}
    assert len(page.texts("caption")) == len(page.all("table")) == 4
    assert all(label["for"] in ids for label in page.all("label"))
    labelled = {label["for"] for label in page.all("label")}
    fields = page.all("select") + page.all("input") + page.all("textarea")
    assert len(fields) == 9 and all(field["id"] in labelled for field in fields)
    assert all(section["aria-labelledby"] in ids for section in page.all("section"))
    assert all(image["alt"] for image in page.all("img"))
    assert all(drawing.get("aria-label") or drawing.get("aria-hidden") for drawing in page.all("svg"))
    assert {head["aria-sort"] for head in page.all("th") if "aria-sort" in head} == {"none"}


def test_nothing_is_fetched_and_hostile_names_are_not_run() -> None:
    written = render(report(names=HOSTILE, classes=9, people=9))
    page = Page(written)
    for name, attributes, _ in page.elements:
        for key, value in attributes.items():
            assert not key.startswith("on") and key != "style", (name, key)
            if key in {"src", "href"}:
                assert value.startswith(("#", "data:")), (name, key, value)
            if key not in {"title", "alt", "data-value", "data-item", "aria-label"}:
                assert "http://" not in value and "https://" not in value, (name, key, value)
    style, script = page.texts("style")[0], page.texts("script")[1]
    assert "url(" not in style and "@import" not in style
    assert "innerHTML" not in script and "eval(" not in script and "fetch(" not in script
    policy = next(meta["content"] for meta in page.all("meta") if "http-equiv" in meta)
    assert policy.startswith("default-src 'none'; img-src data:;") and "unsafe" not in policy
    for kind, content in (("style-src", style), ("script-src", script)):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}'" in policy
    page = Page(render(report(12, 9, 9, names=HOSTILE)))
    assert len(page.all("script")) == 2 and not any("onerror" in attributes for attributes in page.all("img"))
    shown = page.texts("bdi")
    for name in HOSTILE:
        assert name in shown  # as text, character by character
        assert name in page.data["thumbs"] and any(entry["label"] == name for entry in page.data["gallery"])
    assert HOSTILE[0] in page.texts("title")[0]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(VALUES)
def test_embedded_data_cannot_leave_their_element(value: Any) -> None:
    written = str(embedded(value))
    assert written.isascii() and not set("<>&") & set(written) and json.loads(written) == value


@given(st.text())
def test_a_drawing_cannot_be_left_either(words: str) -> None:
    written = tag("text", words, class_=words, x=1)
    assert written.count("<") == written.count(">") == 2 and written.count('"') == 4


@given(st.text(alphabet=st.characters(), min_size=1))
def test_a_filter_in_an_address_is_read_back(name: str) -> None:
    name = format.valid_unicode(name)
    section, query = sections.link("doubtful", person=name).split("?")
    assert section == "#doubtful" and parse_qs(query, strict_parsing=True)["person"] == [name]


def test_the_same_data_give_the_same_bytes_with_each_picture_once(tmp_path: Path) -> None:
    data = report(6)
    written = render(data)
    assert all(written.count(uri.split(",")[1]) == 1 for uri in data["thumbs"].values())
    (tmp_path / "report.json").write_text(json.dumps(report()), encoding="utf-8")
    target = write_report(tmp_path)
    assert target == tmp_path / "report.html"
    first = target.read_bytes()
    write_report(tmp_path)
    assert target.read_bytes() == first == render(report()).encode()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "report.json"]


def test_files_that_are_refused_and_names_that_are_not_unicode(tmp_path: Path) -> None:
    refused("holds no report", write_report, tmp_path)
    for content in ("[]", '{"format": 99}', "{}"):
        (tmp_path / "report.json").write_text(content, encoding="utf-8")
        refused("format", write_report, tmp_path)
    data = report(3)
    data["gallery"][0]["item"] = data["easy"][0]["item"] = "caf\udce9.png"
    data["thumbs"]["caf\udce9.png"] = picture(1)
    (tmp_path / "report.json").write_text(json.dumps(data), encoding="utf-8")
    page = Page(write_report(tmp_path).read_text(encoding="utf-8"))
    assert page.data["gallery"][0]["item"] == "caf\ufffd.png" and "caf\ufffd.png" in page.data["thumbs"]


def test_unknown_numbers_agreement_and_answers_without_a_name() -> None:
    data = report(2)
    data["gallery"][0]["confidence"] = None
    data["annotators"][0] |= {"agreement": None, "above_chance": None}
    page = Page(render(data))
    assert page.data["gallery"][0]["confidence"] is None
    assert page.texts("td").count("–") == 2 + 3  # and no Fleiss' kappa of three classes
    data = report(2)
    kappa = {**data["agreement"][0], "measure": "fleiss_kappa", "value": -0.001, "low": -0.2, "high": 0.3}
    shown = sections.class_agreement([*data["agreement"], kappa])[0]
    assert shown == {"name": "class 0", "krippendorff_alpha": "0.61 (0.50 to 0.70)", "fleiss_kappa": "0.00 (-0.20 to 0.30)"}
    assert format.percent(-0.0001) == "0.0%"
    data = report(2, people=20)
    page = render(data)
    assert page.count('<td class="number">0.61 (0.50 to 0.70)</td>') == 3
    assert "The first 12 of 19 pairs; all are in agreement.csv" in page
    assert "0.20 (0.10 to 0.40)" in page and "0.38 (" not in page  # the least first
    data["agreement"] = []
    page = render(data)
    assert "alpha" not in page and "Who agrees least" not in page
    data = report(1)
    data["gallery"][0]["votes"] = [
        {"annotator": "a", "label": "x", "weight": 0.5},
        {"annotator": "", "label": "y", "weight": 1.0},
        {"annotator": "", "label": "x", "weight": 0.25},
    ]
    assert Page(render(data)).data["gallery"][0]["votes"] == [
        {"label": "y", "mark": "", "voters": ["somebody"], "weight": 1.0},
        {"label": "x", "mark": "", "voters": ["a", "somebody"], "weight": 0.75},
    ]


def test_every_cut_is_said_also_beside_the_tree() -> None:
    data = report(20, 5, 3, images=False)
    whole = render(data)
    assert "These are the first" not in whole and "people; all are in" not in whole
    data |= {"gallery_of": 412, "annotators_of": 1234, "examples_of": 999, "warnings": [f"warning {k}" for k in range(40)]}
    page = render(data)
    assert "These are the first 20 of 412; all are in labels.csv" in page
    assert "The first 3 of 1,234 people; all are in annotators.csv" in page
    assert "These are the first 4 of 999 of each kind; all are in labels.csv" in page
    cells = data["confusion"]
    mixed = sum(result != answer for result, answer in zip(cells["result"], cells["answer"], strict=True))
    assert mixed > 12 and f"The first 12 of {mixed}; all are in confusion.csv" in page
    assert "warning 11" in page and "warning 12" not in page and "and 28 more, which <code>pals fit</code> printed" in page
    data = report(6, tree=True)
    assert "3 answers in all.</p>" in render(data)
    data["taxonomy"]["within"] |= {"answers": 88, "of": 45}
    assert "88 answers in all. The first 1 of 45 pairs; all are in confusion.csv." in render(data)


def test_clickers_with_evidence_and_long_names() -> None:
    data = report(2)
    data["annotators"][1] |= {"flags": "repeats; chance", "evidence": "repeated the previous answer", "agreement_low": 0.5,
                              "agreement_high": 0.75}  # fmt: skip
    page = render(data)
    assert "May be answering without looking" in page and "</bdi>: repeated the previous answer</li>" in page
    assert '<span class="flag">repeats; chance</span>' in page and "50 to 75%" in page
    assert "May be answering without looking" not in render(report(2))
    data = report(4, 3, 2)
    longest = "Chroicocephalus novaehollandiae scopulinus (Red-billed Gull, tarapunga)"
    data = json.loads(json.dumps(data).replace('"class 1"', json.dumps(longest)))
    page = Page(render(data))
    assert "…" not in render(data) and page.texts("bdi").count(longest) >= 4
    assert [word for word in page.texts("text") if word.isdigit()][:3] == ["1", "2", "3"]
    assert "line-clamp" not in render(data) and "ellipsis" not in render(data)
    assert not any("class-key" in found.get("class", "") for found in Page(render(report(4))).all("ol"))


def test_sections_without_content_are_left_out_and_curves_show_what_is_known() -> None:
    plain, whole = ([section.key for section in sections.sections(report(tree=tree))[0]] for tree in (False, True))
    assert plain == SECTIONS and set(whole) == {*SECTIONS, "none-of-these", "tree"}
    page = Page(render(empty()))
    assert page.sections == ["overview", "doubtful", "repeat"]
    assert any("nothing to review" in words for words in page.texts("p"))
    drawn = sections.training_charts(report()["curves"])
    assert [chart["title"] for chart in drawn] == ["Loss", "Selected items", "Agreement of the classifier"]
    assert drawn[2]["names"] == ["covering"] and "Approximate" not in drawn[2]["note"]
    assert sections.training_charts([{"epoch": 1}]) == []


@pytest.mark.parametrize(("classes", "people"), [(2, 1), (2, 200), (13, 2), (41, 3), (300, 2)])
def test_few_and_many(classes: int, people: int) -> None:
    data = report(4, classes, people, images=False)
    page = Page(render(data))
    assert len(page.texts("caption")) == 3 + (people > 1)
    assert ("whose" in {select["id"] for select in page.all("select")}) == (people > 1)
    assert len([row for row in page.all("th") if row.get("scope") == "row"]) == 2 * classes + people + min(
        people - 1, sections.MAX_ANNOTATOR_PAIRS
    )


def test_the_page_stays_small_and_counts_what_its_filters_will_show() -> None:
    """Two hundred people who all answered all of 500 items, and a hundred classes."""
    written = render(report(500, 100, 200, images=False))
    assert len(written) < 5_000_000
    heat = json.loads(written.rsplit('id="data">')[1].split("</script>")[0])["heat"]
    assert 1 < len(heat["people"]) < 200
    assert sum(len(person["cells"]) for person in heat["people"]) <= sections.MAX_HEATMAP_CELLS
    data = report(40, 4, 5)
    counts = sections.FilterCounts.of([sections.gallery_entry(row) for row in data["gallery"]])
    by_person, by_result, by_pair = counts.by_annotator, counts.by_result, counts.by_pair
    for k, name in enumerate(data["classes"]):
        assert by_result[name] == sum(entry["label"] == name for entry in data["gallery"])
        after = data["classes"][(k + 1) % 4]
        assert by_pair[name, after] == by_result[name]  # every item has one answer that is off by one, doubted or not
    for p in range(5):
        doubted = sum(entry["doubtful"][0]["annotator"] == f"person {p}" for entry in data["gallery"] if entry["doubtful"])
        assert by_person[f"person {p}"] == doubted + 4  # the four items without a doubted answer count for everybody
    page = Page(render(data))
    assert any(link["href"] == "#doubtful?person=person+0" for link in page.all("a"))


def test_plain_values_and_confusions_without_empty_cells() -> None:
    found = plain_value({"a": np.float32(0.5), "b": [np.int64(3), math.nan, pd.NA], "c": (math.inf, "x")})
    assert found == {"a": 0.5, "b": [3, None, None], "c": [None, "x"]} and type(found["b"][0]) is int
    confusion = pd.DataFrame(
        {"annotator": ["ann", "ann", "bob"], "result": ["b", "b", "a"], "answer": ["a", "elsewhere", "a"], "count": [2, 1, 1]}
    )
    assert confusion_cells(confusion, ["a", "b"]) == {"result": [0, 1], "answer": [0, 0], "count": [1, 2]}
    rows = annotator_rows(pd.DataFrame({"annotator": ["bob", "cho"]}), confusion, ["a", "b"])
    assert [row["confusion"]["count"] for row in rows] == [[1], []]
