"""Export of a classifier as one ONNX file, raw pixels in and probabilities out, which runs without PALS and torch:

    p_NC = softmax(network((x / 255 - mean) / std) / temperature)

The graph is run by onnxruntime and compared with the classifier before it is written.
"""

from __future__ import annotations

import importlib
import json
import warnings
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import torch
from torch import Tensor, nn

from pals import __version__
from pals.model.saved import Model
from pals.util.errors import InputError
from pals.util.files import write_bytes
from pals.util.words import pip_install

Numbers = Literal["uint8", "float32"]
MIN_OPSET = 18
"""The oldest set of operations that torch's exporter writes, hence the one that most programs read."""
MAX_EXPORT_ERROR = 1e-4
"""Largest allowed difference of a probability."""
INPUT, OUTPUT = "input", "probabilities"


@dataclass(frozen=True)
class ExportReport:
    """The written file, and its difference from the classifier."""

    path: Path
    opset: int
    input_shape: tuple[int | str, ...]
    'Its first entry is "N": a batch of any size.'
    input_type: str
    class_names: tuple[str, ...]
    size: int
    "Bytes."
    checked: int
    "Inputs on which both were compared."
    largest_difference: float | None
    "Of a probability; None where nothing was compared."

    def __str__(self) -> str:
        shape = " x ".join(map(str, self.input_shape))
        words = f"{self.path}: {self.input_type} {shape} in, {len(self.class_names)} probabilities out, opset {self.opset}"
        if self.largest_difference is None:
            return f"{words}; not compared with the classifier"
        return f"{words}; differs by at most {self.largest_difference:.1e} on {self.checked} inputs"


class Exported(nn.Module):
    """All stages from raw inputs to probabilities as one module."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        stages = model.stages()
        self.networks = nn.ModuleList(stage.network for stage in stages)
        self.views = [stage.view for stage in stages]
        self.temperature = model.about.temperature

    def forward(self, x: Tensor) -> Tensor:
        for view, network in zip(self.views, self.networks, strict=True):
            output = network(view(x))
            x = output.features
        probability_NC: Tensor = (output.logits / self.temperature).softmax(dim=1)
        return probability_NC


def export_onnx(
    run: Path | str, path: Path | str, *, opset: int = MIN_OPSET, numbers: Numbers = "uint8", check: bool = True
) -> ExportReport:
    """Write the classifier of a run as an ONNX file.

    Standardisation, temperature and softmax are part of the graph. The file's metadata have the class names (as JSON), the
    input shape, and how images are resized.

    Args:
        run: the run folder, or its model.safetensors.
        path: the file to write.
        opset: version of the ONNX operations; default: 18.
        numbers: images as "uint8", N x channels x height x width, or the same numbers from 0 to 255 as "float32"; a classifier
            of vectors always takes float32, N x width.
        check: run the graph by onnxruntime and compare its probabilities before anything is written.

    Returns:
        The file and the largest difference.

    Raises:
        InputError: a package is missing, the network or the opset cannot be exported, or the graph differs.
    """
    onnx = _need("onnx")
    _need("onnxscript")
    if not MIN_OPSET <= opset <= onnx.defs.onnx_opset_version():
        raise InputError(f"Opset {opset} cannot be written: give {MIN_OPSET} to {onnx.defs.onnx_opset_version()}.")
    model = Model.load(run, device="cpu", precision="fp32")
    kind: Numbers = numbers if model.about.is_image else "float32"
    proto = _graph(model, opset, kind)
    about = model.about
    proto.producer_name, proto.producer_version = "pals", __version__
    facts = {
        "class_names": json.dumps(about.class_names, ensure_ascii=False),
        "input_shape": json.dumps(about.input_shape),
        "temperature": repr(about.temperature),
        **({"channels": "RGB", "resize": about.resize} if about.is_image else {}),
    }
    onnx.helper.set_model_props(proto, facts)
    data = proto.SerializeToString()
    checked, difference = _compare(model, data, kind) if check else (0, None)
    if difference is not None and not difference <= MAX_EXPORT_ERROR:
        raise InputError(
            f"The exported graph differs from the classifier by {difference:.1e} in a probability, more than "
            f"{MAX_EXPORT_ERROR:.0e}; nothing was written. Try another opset (now {opset})."
        )
    write_bytes(Path(path), data)
    shape: tuple[int | str, ...] = ("N", *model.about.input_shape)
    return ExportReport(Path(path), opset, shape, kind, model.class_names, len(data), checked, difference)


def _need(package: str) -> ModuleType:
    try:
        return importlib.import_module(package)
    except ImportError:
        raise InputError(f"Export to ONNX needs the package {package}: {pip_install('export')}.") from None


def _graph(model: Model, opset: int, numbers: Numbers) -> Any:
    """The ONNX graph, by torch's exporter on top of torch.export; the older exporter is deprecated."""
    module = Exported(model).eval()
    example = check_inputs(model, numbers)[:2]
    module(example)  # moves constants to the device before the graph is recorded
    batch = torch.export.Dim("N")
    try:
        with warnings.catch_warnings():
            # torch's exporter uses a deprecated name of torch when it copies a graph
            warnings.filterwarnings("ignore", message=r".*LeafSpec.* is deprecated", category=FutureWarning)
            program = torch.onnx.export(
                module,
                (example,),
                dynamo=True,
                opset_version=opset,
                input_names=[INPUT],
                output_names=[OUTPUT],
                dynamic_shapes={"x": {0: batch}},
                verbose=False,
            )
    except Exception as error:  # the exporter raises errors of many types
        reason = (str(error) or type(error).__name__).strip().splitlines()[0]
        raise InputError(f"torch cannot export this network with opset {opset}: {reason}") from None
    assert program is not None
    proto = program.model_proto
    found = [entry.version for entry in proto.opset_import if entry.domain in ("", "ai.onnx")]
    if found != [opset]:
        raise InputError(f"torch cannot export this network with opset {opset}, only with {found}; use that one.")
    return proto


