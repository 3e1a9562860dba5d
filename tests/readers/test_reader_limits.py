"""Files that would crash, hang or fill the memory. Time limits here are only for what would otherwise never end."""

from __future__ import annotations

import io
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from _reader_examples import CVAT, EXPECTED, LONG, PEERANNOT, answers, mat_bytes
from hypothesis import given
from hypothesis import strategies as st
from scipy.io import loadmat
from scipy.sparse import csc_matrix, issparse

from pals.data.mat_sets import load_mat
from pals.readers import Limits, read_votes
from pals.readers.formats.matlab import DamagedError, dense, entries, matrices
from pals.readers.parquet_footer import FooterError, claimed
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


# ---- pipes, devices, memory


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


def test_a_file_that_is_too_large(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(LONG)
    with pytest.raises(InputError, match=rf"the file takes {size} bytes\. If the file is right, set PALS_MAX_BYTES={size}"):
        read_votes(write(LONG), limits=Limits(bytes=size - 1))
    monkeypatch.setenv("PALS_MAX_BYTES", str(size - 1))
    with pytest.raises(InputError, match=f"PALS_MAX_BYTES={size}"):
        read_votes(write(LONG))
    monkeypatch.setenv("PALS_MAX_BYTES", "many")
    with pytest.raises(InputError, match=r"PALS_MAX_BYTES is 'many'. Set it to a whole number"):
        read_votes(write(LONG))


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


def test_a_table_that_does_not_fit(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    votes = read_votes(write(LONG))

    def full(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(np, "bincount", full)
    with pytest.raises(InputError, match="2 items and 2 classes does not fit into memory"):
        votes.to_candidates()


# ---- many columns, deep nesting, odd encodings


def test_many_columns_are_looked_at_once_each(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of columns are compared a few times each, not each with all others."""
    compared = 0

    class Name(str):
        __slots__ = ()

        def __hash__(self) -> int:
            nonlocal compared
            compared += 1
            return str.__hash__(self)

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

    from pals.readers.columns import not_read

    names = [Name(f"w{i}") for i in range(2000)]
    assert not_read(names, names[:1000]) != ()
    assert compared < 20 * len(names)


@pytest.mark.slow
def test_a_hundred_thousand_columns(write: Write) -> None:
    names = [f"w{i}" for i in range(100_000)]
    rows = "".join(f"{i}.jpg,{','.join('ab'[(i + j) % 2] for j in range(len(names)))}\n" for i in range(2))
    code = "import sys; from pals.readers import read_votes; print(read_votes(sys.argv[1]).num_answers)"
    assert elsewhere(code, write(f"image,{','.join(names)}\n{rows}")) == "200000\n"


def test_messages_do_not_list_thousands_of_columns(write: Write) -> None:
    with pytest.raises(InputError) as error:
        read_votes(write(",".join(f"column {i}" for i in range(5000)) + "\nx\n"))
    assert len(str(error.value)) < 500


@pytest.mark.slow
def test_megabytes_of_line_breaks_in_xml(write: Write) -> None:
    path = write(CVAT.replace("</annotations>", "\n" * 8_000_000 + "</annotations>"), "ann.xml")
    code = "import sys; from pals.readers import read_votes; print(read_votes(sys.argv[1]).num_answers)"
    assert elsewhere(code, path) == "1\n"


@pytest.mark.parametrize(
    "encoding", ["punycode", "idna", "undefined", "unicode_escape", "rot13", "zlib", "a\0b", "", "x" * 900]
)
@pytest.mark.parametrize("name", ["long", "cvat", "json"])
def test_encodings_that_are_none(encoding: str, name: str, write: Write) -> None:
    content, file, _ = EXPECTED[name]
    with pytest.raises(InputError, match=r"Unknown encoding '.*'\. Use utf-8") as error:
        read_votes(write(content.replace("newt", "Kröte"), file), encoding=encoding)
    assert len(str(error.value)) < 500


# ---- Parquet


def parquet(table: Any, **options: Any) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = io.BytesIO()
    pq.write_table(pa.table(table) if isinstance(table, dict) else table, file, **options)
    return file.getvalue()


def test_a_parquet_file_of_millions_of_rows(write: Write) -> None:
    """Refused by what it claims; nothing of it is unpacked."""
    import pyarrow as pa

    rows = 8_000_000
    same = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, dtype=np.int8)), pa.array(["newt"]))
    data = parquet({"item": same, "annotator": same, "label": same})
    assert len(data) < 100_000
    with pytest.raises(
        InputError, match=r"bytes claim to hold 24,000,000 cells\. If the file is right, set PALS_MAX_CELLS=24000000"
    ):
        read_votes(write(data, "v.parquet"))


def test_a_large_file_may_hold_much() -> None:
    limits = Limits(cells=100)
    assert limits.too_many_cells(100, size=1) is None
    assert limits.too_many_cells(101, size=1) is not None
    assert limits.too_many_cells(4000, size=1000) is None
    assert limits.too_many_cells(4001, size=1000) is not None


def test_a_large_text_repeated_is_held_once(write: Write) -> None:
    """5,000 rows of one text of 4 MB are 20 GB when written out."""
    import pyarrow as pa

    text = pa.DictionaryArray.from_arrays(pa.array(np.zeros(5000, dtype=np.int32)), pa.array(["x" * (4 << 20)]))
    data = parquet({"item": [str(i) for i in range(5000)], "label": text}, compression="zstd")
    assert len(data) < 200_000
    votes = read_votes(write(data, "v.parquet"))
    assert [len(name) for name in votes.class_names] == [4 << 20]


def test_lists_that_grow_when_unpacked(write: Write) -> None:
    import pyarrow as pa

    lists = pa.array([["x" * 100_000, "y"]] * 500)
    data = parquet({"file_name": [str(i) for i in range(500)], "candidates": lists})
    with pytest.raises(InputError, match=r"the table, once it is unpacked, takes .* PALS_MAX_BYTES"):
        read_votes(write(data, "metadata.parquet"), limits=Limits(bytes=10_000_000))
    assert read_votes(write(data, "metadata.parquet")).num_answers == 500


def test_parquet_text_that_is_not_utf8(write: Write) -> None:
    import pyarrow as pa

    broken = pa.Array.from_buffers(pa.utf8(), 2, pa.array([b"newt", b"fr\xffg"]).buffers())
    with pytest.raises(InputError, match=r"holds text that is not UTF-8. Write it again"):
        read_votes(write(parquet({"item": ["a", "b"], "label": broken}), "v.parquet"))
    bad_bytes = parquet({"item": ["a", "b"], "label": pa.array([b"newt", b"fr\xffg"])})
    with pytest.raises(InputError, match="not UTF-8"):
        read_votes(write(bad_bytes, "v.parquet"))
    assert read_votes(write(parquet({"item": ["a"], "label": [b"newt"]}), "v.parquet")).class_names == ("newt",)


def test_the_footer_says_what_there_is() -> None:
    frame = pd.DataFrame({"a": range(1000), "b": [["x"] * 3] * 1000})
    file = io.BytesIO()
    frame.to_parquet(file, row_group_size=300)
    claim = claimed(file.getvalue())
    assert (claim.rows, claim.values) == (1000, 4000)
    for data in (b"PAR1", file.getvalue()[:-1], file.getvalue()[:-8] + struct.pack("<I", 1 << 30) + b"PAR1"):
        with pytest.raises(FooterError):
            claimed(data)


# ---- MATLAB


KINDS = ["f8", "f4", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "?"]


@given(st.data())
def test_matrices_are_those_that_scipy_reads(data: st.DataObject) -> None:
    shape = data.draw(st.tuples(st.integers(0, 5), st.integers(0, 5)))
    numbers = data.draw(st.lists(st.integers(0, 3), min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]))
    value: Any = np.array(numbers).reshape(shape).astype(data.draw(st.sampled_from(KINDS)))
    if data.draw(st.booleans()):
        value = csc_matrix(value.astype(data.draw(st.sampled_from(["f8", "?"]))))
    others = {"a_longer_name": np.ones((2, 2)), "t": "text", "c": np.array([[1], "x"], dtype=object)}
    file = mat_bytes(data.draw(st.booleans()), partial_target=value, **others)
    found, expected = matrices(file), loadmat(io.BytesIO(file))["partial_target"]
    assert set(found) == {"partial_target", *others}
    expected = expected.toarray() if issparse(expected) else expected
    assert found["partial_target"].shape == expected.shape
    assert np.array_equal(dense(found["partial_target"]), expected)
    row, column = expected.nonzero()
    assert [part.tolist() for part in entries(found["partial_target"])] == [
        row.tolist(), column.tolist(), expected[row, column].tolist()
    ]  # fmt: skip


def test_every_byte_of_a_matlab_file_changed(write: Write) -> None:
    """scipy's reader ended the whole program for some of these; here each gives a result or a refusal."""
    for packed, form in ((False, np.asarray), (False, csc_matrix), (True, csc_matrix)):
        whole = mat_bytes(packed, data=np.zeros((4, 2)), partial_target=form(np.eye(3, 4)))
        read = refused = 0
        for at in range(124, len(whole)):
            for byte in (0, 0x7F, 0xFF, whole[at] ^ 1):
                changed = whole[:at] + bytes([byte]) + whole[at + 1 :]
                try:
                    for matrix in matrices(changed).values():
                        if matrix.cells < 1000 and matrix.size < 10_000:
                            dense(matrix), entries(matrix)
                    read += 1
                except DamagedError:
                    refused += 1
        assert read and refused


def test_a_matlab_file_that_would_fill_the_memory(write: Write) -> None:
    """2 kB that unpack to gigabytes: what they claim is read, no more."""
    for name, value in (
        ("dense", np.zeros((3, 8_000_000), dtype=np.uint8)),
        ("sparse", csc_matrix((40_000, 40_000))),
        ("columns", csc_matrix((8, 4_000_000))),
    ):
        data = mat_bytes(True, partial_target=value)
        assert len(data) < 200_000
        with pytest.raises(InputError, match=r"`partial_target` is \d+ x \d+, and its [\d,]+ bytes claim to hold [\d,]+ cells"):
            read_votes(write(data, f"{name}.mat"))
    data = mat_bytes(True, partial_target=np.eye(2), data=np.zeros((2, 11_000_000)))
    assert answers(read_votes(write(data, "features.mat"))) == [("0", None, ("0",)), ("1", None, ("1",))]
    with pytest.raises(InputError, match=r"`data` is 2 x 11000000, and its"):
        load_mat(write(data, "features.mat"))


def test_a_sparse_matrix_is_not_written_out(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    zeros = np.zeros
    monkeypatch.setattr(np, "zeros", lambda shape, *a, **k: made.append(shape) or zeros(shape, *a, **k))
    data = mat_bytes(partial_target=csc_matrix(np.eye(40, 900)))
    (matrix,) = matrices(data).values()
    assert len(entries(matrix).row) == 40
    assert (40, 900) not in made


def test_old_matlab_files_say_what_to_do(write: Write) -> None:
    from scipy.io import savemat

    file = io.BytesIO()
    savemat(file, {"partial_target": np.eye(2)}, format="4")
    with pytest.raises(InputError, match=r"save it in MATLAB with save\(name, '-v7'\)"):
        read_votes(write(file.getvalue(), "old.mat"))
