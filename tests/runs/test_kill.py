"""A run that is killed, at any moment and as often as you like, ends as if it had not been."""

from __future__ import annotations

import itertools
import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from _kills import dying_at, in_a_child, started_processes, until
from _pictures import make_pictures
from _slow import rest_slow
from _toy import TINY, Answer, assert_same, logged_epochs
from pals.training.checkpoint import load_checkpoint
from pals.util.files import read_json_lines

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that can be forked and killed")

FILES = {".lock", "checkpoint.pt", "config.yaml", "log.jsonl", "run.json", "summary.json"}
TOY = ("train", "toy", *TINY, "--epochs", "2")


def assert_same_run(folder: Path, whole: Path) -> None:
    """The same weights, generators and log as the run that nobody disturbed, and nothing left lying about."""
    assert_same(load_checkpoint(folder / "checkpoint.pt"), load_checkpoint(whole / "checkpoint.pt"))
    assert logged_epochs(folder) == logged_epochs(whole)
    events = [event["event"] for event in read_json_lines(folder / "log.jsonl")]
    assert events == ["start", *["epoch"] * (len(events) - 1)] and {path.name for path in folder.iterdir()} == FILES
    for name in ("config.yaml", "summary.json"):
        assert (folder / name).read_bytes() == (whole / name).read_bytes()


@pytest.mark.parametrize(
    ("point", "times"),
    rest_slow(
        1,
        [
            ("half a line logged", 3),  # start, two epochs
            ("line logged", 3),
            ("file written, not yet in place", 7),  # lock, config, about, empty log, two checkpoints, summary
            ("file in place", 7),
        ],
    ),
)
def test_killed_at_every_write(point: str, times: int, pals: Callable[..., Answer]) -> None:
    assert pals(*TOY, "--out", "whole").code == 0
    for count in itertools.count(1):
        folder = f"run-{count}"

        def work(folder: str = folder, count: int = count) -> None:
            with pytest.MonkeyPatch.context() as patch:
                dying_at(point, count, patch)
                pals(*TOY, "--out", folder)

        if not in_a_child(work):
            break
        assert not (Path(folder) / "summary.json").exists() or count == times
        pals(*TOY, "--out", folder).ok()
        assert_same_run(Path(folder), Path("whole"))
    assert count == times + 1  # every one of these writes had its turn


@pytest.mark.slow
def test_killed_again_and_again(pals: Callable[..., Answer]) -> None:
    """At random moments, twelve times, in the same folder."""
    command = ("train", "toy", *TINY, "--epochs", "20", "--set", "train.checkpoint_every=2")
    started = time.perf_counter()
    assert pals(*command, "--out", "whole").code == 0
    whole = time.perf_counter() - started
    moments = random.Random(7)
    killed = [in_a_child(lambda: pals(*command, "--out", "run"), moments.uniform(0, whole / 4)) for _ in range(12)]
    assert any(killed)
    pals(*command, "--out", "run").ok()
    assert_same_run(Path("run"), Path("whole"))


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    yield from started_processes(tmp_path)


@pytest.mark.slow
def test_a_real_process_killed_in_the_second_and_fourth_epoch(
    pals: Callable[..., Answer], process: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    command = ("train", "digits", "--epochs", "6", "--device", "cpu")
    command += ("--set", "train.batch_size=256", "--set", "method.consistency=false")
    folder = tmp_path / "run"
    for epochs in (1, 3):
        running = process(*command, "--out", "run")
        until(lambda epochs=epochs: len(logged_epochs(folder)) >= epochs and (folder / "checkpoint.pt").exists(), running)
        time.sleep(0.05)  # into the next epoch
        running.kill()
        assert running.wait() in (-signal.SIGKILL, 0)  # 0: on a machine so busy that the end came first
        assert len(logged_epochs(folder)) >= epochs
    answer = pals(*command, "--out", "run").ok()
    assert re.search(r"run: continuing after epoch [3-6]\.", answer.out) and pals(*command, "--out", "whole").code == 0
    assert_same_run(folder, tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("command", ["train", "fit"])
def test_a_real_process_asked_to_end(
    command: str, number: int, code: int, process: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    """The epoch under way is saved, though checkpoints are far apart, and the exit code says who asked."""
    seldom = ("--epochs", "500", "--device", "cpu", "--set", "train.checkpoint_every=500", "--out", "run")
    if command == "train":
        running = process("train", "digits", *seldom, "--set", "train.batch_size=256", "--set", "method.consistency=false")
    else:
        data = make_pictures(tmp_path / "data", items=30)
        columns = ("--item-column", "picture", "--annotator-column", "who", "--label-column", "class", "--cache", "cache")
        chosen = ("--network", "small-cnn", "--folds", "0", "--set", "method.neighbors=5")
        running = process("fit", str(data / "images"), str(data / "votes.csv"), *columns, *chosen, *seldom)
    folder = tmp_path / "run"
    until(lambda: logged_epochs(folder), running)
    running.send_signal(number)
    said = running.communicate()[0]
    assert running.returncode == code, said
    assert "Stopping after this epoch" in said and "Run the same command to continue" in said
    assert load_checkpoint(folder / "checkpoint.pt")["progress"]["total"] == len(logged_epochs(folder)) < 500


def test_a_real_process_asked_to_end_before_it_has_begun(process: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
    """While it waits for a plug-in that never comes."""
    os.mkfifo(tmp_path / "waiting.py")
    running = process("methods", "--plugin", "waiting.py")
    handle = os.open(tmp_path / "waiting.py", os.O_WRONLY)  # returns when the other side has opened it
    time.sleep(0.2)
    running.send_signal(signal.SIGTERM)
    said = running.communicate()[0]
    os.close(handle)
    assert running.returncode == 143, said
    assert "Traceback" not in said
