"""Curves of one or several runs, drawn from their folders alone."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pals.training.run_log import read_epochs
from pals.util.files import write_bytes

VARIANT_COLORS = {"pals": "#0b6e99", "average": "#d9822b", "truth": "#5b6770"}
RIGHT, WRONG, FADED = "#2a9d5c", "#c8553d", "#9fb8c8"


def draw_curves(groups: Mapping[str, Sequence[Path]], path: Path, *, title: str, main: str) -> None:
    """Draw three panels: selected and correct items, test accuracy, and the posterior of the last epoch.

    Args:
        groups: name of each variant and the run folders of its seeds.
        path: PNG file to write.
        title: of the figure.
        main: the variant whose selection and posterior are shown.
    """
    logs = {name: [read_epochs(folder) for folder in folders] for name, folders in groups.items()}
    figure = Figure(figsize=(14, 4.4), layout="constrained")
    selection, accuracy, posterior = figure.subplots(1, 3)
    _draw_selection(selection, logs[main])
    _draw_accuracy(accuracy, logs)
    _draw_posterior(posterior, logs[main])
    for axes in (selection, accuracy, posterior):
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title, fontsize=13, fontweight="bold")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    write_bytes(path, buffer.getvalue())


def _band(axes: Axes, values: np.ndarray, label: str, color: str) -> None:
    """The mean over seeds as a line, the range as a band."""
    epochs = np.arange(1, values.shape[1] + 1)
    axes.plot(epochs, values.mean(axis=0), label=label, color=color, linewidth=2)
    axes.fill_between(epochs, values.min(axis=0), values.max(axis=0), color=color, alpha=0.18, linewidth=0)


def _draw_selection(axes: Axes, logs: Sequence[Sequence[Mapping[str, Any]]]) -> None:
    _band(axes, _column(logs, "selected"), "selected", FADED)
    _band(axes, _column(logs, "correct"), "of these right", RIGHT)
    axes.set(title="Selected items per epoch", xlabel="epoch", ylabel="items")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, loc="lower right")


def _draw_accuracy(axes: Axes, logs: Mapping[str, Sequence[Sequence[Mapping[str, Any]]]]) -> None:
    for name, runs in logs.items():
        values = 100 * _column(runs, "test_accuracy")
        _band(axes, values, f"{name}  {values[:, -1].mean():.1f}", VARIANT_COLORS.get(name, "#444444"))
    axes.set(title="Accuracy on held-out items (last epoch in the legend)", xlabel="epoch", ylabel="%")
    axes.set_ylim(top=101)
    axes.legend(frameon=False, loc="lower right")


def _draw_posterior(axes: Axes, logs: Sequence[Sequence[Mapping[str, Any]]]) -> None:
    """A histogram on a logarithmic scale: in the end nearly all items lie in the last bin."""
    last = [run[-1].get("posterior", run[-1].get("belief")) for run in logs]  # "belief" in 0.2
    bins = len(last[0]["right"])
    edges = np.linspace(0, 1, bins + 1)
    for side, color, words in (("right", RIGHT, "most likely label is right"), ("wrong", WRONG, "most likely label is wrong")):
        counts = np.mean([histogram[side] for histogram in last], axis=0)
        axes.stairs(counts, edges, fill=True, color=color, alpha=0.55, label=words, baseline=0.1)
    axes.set(title="Largest posterior per item, last epoch", xlabel="posterior", ylabel="items (log scale)", xlim=(0, 1))
    axes.set_yscale("log")
    axes.set_ylim(bottom=0.2)
    axes.legend(frameon=False, loc="upper left")


def _column(logs: Sequence[Sequence[Mapping[str, Any]]], key: str) -> np.ndarray:
    """One value of the log by seed and epoch; runs are cut to the shortest."""
    epochs = min(len(run) for run in logs)
    return np.array([[record[key] for record in run[:epochs]] for run in logs], dtype=float)
