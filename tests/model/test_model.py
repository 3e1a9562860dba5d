"""The saved classifier: it answers what training evaluated, its file is whole or refused, its confidence can be made honest."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from _models import MEAN, NAMES, STD, frozen_model, image_model, network, vector_model
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from _refused import refused
from _toy import run_all, toy_data, toy_trainer
from pals.data.dataset import Items
from pals.labels.candidates import CandidateSets, Truth
from pals.methods import Problem, find_method, method_options
from pals.model import FILE_NAME, Description, Model, Part, expected_calibration_error, fit_temperature, predict_folder
from pals.model.calibrate import MAX_TEMPERATURE, MIN_TEMPERATURE
from pals.model.saved import MODEL_METADATA_KEY, checksum
from pals.training.engine import Engine, EngineConfig
from pals.training.extract import encode
from pals.training.optim import TrainConfig
from pals.training.trainer import Trainer
from pals.vision.augment import image_views
from pals.vision.images.decoding import decode
from pals.vision.networks import Network, build_network
from pals.vision.pretrained import Encoder


def images(count: int = 7, seed: int = 0) -> Tensor:
    return torch.randint(0, 256, (count, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


MODEL = image_model()  # for tests that ask it many times


def test_vectors_get_the_logits_that_the_trainer_saw(tmp_path: Path) -> None:
    data = toy_data()
    trainer = toy_trainer("average", data)
    run_all(trainer)
    predictor = trainer.method.predictor
    assert isinstance(predictor, Network) and data.test is not None
    expected = trainer.infer(predictor, data.test.inputs)
    mean_D, std_D = data.train.inputs.mean(dim=0), data.train.inputs.std(dim=0)
    reads = Part("mlp", (6,), tuple(mean_D.tolist()), tuple(std_D.tolist()))
    model = Model(Description(data.class_names, reads, temperature=0.5), predictor, device="cpu")
    got = model.outputs(data.test.inputs, batch=2000)
    assert torch.equal(got.logits, expected.logits) and torch.equal(got.features, expected.features)
    assert torch.equal(model.features(data.test.inputs, batch=2000), expected.features)
    assert torch.equal(model.probabilities(data.test.inputs, batch=2000), (expected.logits / 0.5).softmax(dim=1))


def test_images_get_the_logits_that_the_trainer_saw(tmp_path: Path) -> None:
    """Through a file, too: what is loaded answers like what was trained, bit for bit."""
    inputs = images(24)
    truth = Truth.of(torch.arange(24) % 3, NAMES)
    problem = Problem(CandidateSets.from_truth(truth), lambda name=None: build_network("small-cnn", (3, 8, 8), 3))
    method = find_method("average")(method_options("average", {}), problem)
    views = image_views(MEAN, STD, pad=1, flip=True)
    items = Items(inputs, tuple(map(str, range(24))))
    config = TrainConfig(epochs=2, batch_size=8, lr=0.1, feature_batch=10)
    trainer = Trainer(method, items, views, config, Engine(EngineConfig(device="cpu")), seed=1)
    run_all(trainer)
    predictor = method.predictor
    assert isinstance(predictor, Network)
    expected = trainer.infer(predictor, inputs)
    Model(Description(NAMES, Part("small-cnn", (3, 8, 8), MEAN, STD)), predictor, device="cpu").save(tmp_path / FILE_NAME)
    got = Model.load(tmp_path, device="cpu").outputs(inputs, batch=10)
    assert torch.equal(got.logits, expected.logits) and torch.equal(got.features, expected.features)


def test_frozen_features_are_those_that_the_head_was_trained_on() -> None:
    model = frozen_model()
    assert model.encoder is not None and model.about.encoder is not None
    features_ND = encode(images(), Encoder("frozen", model.encoder, None, MEAN, STD, None, ""), batch=3)
    assert features_ND.shape == (7, model.encoder.feature_width) and features_ND.dtype == torch.float32
    standardised = (features_ND - 0.3) / 0.7
    with torch.no_grad():
        expected = model.network.eval()(standardised)
    torch.testing.assert_close(model.outputs(images(), batch=3).logits, expected.logits, rtol=1e-4, atol=1e-5)
    alone = Model(replace(model.about, encoder=None), model.network, device="cpu")
    torch.testing.assert_close(alone.outputs(features_ND, batch=3).logits, expected.logits, rtol=1e-4, atol=1e-5)
    assert model.about.input_shape == (3, 8, 8) and alone.about.input_shape == (model.encoder.feature_width,)


def test_standardisation_and_probabilities_by_hand() -> None:
    """A pixel of 128 with mean 0.5 and deviation 0.25 is (128 / 255 - 0.5) / 0.25; a vector's constant feature is centred."""
    pixels = Part("small-cnn", (1, 1, 1), (0.5,), (0.25,)).standardizer()(torch.tensor([[[[128]]]], dtype=torch.uint8))
    assert pixels.item() == pytest.approx((128 / 255 - 0.5) / 0.25, abs=1e-6)
    vector = vector_model().about.classifier.standardizer()(torch.tensor([[3.0, 5.0, 7.0, 4.0]]))
    assert vector.tolist() == [[2.0, 3.0, 2.0, 0.0]]
    model = image_model(temperature=0.25)
    logits = model.outputs(images()).logits
    expected = [[math.exp(4 * z) / sum(math.exp(4 * y) for y in row) for z in row] for row in logits.tolist()]
    got = model.probabilities(images())
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-4)
    assert got.dtype == torch.float32 and not got.is_inference() and not got.requires_grad
    assert torch.equal(got.argmax(dim=1), logits.argmax(dim=1))


