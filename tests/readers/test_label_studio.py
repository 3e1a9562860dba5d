"""Label Studio's exports, full and small: whose item a task is, what is no vote, how long people took, how sure they were."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from _reader_examples import answers

from _refused import refused
from pals.crowd.annotator_flags import pace
from pals.labels.taxonomy import Taxonomy
from pals.readers import Votes, read_votes

Write = Callable[..., Path]
PARENTS = {"animal": None, "amphibian": "animal", "newt": "amphibian", "frog": "amphibian", "fish": "animal"}
TREE = Taxonomy.from_parents(PARENTS)


def result(label: str, name: str = "label", type_: str = "choices") -> dict[str, Any]:
    return {"id": "x", "from_name": name, "to_name": "image", "type": type_, "value": {type_: [label]}}


def stars(rating: Any, name: str) -> dict[str, Any]:
    return {"from_name": name, "to_name": "image", "type": "rating", "value": {"rating": rating}}


def annotation(number: int, *results: dict[str, Any], **about: Any) -> dict[str, Any]:
    return {"id": number, "completed_by": number % 10, "was_cancelled": False, "result": list(results), **about}


def task(item: str, *annotations: dict[str, Any], **more: Any) -> dict[str, Any]:
    data = {"image": f"/data/local-files/?d=photos/{item}", "pals_item": item}
    return {"data": data, "annotations": list(annotations), **more}


def read(write: Write, tasks: list[dict[str, Any]], **how: Any) -> Votes:
    return read_votes(write(json.dumps(tasks), "export.json"), **how)


def test_names_of_tasks(write: Write) -> None:
    """In data, else in meta, else by the image; whatever the image's address is."""
    tasks = [task("ponds/a.jpg", annotation(1, result("newt"))), task("b?.jpg", annotation(2, result("frog")))]
    tasks[0]["data"]["image"] = "https://host/7f3a.jpg"
    moved = {"data": {"image": "s3://x/y.jpg"}, "meta": {"pals_item": "c.jpg"}, "annotations": [annotation(3, result("newt"))]}
    by_hand = {"data": {"image": "/data/upload/3/1a2b3c4d-d.jpg"}, "annotations": [annotation(4, result("newt"))]}
    found = read(write, [*tasks, moved, by_hand])
    assert [row[0] for row in answers(found)] == ["ponds/a.jpg", "b?.jpg", "c.jpg", "d.jpg"]
    chosen = read(write, tasks, columns={"item": "image"})
    assert [row[0] for row in answers(chosen)] == ["7f3a.jpg", "photos/b?.jpg"]  # the user's word goes first
    nameless: dict[str, Any] = {"data": {"text": ["x"]}, "annotations": [annotation(1, result("newt"))]}
    found = read(write, [task("a.jpg", annotation(2, result("frog"))), nameless])
    assert answers(found) == [("a.jpg", "2", ("frog",))]
    assert [(s.reason, s.count) for s in found.summary.skipped] == [("no item is named", 1)]
    refused("no entry of the tasks' data looks like an image", read, write, [nameless])
    nameless["data"] = {"pals_item": {"a": 1}}
    message = refused(r"there is an object where a name belongs", read, write, [nameless])
    assert "\n" not in message


