"""An encoder of one's own, the one of docs/plugins.md, behind every door that built-in ones have."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import pals as library
from _plugins import plugin_code
from _refused import refused
from _toy import Answer
from pals.util.errors import InputError
from pals.util.plugins import forget_plugins, load_plugin
from pals.util.registry import PROGRAM, TABLES
from pals.vision.networks import build_network
from pals.vision.pretrained import find_encoder

Command = Callable[..., Answer]


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    forget_plugins()
    for table in TABLES:
        table.forget(PROGRAM)


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    (tmp_path / "stripes.py").write_text(plugin_code(), encoding="utf-8")
    return tmp_path / "stripes.py"


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stripes that lie or stand, and what three people say of them."""
    monkeypatch.setenv("PALS_CACHE", str(tmp_path / "cache"))
    rng, folder = np.random.default_rng(0), tmp_path / "photos"
    folder.mkdir()
    rows = ["image,annotator,label"]
    for number in range(36):
        lying = np.tile(np.arange(24) // 3 % 2 * 150 + 50, (24, 1)).T
        pixels = (lying if number % 2 else lying.T) + rng.normal(0, 12, (24, 24))
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / f"{number:02}.png")
        for annotator in range(3):
            said = number % 2 if rng.random() < 0.8 else 1 - number % 2
            rows.append(f"{number:02}.png,w{annotator},{('standing', 'lying')[said]}")
    (tmp_path / "answers.csv").write_text("\n".join(rows))
    return folder


def test_it_is_listed_and_the_python_doors_take_it(pals: Command, plugin: Path, photos: Path) -> None:
    facts = {fact["name"]: fact for fact in json.loads(pals("encoders", "--json", "--plugin", plugin).out)}
    assert facts["edges"]["ready"] and facts["edges"]["input"] == 64 and facts["edges"]["features"] == 128
    assert "edges" in pals("encoders", "--plugin", plugin).out
    load_plugin(plugin)
    names = sorted(map(str, photos.iterdir()))
    label_N = [int(Path(name).stem) % 2 for name in names]
    model = library.PALSClassifier(encoder="edges", epochs=5, random_state=0).fit(names, label_N)
    assert model.score(names, label_N) > 0.9


@pytest.mark.slow
def test_fit_predict_and_export_take_it(pals: Command, plugin: Path, photos: Path, tmp_path: Path) -> None:
    common = ("--plugin", plugin, "--device", "cpu")
    answer = pals("fit", photos, tmp_path / "answers.csv", "--encoder", "edges", "--out", "run", *common, code=0)
    assert "36 images at 64 px" in " ".join((answer.out + answer.err).split())
    again = pals("fit", photos, tmp_path / "answers.csv", "--encoder", "edges", "--out", "other", *common)
    assert "All 36 images were encoded earlier" in again.out + again.err
    assert pals("predict", "run", photos, "--out", "p.csv", *common).code == 0
    rows = [line.split(",")[:2] for line in Path("p.csv").read_text().splitlines()[1:]]
    right = [label == ("lying" if int(Path(name).stem) % 2 else "standing") for name, label in rows]
    assert np.mean(right) > 0.9
    forget_plugins()
    answer = pals("predict", "run", photos, "--out", "p.csv", "--device", "cpu")
    assert answer.code != 0 and "edges" in answer.err and "--plugin" in answer.err and "Traceback" not in answer.err


def register(**changes: object) -> library.KnownEncoder:
    entry = {"name": "mine", "about": "", "size": 32, "features": 4, "licence": "", **changes}
    library.ENCODERS["mine"] = library.KnownEncoder(**entry)  # type: ignore[arg-type]
    return library.ENCODERS["mine"]


def test_weights_in_a_file(pals: Command, tmp_path: Path) -> None:
    network, path = build_network("small-cnn", (3, 32, 32), 5), tmp_path / "mine.pth"
    torch.save(network.state_dict(), path)
    content = path.read_bytes()
    library.NETWORKS["mine"] = lambda shape, classes: build_network("small-cnn", shape, classes)
    register(file=str(path), sha256=hashlib.sha256(content).hexdigest())
    found = find_encoder("mine").network.state_dict()
    kept = {name: value for name, value in network.state_dict().items() if not name.startswith("classifier.")}
    assert all(torch.equal(found[name], value) for name, value in kept.items())
    path.write_bytes(content[:-1])
    for state, text in (("damaged", r"'mine' in .*mine\.pth are damaged"), ("missing", r"mine\.pth.* does not exist")):
        refused(text, find_encoder, "mine")
        facts = {fact["name"]: fact["state"] for fact in json.loads(pals("encoders", "--json").out)}
        assert facts["mine"] == state
        path.unlink(missing_ok=True)


def test_what_cannot_be_an_encoder_or_is_unknown() -> None:
    with pytest.raises(InputError, match=r"not a pals\.KnownEncoder of that name"):
        library.ENCODERS["mine"] = "mine.pth"  # type: ignore[assignment]
    refused("give its `size` in pixels", register, size=None)
    with pytest.raises(InputError, match="Two encoders are called 'patches'"):
        library.ENCODERS["patches"] = library.ENCODERS["patches"]
    register()
    refused(r"has no network: its plug-in must register NETWORKS\['mine'\]", find_encoder, "mine")
    refused("'edges'.*--plugin FILE", library.encode, torch.zeros(1, 3, 32, 32, dtype=torch.uint8), "edges")
