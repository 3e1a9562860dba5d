"""The five stages of a fit: each made once, from the one before; what is kept on disk, and what is refused."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, fields
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from _pictures import make_pictures
from _refused import refused
from _slow import rest_slow
from pals.crowd import STATUS, dawid_skene
from pals.labels.taxonomy import Taxonomy
from pals.model import Model
from pals.pipeline import Findings, fit
from pals.pipeline.api import run_stages
from pals.pipeline.asking_state import AskingState
from pals.pipeline.progress import AfterEpoch, Monitor
from pals.pipeline.stages.encode import encode
from pals.pipeline.stages.findings import find
from pals.pipeline.stages.fit_defaults import Facts, choose
from pals.pipeline.stages.learn import train
from pals.pipeline.stages.load import load
from pals.pipeline.stages.networks import run_all
from pals.pipeline.stages.plan import Plan, plan
from pals.pipeline.write_results import write
from pals.runs import feature_cache as features_file
from pals.runs.run import Run
from pals.runs.run_config import VotesConfig
from pals.training.extract import encode as encode_pictures
from pals.util.config import build
from pals.util.files import read_json, write_json
from pals.vision.pretrained import Encoder

COLUMNS = {"item": "picture", "annotator": "who", "label": "class"}
TABLES = (
    *("labels.csv", "doubtful.csv", "annotators.csv", "confusion.csv", "classes.csv", "agreement.csv", "next.csv"),
    *("guideline.csv", "second-look.npz", "standing.npz", "votes.csv", "model.safetensors"),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_pictures(tmp_path / "data", items=30)


def settings(folder: Path, **changes: Mapping[str, Any]) -> dict[str, Any]:
    data = {"images": str(folder / "images"), "votes": (str(folder / "votes.csv"),), "size": 16, "columns": COLUMNS}
    given: dict[str, Any] = {"data": data, "network": {"name": "patches"}, "train": {"epochs": 3}}
    given |= {"method": {"neighbors": 5}, "engine": {"device": "cpu"}}
    return {**given, **{name: {**given[name], **values} for name, values in changes.items()}}


def planned(folder: Path, out: str = "run", **changes: Mapping[str, Any]) -> Plan:
    return plan(settings(folder, **changes), folder.parent / out, cache=folder.parent / "cache")


def fitted(folder: Path, out: str = "run", monitor: Monitor | None = None, **changes: Mapping[str, Any]) -> Findings:
    cache = folder.parent / "cache"
    return run_stages(settings(folder, **changes), folder.parent / out, cache=cache, monitor=monitor or Monitor())


def contents(run: Path) -> dict[str, bytes]:
    return {name: (run / name).read_bytes() for name in TABLES}


class StoppedError(Exception):
    """In place of Ctrl-C or a crash."""


class Stopping(Monitor):
    """Stops after so many epochs."""

    def __init__(self, epochs: int) -> None:
        self.epochs = epochs

    def follow(self, title: str, run: Run, after_epoch: AfterEpoch) -> None:
        for record in run.epochs():
            after_epoch(record)
            self.epochs -= 1
            if self.epochs == 0:
                raise StoppedError


class Counted(Monitor):
    """Remembers everything that it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.titles: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)

    def follow(self, title: str, run: Run, after_epoch: AfterEpoch) -> None:
        self.titles.append(title)
        super().follow(title, run, after_epoch)


def test_every_stage_is_frozen_and_made_from_the_one_before(folder: Path) -> None:
    """Whatever has been called in between, a stage gives the same again."""
    first = planned(folder)
    loaded = load(first)
    encoded = encode(loaded)
    trained = train(encoded)
    found = find(trained)
    write(found)
    assert (loaded.plan, encoded.loaded, trained.encoded, found.trained) == (first, loaded, encoded, trained)
    for stage in (first, loaded, encoded, trained, found):
        with pytest.raises(FrozenInstanceError):
            setattr(stage, fields(stage)[0].name, None)
    again = find(trained)
    assert all(table.equals(again.tables[name]) for name, table in found.tables.items())
    assert all(np.array_equal(value, getattr(again.noise, name)) for name, value in vars(found.noise).items())


