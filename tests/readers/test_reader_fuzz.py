"""Damaged files: always a clean error or a correct result."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from _fuzz import ODD, damaged, examples, read, reshaped
from _reader_examples import EXPECTED, JSON_MIN, ZOONIVERSE, mat_bytes
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pals.readers import READERS, read_votes
from pals.readers.matching import one_spelling

MAT = mat_bytes(data=np.zeros((4, 2)), partial_target=np.eye(3, 4), target=np.eye(3, 4))
WHOLE: dict[str, bytes] = {name: example.encode() for name, (example, _, _) in EXPECTED.items()} | {"mat": MAT}
JSON_FORMATS = ["dcic", "label-studio", "min", "json", "jsonl", "huggingface", "peerannot", "datumaro", "coco"]

fuzz = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
chances = st.integers(0, 2**32).map(random.Random)


def read_or_refuse(path: Path, data: bytes, name: str | None) -> None:
    """A clean refusal, or votes that are consistent within themselves: see `_fuzz.read`."""
    path.write_bytes(data)
    read(path, name, None)


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
@given(chance=chances)
def test_damaged_examples(name: str, chance: random.Random, tmp_path: Path) -> None:
    read_or_refuse(tmp_path / "votes.csv", damaged(WHOLE[name], chance), chance.choice([name, None]))


@pytest.mark.parametrize("name", JSON_FORMATS)
@fuzz
@given(chance=chances, times=st.integers(1, 2))
def test_json_of_another_shape(name: str, chance: random.Random, times: int, tmp_path: Path) -> None:
    content = JSON_MIN.encode() if name == "min" else WHOLE[name]
    for _ in range(times):
        content = reshaped(content, chance) if content.strip() else b" {"
    read_or_refuse(tmp_path / "votes.json", content or b" {", chance.choice(["label-studio" if name == "min" else name, None]))


@fuzz
@given(data=st.data())
def test_zooniverse_cells_of_another_shape(data: st.DataObject, tmp_path: Path) -> None:
    cell = st.recursive(
        st.sampled_from(ODD),
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
    (tmp_path / "v.csv").write_text("item,annotator,label,weight\n" + "\n".join(quoted), encoding="utf-8")
    votes = read_votes(tmp_path / "v.csv")
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
