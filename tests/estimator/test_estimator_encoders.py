"""Classifiers with an encoder: pictures in arrays and in files, as features of a frozen network or for one that is trained."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

import pals as library
from _pictures import CLASSES, picture
from pals.estimator import CandidateClassifier, classifier_for
from pals.training.extract import ImagePaths, encode
from pals.util.errors import InputError
from pals.vision.pretrained import find_encoder

PALSClassifier: Any = classifier_for("pals")
LITE0 = "efficientnet-lite0"
QUICK: dict[str, Any] = {"epochs": 12, "batch_size": 16, "neighbors": 5, "lr": 0.05, "random_state": 0}
RNG = np.random.default_rng(0)
X = np.stack([picture(number % 3, 12, RNG) for number in range(36)])  # N x 12 x 12 x 3
LABELS = np.array(CLASSES)[np.arange(36) % 3]
SETS = [{label, CLASSES[number % 2]} for number, label in enumerate(LABELS)]


@pytest.fixture(autouse=True)
def _own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALS_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("pictures")
    for number, pixels in enumerate(X):
        Image.fromarray(pixels).save(folder / f"{number:02d}.png")
    return sorted(folder.iterdir())


@pytest.fixture(scope="module")
def model() -> Any:
    return PALSClassifier(encoder=LITE0, **QUICK).fit(X, SETS)


@pytest.mark.slow
def test_a_pretrained_encoder_on_an_array(model: Any) -> None:
    assert model.score(X, LABELS) > 0.9 and model.classes_.tolist() == sorted(CLASSES)
    assert model.predictor_.feature_width and model.inputs_.shape == (1280,) and model.n_features_in_ == 3 * 12 * 12
    images = torch.from_numpy(X.transpose(0, 3, 1, 2).copy())
    torch.testing.assert_close(model.inputs_.prepare(X), encode(images, LITE0), atol=2e-3, rtol=1e-3)
    before = PALSClassifier(encoder=LITE0, **QUICK).fit(images.numpy(), SETS)  # channels first
    np.testing.assert_allclose(before.predict_proba(images.numpy()), model.predict_proba(X))


def test_files_are_seen_as_arrays_are(model: Any, files: list[Path]) -> None:
    again = PALSClassifier(encoder=LITE0, **QUICK).fit([str(path) for path in files], SETS)
    assert again.score(files, LABELS) > 0.9
    seen, held = again.inputs_.extractor.pixels(ImagePaths.of(list(map(str, files)))), model.inputs_.given.prepare(X)
    difference = (seen.float() - model.inputs_.extractor.pixels(held).float()).abs()
    assert difference.mean() < 0.5 and difference.max() < 10  # both bicubic; Pillow rounds and clips in between
    assert (again.predict(np.array(list(map(str, files)))) == model.predict(X)).mean() > 0.9
    made = CandidateClassifier("cc", encoder="patches", epochs=1, random_state=0).fit(files, SETS)
    assert made.predict_proba(files[:5]).shape == (5, 3)


def test_it_is_a_parameter_like_any_other(model: Any) -> None:
    assert model.get_params()["encoder"] == LITE0
    copied = clone(model)
    assert copied.encoder == LITE0 and not hasattr(copied, "inputs_")
    loaded = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))


@pytest.mark.slow
def test_patches_and_cross_validation() -> None:
    scores = cross_val_score(PALSClassifier(encoder="patches", **{**QUICK, "epochs": 30}), X, LABELS, cv=2)
    assert scores.mean() > 0.6
    grey = CandidateClassifier("cc", encoder="patches", epochs=1, random_state=0).fit(X[..., 0], SETS)
    assert grey.inputs_.shape == (512,) and grey.predict(X[:2, ..., 0]).shape == (2,)


@pytest.mark.slow
@pytest.mark.parametrize("from_files", [False, True])
def test_the_encoder_itself_is_trained(from_files: bool, files: list[Path]) -> None:
    given: Any = files if from_files else X
    options: dict[str, Any] = {"encoder_options": {"frozen": False}, "train_options": {"encoder_lr_scale": 1e-9}}
    made = PALSClassifier(encoder=LITE0, **options, **{**QUICK, "epochs": 1}).fit(given, SETS)
    own, start = made.predictor_.state_dict(), find_encoder(LITE0).network.state_dict()
    name = next(name for name in start if name.endswith("conv.weight"))
    torch.testing.assert_close(own[name], start[name], atol=1e-6, rtol=0)
    assert made.inputs_.shape == (3, 64, 64)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(made)).predict_proba(given[:3]), made.predict_proba(given[:3]))


@pytest.mark.parametrize(
    ("options", "given", "words"),
    [
        ({"encoder": LITE0}, X.reshape(36, -1), "X holds vectors of width 432: leave out encoder"),
        ({"encoder": "efficientnet-lite9"}, X, "did you mean 'efficientnet-lite"),
        ({"encoder": "auto"}, X, "name one here"),
        ({"encoder": "timm:convnext_tiny"}, X, "needs weights"),
        ({"encoder": "patches", "encoder_options": {"frozen": False}}, X, "cannot be trained"),
        ({"encoder": LITE0, "encoder_options": {"frozn": False}}, X, "did you mean 'frozen'"),
        ({"encoder": LITE0, "encoder_options": {"frozen": False}, "network": "resnet18"}, X, "leave out network='resnet18'"),
        ({"encoder_options": {"frozen": False}}, X, "give encoder="),
        ({}, ["a.png"] * 36, "X holds file names, such as 'a.png': give encoder"),
        ({"encoder": "patches"}, X[:, :6], "are 6 pixels high or wide"),
        ({"encoder": LITE0}, np.repeat(X[..., :1], 4, axis=3), "these have 4 channels"),
    ],
)
def test_what_cannot_be_done(options: dict[str, Any], given: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        PALSClassifier(**options, **QUICK).fit(given, SETS)


def test_pictures_of_another_kind_or_none_at_all_are_named(model: Any, files: list[Path], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="pictures as an array; these are names of files"):
        model.predict(files)
    with pytest.raises(InputError, match=r"seen inputs of the shape \(3, 12, 12\)"):
        model.predict(X.reshape(36, -1))
    (tmp_path / "notes.png").write_text("no picture")
    for bad in (tmp_path / "notes.png", tmp_path / "missing.png"):
        with pytest.raises(InputError, match=rf"{bad.name}: .* Fix this image, or leave it out"):
            PALSClassifier(encoder=LITE0, **QUICK).fit([*files[1:], bad], SETS)


def test_files_are_encoded_once(files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[int] = []

    def counting(images: Any, *args: Any, **options: Any) -> Any:
        encoded.append(len(images))
        return encode(images, *args, **options)

    monkeypatch.setattr("pals.runs.feature_cache.encode", counting)
    quick: dict[str, Any] = {**QUICK, "encoder": LITE0, "epochs": 1}
    kept = {"cache": tmp_path / "kept"}
    cross_val_score(PALSClassifier(encoder_options=kept, **quick), np.array(files, dtype=object), LABELS, cv=2)
    assert sum(encoded) == len(files)
    apart = PALSClassifier(**quick).fit(files, SETS)
    assert sum(encoded) == 2 * len(files)  # another store: the usual one
    first = PALSClassifier(encoder_options=kept, **quick).fit(files, SETS)
    assert sum(encoded) == 2 * len(files)
    np.testing.assert_allclose(first.predict_proba(files), apart.predict_proba(files), atol=1e-5)


def test_fit_and_the_classifier_share_a_store(files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [f"{path.name},{worker},{label}" for path, label in zip(files, LABELS, strict=True) for worker in "ab"]
    (tmp_path / "answers.csv").write_text("\n".join(["image,annotator,label", *rows]))
    cache = tmp_path / "kept"
    library.fit(
        files[0].parent, tmp_path / "answers.csv", out=tmp_path / "run", encoder=LITE0, settings={"files": {"cache": cache}}
    )
    monkeypatch.setattr("pals.runs.feature_cache.encode", None)  # not asked again
    PALSClassifier(encoder=LITE0, encoder_options={"cache": str(cache)}, **{**QUICK, "epochs": 1}).fit(files, SETS)
