"""A classifier as one ONNX file: raw pixels in, probabilities out, so that whoever runs it needs nothing of PALS or torch."""

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
OPSET = 18
"""The oldest set of operations that torch's exporter can write, hence the one that most programs read."""
TOLERANCE = 1e-4
"""By how much a probability may differ from ours."""
INPUT, OUTPUT = "input", "probabilities"


@dataclass(frozen=True)
class ExportReport:
    """What was written, and how near it is to the classifier it was made from."""

    path: Path
    opset: int
    input_shape: tuple[int | str, ...]  # the batch is "N": as many as one likes
    input_type: str
    class_names: tuple[str, ...]
    size: int  # bytes
    checked: int  # inputs on which both were compared
    largest_difference: float | None  # of a probability; None where nothing was compared

    def __str__(self) -> str:
        shape = " x ".join(map(str, self.input_shape))
        words = f"{self.path}: {self.input_type} {shape} in, {len(self.class_names)} probabilities out, opset {self.opset}"
        if self.largest_difference is None:
            return f"{words}; not compared with the classifier"
        return f"{words}; differs by at most {self.largest_difference:.1e} on {self.checked} inputs"


class Exported(nn.Module):
    """The whole way from raw inputs to probabilities as one module."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        links = model.links()
        self.networks = nn.ModuleList(link.network for link in links)
        self.views = [link.view for link in links]
        self.temperature = model.about.temperature

    def forward(self, x: Tensor) -> Tensor:
        for view, network in zip(self.views, self.networks, strict=True):
            output = network(view(x))
            x = output.features
        probability_NC: Tensor = (output.logits / self.temperature).softmax(dim=1)
        return probability_NC


def export_onnx(
    run: Path | str, path: Path | str, *, opset: int = OPSET, numbers: Numbers = "uint8", check: bool = True
) -> ExportReport:
    """Write the classifier of a run (its folder, or its model.safetensors) as an ONNX file.

    The graph takes images as uint8, N x channels x height x width, or, with numbers="float32", the same numbers from 0 to
    255 as floats; a classifier of vectors always takes float32, N x width. Standardisation, temperature and softmax are
    inside. The file's metadata hold the class names (as JSON), the shape and how images are brought to it. With `check` the
    graph is run by onnxruntime and compared with the classifier before anything is written.
    """
    onnx = _need("onnx")
    _need("onnxscript")
    if not OPSET <= opset <= onnx.defs.onnx_opset_version():
        raise InputError(f"Opset {opset} cannot be written here; give one from {OPSET} to {onnx.defs.onnx_opset_version()}.")
    model = Model.load(run, device="cpu", precision="fp32")
    kind: Numbers = numbers if model.about.is_image else "float32"
    proto = _graph(model, opset, kind)
    _describe(onnx, proto, model)
    data = proto.SerializeToString()
    checked, difference = _compare(model, data, kind) if check else (0, None)
    if difference is not None and not difference <= TOLERANCE:
        raise InputError(
            f"The exported graph differs from the classifier by {difference:.1e} in a probability, more than {TOLERANCE:.0e}; "
            f"nothing was written. Try another opset (now {opset})."
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
    """By torch's exporter on top of torch.export: the older one, which records a run, is on its way out."""
    module = Exported(model).eval()
    example = _noise(model, 2, numbers)
    module(example)  # so that constants are on the device already when the graph is taken
    batch = torch.export.Dim("N")
    try:
        with warnings.catch_warnings():
            # torch's own exporter uses, when it copies a graph, a name that torch has given up.
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
    except Exception as error:  # the exporter fails in as many ways as there are operations
        reason = (str(error) or type(error).__name__).strip().splitlines()[0]
        raise InputError(f"torch cannot export this network with opset {opset}: {reason}") from None
    assert program is not None
    proto = program.model_proto
    found = [entry.version for entry in proto.opset_import if entry.domain in ("", "ai.onnx")]
    if found != [opset]:
        raise InputError(f"torch cannot export this network with opset {opset}, only with {found}; use that one.")
    return proto


def _describe(onnx: ModuleType, proto: Any, model: Model) -> None:
    """What a program that runs the graph has to know, as text in the file."""
    about = model.about
    proto.producer_name, proto.producer_version = "pals", __version__
    facts = {
        "class_names": json.dumps(about.class_names, ensure_ascii=False),
        "input_shape": json.dumps(about.input_shape),
        "temperature": repr(about.temperature),
        **({"channels": "RGB", "resize": about.resize} if about.is_image else {}),
    }
    onnx.helper.set_model_props(proto, facts)


def _compare(model: Model, data: bytes, numbers: Numbers) -> tuple[int, float]:
    """How many inputs both were asked about, one at a time and together, and the largest difference of a probability."""
    runtime = _need("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 3  # errors only
    session = runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    inputs = torch.cat([_noise(model, 4, numbers), _smooth(model, 4, numbers), _extreme(model, numbers)])
    own_NC = model.probabilities(inputs.to(torch.uint8) if model.about.is_image else inputs)
    batches = [inputs, *torch.split(inputs, 1)]
    try:
        theirs = [torch.from_numpy(session.run([OUTPUT], {INPUT: batch.numpy()})[0]) for batch in batches]
    except Exception as error:  # onnxruntime has a class of error for every state, with no base of its own
        reason = " ".join(str(error).split())
        raise InputError(f"onnxruntime cannot run the exported graph; nothing was written: {reason}") from None
    differences = [(theirs[0] - own_NC).abs().max(), (torch.cat(theirs[1:]) - own_NC).abs().max()]
    return len(inputs), float(torch.stack(differences).max())


def _noise(model: Model, count: int, numbers: Numbers) -> Tensor:
    """Random pixels, or vectors spread like those that the classifier was trained on."""
    generator = torch.Generator().manual_seed(0)
    shape = (count, *model.about.input_shape)
    if model.about.is_image:
        return torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8).to(getattr(torch, numbers))
    part = model.about.classifier
    return torch.tensor(part.mean) + torch.tensor(part.std) * torch.randn(shape, generator=generator)


def _smooth(model: Model, count: int, numbers: Numbers) -> Tensor:
    """Inputs that look more like real ones: soft blobs of colour in place of noise; vectors further out."""
    if not model.about.is_image:
        return 3 * _noise(model, count, numbers)
    channels, height, width = model.about.input_shape
    coarse = torch.rand(count, channels, 4, 4, generator=torch.Generator().manual_seed(1))
    blobs = torch.nn.functional.interpolate(coarse, size=(height, width), mode="bicubic", align_corners=False)
    return (255 * blobs).clamp(0, 255).round().to(getattr(torch, numbers))


def _extreme(model: Model, numbers: Numbers) -> Tensor:
    """Nothing at all; for images also white."""
    zero = torch.zeros(1, *model.about.input_shape, dtype=getattr(torch, numbers))
    return torch.cat([zero, zero + 255]) if model.about.is_image else zero