def test_settings_and_answers_are_looked_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The annotator model is fitted to the answers alone once."""
    built, asked = [], []

    def counted_build(cls: type, *rest: Any) -> Any:
        built.append(cls)
        return build(cls, *rest)

    for module in ("pals.pipeline.stages.plan", "pals.runs.run_config"):
        monkeypatch.setattr(f"{module}.build", counted_build)

    def counted_fit(votes: Any, **given: Any) -> Any:
        asked.append(votes)
        return dawid_skene(votes, **given)

    for module in ("pals.pipeline.stages.load", "pals.crowd.fusion", "pals.crowd.closed_form"):
        monkeypatch.setattr(import_module(module), "dawid_skene", counted_fit)
    fitted(folder, data={"folds": 2, "fold_epochs": 1})
    assert built.count(VotesConfig) == 2  # what is given, and what the folder then holds
    assert len(asked) == 1


@pytest.fixture
def encoder_calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many pictures went through a frozen network, each time."""
    calls: list[int] = []

    def counted(images: Any, *rest: Any, **options: Any) -> Any:
        calls.append(len(images))
        return encode_pictures(images, *rest, **options)

    monkeypatch.setattr("pals.pipeline.stages.encode.encode_images", counted)
    return calls


def test_a_run_that_was_stopped_goes_on_with_the_features_it_has(folder: Path, encoder_calls: list[int]) -> None:
    """And ends bit for bit as one that was never stopped."""
    fitted(folder, "whole")
    assert encoder_calls == [30]
    with pytest.raises(StoppedError):
        fitted(folder, "run", Stopping(2))
    assert encoder_calls == [30, 30] and not (folder.parent / "run" / "summary.json").exists()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pals.runs.extractor.learn_patches", lambda *_: pytest.fail("patches are cut again"))
        fitted(folder, "run")
    assert encoder_calls == [30, 30] and contents(folder.parent / "run") == contents(folder.parent / "whole")


