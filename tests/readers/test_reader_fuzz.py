"""Damaged files: always a clean error or a correct result."""

from __future__ import annotations

import json
import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _fuzz import LONGEST, examples
from _reader_examples import EXPECTED, JSON_MIN, ZOONIVERSE, mat_bytes
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pals.readers import READERS, Votes, read_votes
from pals.util.errors import InputError

MAT = mat_bytes(data=np.zeros((4, 2)), partial_target=np.eye(3, 4), target=np.eye(3, 4))
WHOLE: dict[str, bytes] = {name: example.encode() for name, (example, _, _) in EXPECTED.items()} | {"mat": MAT}

fuzz = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def read_or_refuse(path: Path, data: bytes, name: str | None) -> Votes | None:
    """What was read, consistent within itself; None after a clean error that names the file or the trouble."""
    path.write_bytes(data)
    try:
        votes = read_votes(path, format=name)
    except InputError as error:
        message = str(error).replace(str(path), path.name)
        assert path.name in message and message.encode() and len(message) <= LONGEST
        return None
    assert str(votes.summary).encode()
    assert votes.summary.answers == votes.num_answers
    if len(votes.class_names) > 1:
        sets = votes.to_candidates(on_empty="drop")
        assert set(sets.ids) == {votes.items[i] for i in votes.item_R[votes.weight_R > 0]}
    return votes


INPUTS, PARTS = 14_000, 4


def test_every_format_is_damaged() -> None:
    assert {name for name, _, _ in examples()} == set(WHOLE)
    assert {Path(file).suffix for _, file, _ in examples()} >= {".csv", ".json", ".jsonl", ".xml", ".mat", ".parquet"}


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_thousands_of_damaged_files(part: int, tmp_path: Path) -> None:
    """In a process of its own, which a crash or a wait without end may take down; `_fuzz.py` says what is allowed."""
    first, last = INPUTS * part // PARTS, INPUTS * (part + 1) // PARTS
    command = [sys.executable, str(Path(__file__).with_name("_fuzz.py")), str(first), str(last), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, f"input {(tmp_path / 'number').read_text()}:\n{done.stderr[-3000:]}"
    read, refused = (int(word) for word in done.stdout.replace(",", "").split() if word.isdigit())
    assert read + refused == last - first
    assert min(read, refused) > 500, "damage that is always, or never, found tests nothing"


@pytest.mark.parametrize("name", [None, *READERS])
@fuzz
@given(data=st.binary(min_size=1, max_size=200))
def test_any_bytes(name: str | None, data: bytes, tmp_path: Path) -> None:
    read_or_refuse(tmp_path / "votes.csv", data, name)


@pytest.mark.parametrize("name", READERS)
@fuzz
@given(data=st.data())
def test_damaged_examples(name: str, data: st.DataObject, tmp_path: Path) -> None:
    """Some bytes changed, taken out, put in or cut off."""
    content = bytearray(WHOLE[name])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, max(len(content) - 1, 0)))
        kind = data.draw(st.sampled_from(["change", "delete", "insert", "cut", "twice"]))
        if kind == "change" and content:
            content[at] = data.draw(st.integers(0, 255))
        elif kind == "delete":
            del content[at : at + data.draw(st.integers(1, 20))]
        elif kind == "insert":
            content[at:at] = data.draw(
                st.sampled_from([b'"', b"\n", b",", b"\x00", b"\xff", b"{", b"]", b"NaN", b"\\ud800", b"-1"])
            )
        elif kind == "twice":
            content[at:at] = content[at:]
        else:
            del content[at:]
    read_or_refuse(tmp_path / "votes.csv", bytes(content), data.draw(st.sampled_from([name, None])))


JSON_FORMATS = ["dcic", "label-studio", "min", "json", "jsonl", "huggingface", "peerannot", "datumaro", "coco"]
ODD = st.sampled_from(
    [None, True, 0, -1, 1e308, float("nan"), "", "x", [], {}, [[]], [None], {"a": []}, ["newt", 3], 10**400]
).map(deepcopy)


