"""Functions of tensors as CUDA graphs: recorded once, then launched as a whole without work on the host."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from pals.training.engine import Engine

GRAPH_WARMUP_CALLS = 3
"""Ordinary calls before a graph is captured, in which libraries choose their kernels."""


@dataclass
class _GraphState:
    calls: int = 0
    graph: torch.cuda.CUDAGraph | None = None
    inputs: list[Tensor] = field(default_factory=list)
    outputs: Sequence[Tensor] = ()


class CapturedFunction:
    """A function of tensors, captured as one graph per combination of shapes. A call overwrites the results of the last."""

    def __init__(self, function: Callable[..., Sequence[Tensor]], engine: Engine) -> None:
        self.function, self.engine = function, engine
        self.stream = torch.cuda.Stream(engine.device)  # type: ignore[no-untyped-call]
        self.states: dict[Any, _GraphState] = {}

    def __call__(self, *inputs: Tensor) -> Sequence[Tensor]:
        state = self.states.setdefault(tuple((t.shape, t.dtype) for t in inputs), _GraphState())
        if state.graph is not None:
            torch._foreach_copy_(state.inputs, list(inputs))
            state.graph.replay()
            return state.outputs
        started = time.perf_counter()
        outputs = self._warm_up(inputs) if state.calls < GRAPH_WARMUP_CALLS else self._capture(state, inputs)
        state.calls += 1
        self.engine.synchronize()
        self.engine.warmup_seconds += time.perf_counter() - started
        return outputs

    def _warm_up(self, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        self.stream.wait_stream(torch.cuda.current_stream(self.engine.device))
        with torch.cuda.stream(self.stream):
            outputs = self.function(*map(channels_last, inputs))
        torch.cuda.current_stream(self.engine.device).wait_stream(self.stream)
        return outputs

    def _capture(self, state: _GraphState, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        state.inputs = [channels_last(t).clone() for t in inputs]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream):  # records, does not run
            state.outputs = self.function(*state.inputs)
        state.graph = graph
        graph.replay()
        return state.outputs


def channels_last(x: Tensor) -> Tensor:
    """The tensor without gaps, images in the memory layout in which convolutions are fastest."""
    return x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x.contiguous()
