"""The saved classifier: saving and loading, calibration, predictions for folders, export.

All that is needed to use a classifier once it is trained. Nothing here trains one, and nothing knows of run folders.
"""

from __future__ import annotations

from pathlib import Path

from pals.model.calibrate import expected_calibration_error, fit_temperature
from pals.model.export import ExportReport, export_onnx
from pals.model.predict import predict_folder
from pals.model.prediction_file import Written, predict_to_file
from pals.model.saved import FILE_NAME, Description, Model, Part, check_saveable, is_model

__all__ = [
    "FILE_NAME",
    "Description",
    "ExportReport",
    "Model",
    "Part",
    "Written",
    "check_saveable",
    "expected_calibration_error",
    "export_onnx",
    "fit_temperature",
    "is_model",
    "load_model",
    "predict_folder",
    "predict_to_file",
]


def load_model(path: Path | str, device: str = "auto") -> Model:
    """The classifier that `pals fit` saved, from a run folder or a file: `load_model("run").probabilities(images)`."""
    return Model.load(path, device)
