"""Files that would crash, hang or fill the memory. Time limits here are only for what would otherwise never end."""

from __future__ import annotations

import io
import os
import random
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from _reader_examples import CVAT, EXPECTED, LONG, PEERANNOT, answers, mat_bytes
from scipy.io import savemat
from scipy.sparse import csc_matrix

from _refused import refused
from pals.data.mat_sets import load_mat
from pals.readers import Limits, read_votes
from pals.readers.formats import mat
from pals.readers.parquet import Parquet
from pals.readers.source import Source
from pals.util.errors import InputError

Write = Callable[..., Path]
HANG = 300  # seconds


def elsewhere(code: str, *arguments: object) -> str:
    """What a program prints that reads in a process of its own, which may hang or die."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, timeout=HANG, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "votes.csv")
    code = """
import sys
from pals.readers import read_votes
try:
    read_votes(sys.argv[1])
except ValueError as error:
    print(error)
"""
    said = elsewhere(code, tmp_path / "votes.csv").strip()
    remedy = "Save what comes out of it to a file, and name that."
    assert said == f"{tmp_path / 'votes.csv'}: this is a pipe or a device, not a file. {remedy}"
    (tmp_path / "answers.json").write_text(PEERANNOT)
    os.mkfifo(tmp_path / "metadata.json")
    assert elsewhere(code, tmp_path / "answers.json") == ""


@pytest.mark.slow
def test_too_little_memory(write: Write) -> None:
    rows = "".join(f"{i}.jpg,{i % 7},{i % 5}\n" for i in range(400_000))
    code = """
import resource, sys
from pals.readers import read_votes
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (40 << 20),) * 2)
try:
    read_votes(sys.argv[1])
except ValueError as error:
    print(error)
