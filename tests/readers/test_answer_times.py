"""When people answered: read from tables and exports, kept with its rows, written and read back."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from _crowd import rows_of, votes_of
from _refused import refused
from pals.pipeline.stages.read_answers import answered_first, fingerprint
from pals.pipeline.tables.result_tables import csv_text
from pals.readers import Votes, read_votes

Write = Callable[..., Path]
NOON = datetime(2026, 1, 5, 12, tzinfo=UTC).timestamp()


def times(votes: Votes) -> dict[tuple[str, str], float]:
    """Seconds after noon, by item and person."""
    return {
        (votes.items[item], votes.annotators[annotator]): float(time - NOON)
        for item, annotator, time in zip(votes.item_R, votes.annotator_R, votes.time_R, strict=True)
    }


@pytest.fixture
def votes() -> Votes:
    rows = [(0, 0, 1), (0, 1, 2), (1, 1, 0), (3, 2, 1), (3, 0, 1)]
    return votes_of(rows, 4, times=[NOON, NOON + 1.25, np.nan, NOON + 7, NOON + 9.000001])


def test_ways_to_write_a_time_of_an_answer(write: Write) -> None:
    for cell, seconds in {
        "2026-01-05T12:00:07Z": 7, "2026-01-05 12:00:07": 7, "2026-01-05 12:00:07 UTC": 7, "2026-01-05T13:00:07+01:00": 7,
        "2026-01-05T13:00:07 +0100": 7, "2026-01-05T12:00:07.250000Z": 7.25, "2026-01-05T12:01": 60,
        f"{NOON + 7:.0f}": 7, f"{NOON + 7.5:.1f}": 7.5, f"{(NOON + 7.25) * 1000:.0f}": 7.25,
    }.items():  # fmt: skip
        found = read_votes(write(f"item,annotator,label,answered_at\na,ann,newt,{cell}\nb,ann,frog,\n"))
        assert times(found)["a", "ann"] == seconds and np.isnan(found.time_R[1]), cell
        assert not [note for note in found.summary.notes if "ime" in note]
    for name in ("time", "Timestamp", "created_at", "answered at", "date_time", "submitted_at"):
        rows = "a,ann,newt,2026-01-05T12:00:07Z\nb,ann,frog,2026-01-05T12:00:09Z\n"
        assert times(read_votes(write(f"item,annotator,label,{name}\n{rows}"))) == {("a", "ann"): 7, ("b", "ann"): 9}, name
    rows = "".join(f"{item},{who},newt,2026-01-05T12:00:0{item}Z\n" for item in range(3) for who in ("ann", "bob"))
    found = read_votes(write("item,annotator,label,timestamp\n" + rows))
    assert not found.timed and any("as if it were the item's" in note for note in found.summary.notes)
    found = read_votes(write("image,ann,bob,timestamp\na,newt,frog,2026-01-05\nb,frog,frog,2026-01-06\n"))
    assert found.annotators == ("ann", "bob")


@pytest.mark.parametrize(
    "cell", ["9:10", "2026-01-05", "3.2", "20260105101112", "soon", "2026-02-30T12:00:00", "1899-12-30T00:00:00", "-5", "1e9"]
)
def test_what_is_no_time_is_left_alone(cell: str, write: Write) -> None:
    path = write(f"item,annotator,label,time\na,ann,newt,2026-01-05T12:00:00Z\nb,ann,frog,{cell}\n")
    found = read_votes(path)
    assert not found.timed and found.num_answers == 2
    (note,) = [note for note in found.summary.notes if note.startswith("Times of answers are not read")]
    assert "row 3, column 'time'" in note and cell in note
    refused(r"row 3, column 'time', holds .*Write times as 2026-01-05T10:00:00", read_votes, path, columns={"time": "time"})


def test_records_and_entries_of_votes(write: Write) -> None:
    rows = [{"item": "a", "annotator": "ann", "label": ["newt", "frog"], "time": NOON + 3}, {"item": "a", "annotator": "bob",
            "label": "newt", "time": "2026-01-05T12:00:04Z"}, {"item": "b", "annotator": "ann", "label": "newt"}]  # fmt: skip
    found = read_votes(write("\n".join(map(json.dumps, rows)), "votes.jsonl"))
    assert (found.time_R[:3] - NOON).tolist() == [3, 3, 4] and np.isnan(found.time_R[3])
    rows[2]["time"] = ["now"]
    found = read_votes(write(json.dumps(rows), "votes.json"))
    assert not found.timed and any("record 3 holds ['now']" in note for note in found.summary.notes)
    refused(r"votes\.json, record 3 holds", read_votes, write(json.dumps(rows), "votes.json"), columns={"time": "time"})
    votes = [
        {"annotator": "ann", "label": "newt", "created_at": NOON + 1},
        {"annotator": "bob", "label": "frog", "time": NOON + 2},
    ]
    row = {"item": "a", "time": NOON, "votes": votes}
    assert times(read_votes(write(json.dumps([row]), "votes.json"))) == {("a", "ann"): 1, ("a", "bob"): 2}


def test_parquet_of_times_and_how_long_an_answer_took(tmp_path: Path, write: Write) -> None:
    pytest.importorskip("pyarrow")
    at = pd.to_datetime([NOON + 1.5, None, NOON + 3], unit="s", utc=True)
    frame = pd.DataFrame({"item": ["a", "b", "c"], "annotator": "ann", "label": ["newt", "frog", "newt"], "created_at": at})
    frame.to_parquet(tmp_path / "votes.parquet")
    found = read_votes(tmp_path / "votes.parquet")
    assert (found.time_R - NOON)[[0, 2]].tolist() == [1.5, 3] and np.isnan(found.time_R[1])
    frame.assign(created_at=[[1], [2], [3]]).to_parquet(tmp_path / "nested.parquet")
    found = read_votes(tmp_path / "nested.parquet")
    assert found.num_answers == 3 and any("Times of answers are not read" in note for note in found.summary.notes)
    found = read_votes(write("item,annotator,label,lead_time\na,ann,newt,4.1\na,bob,frog,\nb,ann,frog,12\n"))
    assert np.nan_to_num(found.seconds_R, nan=-1).tolist() == [4.1, -1, 12] and found.timed and np.isnan(found.time_R).all()
    again = read_votes(write(csv_text(found.to_frame())))
    np.testing.assert_array_equal(again.seconds_R, found.seconds_R)
    assert fingerprint(again) == fingerprint(found) != fingerprint(votes_of(rows_of(found), 2, 2))
    assert np.nan_to_num(found.match(["b"])[0].seconds_R).tolist() == [12]
    rows = [{"item": "a", "annotator": "ann", "label": ["newt", "frog"], "seconds": 3}, {"item": "b", "label": "newt"}]
    assert np.nan_to_num(read_votes(write(json.dumps(rows), "votes.json")).seconds_R).tolist() == [3, 3, 0]


def test_zooniverse_and_label_studio(write: Write) -> None:
    row = '{who},2026-01-05 12:00:0{second} UTC,"[{{""task"":""T0"",""value"":""Newt""}}]","{{""9"":{{""Filename"":""a""}}}}"\n'
    text = "user_name,created_at,annotations,subject_data\n" + row.format(who="ann", second=1) + row.format(who="bob", second=4)
    assert times(read_votes(write(text))) == {("a", "ann"): 1, ("a", "bob"): 4}
    assert not read_votes(write(text.replace("2026-01-05 12", "yesterday 12"))).timed

    def annotation(number: int, **at: str) -> dict[str, object]:
        result = [{"from_name": "species", "type": "choices", "value": {"choices": ["newt"]}}]
        return {"id": number, "completed_by": number, "result": result, **at}

    made = annotation(1, created_at="2026-01-05T12:00:05.5Z", updated_at="2026-01-06T12:00:00Z")
    tasks = [{"data": {"image": "a.jpg"}, "annotations": [made, annotation(2, updated_at="2026-01-05T12:00:08Z")]}]
    assert times(read_votes(write(json.dumps(tasks), "export.json"))) == {("a.jpg", "1"): 5.5, ("a.jpg", "2"): 8}
    flat = [{"image": "a.jpg", "species": "newt", "annotator": who, "annotation_id": who, "lead_time": 2,
             "created_at": f"2026-01-05T12:00:0{who}Z"} for who in (3, 4)]  # fmt: skip
    assert times(read_votes(write(json.dumps(flat), "min.json"))) == {("a.jpg", "3"): 3, ("a.jpg", "4"): 4}


@pytest.mark.parametrize("cell", ["soon", "-3", "00:04", "1e12", "inf"])
def test_what_is_no_number_of_seconds_is_left_alone(cell: str, write: Write) -> None:
    path = write(f"item,annotator,label,seconds\na,ann,newt,3\nb,ann,frog,{cell}\n")
    found = read_votes(path)
    assert not found.timed and found.num_answers == 2
    (note,) = [note for note in found.summary.notes if note.startswith("Seconds that answers took are not read")]
    assert "row 3, column 'seconds'" in note and cell in note
    refused(r"row 3, column 'seconds', holds .* not a number of seconds", read_votes, path, columns={"seconds": "seconds"})
    for wrong in ([1.0], [-1.0] * 2, [np.inf] * 2):
        refused("seconds_R of the votes must hold 2 numbers of seconds", votes_of, rows_of(found), 2, 2, seconds=wrong)


def test_times_stay_with_their_rows_or_are_none(votes: Votes) -> None:
    plain = votes_of(rows_of(votes), 4)
    assert not plain.timed and np.isnan(plain.time_R).tolist() == [True] * 5 and "time" not in plain.to_frame()
    assert fingerprint(plain) != fingerprint(votes)
    for wrong in ([1.0], [-1.0] * 5, [np.inf] * 5):
        refused("time_R of the votes must hold 5 times", votes_of, rows_of(votes), 4, times=wrong)

    def seconds(part: Votes) -> list[float]:
        return np.nan_to_num(part.time_R - NOON, nan=-1).round(6).tolist()

    assert seconds(votes.take(np.array([4, 2, 0]))) == [9.000001, -1, 0]
    assert seconds(votes.take(np.array([1, 3]))) == [1.25, 7]
    assert seconds(votes.match(["i3", "new"])[0]) == [7, 9.000001]
    assert seconds(votes.trusting(["w1"])) == [0, 7, 9.000001] and seconds(answered_first(votes)) == seconds(votes)


def test_a_table_is_read_back_also_of_labels_with_times_apart(votes: Votes, write: Write) -> None:
    """To the microsecond; with known right labels and "don't know"s, which have no time."""
    more = votes_of(rows_of(votes), 4, times=votes.time_R.tolist(), gold={2: 1}, unknown=[(2, 0)])
    frame = more.to_frame()
    assert frame["time"].tolist()[:3] == ["2026-01-05T12:00:00.000000Z", "2026-01-05T12:00:01.250000Z", ""]
    again = read_votes(write(csv_text(frame)))
    assert times(again).keys() == times(more).keys()
    np.testing.assert_array_equal(list(times(again).values()), list(times(more).values()))
    text = "item,annotator,label,time\na,ann,newt,2026-01-05T12:00:01Z\na,ann,frog,2026-01-05T12:00:02Z\n"
    found = read_votes(write(text))
    assert found.num_answers == 1 and (found.time_R - NOON).tolist() == [1, 2]
    again = read_votes(write(csv_text(found.to_frame())))
    assert again.num_answers == 1 and (again.time_R - NOON).tolist() == [1, 2]
