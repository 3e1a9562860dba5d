"""What the result warns of, what the page shows first, and that no number is said three times."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pals.pipeline import Findings, fit
from pals.pipeline.fit_warnings import mixed_up_items, moved_classes, poor_classifier, suspected_annotators
from pals.relabel.relabel_queue import relabel_queue
from pals.report.data import gallery_rows, report_data
from pals.report.render import render

ITEMS = 240


def fitted(folder: Path, *, informative: bool = True, clicker: bool = False, look: float = 0.85, mixed_up: int = 0) -> Findings:
    """Three people and, if wanted, one who clicks; vectors that tell the class, or hardly do."""
    rng = np.random.default_rng(0)
    truth_N = rng.integers(4, size=ITEMS)
    vectors_ND = rng.normal(size=(ITEMS, 6)) + (3.0 if informative else 0.7) * np.eye(4, 6)[truth_N]
    vectors_ND[:mixed_up] = np.roll(vectors_ND[:mixed_up], 1, axis=0)
    np.save(folder / "x.npy", vectors_ND.astype(np.float32))
    rows = [
        (item, annotator, "abcd"[label if rng.random() < look else rng.integers(4)])
        for item, label in enumerate(truth_N)
        for annotator in ("ann", "bob", "cho")
    ]
    rows += [(item, "dan", "abcd"[item // 10 % 4]) for item in range(ITEMS) if clicker]
    votes = pd.DataFrame(rows, columns=["item", "annotator", "label"])
    return fit(None, votes, features=folder / "x.npy", out=folder / "run")


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    return fitted(tmp_path_factory.mktemp("good"))


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    return fitted(tmp_path_factory.mktemp("bad"), informative=False, clicker=True, look=0.6)


def test_a_good_run_warns_of_nothing_until_classes_leave_the_numbers_of_the_answers(good: Findings) -> None:
    assert poor_classifier(good) == mixed_up_items(good) == moved_classes(good) == suspected_annotators(good) == []
    assert report_data(good)["warnings"] == [] and good.numbers["flags"] == {}
    posterior_NC = good.result.posterior_NC.copy()
    posterior_NC[:, 1] += posterior_NC[:, 2]
    posterior_NC[:, 2] = 0
    moved = replace(good, result=type(good.result)(good.result.votes, posterior_NC))
    (sentence,) = moved_classes(moved)
    assert re.match(r"The class sizes in the result are not what the answers suggest: [bc] has .*, [bc] has", sentence)
    assert "c has no items instead of about " in sentence
    assert sentence.endswith("Compare label and majority in labels.csv before you rely on any counts.")


def test_a_weak_classifier_and_a_clicker_are_named(bad: Findings) -> None:
    assert bad.held_out  # it has some weight
    (sentence,) = poor_classifier(bad)
    assert sentence.startswith("The classifier is weak") and sentence in bad.summary
    assert sentence in report_data(bad)["warnings"]
    (sentence,) = suspected_annotators(bad)
    assert re.match(r"dan may be answering without looking: repeated the previous answer 9\d% of 239 times", sentence)
    assert bad.numbers["flags"] == {"dan": ["repeats", "chance"]} and bad.annotators["annotator"][0] == "dan"


def test_answers_that_belong_to_other_items(tmp_path: Path) -> None:
    """The first forty items have the vectors of one another."""
    found = fitted(tmp_path, look=0.95, mixed_up=40)
    (sentence,) = mixed_up_items(found)
    share, items = re.search(r"about (\d+)% have answers .* Check these first: (.*)\. The estimate", sentence).groups()  # type: ignore[union-attr]
    assert 8 <= int(share) <= 20 and all(int(item) < 40 for item in items.split(", "))
    assert sentence in found.summary and sentence in report_data(found)["warnings"]


def test_the_report_shows_items_in_the_order_of_the_queue_and_no_number_three_times(bad: Findings) -> None:
    shown = [entry["item"] for entry in report_data(bad)["gallery"]]
    assert shown == [item for item in relabel_queue(bad.folder, top=ITEMS)["item"] if item in set(shown)]
    labels = bad.labels.set_index("item")["status"]
    assert set(shown) <= set(labels.index[labels.isin(["corrected", "unsure"])]) | set(bad.doubtful["item"])
    assert gallery_rows(bad.labels[bad.labels["status"] == "agreed"].head(1).reset_index(), bad.doubtful.head(0)) == []
    words = re.sub(r"<(script|style|svg).*?</\1>", " ", render(report_data(bad)), flags=re.S)
    overview = re.sub(r"<[^>]*>", " ", words.partition('id="overview"')[2].partition("</section>")[0])
    overview = overview.replace(str(bad.folder.parent), "")  # whose name may hold any number
    for number in (len(bad.doubtful), f"{100 * bad.noise.labels_wrong:.1f}%", f"{100 * bad.noise.answers_wrong:.1f}%"):
        assert len(re.findall(rf"(?<![\d.,]){re.escape(str(number))}(?![\d])", overview)) == 1, number


def test_people_who_never_differ_are_named(tmp_path: Path) -> None:
    label = np.random.default_rng(0).integers(4, size=300)
    rows = [(item, who, f"c{label[item]}") for item in range(300) for who in ("ann", "bob", "cho", "dan")]
    found = fit(None, pd.DataFrame(rows, columns=["item", "annotator", "label"]), out=tmp_path / "run", no_images=True)
    (line,) = (line for line in found.summary if "same answer" in line)
    assert line.startswith("4 annotators (ann, bob, cho and 1 more) gave the same answer to all 300 items they have in")


def test_a_line_break_in_a_name_does_not_break_the_sentence(tmp_path: Path) -> None:
    answers = ["ca\nt", "ca\nt", "dog"]
    rows = [(f"{item}", who, label) for item in range(9) for who, label in zip("xyz", answers, strict=True)]
    found = fit(None, pd.DataFrame(rows, columns=["item", "annotator", "label"]), out=tmp_path / "run", no_images=True)
    assert "The most frequent mistake: dog for ca t (9 answers)." in found.summary
    assert all(line == " ".join(line.splitlines()) for line in found.summary)