@given(batch=st.integers(1, 12), count=st.integers(0, 9))
def test_batches_change_nothing(batch: int, count: int) -> None:
    model = MODEL
    whole, parts = model.probabilities(images(9)), model.probabilities(images(9)[:count], batch=batch)
    assert parts.shape == (count, 3)
    torch.testing.assert_close(parts, whole[:count], rtol=1e-5, atol=1e-6)


def test_other_inputs_are_refused() -> None:
    for make, inputs, message in (
        (image_model, torch.zeros(2, 3, 8, 8), "uint8 images of shape N x 3 x 8 x 8; found float32"),
        (image_model, torch.zeros(2, 3, 9, 8, dtype=torch.uint8), "found uint8 of shape 2 x 3 x 9 x 8"),
        (image_model, torch.zeros(3, 8, 8, dtype=torch.uint8), "found uint8 of shape 3 x 8 x 8"),
        (vector_model, torch.zeros(2, 5), "float vectors of shape N x 4; found float32 of shape 2 x 5"),
        (vector_model, torch.zeros(2, 4, dtype=torch.int64), "found int64"),
        (vector_model, torch.tensor([[0.0] * 4, [0.0, math.nan, 0.0, 0.0]]), "Row 1 of the vectors"),
    ):
        refused(message, make().probabilities, inputs)


def test_descriptions_and_parts_that_make_no_sense() -> None:
    image, frozen = image_model().about, frozen_model()
    for change, message in (
        ({"class_names": ("a",)}, "at least two classes"), ({"class_names": ("a", "a", "b")}, "different names"),
        ({"temperature": 0.0}, "temperature is 0.0"), ({"temperature": math.nan}, "temperature is nan"),
        ({"encoder": Part("mlp", (2,), (0.0, 0.0), (1.0, 1.0))}, "An encoder reads images"),
        ({"encoder": Part("small-cnn", (3, 8, 8), MEAN, STD)}, "An encoder reads images"),
        ({"class_names": ("a", "b")}, "has 3 classes, but 2"),
    ):  # fmt: skip
        refused(message, lambda change=change: Model(replace(image, **change), network(), device="cpu"))
    for shape, mean, std, message in (
        ((3, 8), MEAN, STD, "shape"), ((3, 8, 0), MEAN, STD, "shape"), ((10**9,), MEAN, STD, "shape"),
        ((3, 8, 8), (0.5,), STD, "1 means and 3 deviations"), ((3, 8, 8), MEAN, (0.1, 0.1, 0.0), "above zero"),
        ((3, 8, 8), MEAN, (0.1, 0.1, math.inf), "finite"), ((2,), (0.0, math.nan), (1.0, 1.0), "finite"),
        ((2,), (0.0, 0.0), (1.0, -1.0), "above zero"),
    ):  # fmt: skip
        refused(message, Part, "small-cnn", shape, mean, std)
    for about, networks, options, message in (
        (frozen.about, (frozen.network,), {}, "described encoder must be given"),
        (image, (network(), network()), {}, "described encoder must be given"),
        (frozen.about, (frozen.network, network()), {}, "128 features"),
        (image, (torch.nn.Identity(),), {}, r"The predictor \(Identity\) is not a single network"),
        (image, (network(),), {"device": "gpu"}, "Unknown device 'gpu'"),
        (image, (network(),), {"precision": "fp99"}, r"engine\.precision"),
    ):
        refused(message, Model, about, *networks, **{"device": "cpu", **options})