@pytest.mark.parametrize("name", JSON_FORMATS)
@fuzz
@given(data=st.data())
def test_json_of_another_shape(name: str, data: st.DataObject, tmp_path: Path) -> None:
    """One value anywhere in the tree replaced by something that does not belong there, or taken out."""
    text = JSON_MIN if name == "min" else EXPECTED[name][0]
    tree: Any = (
        [json.loads(line) for line in text.splitlines() if line] if name in ("jsonl", "huggingface") else json.loads(text)
    )
    for _ in range(data.draw(st.integers(1, 2))):
        node: Any = tree
        while True:
            keys = list(node) if isinstance(node, dict) else list(range(len(node)))
            if not keys:
                break
            key = data.draw(st.sampled_from(keys))
            if not isinstance(node[key], (dict, list)) or data.draw(st.integers(0, 3)) == 0:
                if isinstance(node, dict) and data.draw(st.booleans()):
                    del node[key]
                else:
                    node[key] = data.draw(ODD)
                break
            node = node[key]
    lines = "\n".join(map(json.dumps, tree)) if name in ("jsonl", "huggingface") else json.dumps(tree)
    format_name = "label-studio" if name == "min" else name
    read_or_refuse(tmp_path / "votes.json", (lines or " {").encode(), data.draw(st.sampled_from([format_name, None])))


@fuzz
@given(data=st.data())
def test_zooniverse_cells_of_another_shape(data: st.DataObject, tmp_path: Path) -> None:
    cell = st.recursive(
        ODD,
        lambda inner: (
            st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["task", "value", "choice"]), inner, max_size=2)
        ),
        max_leaves=4,
    )
    cells = [json.dumps(data.draw(cell)).replace('"', '""') for _ in range(2)]
    row = f'bob,12,x,"{cells[0]}","{cells[1]}"\n'
    read_or_refuse(tmp_path / "votes.csv", (ZOONIVERSE + row).encode(), "zooniverse")


name_ = st.text(st.characters(exclude_categories=["Cs", "Cc", "Z"]), min_size=1, max_size=5)


@fuzz
@given(rows=st.lists(st.tuples(name_, name_, name_, st.sampled_from([0.5, 1.0, 3.0])), min_size=1, max_size=12))
def test_whatever_is_written_is_read(rows: list[tuple[str, str, str, float]], tmp_path: Path) -> None:
    """A long table with odd names: the counts are those of a slow loop."""
    rows = [(f"i{item}", f"w{worker}", f"l{label}".replace("|", "/"), weight) for item, worker, label, weight in rows]
    quoted = ['"' + '","'.join(str(cell).replace('"', '""') for cell in row) + '"' for row in rows]
    votes = read_or_refuse(tmp_path / "v.csv", ("item,annotator,label,weight\n" + "\n".join(quoted)).encode(), None)
    assert votes is not None
    from pals.readers.matching import one_spelling

    said: dict[tuple[str, str], dict[str, float]] = {}
    for item, worker, label, weight in rows:
        said.setdefault((one_spelling(item), worker), {}).setdefault(label, weight)
    totals: dict[str, dict[str, float]] = {}
    for (item, _), labels in said.items():
        for label, weight in labels.items():
            counts = totals.setdefault(item, {})
            counts[label] = counts.get(label, 0.0) + weight / len(labels)
    assert set(votes.items) == set(totals)
    if len(votes.class_names) > 1:
        sets = votes.to_candidates()
        assert sets.frequency_NC is not None
        for item, shares in zip(sets.ids, sets.frequency_NC.tolist(), strict=True):
            whole = sum(totals[item].values())
            assert shares == pytest.approx([totals[item].get(name, 0.0) / whole for name in sets.class_names], abs=1e-6)
