from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, ValidationError
from pydantic.dataclasses import dataclass

from _refused import refused
from pals.methods import METHODS
from pals.runs.published_settings import published_settings
from pals.runs.run_config import RunConfig
from pals.util.config import STRICT, build, differences, merge, override, read_yaml, to_dict, to_yaml


@dataclass(frozen=True, config=STRICT)
class Inner:
    depth: int = 1


@dataclass(frozen=True, config=STRICT)
class Example:
    rate: float = Field(default=0.1, gt=0)
    "How fast."
    steps: tuple[int, ...] = ()
    name: str = "x"
    on: bool = False
    inner: Inner = Field(default_factory=Inner)


def test_build_checks_and_converts() -> None:
    built = build(Example, {"rate": "1e-3", "steps": [1, 2], "on": "yes", "inner": {"depth": 4}})
    assert built == Example(rate=0.001, steps=(1, 2), on=True, inner=Inner(4))
    with pytest.raises(AttributeError):
        built.rate = 3  # type: ignore[misc]
    assert replace(built, name="y").name == "y"
    with pytest.raises(ValidationError, match="rat"):
        Example(rat=0.1)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("values", "message"),
    [({"rate": -1}, r"Setting part\.rate = -1: Input should be greater than 0\."),
     ({"rate": "fast"}, r"Setting part\.rate = 'fast': "), ({"rate": math.nan}, r"Setting part\.rate = nan: "),
     ({"rate": math.inf}, r"Setting part\.rate = inf: "), ({"steps": [1, "b"]}, r"Setting part\.steps\.1 = 'b': "),
     ({"rat": 1}, r"Unknown setting 'part\.rat': did you mean 'part\.rate'\? Known: part\.inner, part\.name"),
     ({"inner": {"dept": 1}}, r"Unknown setting 'part\.inner\.dept': did you mean 'part\.inner\.depth'\?"),
     ({"inner": {"depth": "deep"}}, r"Setting part\.inner\.depth = 'deep': "),
     ({"name": None}, r"Setting part\.name = None: ")],
)  # fmt: skip
def test_build_names_the_key(values: dict[str, Any], message: str) -> None:
    refused(message, build, Example, values, "part")


def test_override_merge_differences_and_complaints() -> None:
    base = {"train": {"lr": 0.1, "epochs": 5}}
    changed = override(
        base, ["train.lr=1e-3", "train.milestones=[60, 120]", "train.nesterov=true", "data.name=digits", "seed=7", "a.b.c=null"]
    )
    assert changed == {
        "train": {"lr": 0.001, "epochs": 5, "milestones": [60, 120], "nesterov": True},
        "data": {"name": "digits"},
        "seed": 7,
        "a": {"b": {"c": None}},
    }
    assert base == {"train": {"lr": 0.1, "epochs": 5}} and override({}, ["a.b=1", "a.b=2"]) == {"a": {"b": 2}}
    first = {"train": {"lr": 1, "epochs": 2}, "seed": 1}
    second = {"train": {"lr": 3}, "data": {"name": "x"}}
    merged = merge(first, second)
    assert merged == {"train": {"lr": 3, "epochs": 2}, "seed": 1, "data": {"name": "x"}}
    merged["train"]["lr"] = merged["data"]["name"] = 0
    assert first["train"] == {"lr": 1, "epochs": 2} and second["data"] == {"name": "x"}
    old = {"train": {"lr": 0.1, "epochs": 2}, "seed": 1}
    new = {"train": {"lr": 0.2, "epochs": 2, "floor": 0.0}, "seed": 1, "x": 5}
    assert list(differences(old, new)) == [("train.lr", 0.1, 0.2), ("train.floor", None, 0.0), ("x", None, 5)]
    for text in ("train.lr", "=3", ".lr=3", "train.=3", "", "train..lr=3"):
        refused(r"Cannot read the setting .*; write section\.key=value", override, {}, [text])
    refused(r"Setting 'seed\.x': 'seed' is a value, not a section\.", override, {"seed": 1}, ["seed.x=2"])
    refused(r"Cannot read the setting 'a\.b=\[1, 2', line 1: .+\.", override, {}, ["a.b=[1, 2"])


values = st.recursive(
    st.one_of(st.integers(), st.booleans(), st.text(max_size=4), st.floats(allow_nan=False, allow_infinity=False)),
    lambda inner: st.dictionaries(st.sampled_from("abcd"), inner, max_size=3),
    max_leaves=6,
)
trees = st.dictionaries(st.sampled_from("abcd"), values, max_size=4)