def test_numbers_of_any_kind_are_plain_in_a_description(tmp_path: Path) -> None:
    reads = Part("mlp", torch.Size([2]), np.float32([0.1, 2]), torch.tensor([1.0, 3.0]))  # type: ignore[arg-type]
    about = Description(["a", "b"], reads, temperature=np.float64(0.5))  # type: ignore[arg-type]
    Model(about, network("mlp", (2,), 2), device="cpu").save(tmp_path / FILE_NAME)
    again = Model.load(tmp_path, device="cpu").about
    assert again == about and again.class_names == ("a", "b") and type(again.temperature) is float
    assert again.classifier.mean == (float(np.float32(0.1)), 2.0)


@pytest.mark.parametrize("make", [image_model, frozen_model])
def test_saved_and_loaded_is_the_same(tmp_path: Path, make: Callable[[], Model]) -> None:
    """Loading uses no random numbers, and predicting does not change the network."""
    model = make()
    model.save(tmp_path / FILE_NAME)
    model.network.train()
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]
    random_state = torch.get_rng_state()
    for place in (tmp_path, tmp_path / FILE_NAME, str(tmp_path)):
        again = Model.load(place, device="cpu")
        assert again.about == model.about and again.class_names == NAMES
        assert torch.equal(again.probabilities(images()), model.probabilities(images()))
        assert torch.equal(again.features(images()), model.features(images()))
    assert torch.equal(torch.get_rng_state(), random_state) and model.network.training
    for same in (again, model):
        same.save(tmp_path / "again")
        assert (tmp_path / "again").read_bytes() == (tmp_path / FILE_NAME).read_bytes()
    with safe_open(str(tmp_path / FILE_NAME), framework="pt") as file:  # by safetensors alone
        about, names = json.loads(file.metadata()["pals"]), set(file.keys())
    assert (about["format"], about["class_names"], about["resize"]) == (1, list(NAMES), model.about.resize)
    assert "classifier.classifier.weight" in names and not [name for name in names if name.startswith("encoder.classifier")]


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda path: None, "does not exist"),
        (lambda path: path.mkdir(), r"holds no model\.safetensors. Give the folder"),
        (
            lambda path: torch.save(image_model().network.state_dict(), path),
            "truncated, damaged or not a classifier",
        ),  # a pickle
        (lambda path: save_file({"conv1.weight": torch.ones(3)}, path), "holds weights, but not a PALS classifier"),
        (lambda path: save_file({"w": torch.ones(3)}, path, metadata={"format": "pt"}), "not a PALS classifier"),
    ],
    ids=["nothing", "empty folder", "pickle", "weights", "weights of torch"],
)
def test_what_is_no_classifier(write: Callable[[Path], Any], message: str, tmp_path: Path) -> None:
    write(tmp_path / "run")
    refused(message, Model.load, tmp_path / "run")