"""
    assert "there is not enough memory to read it" in elsewhere(code, write("item,annotator,label\n" + rows))


def test_tables_that_do_not_fit(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    votes = read_votes(write(LONG))

    def full(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(np, "bincount", full)
    refused("No memory for 2 items x 2 classes", votes.to_candidates)
    limits = Limits(cells=100)
    assert limits.too_many_cells(100, size=1) is None and limits.too_many_cells(101, size=1) is not None
    assert limits.too_many_cells(4000, size=1000) is None and limits.too_many_cells(4001, size=1000) is not None


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["columns", "line breaks"])
def test_a_hundred_thousand_columns_and_megabytes_of_line_breaks(shape: str, write: Write) -> None:
    """Time and memory do not grow with the square of either."""
    names = [f"w{i}" for i in range(100_000)]
    rows = "".join(f"{i}.jpg,{','.join('ab'[(i + j) % 2] for j in range(len(names)))}\n" for i in range(2))
    path = (
        write(f"image,{','.join(names)}\n{rows}")
        if shape == "columns"
        else write(CVAT.replace("</annotations>", "\n" * 8_000_000 + "</annotations>"), "ann.xml")
    )
    code = "import sys; from pals.readers import read_votes; print(read_votes(sys.argv[1]).num_answers)"
    assert elsewhere(code, path) == ("200000\n" if shape == "columns" else "1\n")


@pytest.mark.parametrize("name", ["long", "cvat", "json"])
def test_encodings_that_are_none_and_messages_stay_short(name: str, write: Write) -> None:
    content, file, _ = EXPECTED[name]
    path = write(content.replace("newt", "Kröte"), file)
    for encoding in ("punycode", "idna", "undefined", "unicode_escape", "rot13", "zlib", "a\0b", "", "x" * 900):
        assert len(refused(r"Unknown encoding '.*'\. Use utf-8", read_votes, path, encoding=encoding)) < 500
    assert len(refused(".", read_votes, write(",".join(f"column {i}" for i in range(5000)) + "\nx\n"))) < 500


def parquet(table: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table(table) if isinstance(table, dict) else table, file, **options)
    return file.getvalue()


def test_parquet_files_that_grow_when_unpacked(write: Write) -> None:
    """Refused by what it claims; nothing of it is unpacked."""
    rows = 8_000_000
    same = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, dtype=np.int8)), pa.array(["newt"]))
    data = parquet({"item": same, "annotator": same, "label": same})
    assert len(data) < 100_000
    refused("claim to hold 24,000,000 cells.*PALS_MAX_CELLS=24000000", read_votes, write(data, "v.parquet"))
    text = pa.DictionaryArray.from_arrays(pa.array(np.zeros(5000, dtype=np.int32)), pa.array(["x" * (4 << 20)]))
    data = parquet({"item": [str(i) for i in range(5000)], "label": text}, compression="zstd")
    assert len(data) < 200_000
    votes = read_votes(write(data, "v.parquet"))
    assert [len(name) for name in votes.class_names] == [4 << 20]
    lists = pa.array([["x" * 100_000, "y"]] * 500)
    data = parquet({"file_name": [str(i) for i in range(500)], "candidates": lists})
    with pytest.raises(InputError, match=r"the table, once it is unpacked, takes .* PALS_MAX_BYTES"):
        read_votes(write(data, "metadata.parquet"), limits=Limits(bytes=10_000_000))
    assert read_votes(write(data, "metadata.parquet")).num_answers == 500


def test_parquet_text_damaged_ends_and_files_that_are_too_large(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = pa.Array.from_buffers(pa.utf8(), 2, pa.array([b"newt", b"fr\xffg"]).buffers())
    refused(r"holds text that is not UTF-8", read_votes, write(parquet({"item": ["a", "b"], "label": broken}), "v.parquet"))
    bad_bytes = parquet({"item": ["a", "b"], "label": pa.array([b"newt", b"fr\xffg"])})
    refused("not UTF-8", read_votes, write(bad_bytes, "v.parquet"))
    assert read_votes(write(parquet({"item": ["a"], "label": [b"newt"]}), "v.parquet")).class_names == ("newt",)
    file = io.BytesIO()
    pd.DataFrame({"a": range(1000), "b": [["x"] * 3] * 1000}).to_parquet(file, row_group_size=300)
    whole = file.getvalue()
    assert Parquet(Path("x"), whole, Limits()).rows == 1000
    for data in (b"PAR1", whole[:-1], whole[:-8] + struct.pack("<I", 1 << 30) + b"PAR1"):
        refused("damaged", Parquet, Path("x"), data, Limits())
    size = len(LONG)
    refused(rf"the file takes {size} bytes", read_votes, write(LONG), limits=Limits(bytes=size - 1))
    monkeypatch.setenv("PALS_MAX_BYTES", str(size - 1))
    refused(f"PALS_MAX_BYTES={size}", read_votes, write(LONG))
    monkeypatch.setenv("PALS_MAX_BYTES", "many")
    refused(r"PALS_MAX_BYTES is 'many'. Set it to a whole number", read_votes, write(LONG))


@pytest.mark.parametrize("part", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_damaged_footers_of_parquet_files_are_refused_or_read(part: int) -> None:
    """In a process of its own: pyarrow aborts where it reads the metadata of a damaged column."""
    code = """
import random, struct, sys
from pathlib import Path
from pals.readers.limits import Limits
from pals.readers.parquet import Parquet
from pals.util.errors import InputError
data = bytes.fromhex(sys.stdin.read())
start = len(data) - 8 - struct.unpack("<I", data[-8:-4])[0]
chance, outcomes = random.Random(int(sys.argv[1])), set()
for _ in range(int(sys.argv[2])):
    content = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 3))):
        content[chance.randrange(start, len(data) - 8)] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
    try:
        found = Parquet(Path("x"), bytes(content), Limits())
        found.columns(found.names[:1])
        outcomes.add("read")
    except InputError:
        outcomes.add("refused")
    except KeyError:
        outcomes.add("refused")
