"""Crowd sets: counts, folds, draws, truth, views, damaged files, a short training."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from _picture_sets import make_crowd, write_annotations
from PIL import Image

from _refused import refused
from _slow import rest_slow
from pals.data import load_dataset
from pals.data.crowd_sets import BENTHIC, PLANKTON, TREEVERSITY, draw_votes, read_counts
from pals.methods import Problem, find_method
from pals.runs.run import Run
from pals.runs.run_config import RunConfig
from pals.runs.run_folder import default_folder
from pals.training.engine import Engine
from pals.training.optim import make_optimizer
from pals.vision.networks import build_network


@pytest.fixture(autouse=True)
def _cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PALS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PALS_DATA", raising=False)


def slow_counts(said: dict[str, list[str | None]]) -> tuple[list[str], list[str], np.ndarray]:
    """Sorted paths, sorted classes, and the counts, the plain way."""
    names = sorted(name for name, answers in said.items() if any(answers))
    classes = sorted({label for answers in said.values() for label in answers if label is not None})
    return names, classes, np.array([[Counter(said[name])[label] for label in classes] for name in names])


def test_slices_folds_truth_and_ties(tmp_path: Path) -> None:
    said = make_crowd(tmp_path / "Benthic", BENTHIC)
    names, classes, count_NC = slow_counts(said)
    read = read_counts(BENTHIC, tmp_path / "Benthic" / "annotations.json")
    assert read[0] == names and np.array_equal(read[1], count_NC)
    for number, (train_folds, test_fold) in {1: ("145", "3"), 2: ("125", "4"), 3: ("123", "5")}.items():
        crowd = load_dataset("benthic", data_dir=tmp_path, slice=number)
        assert crowd.class_names == tuple(classes)
        for items, truth, folds in ((crowd.train, crowd.truth, train_folds), (crowd.test, crowd.test_truth, test_fold)):
            rows = [row for row, name in enumerate(names) if name.split("/")[1].removeprefix("fold") in folds]
            assert items.ids == tuple(names[row] for row in rows)
            assert truth.label_N.tolist() == [int(count_NC[row].argmax()) for row in rows]
            assert items.inputs.shape == (len(rows), 3, 112, 112)
    tied = next(name for name in said if "/fold1/" in name and "nobody" not in name)
    said[tied] = ["worm", "star", "sponge", "star", "sponge", None]
    write_annotations(tmp_path / "Benthic", said)
    crowd = load_dataset("benthic", data_dir=tmp_path)
    assert crowd.class_names[int(crowd.truth.label_N[crowd.train.ids.index(tied)])] == "sponge"  # the first class


@pytest.mark.parametrize("answers", [1, 3, 10])
def test_draws_are_the_authors(tmp_path: Path, answers: int) -> None:
    """One generator for all pictures of the file, in sorted order, whatever the slice trains on."""
    names, classes, count_NC = slow_counts(make_crowd(tmp_path / "Benthic", BENTHIC))
    rng = np.random.default_rng(42)
    drawn = {}
    for name, count_C in zip(names, count_NC, strict=True):
        drawn[name] = rng.choice(len(classes), size=answers, p=count_C / count_C.sum())
    for number in (1, 3):
        votes = load_dataset("benthic", data_dir=tmp_path, slice=number, answers=answers).votes
        for row, name in enumerate(votes.ids):
            share_C = np.bincount(drawn[name], minlength=8) / answers
            np.testing.assert_allclose(votes.frequency_NC[row].numpy(), share_C, atol=1e-7)
            assert votes.allowed_NC[row].tolist() == (share_C > 0).tolist()
    golden = draw_votes(["a", "b", "c"], np.array([[5, 5, 0], [2, 3, 5], [0, 0, 7]]), ("x", "y", "z"), 3, "resampled", 42)
    assert (golden.frequency_NC * 3).round().int().tolist() == [[1, 2, 0], [1, 0, 2], [0, 0, 3]]  # 1 0 1 | 2 0 2 | 2 2 2


def test_real_answers_are_nobodys_twice(tmp_path: Path) -> None:
    said = make_crowd(tmp_path / "Benthic", BENTHIC)
    names, _, count_NC = slow_counts(said)
    row_of = {name: row for row, name in enumerate(names)}
    few = load_dataset("benthic", data_dir=tmp_path, answers=3, annotators="real").votes
    every = load_dataset("benthic", data_dir=tmp_path, answers=1000, annotators="real").votes
    for row, name in enumerate(few.ids):
        full_C = count_NC[row_of[name]]
        drawn_C = (few.frequency_NC[row] * 3).round().int().numpy()
        assert drawn_C.sum() == 3 and (drawn_C <= full_C).all()
        np.testing.assert_allclose(every.frequency_NC[row].numpy(), full_C / full_C.sum(), atol=1e-6)
    other = load_dataset("benthic", data_dir=tmp_path, answers=3, annotators="real", seed=43).votes
    assert not torch.equal(few.frequency_NC, other.frequency_NC)
    one_C = draw_votes(["a"] * 3000, np.array([[3, 1]] * 3000), ("x", "y"), 2, "real", 0).frequency_NC.mean(dim=0)
    assert abs(float(one_C[0]) - 0.75) < 0.02


def test_photographs_are_seen_at_224_and_their_folder_may_have_another_name(tmp_path: Path) -> None:
    make_crowd(tmp_path / "Treeversity#6", TREEVERSITY, items=30)
    first = load_dataset("treeversity", data_dir=tmp_path)
    assert (first.train.shape, first.view_shape) == ((3, 256, 256), (3, 224, 224))
    assert first.class_names == ("bark", "bud", "flower", "fruit", "leaf", "whole_plant")
    strong = first.views.make("strong", first.train.inputs[:4], torch.Generator().manual_seed(1))
    assert strong.shape == (4, 3, 224, 224)
    (tmp_path / "Treeversity#6").rename(tmp_path / "treeversity")
    for place in (tmp_path, tmp_path / "treeversity"):
        again = load_dataset("treeversity", data_dir=place)
        assert again.train.ids == first.train.ids and torch.equal(again.train.inputs, first.train.inputs)


def test_pixels_and_views_of_squashed_sets(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    for crowd in (BENTHIC, PLANKTON):
        make_crowd(tmp_path / crowd.folder, crowd)
        data = load_dataset(crowd.name, data_dir=tmp_path)
        for row in (0, 7):
            whole = Image.open(tmp_path / data.train.ids[row]).resize((crowd.size, crowd.size), Image.Resampling.BILINEAR)
            whole = whole.convert("L").convert("RGB") if crowd.grey else whole
            np.testing.assert_array_equal(data.train.inputs[row].numpy(), np.asarray(whole).transpose(2, 0, 1))
        pixels = data.train.inputs.float() / 255
        expected = (pixels - torch.tensor(crowd.mean)[:, None, None]) / torch.tensor(crowd.std)[:, None, None]
        made = data.views.make("eval", data.train.inputs, generator)
        torch.testing.assert_close(made, expected, atol=2e-5, rtol=0)
        weak = data.views.make("weak", data.train.inputs, generator)
        turned = (weak != made).flatten(1).any(dim=1)
        assert 0 < int(turned.sum()) < len(turned)  # flipped or left as they are, and nothing else
        torch.testing.assert_close(weak[turned], made[turned].flip(3))
        strong = data.views.make("strong", data.train.inputs, generator)
        assert strong.shape == made.shape and data.view_shape == (3, crowd.size, crowd.size)


def annotated(*paths: str | None, labels: Sequence[str | None] = BENTHIC.class_names) -> str:
    """A file with one answer for each label, about these images in turn."""
    entries = [{"image_path": paths[c % len(paths)], "class_label": label} for c, label in enumerate(labels)]
    return json.dumps([{"annotations": entries}])


@pytest.mark.parametrize(
    ("text", "message"),
    [("[", "the JSON ends in the middle"),
     ("[]", "the file holds no annotations. Get Benthic of the DCIC collection"),
     ('{"annotations": []}', "the file is an object, not a list"),
     ('[{"annotations": [{"image_path": "Benthic/fold1/a.png"}]}]', "set 1, annotation 1 lacks"),
     (annotated("Benthic/../../secret.png"), r"names the image 'Benthic/../../secret.png'"),
     (annotated("/etc/fold1/a.png"), "not a path FOLDER/FOLD/FILE within the data"),
     (annotated(None), "names the image None"), (annotated("Benthic/a.png"), "not a path FOLDER/FOLD/FILE"),
     (annotated("Benthic/fold1/a.png", labels=["whale"]), r"its 1 classes \(whale\) are not the 8 of Benthic"),
     (annotated("Benthic/fold1/a.png", labels=[None]), r"its 0 classes \(none\)"),
     (annotated("X/fold1/a.png", "Y/fold1/a.png"), r"its images lie in several folders \(X, Y\)"),
     (annotated("Benthic/fold9/a.png"), "second part of 'Benthic/fold9/a.png' is not a fold"),
     (annotated("Benthic/fold1/a.png"), "names no image in fold 3, which slice 1 needs")],
)  # fmt: skip
def test_damaged_annotations_are_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "Benthic").mkdir()
    (tmp_path / "Benthic" / "annotations.json").write_text(text)
    said = refused(message, load_dataset, "benthic", data_dir=tmp_path)
    assert "annotations.json" in said


def test_a_picture_that_is_not_there(tmp_path: Path) -> None:
    said = make_crowd(tmp_path / "Benthic", BENTHIC)
    gone = next(name for name in said if "/fold2/" in name)  # of the fold that slice 1 does not use
    (tmp_path / gone).unlink()
    refused(f"{Path(gone).name} cannot be used: the file does not exist", load_dataset, "benthic", data_dir=tmp_path)
    refused(r"No Plankton in .* is annotations.json. Get Plankton", load_dataset, "plankton", data_dir=tmp_path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"name": "benthic", "slice": 4}, r"Setting data\.slice = 4: Input should be less than or equal to 3"),
        ({"name": "benthic", "answers": 0}, r"Setting data\.answers = 0: Input should be greater than or equal to 1"),
        ({"name": "benthic", "annotators": "reel"}, r"data\.annotators = 'reel': Input should be 'resampled' or 'real'"),
        (
            {"name": "digits", "slice": 2},
            r"data.slice is not an option .* digits, but of benthic, plankton, treeversity. Remove",
        ),
        ({"name": "benthic", "slise": 3}, r"Unknown setting 'data.slise': did you mean 'data.slice'"),
        ({"name": "digits", "nois_rate": 3}, r"Unknown setting 'data.nois_rate': did you mean 'data.noise_rate'"),
    ],
)
def test_choices_that_do_not_exist(data: dict[str, Any], message: str) -> None:
    refused(message, RunConfig.of, {"data": data})
    if not data.keys() & {"slise", "nois_rate"}:
        refused(message, load_dataset, **data)


def test_options_are_among_the_settings() -> None:
    chosen = RunConfig.of({"data": {"name": "benthic", "answers": 3, "annotators": "real"}})
    assert chosen.to_dict()["data"].items() >= {"slice": 1, "answers": 3, "annotators": "real", "seed": 42}.items()
    assert RunConfig.of(chosen.to_dict()).to_dict() == chosen.to_dict()
    assert str(default_folder(chosen)) == "runs/benthic-pals-slice1-answers3-real"


@pytest.mark.parametrize("method", rest_slow(1, ["pals", "dividemix"]))
def test_a_short_training(tmp_path: Path, method: str) -> None:
    make_crowd(tmp_path / "Benthic", BENTHIC)
    values = {"data": {"name": "benthic", "slice": 2, "answers": 3}, "method": {"name": method}, "engine": {"device": "cpu"}}
    train = {"epochs": 2 if method == "dividemix" else 1, "batch_size": 8}
    config = RunConfig.of({**values, "network": {"name": "small-cnn", "weights": None}, "train": train})
    run = Run(config, tmp_path / "run", tmp_path)
    assert run.noise is None
    expected = load_dataset("benthic", data_dir=tmp_path, slice=2, answers=3)
    assert torch.equal(run.candidates.frequency_NC, expected.votes.frequency_NC)
    records = list(run.epochs())
    assert records[-1]["loss"] > 0 and 0 <= records[-1]["test_accuracy"] <= 1


def test_all_but_the_last_layer_learn_slowly() -> None:
    config = RunConfig.of({"data": {"name": "benthic"}, "engine": {"device": "cpu"}})
    network = build_network("imagenet-resnet50-projected", (3, 112, 112), 8)
    votes = draw_votes(
        [*"abcdefghijklmnop"], np.eye(8, dtype=np.int64).repeat(2, axis=0), BENTHIC.class_names, 3, "resampled", 42
    )
    method = find_method("pals")(config.method, Problem(votes, lambda _=None: network))
    optimizer = make_optimizer(Engine(config.engine), method, method.phase(0), config.train)
    scale_of = {parameter: group["scale"] for group in optimizer.param_groups for parameter in group["params"]}
    fast = {name for name, parameter in network.named_parameters() if scale_of[parameter] == 1.0}
    assert fast == {"classifier.weight", "classifier.bias"}
    assert {scale_of[parameter] for parameter in network.projection.parameters()} == {0.01}
