from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from _refused import refused
from pals.training.run_log import RunLog
from pals.util import files
from pals.util.errors import InputError, unknown


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_write_makes_the_folders_and_replaces(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file"
    files.write_bytes(path, b"one")
    files.write_bytes(path, memoryview(b"two"))
    assert contents(tmp_path) == {"a/b/file": b"two"} and stat.S_IMODE(path.stat().st_mode) == 0o644
    files.write_text(path, "drei: ä")
    assert path.read_text(encoding="utf-8") == "drei: ä"


@pytest.mark.parametrize(
    ("number", "remedy"),
    [(errno.EROFS, "choose a folder that you may write to."), (errno.ENOSPC, "make room or choose another folder, then run ")],
)
def test_the_remedy_is_one_for_the_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, remedy: str) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("tempfile.mkstemp", refuse)
    refused(f"intact; {remedy}", files.write_text, tmp_path / "file", "text")


@pytest.mark.parametrize("step", ["tempfile.mkstemp", "os.fsync", "pathlib.Path.replace", "pathlib.Path.chmod"])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt(), MemoryError()])
def test_a_failure_leaves_the_old_file(
    step: str, error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    files.write_bytes(path, b"old")

    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(step, fail)
    expected = InputError if isinstance(error, OSError) else type(error)
    with pytest.raises(expected) as caught:
        files.write_bytes(path, b"new")
    monkeypatch.undo()
    assert contents(tmp_path) == {"file": b"old"}
    if expected is InputError:
        assert "(3 bytes): No space left on device. What was there before is intact" in str(caught.value)


def test_unfinished_files_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a killed process would leave is recognised, and nothing else."""
    seen: list[Path] = []

    def look(*_: Any) -> None:
        seen.extend(tmp_path.iterdir())

    monkeypatch.setattr(os, "fsync", look)
    files.write_bytes(tmp_path / "checkpoint.pt", b"x")
    assert len(seen) == 1 and files.is_unfinished(seen[0])
    for name in ("checkpoint.pt", ".hidden", "notes.part", ".checkpoint.pt"):
        assert not files.is_unfinished(tmp_path / name)


def test_run_log(tmp_path: Path) -> None:
    log = RunLog(tmp_path / "new" / "log.jsonl")
    log.append("start", seed=1)
    for epoch in (1, 2, 3):
        log.append("epoch", total_epoch=epoch, loss=0.5)
    with log.path.open("a") as file:
        file.write('{"event": "epoch", "total_epo')  # a crash
    log.truncate(2)
    assert [json.loads(line) for line in log.path.read_text().splitlines()] == [
        {"event": "start", "seed": 1},
        {"event": "epoch", "total_epoch": 1, "loss": 0.5},
        {"event": "epoch", "total_epoch": 2, "loss": 0.5},
    ]
    log.append("epoch", total_epoch=3)
    assert len(list(files.read_json_lines(log.path))) == 4
    log.clear()
    assert log.path.read_text() == ""
    (tmp_path / "file").write_text("")
    refused(r"Could not write .*log\.jsonl: .*\. Make room", RunLog(tmp_path / "file" / "log.jsonl").append, "start")


def test_unwritable_places_json_and_the_nearest_word(tmp_path: Path) -> None:
    assert str(unknown("colour", "grene", ["red", "green", "blue"])) == (
        "Unknown colour 'grene': did you mean 'green'? Known: blue, green, red."
    )
    assert str(unknown("colour", "GREEN", ["green"])) == "Unknown colour 'GREEN': did you mean 'green'? Known: green."
    assert str(unknown("colour", "xyzzy", ["red"])) == "Unknown colour 'xyzzy': Known: red."
    assert str(unknown("colour", "red", [])) == "Unknown colour 'red': Known: none."
    (tmp_path / "file").write_text("x")
    refused(r"Could not write .*file/inside", files.write_bytes, tmp_path / "file" / "inside", b"y")
    (tmp_path / "folder").mkdir()
    refused(r"Could not write .*folder", files.write_bytes, tmp_path / "folder", b"y")
    assert contents(tmp_path) == {"file": b"x"}
    path = tmp_path / "value.json"
    files.write_json(path, {"a": [1, 2.5, None], "ö": "é"})
    assert files.read_json(path) == {"a": [1, 2.5, None], "ö": "é"}
    refused(r"missing\.json does not exist", files.read_json, tmp_path / "missing.json")
    path = tmp_path / "log.jsonl"
    assert list(files.read_json_lines(path)) == []
    path.write_text('{"a": 1}\n{"a": 2}\n{"a"')
    assert list(files.read_json_lines(path)) == [{"a": 1}, {"a": 2}]  # the cut-off line is passed over
    path.write_text('{"a": 1}\n{"a"\n{"a": 3}\n')
    refused(r"log\.jsonl, line 2 is not JSON", list, files.read_json_lines(path))


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b"[" * 100_000, b'{"a":' * 100_000, b"9" * 5000])
def test_json_that_cannot_be_read(content: bytes, tmp_path: Path) -> None:
    """Also where it is JSON, but deeper or longer than Python reads."""
    path = tmp_path / "x.json"
    path.write_bytes(content)
    refused(r"Cannot read .*x\.json", files.read_json, path)
    path.write_bytes(content + b"\n{}\n")
    refused(r"line 1 is not JSON|Cannot read .*x\.json", list, files.read_json_lines(path))


@pytest.mark.parametrize(
    "cell", ["=1+1", "+x", "-x", "@x", "\tx", "\rx", "'=x", "''=x", "'x", "x", "", "'", "-3", "+2.50", "-3x"]
)
def test_cells_that_are_no_formulas(cell: str) -> None:
    marked = files.mark_as_text(cell)
    assert files.without_mark(marked) == cell
    assert marked[:1] not in ("=", "@", "\t", "\r") and (marked[:1] not in ("+", "-") or marked in ("-3", "+2.50"))
    assert (marked == cell) == (cell in ("'x", "x", "", "'", "-3", "+2.50"))
