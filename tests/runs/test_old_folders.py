"""Folders of an older version, which lack settings that came later, are continued, evaluated and built on; real differences and
folders of a newer version are refused in a sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from test_damaged_folders import make_vectors

from _slow import rest_slow
from _toy import TINY, Answer
from pals.model import FILE_NAME, Description, Model, Part
from pals.model.saved import checksum
from pals.runs.run_config import RunConfig
from pals.runs.run_folder import load_run_config
from pals.training.checkpoint import save_checkpoint
from pals.util.config import read_yaml, to_yaml
from pals.util.errors import InputError
from pals.util.files import read_json, write_json, write_text
from pals.vision.networks import build_network

Pals = Callable[..., Answer]
TRAIN = ("train", "toy", *TINY, "--epochs", "3")
LATER = (("train", "period"), ("engine", "deterministic"), ("network", "head"), ("method", "smoothing"), ("data", "draws"))
"""Settings as if they had been added since."""


def forget(values: dict[str, Any], *keys: tuple[str, str]) -> dict[str, Any]:
    for section, key in keys:
        del values[section][key]
    return values


def made_older(run: Path, *keys: tuple[str, str]) -> None:
    """Settings and checkpoint without these keys, and no format."""
    write_text(run / "config.yaml", to_yaml(forget(read_yaml(run / "config.yaml"), *keys)))
    content = torch.load(run / "checkpoint.pt", weights_only=True)
    save_checkpoint(run / "checkpoint.pt", forget(content["settings"], *keys), content["state"])
    about = read_json(run / "run.json")
    del about["format"]
    write_json(run / "run.json", about)


def test_an_older_run_is_continued_and_evaluated(pals: Pals) -> None:
    assert pals(*TRAIN, "--out", "whole").code == 0 and pals(*TRAIN, "--out", "run", "--stop-after", "1").code == 0
    made_older(Path("run"), *LATER)
    assert pals("evaluate", "run").code == 0
    answer = pals(*TRAIN, "--out", "run").ok()
    assert "continuing after epoch 1" in answer.out
    assert (Path("run") / "summary.json").read_bytes() == (Path("whole") / "summary.json").read_bytes()
    assert read_json(Path("whole/run.json"))["format"] == 1


def test_an_older_run_with_options_that_were_removed(pals: Pals) -> None:
    """At the values at which they did nothing they are left out; any other is refused."""
    removed = {"relabel_every": 1.0, "average": 0.0, "average_until": 1.0, "smoothing_end": None}
    assert pals(*TRAIN, "--out", "whole").code == 0 and pals(*TRAIN, "--out", "run", "--stop-after", "1").code == 0
    run = Path("run")
    values = read_yaml(run / "config.yaml")
    write_text(run / "config.yaml", to_yaml({**values, "method": {**values["method"], **removed}}))
    content = torch.load(run / "checkpoint.pt", weights_only=True)
    content["settings"]["method"] |= removed
    save_checkpoint(run / "checkpoint.pt", content["settings"], content["state"])
    assert pals("evaluate", "run").code == 0
    answer = pals(*TRAIN, "--out", "run").ok()
    assert (run / "summary.json").read_bytes() == Path("whole/summary.json").read_bytes()
    answer = pals(*TRAIN, "--set", "method.average=0.5", "--out", "other")
    assert answer.code == 2 and "'method.average'" in answer.err


def test_what_really_differs_is_named_with_both_values(pals: Pals) -> None:
    assert pals(*TRAIN, "--out", "run", "--stop-after", "1").code == 0
    made_older(Path("run"), *LATER)
    usual = RunConfig.of({"data": {"name": "toy"}}).train.period
    answer = pals(*TRAIN, "--set", "train.period=7", "--out", "run")
    assert answer.code == 2
    assert f"run/config.yaml belongs to a run with other settings: train.period is {usual} there and 7 here." in answer.err
    write_text(Path("run/config.yaml"), to_yaml(load_run_config(Path("run")).to_dict() | {"seed": 2}))
    answer = pals("evaluate", "run")
    assert answer.code == 2
    assert "run/checkpoint.pt belongs to a run with other settings: seed is 1 there and 2 here." in answer.err
    write_text(Path("run/config.yaml"), to_yaml(load_run_config(Path("run")).to_dict() | {"seed": 1}))
    write_json(Path("run/run.json"), {**read_json(Path("run/run.json")), "format": 9})
    for command in (("evaluate", "run"), (*TRAIN, "--out", "run")):
        answer = pals(*command)
        assert answer.code == 2 and "run was written by a newer PALS (format 9; this one reads up to 1)" in answer.err


def test_an_older_fit_is_resumed_and_built_on(pals: Pals, tmp_path: Path) -> None:
    """Its classifier answers, too, though its description lacks what was added."""
    make_vectors(tmp_path)
    command = ("fit", "votes.csv", "--features", "vectors.npy", "--names", "names.txt", "--epochs", "2", "--device", "cpu")
    command += ("--set", "method.neighbors=5", "--out", "run")
    assert pals(*command).code == 0
    made_older(tmp_path / "run", ("data", "mirror"), ("data", "gold"), ("train", "period"), ("engine", "deterministic"))
    described_shorter(tmp_path / "run" / FILE_NAME, "resize")
    answer = pals("predict", "run", "vectors.npy", "--out", "p.csv", "--device", "cpu").ok()
    (tmp_path / "run" / "summary.json").unlink()
    for again in (command, ("update", "run", "votes.csv", "--out", "next", "--epochs", "1", "--device", "cpu")):
        answer = pals(*again).ok()
    answer = pals(*command, "--no-mirror")
    assert answer.code == 2 and "data.mirror is True there and False here" in answer.err


def described_shorter(path: Path, key: str) -> None:
    """The same classifier, its description without this key."""
    with safe_open(str(path), framework="pt") as file:
        values = json.loads(file.metadata()["pals"])
        tensors = {name: file.get_tensor(name) for name in list(file.keys())}
    del values[key], values["sha256"]
    save_file(tensors, path, {"pals": json.dumps({**values, "sha256": checksum(values, tensors)})})


BROKEN: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no progress": lambda state: state.pop("progress"),
    "no optimiser": lambda state: state.pop("optimizer"),
    "no generator": lambda state: state.pop("generator"),
    "weights in a list": lambda state: state.update(method=[1]),
    "no weight": lambda state: state["method"].popitem(),
    "a word for an epoch": lambda state: state["progress"].update(epoch="x"),
    "a phase that there is not": lambda state: state["progress"].update(phase=10**15),
    "an unknown progress": lambda state: state["progress"].update(speed=1),
    "an optimiser of something else": lambda state: state.update(optimizer={"state": {}, "param_groups": 3}),
    "random numbers that are none": lambda state: state.update(rng="[]"),
    "a generator of another kind": lambda state: state.update(torch={"cpu": 3}),
}


@pytest.mark.parametrize("case", rest_slow(4, BROKEN))
def test_a_checkpoint_that_is_whole_but_makes_no_sense(case: str, pals: Pals) -> None:
    assert pals(*TRAIN, "--out", "run", "--stop-after", "1").code == 0
    change_state(Path("run/checkpoint.pt"), BROKEN[case])
    one_sentence(pals(*TRAIN, "--out", "run"))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers(value: float, pals: Pals) -> None:
    assert pals(*TRAIN, "--out", "run", "--stop-after", "1").code == 0

    def spoil(state: dict[str, Any]) -> None:
        name = next(name for name in state["method"] if name.endswith("classifier.weight"))
        state["method"][name][0, 0] = value

    change_state(Path("run/checkpoint.pt"), spoil)
    for command in (("evaluate", "run"), (*TRAIN, "--out", "run")):
        answer = one_sentence(pals(*command))
        assert "classifier.weight are NaN or infinite" in answer and "run/checkpoint.pt" in answer


def test_momenta_that_are_no_numbers(pals: Pals) -> None:
    """Training continued with them, diverged, and the error named the learning rate."""
    assert pals(*TRAIN, "--out", "run", "--stop-after", "1").code == 0

    def spoil(state: dict[str, Any]) -> None:
        next(iter(state["optimizer"]["state"].values()))["momentum_buffer"].view(-1)[0] = torch.inf

    change_state(Path("run/checkpoint.pt"), spoil)
    answer = one_sentence(pals(*TRAIN, "--out", "run"))
    assert "momentum_buffer are NaN or infinite" in answer and "delete it" in answer
    assert pals("evaluate", "run").code == 0  # the network itself is valid


def test_a_classifier_whose_weights_are_no_numbers(tmp_path: Path) -> None:
    network = build_network("mlp", (3,), 2)
    with torch.no_grad():
        network.classifier.bias[1] = torch.nan
    Model(Description(("a", "b"), Part("mlp", (3,), (0.0,) * 3, (1.0,) * 3)), network, device="cpu").save(tmp_path / "m")
    with pytest.raises(InputError, match=r"m are damaged: 1 of the 2 values of classifier\.classifier\.bias are NaN"):
        Model.load(tmp_path / "m", "cpu")


def change_state(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    content = torch.load(path, weights_only=True)
    change(content["state"])
    save_checkpoint(path, content["settings"], content["state"])


def one_sentence(answer: Answer) -> str:
    assert answer.code == 2, answer
    (line,) = answer.err.splitlines()
    assert line.startswith("Error: ") and len(line) <= 500
    assert "Traceback" not in answer.err and "weights_only" not in answer.err
    return line
