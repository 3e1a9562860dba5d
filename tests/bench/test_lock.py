"""Two commands never work on one folder; nobody waits for the dead."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pals.bench import lock
from pals.bench.lock import BusyError, lock_file, working_on
from pals.bench.stop import Stop
from pals.util.files import read_json, write_json


def owned(folder: Path, **changes: Any) -> Path:
    path = lock_file(folder)
    write_json(path, {"host": socket.gethostname(), "pid": os.getpid(), "born": lock._born(os.getpid()), **changes})
    return path


def test_a_folder_is_locked_while_worked_on(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "seed-1"
    with working_on(folder, tmp_path):
        assert read_json(lock_file(folder))["pid"] == os.getpid()
        assert not folder.exists()  # the run makes it, if its settings are good
        with pytest.raises(BusyError, match=f"process {os.getpid()} on"), working_on(folder, tmp_path):
            pass
        with working_on(folder.with_name("seed-2"), tmp_path):
            pass
    assert not lock_file(folder).exists()
    with working_on(folder, tmp_path):
        pass


def test_a_living_process_is_respected_and_a_dead_one_is_not(tmp_path: Path) -> None:
    folder = tmp_path / "seed-1"
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as other:
        owned(folder, pid=other.pid, born=lock._born(other.pid))
        with pytest.raises(BusyError, match=f"process {other.pid}"), working_on(folder, tmp_path):
            pass
        other.kill()
    with working_on(folder, tmp_path):
        assert read_json(lock_file(folder))["pid"] == os.getpid()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="this system does not say when a process began")
def test_a_number_that_went_to_another_process(tmp_path: Path) -> None:
    folder = tmp_path / "seed-1"
    owned(folder, born="12")
    with working_on(folder, tmp_path):
        pass


def test_of_another_machine_signs_of_life_count(tmp_path: Path) -> None:
    folder = tmp_path / "seed-1"
    path = owned(folder, host="elsewhere")
    with pytest.raises(BusyError, match="on elsewhere"), working_on(folder, tmp_path):
        pass
    long_ago = time.time() - lock.STALE - 5
    os.utime(path, (long_ago, long_ago))
    with working_on(folder, tmp_path):
        pass


def test_signs_of_life_are_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "BEAT", 0.01)
    folder = tmp_path / "seed-1"
    with working_on(folder, tmp_path):
        os.utime(lock_file(folder), (1, 1))
        patience = time.monotonic() + 10
        while lock_file(folder).stat().st_mtime < 2:
            assert time.monotonic() < patience
            time.sleep(0.01)


def test_a_lock_that_was_taken_over_is_not_taken_back(tmp_path: Path) -> None:
    folder = tmp_path / "seed-1"
    with working_on(folder, tmp_path):
        owned(folder, host="elsewhere")
    assert read_json(lock_file(folder))["host"] == "elsewhere"


@pytest.mark.parametrize("content", ["", "{}", "[1]", "half of {"])
def test_a_damaged_lock_holds_nobody_up(content: str, tmp_path: Path) -> None:
    folder = tmp_path / "seed-1"
    lock_file(folder).write_text(content)
    with working_on(folder, tmp_path):
        pass


def test_where_the_file_system_knows_no_locks_the_last_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two found the folder free at the same time."""
    folder = tmp_path / "cell/pals/full/seed-1"
    other = {"host": "far", "pid": 1, "born": None}
    monkeypatch.setattr(lock, "locked", lambda path: contextlib.nullcontext(False))
    monkeypatch.setattr(time, "sleep", lambda seconds: write_json(lock_file(folder), other))
    with pytest.raises(BusyError, match="process 1 on far"), working_on(folder, tmp_path):
        pytest.fail("both have it")
    assert read_json(lock_file(folder)) == other
    lock_file(folder).unlink()
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    with working_on(folder, tmp_path):
        assert lock_file(folder).exists()


def test_asked_once_it_stops_after_the_epoch_asked_twice_at_once(tmp_path: Path) -> None:
    before, told = signal.getsignal(signal.SIGINT), []
    stop = Stop(tmp_path / "bench")
    with stop.on_signal(lambda: told.append("stopping")):
        assert not stop.asked
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.asked
        assert told == ["stopping"]
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
    assert not stop.file.exists()
    assert Stop(tmp_path).file != Stop(tmp_path).file