def test_the_responses_to_patches_are_kept_while_there_is_room(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without room the features that are trained on are the same."""
    roomy = encode(load(planned(folder, "roomy")))
    assert roomy.inputs.shape == (30, 512)
    assert roomy.responses_ND is not None and roomy.responses_ND.shape == (30, 9216)
    monkeypatch.setattr("pals.pipeline.stages.patches.MAX_RESPONSE_BYTES", 30 * 9216 * 4 - 1)
    narrow = encode(load(planned(folder, "narrow")))
    assert narrow.responses_ND is None and torch.allclose(narrow.inputs, roomy.inputs, atol=1e-5)
    again = encode(load(planned(folder, "roomy")))
    assert again.responses_ND is not None and again.responses_ND.equal(roomy.responses_ND)
    assert again.inputs.equal(roomy.inputs)


def damage(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40] + bytes(40))


@pytest.mark.parametrize("spoil", rest_slow(1, [damage, lambda path: path.write_bytes(path.read_bytes()[:1000]), Path.unlink]))
def test_features_that_are_damaged_or_gone_are_made_again(spoil: Any, folder: Path, encoder_calls: list[int]) -> None:
    first = encode(load(planned(folder)))
    spoil(folder.parent / "run" / features_file.RUN_FEATURES_FILE)
    second = encode(load(planned(folder)))
    assert encoder_calls == [30, 30] and second.inputs.equal(first.inputs)
    encode(load(planned(folder)))
    assert len(encoder_calls) == 2


def swap(images: Path) -> None:
    """Other pictures under the same names."""
    mine, theirs = ((images / name).read_bytes() for name in ("001.png", "002.png"))
    (images / "001.png").write_bytes(theirs)
    (images / "002.png").write_bytes(mine)


def test_other_pictures_under_the_same_names_are_refused(folder: Path) -> None:
    with pytest.raises(StoppedError):
        fitted(folder, "run", Stopping(1))
    swap(folder / "images")
    refused(r"have changed since .*run was started", fitted, folder, "run")
    swap(folder / "images")
    assert len(fitted(folder, "run").labels) == 30


def test_features_of_other_pictures_are_never_used(folder: Path, encoder_calls: list[int]) -> None:
    """Even in a folder whose run does not say with what it began, as in earlier versions."""
    encode(load(planned(folder)))
    about = read_json(folder.parent / "run" / "run.json")
    assert about.pop("data_mark")
    write_json(folder.parent / "run" / "run.json", about)
    swap(folder / "images")
    swapped = encode(load(planned(folder)))
    assert len(encoder_calls) == 2 and swapped.inputs.equal(encode(load(planned(folder, "fresh"))).inputs)


@pytest.mark.parametrize("folds", [0, 2])
def test_other_vectors_under_the_same_name_are_refused(folds: int, folder: Path) -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(30, 5)).astype(np.float32)
    np.save(folder / "x.npy", vectors)
    names = sorted(path.relative_to(folder / "images").as_posix() for path in (folder / "images").rglob("*.png"))
    (folder / "names.txt").write_text("\n".join(names))
    data = {"images": None, "features": str(folder / "x.npy"), "names": str(folder / "names.txt"), "folds": folds}
    changes: dict[str, Any] = {"data": {**data, "fold_epochs": 2}, "network": {"name": "mlp"}}
    with pytest.raises(StoppedError):
        fitted(folder, "run", Stopping(1), **changes)
    vectors[17, 3] += 1e-3
    np.save(folder / "x.npy", vectors)
    refused("have changed since", fitted, folder, "run", **changes)


SUMMARY = {
    *("format", "items", "answers", "annotators", "classes", "doubtful_answers", "status", "asking", "answers_wrong"),
    *("labels_wrong", "labels_wrong_interval", "krippendorff_alpha", "fleiss_kappa", "agreement_by_class", "flags"),
    *("models_differ", "effective_annotators", "guideline_items", "gwet_ac1"),
    *("none_of_these", "taxonomy", "temperature", "held_out", "grades", "training"),
    *("earlier_labels_wrong", "earlier_labels_wrong_interval", "sentences"),
}
TRAINING = {"method", "data", "seed", "items", "mean_set_size", "engine", "epochs"}


@pytest.mark.parametrize("folds", [0, 2])
def test_the_summary_has_one_schema(folds: int, folder: Path) -> None:
    """docs/runs.md describes these keys; whoever changes one raises `format`. It is the last file to be written."""
    seen: list[bool] = []

    class Looking(Monitor):
        def follow(self, title: str, run: Run, after_epoch: AfterEpoch) -> None:
            super().follow(title, run, after_epoch)
            seen.append((folder.parent / "run" / "summary.json").exists())

    network = {"name": "small-cnn"}
    found = fitted(folder, "run", Looking(), data={"folds": folds, "fold_epochs": 1}, network=network)
    assert seen == [False] * (folds + 1)
    summary = json.loads((folder.parent / "run" / "summary.json").read_text())
    assert summary == found.numbers and set(summary) == SUMMARY and summary["format"] == 1
    assert tuple(summary["status"]) == (*STATUS, "disagreement") and set(summary["training"]) == TRAINING
    assert summary["training"]["epochs"] == 3
    assert set(summary["held_out"]) == ({"covering", "approximate"} if folds else set())
    page = (Path(__file__).parents[2] / "docs" / "runs.md").read_text(encoding="utf-8")
    assert all(f"`{key}`" in page for key in SUMMARY | TRAINING)


@pytest.mark.slow
def test_what_is_said_on_the_way(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time left after the first epoch of the first run and of the last; when resuming, what a full run takes."""
    monkeypatch.setattr("pals.pipeline.stages.networks.MIN_REPORTED_SECONDS", 0.0)
    changes: dict[str, Any] = {"data": {"folds": 3, "fold_epochs": 2}}
    told = Counted()
    fitted(folder, "run", told, **changes)
    assert told.titles == [*(f"fold {fold} of 3" for fold in (1, 2, 3)), "classifier"]
    assert sum("of training left." in line for line in told.lines) == 2
    done = Counted()
    fitted(folder, "run", done, **changes)
    assert any("keeping its settings" in line for line in done.lines)
    assert done.lines[-1].endswith("Training is finished; writing the results again.")
    with pytest.raises(StoppedError):
        fitted(folder, "other", Stopping(2))
    resumed = Counted()
    fitted(folder, "other", resumed)
    assert any(re.search(r"Resuming \(a full run takes about \d+ s\)\.", line) for line in resumed.lines)


@pytest.mark.parametrize("network", ["small-cnn", "patches"])
def test_left_and_right_can_be_told_apart(network: str, folder: Path) -> None:
    """Without mirror images nothing sees one: no view, no second look, no patch. With them a picture and its mirror image
    are one and the same to patches."""
    changes: dict[str, Any] = {"network": {"name": network}}
    encoded = {}
    for mirror in (True, False):
        encoded[mirror] = encode(load(planned(folder, f"run-{mirror}", data={"mirror": mirror}, **changes)))
    images = encoded[True].loaded.items.inputs
    generator = torch.Generator().manual_seed(0)
    if network == "patches":
        for mirror, stage in encoded.items():
            assert stage.encoder is not None
            mean, std = stage.loaded.statistics
            encoder = Encoder("patches", stage.encoder, None, mean, std, None, "")
            both = [encode_pictures(x, encoder) for x in (images, images.flip(-1))]
            assert torch.allclose(*both, atol=1e-3) == mirror
        return
    left = images.clone()
    left[..., : images.shape[-1] // 2] = 0  # dark on the left, also when it is moved by two pixels
    left[..., images.shape[-1] // 2 :] = 255
    for mirror, stage in encoded.items():
        weak = stage.views.make("weak", left, generator)
        half = weak.shape[-1] // 2
        turned = (weak[..., :half].mean(dim=(1, 2, 3)) > weak[..., half:].mean(dim=(1, 2, 3))).sum()
        assert (turned > 0) == mirror


def test_no_second_look_at_a_mirror_image_and_a_saved_model_without(folder: Path) -> None:
    changes: dict[str, Any] = {"network": {"name": "small-cnn"}, "train": {"epochs": 1}}
    for mirror in (True, False):
        encoded = encode(load(planned(folder, f"run-{mirror}", data={"mirror": mirror, "folds": 0}, **changes)))
        made = run_all(encoded, Monitor())
        assert made.logits_NC.equal(made.output.logits) != mirror
    found = fitted(folder, "run", data={"mirror": False})
    model = Model.load(folder.parent / "run", "cpu")
    assert model.about.encoder is not None and model.about.encoder.network == "patches-no-mirror"
    images = found.trained.loaded.items.inputs
    assert torch.allclose(model.outputs(images).features, found.trained.features_ND, atol=1e-4)


def test_the_report_is_written_again_and_large_networks_are_saved_seldom(folder: Path) -> None:
    """On a GPU a checkpoint takes up to a third of the time of an epoch."""
    for facts, given, every in (
        (Facts(5000, 10, 32, True), {}, 10),
        (Facts(5000, 10, 400, True), {"network": {"weights": "x.pt"}}, 10),
        (Facts(5000, 10, 32, False), {"network": {"name": "patches"}}, None),
        (Facts(5000, 10, 32, True), {"train": {"checkpoint_every": 3}}, 3),
    ):
        assert choose(given, facts)[0].get("train", {}).get("checkpoint_every") == every
    fitted(folder, "run")
    run = folder.parent / "run"
    before = (run / "report.html").read_bytes()
    (run / "report.html").unlink()
    code = (
        f"import sys; from pathlib import Path; from pals.report.render import write_report; "
        f"write_report(Path({str(run)!r})); sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert (run / "report.html").read_bytes() == before


def test_each_estimate_and_table_is_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a fit with a taxonomy, from its answers to the last file."""
    counts: Counter[str] = Counter()

    def count(module: str, name: str) -> None:
        real = getattr(import_module(module), name)

        def counted(*args: Any, **options: Any) -> Any:
            counts[name] += 1
            return real(*args, **options)

        monkeypatch.setattr(f"{module}.{name}", counted)

    stage = "pals.pipeline.stages.analysis"
    computed = ("agreement", "rank_doubts", "estimate_noise", "confusion_counts", "earlier_labels", "none_of_these_N")
    for name in (*computed, "missing_classes", "labels_table", "annotators_table", "confusion_table", "default_next_table"):
        count(stage, name)
    for name in ("fit_warnings", "summary_numbers", "summary_sentences"):
        count("pals.pipeline.stages.findings", name)
    for name in ("answer_levels", "mistakes", "node_counts"):
        count("pals.pipeline.tables.taxonomy_columns", name)
    count("pals.pipeline.tables.result_tables", "rank_doubts")
    rolled = Taxonomy.roll_up
    monkeypatch.setattr(Taxonomy, "roll_up", lambda *rest: counts.update(["roll_up"]) or rolled(*rest))
    make_state = AskingState.of
    monkeypatch.setattr(AskingState, "of", lambda *rest: counts.update(["AskingState"]) or make_state(*rest))
    rows = [(item, who, "abx"[(item + (who == "cho")) % 3]) for item in range(30) for who in ("ann", "bob", "cho")]
    (tmp_path / "tree.csv").write_text("label,parent\nx,\na,x\nb,x\nc,\n")
    votes = pd.DataFrame(rows, columns=["item", "annotator", "label"])
    found = fit(None, votes, no_images=True, out=tmp_path / "run", taxonomy=tmp_path / "tree.csv")
    assert counts.pop("roll_up") == 2  # one of them in `node_counts`, for the report
    assert set(counts.values()) == {1} and len(counts) == 18, counts
    assert found.summary is found.summary and found.groups is found.groups