def _compare(model: Model, data: bytes, numbers: Numbers) -> tuple[int, float]:
    """The number of inputs compared, one at a time and together, and the largest difference of a probability."""
    runtime = _need("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 3  # errors only
    session = runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    inputs = check_inputs(model, numbers)
    own_NC = model.probabilities(inputs.to(torch.uint8) if model.about.is_image else inputs)
    batches = [inputs, *torch.split(inputs, 1)]
    try:
        found = [torch.from_numpy(session.run([OUTPUT], {INPUT: batch.numpy()})[0]) for batch in batches]
    except Exception as error:  # onnxruntime's errors have no common base class
        reason = " ".join(str(error).split())
        raise InputError(f"onnxruntime cannot run the exported graph; nothing was written: {reason}") from None
    differences = [(found[0] - own_NC).abs().max(), (torch.cat(found[1:]) - own_NC).abs().max()]
    return len(inputs), float(torch.stack(differences).max())


def check_inputs(model: Model, numbers: Numbers = "uint8") -> Tensor:
    """Ten inputs to compare two classifiers on: noise, coarse noise as in real images, and zeros (for images also white).

    Args:
        model: the classifier; for one of vectors the noise has the mean and 1 or 3 times the deviation of its training data.
        numbers: type of images.
    """
    generator, shape, part = torch.Generator().manual_seed(0), model.about.input_shape, model.about.classifier
    if not model.about.is_image:
        scale_N1 = torch.tensor([1.0, 3.0]).repeat_interleave(4)[:, None]
        noise_ND = torch.tensor(part.mean) + torch.tensor(part.std) * scale_N1 * torch.randn(8, *shape, generator=generator)
        return torch.cat([noise_ND, torch.zeros(2, *shape)])
    fine = torch.randint(0, 256, (4, *shape), generator=generator).float()
    coarse = torch.rand(4, shape[0], 4, 4, generator=generator)
    smooth = nn.functional.interpolate(255 * coarse, size=shape[1:], mode="bicubic", align_corners=False).clamp(0, 255)
    flat = torch.tensor([0.0, 255.0])[:, None, None, None].expand(2, *shape)
    return torch.cat([fine, smooth.round(), flat]).to(getattr(torch, numbers))