print(len(outcomes))
"""
    data = parquet({"item": ["a", "b"], "weight": [1.0, 2.0], "label": ["newt", None]}).hex()
    command = [sys.executable, "-c", code, str(part), str(20_000 if part else 500)]
    done = subprocess.run(command, input=data, capture_output=True, text=True, timeout=HANG, check=False)
    assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr[-1000:]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", ["f8", "u1", "?"])
def test_matrices_of_a_matlab_file(packed: bool, kind: str, write: Write) -> None:
    """Dense or sparse, in any type of number, beside variables that are no matrices."""
    values = np.array([[0, 2, 0], [1, 0, 3]]).astype(kind)
    others = {"a_longer_name": np.ones((2, 2)), "t": "text", "c": np.array([[1], "x"], dtype=object)}
    source = Source(write(mat_bytes(packed, full=values, thin=csc_matrix(values.astype("f8")), **others), "x.mat"))
    found = mat.read_matrices(source, ["full", "thin"], "entries")
    assert set(found.shapes) == {"full", "thin", *others} and found.shapes["thin"] == (2, 3)
    row, column = values.nonzero()
    for name in ("full", "thin"):
        parts = [found.arrays[f"{name}.{part}"].tolist() for part in ("row", "column", "value")]
        assert parts == [row.tolist(), column.tolist(), values[row, column].tolist()]
    dense = mat.read_matrices(source, ["full", "thin"], "dense").arrays
    assert all(np.array_equal(dense[name], values) for name in ("full", "thin"))


@pytest.mark.parametrize("files", [9, pytest.param(150, marks=pytest.mark.slow)])
def test_changed_bytes_of_a_matlab_file(files: int, write: Write) -> None:
    """Some of these end the process that reads them; here each gives a result or a refusal."""
    chance, outcomes = random.Random(0), set()
    wholes = [mat_bytes(data=np.zeros((4, 2)), partial_target=np.eye(3, 4)),
              mat_bytes(data=np.zeros((4, 2)), partial_target=csc_matrix(np.eye(3, 4))),
              mat_bytes(True, data=np.zeros((4, 2)), partial_target=csc_matrix(np.eye(3, 4)))]  # fmt: skip
    for number in range(files):
        content = bytearray(wholes[number % 3])
        at = chance.randrange(124, len(content))
        content[at] = chance.choice((0, 0x7F, 0xFF, content[at] ^ 1))
        try:
            read_votes(write(bytes(content), "x.mat"))
            outcomes.add("read")
        except InputError as error:
            outcomes.add("refused" if len(str(error)) < 500 and "x.mat" in str(error) else str(error))
    assert outcomes == {"read", "refused"}


@pytest.mark.parametrize(
    "value",
    [np.zeros((3, 8_000_000), dtype=np.uint8), csc_matrix((40_000, 40_000)), csc_matrix((8, 4_000_000)),
     csc_matrix((1_000_000, 1_000_000))],
    ids=["dense", "sparse", "columns", "billions"],
)  # fmt: skip
def test_a_matlab_file_that_would_fill_the_memory(value: Any, write: Write) -> None:
    """2 kB that unpack to gigabytes: nothing of what they claim is unpacked."""
    data = mat_bytes(True, partial_target=value)
    assert len(data) < 200_000
    refused(r"`partial_target` is \d+ x \d+, and its [\d,]+ bytes claim to hold [\d,]+ cells", read_votes, write(data, "x.mat"))


def test_large_and_old_matlab_files_and_those_that_end_the_process(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(mat_bytes(True, partial_target=np.eye(2), data=np.zeros((2, 11_000_000))), "features.mat")
    assert answers(read_votes(path)) == [("0", None, ("0",)), ("1", None, ("1",))]
    refused(r"`data` is 2 x 11000000, and its", load_mat, path)
    file = io.BytesIO()
    savemat(file, {"partial_target": np.eye(2)}, format="4")
    refused(r"save\(name, '-v7'\)", read_votes, write(file.getvalue(), "old.mat"))
    path = write(mat_bytes(partial_target=np.eye(2)), "x.mat")
    monkeypatch.setattr(mat, "MIN_SECONDS", 0)
    refused(r"x.mat: .* more than 0 seconds", read_votes, path)
    monkeypatch.setattr(subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, -11, b"", b""))
    refused(r"x.mat: .* ends the process", read_votes, path)


@pytest.mark.skipif(sys.platform != "linux", reason="the system does not limit memory")
def test_a_matlab_file_needs_no_more_memory_than_allowed(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mat, "PROCESS_BYTES", 300 << 20)
    path = write(mat_bytes(True, partial_target=np.eye(2), target=np.zeros((4, 4_900_000))), "x.mat")
    refused("more memory than is allowed", read_votes, path, limits=Limits(bytes=100 << 20))
