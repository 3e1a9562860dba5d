"""One small example of every format, and how to look at what was read."""

from __future__ import annotations

import io
from typing import Any

import pandas as pd
from scipy.io import savemat

from pals.readers import Votes

DCIC = """[{"name":"INVALID17","dataset_name":"Ponds","user_mail":"INVALID","annotation_time":-1,
  "annotations":[
   {"image_path":"Ponds/fold1/a01.png","class_label":"newt","created_at":"03-05-2021-10-11-12"},
   {"image_path":"Ponds/fold1/a02.png","class_label":null,"created_at":"03-05-2021-10-11-30"}]},
 {"name":"INVALID4","dataset_name":"Ponds","user_mail":"INVALID","annotation_time":-1,
  "annotations":[{"image_path":"Ponds/fold1/a01.png","class_label":"frog","created_at":"04-05-2021-09-00-01"}]}]
"""
LABEL_STUDIO = """[{"id":7,"data":{"image":"/data/local-files/?d=ponds/a01.jpg"},
  "annotations":[
   {"id":70,"completed_by":3,"was_cancelled":false,"ground_truth":false,"lead_time":4.1,
    "created_at":"2026-01-05T10:00:00Z","updated_at":"2026-01-05T10:00:00Z",
    "result":[{"id":"x1","from_name":"species","to_name":"img","type":"choices","value":{"choices":["newt"]}}]},
   {"id":71,"completed_by":{"id":5,"email":"b@example.org"},"was_cancelled":false,"ground_truth":false,
    "result":[{"id":"x2","from_name":"species","to_name":"img","type":"choices","value":{"choices":["newt","frog"]}}]},
   {"id":72,"completed_by":6,"was_cancelled":true,"result":[]}],
  "predictions":[]}]
"""
LONG = "task,annotator,label\na01.jpg,ann,newt\na01.jpg,bob,frog\na02.jpg,ann,frog\n"
CLEANLAB = ",ann,bob,cho\na01.jpg,1,0,\na02.jpg,0,,0\n"
PEERANNOT = '{"0":{"12":1,"40":0},"1":{"12":0}}'
CVAT = """<annotations><version>1.1</version>
 <image id="0" name="a01.jpg" width="640" height="480"><tag label="newt" source="manual"></tag></image>
</annotations>
"""
DATUMARO = (
    '{"categories":{"label":{"labels":[{"name":"frog"},{"name":"newt"}]}},'
    '"items":[{"id":"a01","annotations":[{"type":"label","label_id":1,"attributes":{}}]}]}'
)
COCO = """{"images":[{"id":1,"file_name":"a01.jpg"}],"categories":[{"id":1,"name":"frog"},{"id":2,"name":"newt"}],
 "annotations":[{"id":1,"image_id":1,"category_id":2,"score":0.9},{"id":2,"image_id":1,"category_id":1,"score":0.4}]}
"""
HUGGINGFACE = (
    '{"file_name":"a01.jpg","candidates":["newt","frog"],'
    '"votes":[{"annotator":"ann","label":"newt"},{"annotator":"bob","label":"frog"}]}\n'
)
ZOONIVERSE = """user_name,user_id,created_at,annotations,subject_data
ann,11,2026-01-05 10:00:00 UTC,"[{""task"":""T0"",""value"":""Newt""}]","{""901"":{""Filename"":""a01.jpg""}}"
"""
WIDE = "image,ann,bob,cho\na01.jpg,newt,frog,\na02.jpg,frog,,newt|frog\na03.jpg,,,\n"
CANDIDATES = "image;candidates\na01.jpg;newt|frog\na02.jpg;frog\n"
JSONL = """{"item":"a01.jpg","annotator":"ann","label":"newt"}
{"item":"a01.jpg","annotator":"bob","label":["newt","frog"],"weight":2}

{"item":"a02.jpg","annotator":"ann","label":null}
"""
JSON_MIN = """[
 {"image":"/data/upload/3/1a2b3c4d-a01.jpg","id":7,"species":"newt",
  "annotator":3,"annotation_id":70,"lead_time":4.1},
 {"image":"/data/upload/3/1a2b3c4d-a01.jpg","id":7,"species":{"choices":["newt","frog"]},
  "annotator":5,"annotation_id":71,"lead_time":2}]
"""

JSON = '[{"file":"a01.jpg","label":"newt"},{"file":"a02.jpg","label":"frog"}]'

Row = tuple[str, str | None, tuple[str, ...]]
EXAMPLES = {  # format: example, name of the file, item, annotator and labels of each answer
    "dcic": (DCIC, "annotations.json", "Ponds/fold1/a01.png:set 1:newt; Ponds/fold1/a01.png:set 2:frog"),
    "label-studio": (LABEL_STUDIO, "export.json", "ponds/a01.jpg:3:newt; ponds/a01.jpg:b@example.org:newt,frog"),
    "long": (LONG, "votes.csv", "a01.jpg:ann:newt; a01.jpg:bob:frog; a02.jpg:ann:frog"),
    "wide": (WIDE, "wide.csv", "a01.jpg:ann:newt; a01.jpg:bob:frog; a02.jpg:ann:frog; a02.jpg:cho:newt,frog"),
    "cleanlab": (CLEANLAB, "frame.csv", "a01.jpg:ann:1; a01.jpg:bob:0; a02.jpg:ann:0; a02.jpg:cho:0"),
    "candidates": (CANDIDATES, "sets.csv", "a01.jpg::newt,frog; a02.jpg::frog"),
    "jsonl": (JSONL, "votes.jsonl", "a01.jpg:ann:newt; a01.jpg:bob:newt,frog"),
    "json": (JSON, "votes.json", "a01.jpg::newt; a02.jpg::frog"),
    "peerannot": (PEERANNOT, "answers.json", "0:12:1; 0:40:0; 1:12:0"),
    "cvat": (CVAT, "ann.xml", "a01.jpg:ann:newt"),
    "datumaro": (DATUMARO, "default.json", "a01:default:newt"),
    "coco": (COCO, "labels.json", "a01.jpg::newt,frog"),
    "huggingface": (HUGGINGFACE, "metadata.jsonl", "a01.jpg:ann:newt; a01.jpg:bob:frog"),
    "zooniverse": (ZOONIVERSE, "classifications.csv", "a01.jpg:ann:Newt"),
}


def _rows(text: str) -> list[Row]:
    cells = [row.split(":") for row in text.split("; ")]
    return [(item, annotator or None, tuple(labels.split(","))) for item, annotator, labels in cells]


EXPECTED = {name: (content, file, _rows(text)) for name, (content, file, text) in EXAMPLES.items()}


def answers(votes: Votes) -> list[Row]:
    """(item, annotator, labels) of each answer, by a slow loop."""
    found: dict[int, tuple[str, str | None, list[str]]] = {}
    for row in range(len(votes.item_R)):
        annotator = votes.annotators[votes.annotator_R[row]] if votes.annotator_R[row] >= 0 else None
        new = (votes.items[votes.item_R[row]], annotator, [])
        found.setdefault(int(votes.answer_R[row]), new)[2].append(votes.class_names[votes.label_R[row]])
    return [(item, annotator, tuple(labels)) for item, annotator, labels in found.values()]


def parquet_bytes(**columns: Any) -> bytes:
    file = io.BytesIO()
    pd.DataFrame(columns).to_parquet(file)
    return file.getvalue()


def mat_bytes(packed: bool = False, **arrays: Any) -> bytes:
    file = io.BytesIO()
    savemat(file, arrays, do_compression=packed)
    return file.getvalue()