@given(trees, trees)
def test_no_difference_after_a_merge_onto_itself(a: dict[str, Any], b: dict[str, Any]) -> None:
    assert merge(a, a) == a and list(differences(a, a)) == []
    merged = merge(a, b)
    assert merge(merged, b) == merged
    for key, old, new in differences(a, b):
        assert old != new, key


def test_yaml_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    settings = {"rate": 1e-5, "name": "ä: b", "list": [1, 2], "none": None, "on": True, "empty": {}}
    path.write_text(to_yaml(settings), encoding="utf-8")
    assert read_yaml(path) == settings
    path.write_text("")
    assert read_yaml(path) == {}
    refused(r"Cannot read the settings file .*no\.yaml", read_yaml, tmp_path / "no.yaml")


def test_bad_yaml_also_of_billions_of_values(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    for text, message in {
        b"train: [1": r"Cannot read .*config\.yaml, line 1: .+",
        b"a: 1\n b: 2": r"Cannot read .*config\.yaml, line 2: .+",
        b"- 1\n- 2": r"config\.yaml should hold sections such as `train:`; found list",
        b"hello": r"config\.yaml should hold sections such as `train:`; found str",
        b"\xff\xfe": r"Cannot read the settings file .*config\.yaml",
        b"a: \x00": r"Cannot read .*config\.yaml: .+",
        b"a: 2024-13-45": r"Cannot read .*config\.yaml: month must be in 1..12",
    }.items():
        path.write_bytes(text)
        assert "\n" not in refused(message, read_yaml, path)
    for deep in ("[" * 20_000, "a: " + "{b: " * 5000, "- " * 20_000):
        path.write_text(deep)
        refused(r"Cannot read .*config\.yaml", read_yaml, path)
        refused("Cannot read the setting", override, {}, [f"a={deep}"])
    path = tmp_path / "bomb.yaml"
    lines = [
        "a0: &a0 [x, x, x, x, x, x, x, x, x, x]",
        *(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)),
    ]
    for text in ("\n".join(lines), "a: &a {b: *a}", "a: &a [*a]"):
        path.write_text(text)
        refused(r"^Cannot read \S+: it stands for over 1,000,000 values\. Write .* `\*`\.$", read_yaml, path)
    path.write_text("a: &a {b: 1}\nc: *a\n")
    assert read_yaml(path) == {"a": {"b": 1}, "c": {"b": 1}}


@pytest.mark.parametrize("data", [None, *published_settings()["data_sets"]])
@pytest.mark.parametrize("method", METHODS)
def test_a_run_config_survives_its_file(data: str | None, method: str, tmp_path: Path) -> None:
    given: dict[str, Any] = {"method": {"name": method}, "train": {"milestones": [3, 4]}, "seed": 5}
    config = RunConfig.of(given if data is None else {**given, "data": {"name": data}})
    (tmp_path / "config.yaml").write_text(to_yaml(config.to_dict()))
    again = RunConfig.of(read_yaml(tmp_path / "config.yaml"))
    assert again == config and list(differences(again.to_dict(), config.to_dict())) == []
    assert to_dict(config.train)["milestones"] == [3, 4]


def test_a_data_set_brings_its_settings_and_the_user_wins() -> None:
    assert RunConfig.of({}).data.name == "digits"
    assert RunConfig.of({"train": None, "method": None, "seed": None}) == RunConfig.of({})  # empty sections of a file
    mine = RunConfig.of({"data": {"name": "cifar100", "partial_rate": 0.1}, "train": {"epochs": 7}})
    assert (mine.data.partial_rate, mine.data.noise_rate, mine.train.epochs, mine.train.lr) == (0.1, 0.3, 7, 0.1)


@pytest.mark.parametrize(
    ("given", "message"),
    [({1: {}}, r"Unknown section '1'"), ({"method": "pals"}, r"Setting method = 'pals': this is a section"),
     ({"data": ["digits"]}, r"Setting data = \['digits'\]: this is a section"),
     ({"data": {"name": ["digits"]}}, r"Setting data\.name = \['digits'\]"), ({"method": {"name": ["pals"]}}, "Unknown method"),
     ({"method": {"preset": ["paper"]}}, r"Unknown preset of pals"),
     ({"method": {"name": "average", "preset": "x"}}, r"Unknown setting 'method\.preset': Known: none"),
     ({"data": {"seed": -1}}, r"Setting data\.seed = -1"), ({"seed": "one"}, r"Setting seed = 'one': .* 0 to 4294967295"),
     *(({"seed": seed}, re.escape(f"Setting seed = {seed!r}: ")) for seed in (-1, 1.5, True, 2**32, {"x": 1}))],
)  # fmt: skip
def test_bad_run_configs(given: dict[str, Any], message: str) -> None:
    refused(message, RunConfig.of, given)
