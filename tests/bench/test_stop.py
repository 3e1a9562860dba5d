from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from pals.bench import Stop


def test_asked_once_it_stops_after_the_epoch_asked_twice_at_once(tmp_path: Path) -> None:
    before, told = signal.getsignal(signal.SIGINT), []
    stop = Stop(tmp_path / "bench")
    with stop.on_signal(lambda: told.append("stopping")):
        assert not stop.requested
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.requested
        assert told == ["stopping"]
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
    assert not stop.file.exists()
    assert Stop(tmp_path).file != Stop(tmp_path).file