def test_skipped_answers_lead_time_and_other_ratings(write: Write) -> None:
    given = (annotation(1, result("newt"), was_cancelled=True), annotation(2, result("newt"), skipped=True))
    more = {"drafts": [annotation(5, result("newt"))], "predictions": [{"score": 0.5, "result": [result("newt")]}]}
    first = task("a.jpg", *given, annotation(3, result("frog")), **more)
    found = read(write, [first, task("b.jpg", annotation(4, result("newt"), ground_truth=True))])
    assert answers(found) == [("a.jpg", "3", ("frog",))] and not len(found.unknown_item_U)
    assert [(s.reason, s.count) for s in found.summary.skipped] == [("cancelled by the annotator", 2)]
    assert [found.class_names[label] for label in found.gold_I if label >= 0] == ["newt"]
    about = {"created_at": "2026-01-05T12:00:00Z", "lead_time": 4.25}
    found = read(write, [task("a.jpg", annotation(1, result("newt"), **about), annotation(2, result("frog"), lead_time=None))])
    np.testing.assert_array_equal(found.seconds_R, [4.25, np.nan])
    assert found.to_frame()["seconds"][0] == 4.25 and pace(found).seconds_W[found.annotators.index("1")] == 4.25
    odd = read(write, [task("a.jpg", annotation(1, result("newt"), lead_time="quick"))])
    assert not odd.timed
    assert any("task 1, annotation 1 holds 'quick', which is not a number of seconds" in note for note in odd.summary.notes)
    rows = [annotation(n, result("newt"), stars(rating, "beauty")) for n, rating in enumerate((1, 5, 10**400, "x"), start=1)]
    found = read(write, [task("a.jpg", *rows)])
    assert found.sure_R.all() and found.num_answers == 4
    assert "Ratings are not read ('beauty'); one that is called `sure` says how sure an answer is" in found.summary.notes


@pytest.mark.parametrize(("name", "expected"), [("sure", [True, True, False, True]), ("unsure?", [False, False, True, True])])
def test_a_rating_says_how_sure_if_its_name_does(name: str, expected: list[bool], write: Write) -> None:
    """Of five stars at most, three and five are more than half, one is not; who gave none says nothing."""
    given = [result("newt"), result("frog"), result("newt"), result("frog")]
    rows = [[answer, stars(rating, name)] for answer, rating in zip(given, (5, 3, 1, 0), strict=True)]
    found = read(write, [task(f"{n}.jpg", annotation(n, *row)) for n, row in enumerate(rows, start=1)])
    assert found.sure_R.tolist() == expected and found.class_names == ("frog", "newt")
    assert not any("Ratings" in note for note in found.summary.notes)


def test_the_small_export_of_our_tasks_and_paths_of_nodes(write: Write) -> None:
    """Their data stand beside the answers, and are no questions; a tree and a rating are lists there."""
    common = {"image": "/x.jpg", "pals_rank": "0001", "pals_reason": "a tie", "pals_said": "newt; frog", "lead_time": 2.5}
    rows = [
        {**common, "pals_item": "a.jpg", "label": [{"taxonomy": [["animal", "amphibian", "newt"]]}], "annotator": 3,
         "annotation_id": 1, "sure": [{"rating": 1}]},
        {**common, "pals_item": "b.jpg", "label": [{"taxonomy": [["animal", "fish"]]}], "annotator": 3, "annotation_id": 2,
         "sure": [{"rating": 4}]},
    ]  # fmt: skip
    path = write(json.dumps(rows), "min.json")
    assert [row[2] for row in answers(read_votes(path))] == [("animal/amphibian/newt",), ("animal/fish",)]
    found = read_votes(path, taxonomy=TREE)
    assert answers(found) == [("a.jpg", "3", ("newt",)), ("b.jpg", "3", ("fish",))]
    assert found.sure_R.tolist() == [False, True] and found.seconds_R.tolist() == [2.5, 2.5]
    cells = [{key: value if isinstance(value, str | int | float) else json.dumps(value) for key, value in row.items()}
             for row in [{**row, "text": "[no rating"} for row in rows]]  # fmt: skip
    again = read_votes(write(pd.DataFrame(cells).to_csv(index=False), "min.csv"), taxonomy=TREE, columns={"label": "label"})
    assert answers(again) == answers(found) and again.sure_R.tolist() == [False, True]
    path = result("", type_="taxonomy")
    path["value"]["taxonomy"] = [["animal", "amphibian"]]
    assert answers(read(write, [task("a.jpg", annotation(1, path))], taxonomy=TREE)) == [("a.jpg", "1", ("newt", "frog"))]
    path["value"]["taxonomy"] = [["plant", "newt"]]
    refused(r"Unknown label 'plant/newt'.*taxonomy", read, write, [task("a.jpg", annotation(1, path))], taxonomy=TREE)
