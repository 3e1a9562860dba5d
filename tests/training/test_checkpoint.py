from __future__ import annotations

import io
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from _toy import assert_same
from pals.training import checkpoint
from pals.training.checkpoint import load_checkpoint, refuse_other_settings, save_checkpoint
from pals.util.errors import InputError

SETTINGS = {"train": {"lr": 0.1, "milestones": [1, 2]}, "seed": 1}


def state() -> dict[str, Any]:
    return {
        "method": {"w": torch.arange(6.0).view(2, 3), "mask": torch.tensor([True, False]), "step": torch.tensor(3)},
        "optimizer": None,
        "rng": '{"state": 12345678901234567890}',
        "progress": {"phase": 1, "epoch": 2, "done": False},
        "generator": torch.Generator().manual_seed(3).get_state(),
    }


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save_checkpoint(tmp_path / "checkpoint.pt", SETTINGS, state())
    return tmp_path / "checkpoint.pt"


def test_what_is_saved_comes_back(saved: Path) -> None:
    """As a copy of its moment, also by torch alone; saving again replaces it."""
    assert_same(load_checkpoint(saved, SETTINGS), state())
    assert_same(load_checkpoint(saved), state())
    content = torch.load(saved, weights_only=True)
    assert content["settings"] == SETTINGS
    assert_same(content["state"], state())
    newer = {**state(), "rng": "other"}
    save_checkpoint(saved, SETTINGS, newer)
    newer["method"]["w"].zero_()
    assert_same(load_checkpoint(saved), {**state(), "rng": "other"})
    assert [path.name for path in saved.parent.iterdir()] == ["checkpoint.pt"]


def test_no_file_another_format_and_what_torch_advises(saved: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no checkpoint .*nothing\.pt"):
        load_checkpoint(saved.with_name("nothing.pt"))
    monkeypatch.setattr(checkpoint, "CHECKPOINT_FORMAT", 2)
    with pytest.raises(InputError, match=r"\(format 2\)"):
        load_checkpoint(saved)

    def refuse(*_: Any, **__: Any) -> Any:
        raise RuntimeError("Cannot use weights_only=True with files of this kind, set weights_only=False")

    save_checkpoint(tmp_path / "c.pt", SETTINGS, state())
    monkeypatch.setattr(torch, "load", refuse)
    with pytest.raises(InputError, match=r"cannot be read \(torch cannot read it\)"):
        load_checkpoint(tmp_path / "c.pt")


REFUSED = r"cannot be read \(.*\)\. Restore it from a copy, or delete it"


def test_damaged_anywhere(saved: Path) -> None:
    """In weights, names, the directory at the end, the checksum itself: nothing damaged is ever taken for good."""
    good = saved.read_bytes()
    step = 8 * len(good) // 500 | 1  # odd: every bit of a byte has its turn
    for number in range(0, 8 * len(good), step):
        data = bytearray(good)
        data[number // 8] ^= 1 << number % 8
        saved.write_bytes(data)
        with pytest.raises(InputError, match=REFUSED):
            load_checkpoint(saved)
    saved.write_bytes(good)
    assert_same(load_checkpoint(saved), state())
    good = saved.read_bytes()
    for length in [*range(0, len(good), 97), len(good) - 1]:
        saved.write_bytes(good[:length])
        with pytest.raises(InputError, match=REFUSED):
            load_checkpoint(saved)


@pytest.mark.parametrize(
    "write",
    [
        lambda path: path.write_text("hello"),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(random.Random(0).randbytes(5000)),
        lambda path: torch.save({"format": 1}, path),
        lambda path: path.mkdir(),
    ],
    ids=["text", "empty", "noise", "a file of torch", "a folder"],
)
def test_not_a_checkpoint(write: Callable[[Path], Any], tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    write(path)
    with pytest.raises(InputError, match=REFUSED):
        load_checkpoint(path)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"train": {"lr": 0.2, "milestones": [1, 2]}}, r"train\.lr is 0\.1 there and 0\.2 here\. Choose another output"),
        ({"train": {"lr": 0.1, "milestones": [1]}, "seed": 2}, r"train\.milestones is \[1, 2\] there .* \(1 more differ\)"),
        ({"engine": {"device": "cpu"}}, r"engine is None there and"),
    ],
)
def test_other_settings_are_named(other: dict[str, Any], message: str, saved: Path) -> None:
    with pytest.raises(InputError, match=message):
        load_checkpoint(saved, {**SETTINGS, **other})


@given(st.dictionaries(st.sampled_from("abc"), st.one_of(st.integers(), st.text(max_size=3), st.none()), max_size=3))
def test_the_same_settings_are_never_refused(settings: dict[str, Any]) -> None:
    refuse_other_settings(Path("x"), settings, dict(reversed(settings.items())))


def sealed(path: Path, content: Any) -> None:
    """A file with a right checksum, whatever is in it."""
    buffer = io.BytesIO()
    torch.save(content, buffer)
    checkpoint._append_checksum(buffer)
    path.write_bytes(buffer.getvalue())


class Foreign:
    """What only a program that runs the file's own code could read."""


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"format": 1, "state": {}}, r"is incomplete: it has no 'settings'\. Restore it from a copy, or delete it"),
        ({"format": 1, "settings": {}}, "is incomplete: it has no 'state'"),
        ({"format": 1, "settings": [1], "state": {}}, "its 'settings' is of the type list"),
        ({"format": 1, "settings": {}, "state": torch.ones(2)}, "its 'state' is of the type Tensor"),
        ({"format": "1", "settings": {}, "state": {}}, "is no checkpoint of this version"),
        ([1, 2], "is no checkpoint of this version"),
        ({"format": 1, "settings": {}, "state": Foreign()}, "Python objects besides tensors"),
    ],
)
def test_whole_but_not_what_it_should_be(content: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    sealed(path, content)
    with pytest.raises(InputError, match=message) as error:
        load_checkpoint(path, SETTINGS)
    assert "weights_only" not in str(error.value) and len(str(error.value)) < 500


def test_what_an_older_version_lacks_is_put_in_before_settings_are_compared(saved: Path) -> None:
    wanted = {**SETTINGS, "engine": {"device": "cpu"}}
    complete = lambda found: {"engine": {"device": "cpu"}, **found}  # noqa: E731
    assert_same(load_checkpoint(saved, wanted, complete), state())
    with pytest.raises(InputError, match=r"engine\.device is 'cpu' there and 'mps' here"):
        load_checkpoint(saved, {**SETTINGS, "engine": {"device": "mps"}}, complete)

    def unknown(found: Any) -> Any:
        raise InputError("Unknown setting 'x'.")

    with pytest.raises(InputError, match=r"was written under settings that are not known here: Unknown setting 'x'"):
        load_checkpoint(saved, wanted, unknown)
