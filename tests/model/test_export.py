"""The classifier as an ONNX file: same probabilities, any batch, its classes inside. Skipped without the packages for it."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from _models import NAMES, frozen_model, image_model, patches_model, vector_model

from _refused import refused
from pals.model import FILE_NAME, ExportReport, Model, export_onnx, onnx_export
from pals.util.errors import InputError

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


def sure_model() -> Model:
    return image_model(0.6, 12, 60, resize="pad")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Model, ExportReport]:
    folder = tmp_path_factory.mktemp("run")
    model = sure_model()
    model.save(folder / FILE_NAME)
    return model, export_onnx(folder, folder / "out" / "m.onnx")


def answers(path: Path, inputs: torch.Tensor) -> np.ndarray:
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (name,) = (entry.name for entry in session.get_inputs())
    result: np.ndarray = session.run(None, {name: inputs.numpy()})[0]
    return result


@pytest.mark.slow
def test_raw_pixels_in_probabilities_out(exported: tuple[Model, ExportReport]) -> None:
    model, report = exported
    for count in (1, 2, 9):
        images = torch.randint(0, 256, (count, 3, 12, 12), dtype=torch.uint8, generator=torch.Generator().manual_seed(count))
        got, own = answers(report.path, images), model.probabilities(images).numpy()
        assert got.shape == (count, 3) and got.dtype == np.float32
        np.testing.assert_allclose(got, own, atol=1e-4)
        np.testing.assert_allclose(got.sum(axis=1), 1, atol=1e-5)
    assert own.max(axis=1).min() > 0.4 and own.std(axis=0).max() > 0.05  # the comparison was about something


def test_one_file_with_its_description(exported: tuple[Model, ExportReport]) -> None:
    _, report = exported
    assert (report.opset, report.input_shape, report.input_type) == (18, ("N", 3, 12, 12), "uint8")
    assert report.class_names == NAMES and report.size == report.path.stat().st_size
    assert report.checked >= 10 and report.largest_difference is not None and report.largest_difference < 1e-5
    assert "uint8 N x 3 x 12 x 12 in, 3 probabilities out, opset 18; differs by at most" in str(report)
    assert [path.name for path in report.path.parent.iterdir()] == ["m.onnx"]
    proto = onnx.load(report.path)
    onnx.checker.check_model(proto)
    facts = {entry.key: entry.value for entry in proto.metadata_props}
    assert json.loads(facts["class_names"]) == list(NAMES) and json.loads(facts["input_shape"]) == [3, 12, 12]
    assert (facts["resize"], facts["channels"], facts["temperature"]) == ("pad", "RGB", "0.6")
    assert [entry.name for entry in (*proto.graph.input, *proto.graph.output)] == ["input", "probabilities"]


@pytest.mark.parametrize("make", [image_model, frozen_model, patches_model, vector_model])
def test_the_module_that_is_exported(make: Callable[[], Model]) -> None:
    """One module does all that the classifier does, for pixels as whole numbers and as floats."""
    model = make()
    inputs = onnx_export.check_inputs(model)
    module = onnx_export.Exported(model).eval()
    with torch.no_grad():
        torch.testing.assert_close(module(inputs), model.probabilities(inputs))
        torch.testing.assert_close(module(inputs.float()), model.probabilities(inputs))


@pytest.mark.slow  # each export takes a few seconds
@pytest.mark.parametrize(
    ("make", "numbers"), [(image_model, "float32"), (frozen_model, "uint8"), (patches_model, "uint8"), (vector_model, "uint8")]
)
def test_other_kinds(tmp_path: Path, make: Callable[[], Model], numbers: Any) -> None:
    model = make()
    model.save(tmp_path / FILE_NAME)
    report = export_onnx(tmp_path / FILE_NAME, tmp_path / "m.onnx", numbers=numbers)
    inputs = onnx_export.check_inputs(model, numbers)
    own = model.probabilities(inputs.to(torch.uint8) if model.about.is_image else inputs)
    np.testing.assert_allclose(answers(report.path, inputs), own.numpy(), atol=1e-4)
    assert report.input_type == ("float32" if make is vector_model else numbers)
    assert report.largest_difference is not None and report.largest_difference < 5e-5


def test_unchecked(exported: tuple[Model, ExportReport], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_export, "_graph", lambda *_: onnx.load(exported[1].path))
    report = export_onnx(exported[1].path.parents[1], tmp_path / "m.onnx", check=False)
    assert (report.checked, report.largest_difference) == (0, None) and "not compared" in str(report)


def test_a_graph_that_does_not_run_is_not_written(
    exported: tuple[Model, ExportReport], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One for exactly two pictures, as comes of a network whose course depends on their number; and other opsets."""
    run = exported[1].path.parents[1]
    for opset in (17, 999):
        refused(f"Opset {opset} cannot be written: give 18", export_onnx, run, tmp_path / "m.onnx", opset=opset)
    proto = onnx.load(exported[1].path)
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2
    monkeypatch.setattr(onnx_export, "_graph", lambda *_: proto)
    refused("cannot run the exported graph; nothing was written: .*invalid dim", export_onnx, run, tmp_path / "m.onnx")
    assert not (tmp_path / "m.onnx").exists()


def test_a_graph_that_answers_otherwise_is_not_written(
    exported: tuple[Model, ExportReport], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The comparison is run on the graph of another classifier: of the same one with other weights."""
    model, report = exported
    monkeypatch.setattr(onnx_export, "_graph", lambda *_: onnx.load(report.path))
    model.save(tmp_path / FILE_NAME)
    assert export_onnx(tmp_path, tmp_path / "same.onnx").largest_difference == report.largest_difference
    other = sure_model()
    with torch.no_grad():
        other.network.classifier.bias[0] += 0.05
    other.save(tmp_path / FILE_NAME)
    refused(r"differs from the classifier by .*nothing was written", export_onnx, tmp_path, tmp_path / "other.onnx")
    assert not (tmp_path / "other.onnx").exists()


@pytest.mark.parametrize("package", ["onnx", "onnxscript", "onnxruntime"])
def test_without_the_packages(
    exported: tuple[Model, ExportReport], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    real = importlib.import_module

    def find(name: str) -> Any:
        if name == package:
            raise ImportError(name)
        return real(name)

    monkeypatch.setattr(onnx_export, "_graph", lambda *_: onnx.load(exported[1].path))
    monkeypatch.setattr(importlib, "import_module", find)
    with pytest.raises(InputError, match=rf"needs the package {package}: pip install 'pals-learn\[export\]'"):
        export_onnx(exported[1].path.parents[1], tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())
