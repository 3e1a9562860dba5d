"""What a run will take, said before it starts."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from _pictures import make_pictures
from pals.fitting import Work
from pals.fitting.forecast import Forecast
from pals.training.inference import encode_images

GIB = 2**30


def test_a_forecast_in_words() -> None:
    assert str(Forecast(2, 90, 300, 9, 3 * GIB // 2)) == (
        "about 7 min (decoding 2 s, features 90 s, training 5 min, results 9 s) and 1.5 GiB of memory"
    )
    assert str(Forecast(0.1, 0, 50, 0.2, GIB)) == "about 50 s and 1.0 GiB of memory"


def work(folder: Path, **network: object) -> Work:
    data = {"images": str(folder / "images"), "votes": (str(folder / "votes.csv"),), "size": 16,
            "columns": {"item": "picture", "worker": "who", "label": "class"}}  # fmt: skip
    given = {"data": data, "network": network, "train": {"epochs": 2}, "method": {"neighbors": 5}, "engine": {"device": "cpu"}}
    return Work.plan(given, folder / "run", cache=folder / "cache")


def test_responses_to_patches_are_kept_while_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without room the features that are trained on are the same."""
    folder = make_pictures(tmp_path, items=40)
    roomy = work(folder, name="patches", frozen=True)
    roomy.load()
    assert roomy.learned_from.shape == (40, 512)
    assert roomy.responses is not None and roomy.responses.shape == (40, 9216)
    before = roomy.forecast().bytes
    monkeypatch.setattr("pals.fitting.forecast.MOST_RESPONSES", 40 * 9216 * 4 - 1)
    assert roomy.forecast().bytes < before
    narrow = work(folder, name="patches", frozen=True)
    narrow.load()
    assert torch.allclose(narrow.learned_from, roomy.learned_from, atol=1e-5)
    assert narrow.responses is None


def test_every_stage_is_part_of_it(tmp_path: Path) -> None:
    """Nothing is written for it; pictures that the cache has cost nothing; longer training costs more."""
    folder = make_pictures(tmp_path, items=40)
    planned = work(folder, name="patches")
    before = sorted(tmp_path.rglob("*"))
    first = planned.forecast()
    assert sorted(tmp_path.rglob("*")) == before
    for stage in ("decoding", "features", "training", "results", "bytes"):
        assert getattr(first, stage) > 0, stage
    planned.load()
    assert planned.forecast().decoding == 0
    trained = work(folder, name="small-cnn").forecast()
    assert trained.features == 0
    assert trained.training > 0


def test_features_grow_with_the_pictures_and_the_encoder_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = work(make_pictures(tmp_path, items=40), name="patches")
    clock = iter(float(second) for second in range(1000))
    monkeypatch.setattr("pals.fitting.forecast.time", SimpleNamespace(perf_counter=lambda: next(clock)))  # and of nobody else
    found = planned.forecast()  # every trial takes a second by this clock: 32 pictures, so 1/32 for each of 40 + 40
    assert found.features == pytest.approx(80 / 32)
    assert found.decoding == pytest.approx(1.0)  # all 40 were tried
    encoder = planned.encoder
    planned.load()
    shown: list[tuple[int, int]] = []
    planned.encode(lambda done, total: shown.append((done, total)))
    assert shown == [(40, 40)]
    assert planned.encoder is encoder
    assert planned.vectors is not None
    inputs = planned.ready
    assert encoder is not None
    assert planned.vectors[0].equal(encode_images(encoder, inputs.items.inputs, inputs.mean, inputs.std, "cpu", batch=64))
