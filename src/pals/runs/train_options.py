"""The options of `pals train`: those with a key are settings of the run (`pals.util.option.settings_from`)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pals.util.option import Option


@dataclass(frozen=True)
class TrainOptions:
    """What `pals train` is given besides seeds, folders and settings files; None: not given."""

    data: Annotated[
        str | None, Option("Data set, e.g. digits or cifar10.", key="data.name", argument=True, complete="data_sets")
    ] = None
    method: Annotated[str | None, Option("Method to train; see `pals methods`.", key="method.name", complete="methods")] = None
    preset: Annotated[
        str | None,
        Option("Named preset of the method's options; see `pals methods NAME`.", key="method.preset", complete="presets"),
    ] = None
    partial_rate: Annotated[
        float | None, Option("q: probability that a wrong label is a candidate.", key="data.partial_rate")
    ] = None
    noise_rate: Annotated[float | None, Option("eta: probability that the true label is left out.", key="data.noise_rate")] = (
        None
    )
    protocol: Annotated[str | None, Option("Protocol for drawing candidates: g1, g2, g3 or g4.", key="data.protocol")] = None
    epochs: Annotated[int | None, Option("Training epochs.", key="train.epochs")] = None
    encoder: Annotated[
        str | None,
        Option(
            "Learn from the features of an encoder: a name from `pals encoders`, timm:NAME, or a weights file.",
            complete="encoders",
        ),
    ] = None
    weights: Annotated[Path | None, Option("With --encoder timm:NAME: its weights file, or timm to download them.")] = None
    frozen: Annotated[bool | None, Option("Keep the encoder frozen (default) or fine-tune it.")] = None
    device: Annotated[str | None, Option("Device to use: auto, cpu, cuda, cuda:1 or mps.", key="engine.device")] = None
    precision: Annotated[str | None, Option("Precision: auto, fp32, tf32, bf16 or fp16.", key="engine.precision")] = None
    compile: Annotated[
        bool | None, Option("Compile and capture the training step (default: on a GPU).", key="engine.compile")
    ] = None
    deterministic: Annotated[
        bool | None, Option("Use deterministic kernels only.", key="engine.deterministic", flag="--deterministic")
    ] = None