def test_any_cut_and_any_changed_byte_is_noticed(tmp_path: Path) -> None:
    """One clear sentence each time, wherever the damage is: length, header, description, weights."""
    path = tmp_path / FILE_NAME
    vector_model().save(path)
    whole = path.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    rng = np.random.default_rng(0)
    contents = [whole[:end] for end in (0, 1, 7, 8, 9, header // 2, header, header + 1, len(whole) - 1)]
    places = [*rng.integers(0, header, 60).tolist(), *rng.integers(header, len(whole), 20).tolist(), 0, 7, 8, header - 1]
    for place in places:
        changed = bytearray(whole)
        changed[place] ^= 1 << int(rng.integers(0, 8))
        if not changed[place : place + 1].isspace():  # a blank after the header's last brace may be any other
            contents.append(bytes(changed))
    for content in contents:
        path.write_bytes(content)
        assert "\n" not in refused(FILE_NAME, Model.load, path, device="cpu")


def rewritten(path: Path, **changes: Any) -> None:
    """The file with another description, checksum and all: what a careful forger, or another version, would write."""
    with safe_open(str(path), framework="pt") as file:
        about = json.loads(file.metadata()[MODEL_METADATA_KEY])
    tensors = load_file(path)
    values = {key: value for key, value in {**about, **changes}.items() if key != "sha256"}
    save_file(tensors, path, metadata={MODEL_METADATA_KEY: json.dumps({**values, "sha256": checksum(values, tensors)})})


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"format": 2}, "written by a newer PALS .format 2"),
     ({"format": 7, "classifier": None, "layers": []}, "written by a newer PALS .format 7"),
     ({"format": None}, "its description cannot be read"), ({"format": "1"}, "its description cannot be read"),
     ({"class_names": ["a", "b", "c"]}, "does not fit its network: classifier.classifier.weight"),
     ({"class_names": "ab"}, "is invalid .class_names"),
     ({"class_names": ["a"]}, "is invalid .*at least two classes"), ({"temperature": -1}, "is invalid .*above zero"),
     ({"temperature": "warm"}, "is invalid .temperature"),
     ({"classifier": {"network": "mlp"}}, "is invalid .classifier.input_shape"),
     ({"classifier": {**asdict(vector_model().about.classifier), "network": "mlpp"}}, "Unknown network 'mlpp'"),
     ({"classifier": {**asdict(vector_model().about.classifier), "network": "resnet18"}}, "reads images"),
     ({"classifier": {"network": "mlp", "input_shape": [5], "mean": [0] * 5, "std": [1] * 5}}, "does not fit")],
)  # fmt: skip
def test_descriptions_of_others(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = tmp_path / FILE_NAME
    vector_model().save(path)
    rewritten(path)
    Model.load(path, device="cpu")  # rewriting alone does no harm
    rewritten(path, **changes)
    said = refused(message, Model.load, path, device="cpu")
    assert str(path) in said and "\n" not in said


def test_refusals_are_short(tmp_path: Path) -> None:
    """Whatever long text a damaged file holds: in its header, its description, the names of its weights."""
    path, text = tmp_path / FILE_NAME, "x" * 5000
    vector_model().save(path)
    whole, about = path.read_bytes(), asdict(vector_model().about.classifier)
    changes = [{"class_names": [text]}, {"classifier": {**about, "network": text}}, {"temperature": text}]
    changes += [{"classifier": {**about, "network": text, "input_shape": [1] * 5000}}]
    for change in changes:
        rewritten(path, **change)
        assert len(refused(".", Model.load, path, device="cpu").replace(str(path), "")) < 500
        path.write_bytes(whole)
    size = 8 + int.from_bytes(whole[:8], "little")
    for old, new in ((b'"F32"', f'"{text}"'.encode()), (b'"classifier.classifier.bias"', f'"{text}"'.encode())):
        header = whole[8:size].replace(old, new, 1)
        path.write_bytes(len(header).to_bytes(8, "little") + header + whole[size:])
        assert len(refused(".", Model.load, path, device="cpu").replace(str(path), "")) < 500


def cross_entropy(logits_NC: Tensor, target_NC: Tensor, temperature: float, weight_N: Tensor) -> float:
    """By the book, in a loop."""
    total = 0.0
    for row, target, weight in zip(logits_NC.tolist(), target_NC.tolist(), weight_N.tolist(), strict=True):
        top = max(z / temperature for z in row)
        log_sum = top + math.log(sum(math.exp(z / temperature - top) for z in row))
        total += weight * sum(t * (log_sum - z / temperature) for z, t in zip(row, target, strict=True))
    return total


def test_temperatures_by_hand() -> None:
    """Two classes, logits (2, 0), right three times of four: the best probability is 3/4, so 2 / T = log 3."""
    logits, target = torch.tensor([[2.0, 0.0]] * 4), torch.tensor([[1.0, 0.0]] * 3 + [[0.0, 1.0]])
    assert fit_temperature(logits, target) == pytest.approx(2 / math.log(3), rel=1e-5)
    assert fit_temperature(logits[:1], torch.tensor([[0.75, 0.25]])) == pytest.approx(2 / math.log(3), rel=1e-5)
    weights = torch.tensor([1.0, 1.0, 1.0, 0.0])  # the wrong one does not count, so nothing speaks against being sure
    assert fit_temperature(logits, target, weights) == MIN_TEMPERATURE
    doubled = torch.tensor([1.0, 0.0, 0.0, 1.0])  # one right, one wrong: a coin
    assert fit_temperature(logits, target, doubled) == MAX_TEMPERATURE
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(20000, 4, generator=generator)
    label = torch.multinomial((3 * logits).softmax(dim=1), 1, generator=generator).squeeze(1)
    target = torch.nn.functional.one_hot(label, 4).float()
    temperature = fit_temperature(logits, target)
    assert temperature == pytest.approx(1 / 3, rel=0.03)
    before = expected_calibration_error(logits.softmax(dim=1), label)
    after = expected_calibration_error((logits / temperature).softmax(dim=1), label)
    assert before > 0.2 and after < 0.02
    logits, target = torch.tensor([[2.0, 0.0, 1.0]] * 4), torch.eye(3)[[0, 0, 1, 2]]
    shift_N1 = torch.tensor([[1e4], [-1e4], [0.0], [5.0]])
    assert fit_temperature(logits + shift_N1, target) == pytest.approx(fit_temperature(logits, target), rel=1e-6)
    assert fit_temperature(shift_N1.expand(4, 3), target) == 1.0  # without differences every temperature is as good


@given(st.integers(0, 10**6), st.integers(2, 5), st.integers(1, 12), st.floats(0.01, 30), st.booleans())
def test_no_other_temperature_is_better(seed: int, classes: int, count: int, scale: float, soft: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(count, classes, generator=generator, dtype=torch.float64)
    target = torch.rand(count, classes, generator=generator, dtype=torch.float64)
    target = target / target.sum(dim=1, keepdim=True) if soft else (target == target.max(dim=1, keepdim=True)[0]).double()
    weight = torch.rand(count, generator=generator, dtype=torch.float64) + 0.1
    found = fit_temperature(logits, target, weight)
    assert MIN_TEMPERATURE <= found <= MAX_TEMPERATURE
    best = cross_entropy(logits, target, found, weight)
    for other in np.geomspace(MIN_TEMPERATURE, MAX_TEMPERATURE, 25):
        assert best <= cross_entropy(logits, target, float(other), weight) + 1e-6 * (1 + abs(best))


def test_a_calibration_error_by_hand_and_what_cannot_be_calibrated() -> None:
    for logits, target, weight, message in (
        (torch.zeros(2, 3), torch.zeros(2, 2), None, "of one shape"),
        (torch.zeros(2, 3), torch.ones(2, 3), torch.ones(3), "of one shape"),
        (torch.tensor([[0.0, 1.0], [math.nan, 0.0]]), torch.ones(2, 2), None, "Row 1"),
        (torch.zeros(2, 2), torch.tensor([[-1.0, 2.0], [1.0, 0.0]]), None, "Row 0"),
        (torch.zeros(2, 2), torch.zeros(2, 2), None, "no item with a target"),
        (torch.zeros(0, 2), torch.zeros(0, 2), None, "no item with a target"),
    ):
        refused(message, fit_temperature, logits, target, weight)
    refused("N x C and N", expected_calibration_error, torch.zeros(0, 2), torch.zeros(2))
    probability = torch.tensor([[0.7, 0.3], [0.2, 0.8], [0.9, 0.1]], dtype=torch.float64)
    assert expected_calibration_error(probability, torch.tensor([0, 0, 0]), bins=5) == pytest.approx(0.6 / 3)
    assert expected_calibration_error(probability, torch.tensor([0, 0, 0]), bins=1) == pytest.approx(abs(2 - 2.4) / 3)
    assert expected_calibration_error(torch.eye(2), torch.tensor([0, 1])) == 0.0
    assert expected_calibration_error(torch.eye(2), torch.tensor([1, 0])) == 1.0


@given(st.integers(0, 10**6), st.integers(1, 30), st.integers(1, 20))
def test_a_calibration_error_in_a_loop(seed: int, count: int, bins: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    probability = torch.rand(count, 3, generator=generator, dtype=torch.float64)
    probability /= probability.sum(dim=1, keepdim=True)
    label = torch.randint(3, (count,), generator=generator)
    expected = 0.0
    for number in range(bins):
        inside = [
            (row.index(max(row)) == y, max(row))
            for row, y in zip(probability.tolist(), label.tolist(), strict=True)
            if number / bins < max(row) <= (number + 1) / bins
        ]
        if inside:
            right, sure = (sum(values) / len(inside) for values in zip(*inside, strict=True))
            expected += len(inside) / count * abs(right - sure)
    assert expected_calibration_error(probability, label, bins) == pytest.approx(expected, abs=1e-9)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a finished run, as far as predictions need it."""
    image_model(resize="crop").save(tmp_path / "run" / FILE_NAME)
    return tmp_path / "run"


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Five pictures of several sizes, one of them below another folder, and a text that is none."""
    folder = tmp_path / "photos"
    (folder / "pond").mkdir(parents=True)
    for number, name in enumerate(("b.png", "a.png", "c.png", "pond/a.png", "pond/z.png")):
        noise = np.random.default_rng(number).integers(0, 256, (9 + number, 8 + 2 * number, 3), dtype=np.uint8)
        Image.fromarray(noise).save(folder / name)
    (folder / "notes.txt").write_text("no picture")
    return folder


ITEMS = ["a.png", "b.png", "c.png", "pond/a.png", "pond/z.png"]


def slow_predictions(model: Model, photos: Path) -> dict[str, dict[str, float]]:
    """One at a time, as a dictionary for each picture."""
    found = {}
    for name in ITEMS:
        pixels = torch.from_numpy(decode(photos / name, 8, how="crop"))[None]
        found[name] = dict(zip(NAMES, model.probabilities(pixels)[0].tolist(), strict=True))
    return found


@pytest.mark.parametrize("batch", [1, 2, 3, 5, 100])
def test_a_folder_in_stretches(run: Path, photos: Path, batch: int) -> None:
    told: list[tuple[int, int]] = []
    frame = predict_folder(run, photos, device="cpu", batch=batch, progress=lambda done, total: told.append((done, total)))
    expected = slow_predictions(Model.load(run, device="cpu"), photos)
    assert list(frame.columns[:5]) == ["item", "label", "confidence", "abstained", "top"]
    assert list(frame.columns[5:]) == ["label_1", "p_1", "label_2", "p_2", "label_3", "p_3"]
    assert frame["item"].tolist() == ITEMS and not frame["abstained"].any() and frame.attrs["bad"] == ()
    for row in frame.to_dict("records"):
        best = sorted(expected[row["item"]].items(), key=lambda pair: -pair[1])
        assert [row[f"label_{k}"] for k in (1, 2, 3)] == [name for name, _ in best]
        assert [row[f"p_{k}"] for k in (1, 2, 3)] == pytest.approx([p for _, p in best], abs=2e-6)
        assert (row["label"], row["confidence"]) == (row["label_1"], row["p_1"])
        assert row["top"] == "; ".join(f"{name} {row[f'p_{k}']:.2f}" for k, (name, _) in enumerate(best, start=1))
    assert told == [(min(5, end), 5) for end in range(batch, 5 + batch, batch)]


def test_fewer_classes_and_a_threshold(run: Path, photos: Path) -> None:
    whole = predict_folder(run, photos, device="cpu", top=2)
    assert list(whole.columns[5:]) == ["label_1", "p_1", "label_2", "p_2"]
    one = predict_folder(run / FILE_NAME, photos / "pond" / "z.png", device="cpu", top=99)
    assert one["item"].tolist() == ["z.png"] and "p_3" in one and "p_4" not in one
    assert one["confidence"][0] == pytest.approx(whole["confidence"][4], abs=2e-6)
    sure = predict_folder(run, photos, device="cpu")
    line = float(sure["confidence"].median())
    frame = predict_folder(run, photos, device="cpu", threshold=line)
    below = sure["confidence"] < line
    assert 0 < below.sum() < 5 and frame["abstained"].tolist() == below.tolist()
    assert (frame["label"] == "").tolist() == below.tolist()
    assert frame.loc[~below, "label"].tolist() == sure.loc[~below, "label"].tolist()
    assert frame["label_1"].tolist() == sure["label_1"].tolist() and frame["confidence"].tolist() == sure["confidence"].tolist()


def test_bad_and_small_pictures(run: Path, photos: Path, tmp_path: Path) -> None:
    (photos / "b.png").write_bytes(b"not a picture at all")
    refused(r"b\.png: not an image of a known format.*--skip-bad", predict_folder, run, photos, device="cpu")
    frame = predict_folder(run, photos, device="cpu", skip_bad=True, batch=1)
    assert frame["item"].tolist() == ["a.png", "c.png", "pond/a.png", "pond/z.png"]
    assert frame.attrs["bad"] == (("b.png", "not an image of a known format"),)
    refused(r"No picture of .*b\.png can be read", predict_folder, run, photos / "b.png", device="cpu", skip_bad=True)
    (tmp_path / "wee").mkdir()
    Image.new("RGB", (7, 30)).save(tmp_path / "wee" / "a.png")
    refused("wee are 7 pixels.* at least 8", predict_folder, run, tmp_path / "wee", device="cpu")


@pytest.mark.parametrize("make", [vector_model, image_model])
def test_rows_of_an_array(make: Callable[[], Model], tmp_path: Path) -> None:
    model = make()
    model.save(tmp_path / FILE_NAME)
    rows = images().numpy() if model.about.is_image else np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    np.save(tmp_path / "x.npy", rows)
    frame = predict_folder(tmp_path, tmp_path / "x.npy", device="cpu", batch=2)
    expected = model.probabilities(torch.from_numpy(rows))
    assert frame["item"].tolist() == [str(row) for row in range(len(rows))]
    assert frame["label"].tolist() == [model.class_names[c] for c in expected.argmax(dim=1).tolist()]
    assert frame["confidence"].tolist() == pytest.approx(expected.max(dim=1).values.tolist(), abs=2e-6)
    if not model.about.is_image:
        np.save(tmp_path / "x.npy", np.arange(8).reshape(2, 4))  # integers are numbers
        assert len(predict_folder(tmp_path, tmp_path / "x.npy", device="cpu")) == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [(np.zeros((3, 5)), r"x\.npy holds 3 x 5 float64; the classifier reads N x 4 numbers"),
     (np.zeros(4), "holds 4 float64"), (np.zeros((2, 4), dtype=bool), "holds 2 x 4 bool"),
     (np.zeros((2, 4), dtype=complex), "complex128"), (np.array([["a"] * 4]), "<U1"), (np.zeros((0, 4)), r"x\.npy"),
     (np.array([[0.0] * 4, [0.0] * 4, [1.0, 2.0, math.nan, 0.0]]), "row 2 .from 0. holds NaN"),
     (np.array([[1e300, 0.0, 0.0, 0.0]]), "row 0 .from 0. holds NaN or infinity"),
     (np.array([[{}, 1, 2, 3]], dtype=object), "not an .npy file of numbers"),
     (b"\x93NUMPY garbage", "not an .npy file of numbers"), (b"", "not an .npy file of numbers"),
     (None, r"x\.npy does not exist")],
)  # fmt: skip
def test_rows_that_are_refused(tmp_path: Path, content: Any, message: str) -> None:
    vector_model().save(tmp_path / FILE_NAME)
    path = tmp_path / "x.npy"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        np.save(path, content, allow_pickle=True)
    said = refused(message, predict_folder, tmp_path, path, device="cpu", batch=2)
    assert "\n" not in said


def test_what_cannot_be_predicted(run: Path, photos: Path, tmp_path: Path) -> None:
    for options, message in (
        ({"top": 0}, "give at least 1"), ({"threshold": 1.5}, "threshold is 1.5"),
        ({"threshold": math.nan}, "threshold is nan"), ({"batch": 0}, "A batch of 0"),
        ({"device": "gpu"}, "Unknown device"),
    ):  # fmt: skip
        refused(message, predict_folder, run, photos, **{"device": "cpu", **options})
    refused("nowhere does not exist", predict_folder, run, tmp_path / "nowhere", device="cpu")
    refused(r"holds no model\.safetensors", predict_folder, photos, photos, device="cpu")
    refused("holds no image", predict_folder, run, run, device="cpu")
    vector_model().save(tmp_path / FILE_NAME)
    refused(r"reads vectors of width 4: give an \.npy file", predict_folder, tmp_path, photos, device="cpu")
    grey = Model(Description(NAMES, Part("small-cnn", (1, 8, 8), (0.5,), (0.2,))), network(shape=(1, 8, 8)), device="cpu")
    grey.save(tmp_path / FILE_NAME)
    refused("1 x 8 x 8, not square colour images", predict_folder, tmp_path, photos, device="cpu")


def test_pictures_are_read_only_one_stretch_ahead(run: Path, photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Path] = []

    def counted(path: Path, size: int, **options: Any) -> Any:
        opened.append(path)
        return decode(path, size, **options)

    monkeypatch.setattr("pals.model.predict.decode", counted)
    seen = []
    predict_folder(run, photos, device="cpu", batch=1, progress=lambda done, total: seen.append((done, len(opened))))
    assert all(read <= done + 1 for done, read in seen) and len(seen) == len(opened) == 5
