"""Two processes never work on one folder; nobody waits for the dead."""

from __future__ import annotations

import errno
import os
import socket
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from _locks import held_by_another
from _refused import refused
from pals.util import locks
from pals.util.errors import InputError
from pals.util.files import read_json
from pals.util.locks import LOCK, MARKER, OWNER, BusyError, FolderLock, is_lock, locked


def test_a_folder_is_locked_while_worked_on_but_for_its_holder(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "seed-1"
    with FolderLock(folder):
        owner = read_json(folder / OWNER)
        assert (owner["pid"], owner["host"]) == (os.getpid(), socket.gethostname())
        assert abs((datetime.now().astimezone() - datetime.fromisoformat(owner["since"])).total_seconds()) < 60
        with pytest.raises(BusyError, match=f"seed-1 is in use: process {os.getpid()} on .* since"), FolderLock(folder):
            pytest.fail("both have it")
        assert read_json(folder / OWNER) == owner
        with FolderLock(folder.with_name("seed-2")):
            pass
    assert not (folder / OWNER).exists() and all(is_lock(path) for path in folder.iterdir())
    with FolderLock(folder):
        pass
    lock = FolderLock(tmp_path)
    lock.acquire()
    with lock:
        assert (tmp_path / OWNER).exists()
    lock.release()
    with lock, pytest.raises(BusyError):
        FolderLock(tmp_path).acquire()
    (tmp_path / "file").write_text("")
    with FolderLock(tmp_path / "file" / "below"):  # what is written there next says what is wrong
        pass


@pytest.mark.parametrize("there", [(), ("notes.txt",), (LOCK,)])
def test_work_that_fails_before_it_writes_leaves_no_trace(there: tuple[str, ...], tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b" / "run"
    if there:
        folder.mkdir(parents=True)
        (folder / there[0]).touch()

    def fail(written: str = "") -> None:
        with FolderLock(folder):
            if written:
                (folder / written).touch()
            raise InputError("no")

    refused("no", fail)
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == {*there}
    assert folder.exists() == bool(there) and (tmp_path / "a").exists() == bool(there)
    refused("no", fail, "begun.txt")
    assert {path.name for path in folder.iterdir()} == {*there, LOCK, "begun.txt"}
    with FolderLock(folder):
        pass


def test_a_living_process_is_respected_and_a_dead_one_is_not(tmp_path: Path) -> None:
    with held_by_another(tmp_path) as other:
        with pytest.raises(BusyError, match=f"process {other.pid} on") as caught, FolderLock(tmp_path):
            pass
        assert caught.value.who.startswith(f"process {other.pid} on {socket.gethostname()} has been working on it since 20")
        assert isinstance(caught.value, InputError)  # a sentence, and not a traceback
        other.kill()
        other.wait()
        assert (tmp_path / OWNER).exists()  # nobody was there to take it away
        with FolderLock(tmp_path):
            assert read_json(tmp_path / OWNER)["pid"] == os.getpid()


@pytest.mark.parametrize("content", ["", "{}", "[1]", "half of {", None, '{"host": "elsewhere", "pid": 1, "since": "now"}'])
def test_a_lock_counts_whatever_its_record_says(content: str | None, tmp_path: Path) -> None:
    with held_by_another(tmp_path):
        (tmp_path / OWNER).unlink()
        if content is not None:
            (tmp_path / OWNER).write_text(content)
        with pytest.raises(BusyError, match=r"is in use: (another process is|process 1 on elsewhere has been) working on it"):
            FolderLock(tmp_path).acquire()
    with FolderLock(tmp_path):  # a record without a lock, also of another computer, holds nobody up
        assert read_json(tmp_path / OWNER)["pid"] == os.getpid()


class Unsupported(locks.FileLock):  # type: ignore[misc, valid-type]
    """A file system that has no locks."""

    def acquire(self, *arguments: Any, **options: Any) -> Any:
        raise OSError(errno.ENOLCK, "No locks available")


def test_where_the_file_system_has_no_locks_a_file_marks_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "FileLock", Unsupported)
    with FolderLock(tmp_path):
        assert (tmp_path / MARKER).exists()
        with pytest.raises(BusyError, match=f"if it no longer runs, delete .*{MARKER}"), FolderLock(tmp_path):
            pytest.fail("both have it")
    assert not (tmp_path / MARKER).exists()
    with FolderLock(tmp_path):
        pass
    with locked(tmp_path / "cache.lock") as alone:
        assert not alone  # a cache goes without: a mark that nobody removes would hold it up for ever
