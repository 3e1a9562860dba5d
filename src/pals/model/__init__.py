"""The saved classifier: what is needed to use a classifier after its training.

`saved` writes and loads it, `calibrate` fits its temperature, `predict` and `prediction_file` apply it to files (the latter
through `resumable_table`), `onnx_export` writes ONNX. Shapes: N items, C classes, D features, K likeliest classes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pals.model.saved import FILE_NAME, Description, Model, Part, check_saveable, is_model
from pals.util.lazy import lazily

if TYPE_CHECKING:
    from pals.model.calibrate import expected_calibration_error, fit_temperature
    from pals.model.onnx_export import ExportReport, export_onnx
    from pals.model.predict import predict_folder
    from pals.model.prediction_file import WrittenPredictions, predict_to_file

__all__ = [
    "FILE_NAME",
    "Description",
    "ExportReport",
    "Model",
    "Part",
    "WrittenPredictions",
    "check_saveable",
    "expected_calibration_error",
    "export_onnx",
    "fit_temperature",
    "is_model",
    "load_model",
    "predict_folder",
    "predict_to_file",
]

_LATER = {  # so that training, which saves a classifier, loads neither pandas nor scipy
    "calibrate": ("expected_calibration_error", "fit_temperature"),
    "onnx_export": ("ExportReport", "export_onnx"),
    "predict": ("predict_folder",),
    "prediction_file": ("WrittenPredictions", "predict_to_file"),
}
__getattr__ = lazily(__name__, _LATER)


def load_model(path: Path | str, device: str = "auto") -> Model:
    """Load the classifier that `pals fit` or `pals train --encoder` saved.

    Args:
        path: the run folder, or its model.safetensors.
        device: "cpu", "cuda", or "auto", the default.

    Returns:
        The classifier; `probabilities` takes images or vectors.

    Raises:
        InputError: there is no classifier, or the file is damaged or of a newer version.

    Example:
        >>> from pals.model import Description, Model, Part
        >>> from pals.vision.networks import build_network
        >>> about = Description(("cat", "dog"), Part("mlp", (2,), (0, 0), (1, 1)))
        >>> Model(about, build_network("mlp", (2,), 2), device="cpu").save("model.safetensors")
        >>> pals.load_model("model.safetensors", device="cpu").class_names
        ('cat', 'dog')
    """
    return Model.load(path, device)
