"""Recipes against the printed tables: none missing, none twice, settings as the authors have them; costs as measured."""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from _toy import Answer
from pals.bench.paper.experiments import experiments, find, narrowed, select, table_names
from pals.bench.paper.published import Published, caption, epoch_seconds, numbers, published, selected_pairs
from pals.methods import METHODS
from pals.runs.run_config import RunConfig, other_settings_by_rates, shortened
from pals.util.config import merge
from pals.util.errors import InputError

ROOT = Path(__file__).parents[2]
BY_HAND = yaml.safe_load(Path(__file__).with_name("as_published.yaml").read_text(encoding="utf-8"))
ALL = list(experiments().values())
PRINTED = [
    (table, group, row, column, Published(*number))
    for table, content in numbers()["tables"].items()
    for group, rows in content["groups"].items()
    for row, cells in rows.items()
    for column, number in cells.items()
]
Pals = Callable[..., Answer]


@pytest.fixture(scope="module")
def configs() -> dict[str, RunConfig]:
    return {experiment.name: experiment.config(1) for experiment in ALL}


def test_numbers_are_those_of_the_paper_with_their_source() -> None:
    """Table 6 repeats the plain numbers of PiCO but for one, as the paper prints it."""
    for place, mean, std in BY_HAND["numbers"]:
        assert published(*place) == (None if mean is None else (mean, std)), place
    assert Counter(table for table, *_ in PRINTED) == {"1": 190, "2": 18, "3": 15, "4": 22, "5": 24, "6": 40, "7": 46}
    assert all(20 < number.mean < 97 and (number.std is None or 0 < number.std < 4) for *_, number in PRINTED)
    assert str(Published(95.5, 0.08)) == "95.50 ± 0.08" and str(Published(81.3, None)) == "81.30"
    content = numbers()
    assert "2402.04835" in content["source"]["where"] and content["licence"] and content["notes"]
    first, last = {"selected": 7211, "right": 4036}, {"selected": 45285, "right": 40330}
    assert selected_pairs() == {"first epoch": first, "last epoch": last}
    assert [epoch_seconds(row, net) for row in ("PALS", "ALIM") for net in ("ResNet-18", "WideResNet")] == [40, 221, 60, 550]
    assert epoch_seconds("PiCO", "ResNet-18") is None
    assert all(caption(table) for table in table_names()[:9]) and not caption("partial-check") and not caption("notes")
    packaged = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["package-data"]
    assert {"bench/paper/numbers.json", "bench/paper/experiments.yaml"} <= set(packaged["pals"])
    places = {(table, row, column): number for table, _, row, column, number in PRINTED}
    repeated = {column: number for (table, row, column), number in places.items() if (table, row) == ("6", "PiCO")}
    plain = {column: places.get(("1", "PiCO", column)) or places["3", "PiCO", column] for column in repeated}
    other = [(column, repeated[column], plain[column]) for column in plain if repeated[column] != plain[column]]
    assert other == [("CIFAR-100, q=0.05, eta=0.3", (58.18, 0.60), (58.18, 0.65))]


def test_every_printed_number_has_one_experiment_and_the_rest_are_dashes() -> None:
    found = Counter((r.table, r.group, r.row, r.column, r.published) for r in ALL if r.published is not None)
    assert found == Counter(PRINTED)
    dashes = {(r.table, r.row, r.column) for r in ALL if r.table.isdigit() and r.published is None}
    cifar10 = {("1", "UPLLRS", f"CIFAR-10, q={q}, eta=0.2") for q in (0.1, 0.3, 0.5)}
    cifar100 = {("1", "UPLLRS", f"CIFAR-100, q={q}, eta=0.2") for q in (0.01, 0.03, 0.05)}
    middle = {("1", "UPLLRS", f"CIFAR-100, q=0.03, eta={eta}") for eta in (0.1, 0.3)}
    birds = {("4", "ALIM-Onehot", f"CUB-200, q={q}, eta=0") for q in (0.01, 0.05, 0.1)}
    assert dashes == cifar10 | cifar100 | middle | birds | {("3", "UPLLRS", "CIFAR-100, q=0.05, eta=0.4")}
    assert tuple(dict.fromkeys(experiment.table for experiment in ALL)) == table_names()
    for name, experiment in experiments().items():
        assert name == experiment.name and experiment.method in METHODS
        assert re.fullmatch(r"(table[1-7]|figure2|timing|partial-check|noisy-comparison)/[a-z0-9.-]+/[\w.+-]+", name)
        assert re.fullmatch(r"[a-z0-9.-]+", experiment.cell) and re.fullmatch(r"[\w.+-]+", experiment.variant)
        assert len({experiment, experiment}) == 1  # can be put into sets


def test_the_same_run_has_the_same_folder_and_no_other() -> None:
    """Also between schedules: nothing full lies beside something shortened."""
    by_folder: dict[Path, set[str]] = defaultdict(set)
    by_config: dict[str, set[Path]] = defaultdict(set)
    for experiment in ALL:
        for seed, epochs in ((1, None), (2, None), (1, 30)):
            config = json.dumps(experiment.config(seed, epochs).to_dict())
            folder = experiment.folder(Path("runs"), seed, epochs)
            by_folder[folder].add(config)
            by_config[config].add(folder)
    assert all(len(found) == 1 for found in by_folder.values()) and all(len(found) == 1 for found in by_config.values())
    # What is the same in two tables is run once.
    plain = [f"table7/cifar100-q0.05-eta0.3/{name}" for name in ("K-15", "r-0.5", "mixup-on-cr-on", "resnet18", "eq1-on")]
    names = ["table1/cifar100-q0.05-eta0.3/pals", "figure2/cifar100-q0.05-eta0.3/pals", "timing/resnet18/pals", *plain]
    assert len({find(name).folder(Path(), 1) for name in names}) == 1
    study = find("noisy-comparison/cifar10-q0.3-eta0.3/pals")
    assert study.folder(Path(), 1) == find("table1/cifar10-q0.3-eta0.3/pals").folder(Path(), 1, 30)


def test_all_methods_of_a_cell_see_the_same_data(configs: dict[str, RunConfig]) -> None:
    seen: dict[str, set[str]] = defaultdict(set)
    for experiment in ALL:
        if experiment.variant != "supervised":
            seen[experiment.cell].add(json.dumps(configs[experiment.name].to_dict()["data"]))
    assert all(len(found) == 1 for found in seen.values())
    assert len(set().union(*seen.values())) == len(seen) == 9 + 9 + 3 + 2 + 5 + 6 + 1  # the last: a study without noise
    for experiment in ALL:
        data = configs[experiment.name].to_dict()["data"]
        if not experiment.slices:
            assert (data["protocol"], data["draws"], data["seed"]) == ("g1", "official", 42)
            assert experiment.cell == f"{data['name']}-q{data['partial_rate']:g}-eta{data['noise_rate']:g}-g1"


@pytest.mark.parametrize("name", BY_HAND["settings"])
def test_methods_run_as_their_authors_run_them(name: str) -> None:
    config = find(name).config(1).to_dict()
    for section, values in BY_HAND["settings"][name].items():
        assert {key: config[section][key] for key in values} == values


def test_ablations_change_one_thing() -> None:
    plain = find("table7/cifar100-q0.05-eta0.3/K-15").config(1).to_dict()
    changed = {"K": {"neighbors"}, "r": {"smoothing"}, "delta": {"delta"}, "Mix-up and CR": {"mixup", "consistency"}}
    changed |= {"Eq. 1": {"vote_on"}, "Backbone": set()}
    for experiment in select(7, cells=["*eta0.3*"]):
        config = experiment.config(1).to_dict()
        assert {k for k, v in config["method"].items() if v != plain["method"][k]} <= changed[experiment.group]
        assert (config["network"] != plain["network"]) == (experiment.group == "Backbone" and experiment.row != "ResNet-18")
        assert merge(config, {"method": plain["method"], "network": plain["network"]}) == plain
    for experiment in select(6):
        options = experiment.config(1).to_dict()["method"]
        assert not options.get("mixup", False) and not options.get("mixup_weight", 0) and not options.get("consistency", False)
    there, here = (find(f"{name}/pico").config(1) for name in ("table1/cifar100-q0.05-eta0.2", "table4/cifar100h-q0.5-eta0.2"))
    assert (there.train, there.method, there.network) == (here.train, here.method, here.network)


def test_fredis_has_the_settings_of_its_page(configs: dict[str, RunConfig]) -> None:
    """docs/methods/fredis_rates.csv, row by row; other rates have the next harder ones."""
    file = ROOT / "docs" / "methods" / "fredis_rates.csv"
    heads, *rows = [line.split(",") for line in file.read_text(encoding="utf-8").splitlines()]
    known = {(row[0], float(row[1]), float(row[2])): [float(cell) for cell in row[3:]] for row in rows}
    assert len(known) == 16
    harder = {0.2: 0.3, 0.4: 0.5, 0.03: 0.05}
    for experiment in (experiment for experiment in ALL if experiment.method == "fredis" and experiment.published):
        config = configs[experiment.name].to_dict()
        data, rates = config["data"], (config["data"]["partial_rate"], config["data"]["noise_rate"])
        exact = (data["name"], *rates) in known
        wanted = known[(data["name"], *rates) if exact else (data["name"], *(harder.get(rate, rate) for rate in rates))]
        names = [name if "." in name else f"method.{name}" for name in heads[3:]]
        assert [config[section][key] for section, key in (name.split(".") for name in names)] == wanted
        assert bool(experiment.note) != exact


@pytest.mark.parametrize(
    ("method", "q", "eta", "found"),
    [
        ("irnet", 0.5, 0.3, {}),  # the rates of the experiment
        ("irnet", 0.1, 0.1, {"method.tau": 0.02}),
        ("irnet", 0.2, 0.1, {}),  # no author has these
        ("alim-scale", 0.1, 0.1, {"method.noise_rate": 0.1, "method.adjust_from": 80}),
        ("pico+", 0.5, 0.1, {"method.delta": 0.8}),
        ("fredis", 0.9, 0.9, {}),
        ("pals", 0.1, 0.1, {}),
    ],
)
def test_what_the_tables_choose_by_the_rates_is_known(method: str, q: float, eta: float, found: dict[str, Any]) -> None:
    values = {"data": {"name": "cifar10", "partial_rate": q, "noise_rate": eta}, "method": {"name": method}}
    assert other_settings_by_rates(RunConfig.of(values)) == found
    assert other_settings_by_rates(RunConfig.of({"data": {"name": "digits"}, "method": {"name": method}})) == {}


def test_studies_compare_like_with_like(configs: dict[str, RunConfig]) -> None:
    for table in ("partial-check", "noisy-comparison"):
        for experiment in select(table):
            config = configs[experiment.name]
            epochs = 15 if experiment.method == "fredis" else 30  # of which its warm-up is as long again
            assert (config.network.name, config.train.batch_size, config.train.epochs) == ("resnet18", 256, epochs)
            assert experiment.folder(Path(), 3) == Path(experiment.cell, experiment.variant, f"epochs-{epochs}", "seed-3")
            assert getattr(config.method, "view", "weak") == ("eval" if experiment.method == "fredis" else "weak")
            assert getattr(config.method, "noise_rate", None) is None  # not given
            assert experiment.config(1, 30) == config  # what is its own length already
            own = experiment.full.train.epochs
            shortened_from = re.match(r"Shortened from ([\d,]+) epochs\.", experiment.note)
            assert shortened_from is None or int(shortened_from[1].replace(",", "")) == own * experiment.phases
            assert (shortened_from is None) == (experiment.variant == "supervised")
            assert own > 30 and experiment.config(1, 10).train.epochs == epochs // 3
            assert experiment.config(1, own * experiment.phases).train.epochs == own


def test_config_and_folder() -> None:
    experiment = find("table1/cifar10-q0.1-eta0.1/pico")
    full = experiment.config(7)
    assert (full.seed, full.train.epochs) == (7, 800) and full == experiment.config(7, 800)
    short = experiment.config(7, 80)
    assert short == RunConfig.of(shortened(full.to_dict(), 80)) and short.train.epochs == 80
    extra = {"engine": {"device": "cpu"}, "train": {"batch_size": 64}}
    assert experiment.config(7, 80, extra).to_dict() == merge(short.to_dict(), extra)
    place = Path("runs", "cifar10-q0.1-eta0.1-g1", "pico")
    assert experiment.folder(Path("runs"), 7) == experiment.folder(Path("runs"), 7, 800) == place / "full" / "seed-7"
    assert experiment.folder(Path("runs"), 7, 80) == place / "epochs-80" / "seed-7"
    with pytest.raises(InputError, match=r"train\.epochs"):
        experiment.config(1, 0)
    experiment = find("table5/benthic-10annotators/pals")
    found = [experiment.config(seed).to_dict()["data"] for seed in (1, 2, 3, 4, 5, 0)]
    assert [data["slice"] for data in found] == [1, 2, 3, 1, 2, 3]
    assert {(data["name"], data["answers"], data["annotators"]) for data in found} == {("benthic", 10, "resampled")}
    assert experiment.config(4).seed == 4


def test_select() -> None:
    assert [len(select(table)) for table in (1, "7", None)] == [198, 46, len(ALL)]
    chosen = select(1, ["PALS", "alim-scale"], ["cifar10-*"])
    assert {(experiment.row, experiment.group) for experiment in chosen} == {("PALS", "CIFAR-10"), ("ALIM-Scale", "CIFAR-10")}
    assert len(chosen) == 18 and chosen == [experiment for experiment in ALL if experiment in chosen]
    assert select(5, ["divide-mix"]) == select("5", ["dividemix"]) and len(select(5, ["divide-mix"])) == 6
    assert len(select(7, ["pals"])) == 46 and len(select(7, ["k = 10"])) == 2
    columns = [f"CIFAR-100, q=0.05, eta={eta}" for eta in (0.1, 0.2, 0.3)]
    assert [r.column for r in select(1, ["PALS"], ["CIFAR-100, q=0.05, *"])] == columns
    assert narrowed(select(2), ["rc"]) == select(2, ["RC"])


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"table": "8"}, "Unknown table '8'"),
        ({"table": 1, "methods": ["palz"]}, "did you mean 'pals'"),
        ({"table": 2, "methods": ["alim-scale"]}, "Unknown method"),
        ({"table": 2, "cells": ["cifar10-*"]}, "No cell is called 'cifar10-.*cifar100-q0.01-eta0-g1"),
    ],
)
def test_unknown_names(wanted: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        select(**wanted)
    with pytest.raises(InputError, match=r"did you mean 'table1/cifar10-q0.1-eta0.1/pals'"):
        find("table1/cifar10-q0.1-eta0.1/palz")


def test_the_command(pals: Pals) -> None:
    found = json.loads(pals("recipes", "--table", "3", "--methods", "UPLLRS", "--epochs", "100", "--json").out)
    assert [experiment["published"] for experiment in found] == [None, {"mean": 64.78, "std": 0.53}]
    assert found[1]["name"] == "table3/cifar100-q0.05-eta0.5/upllrs" and found[1]["epochs"] == 100
    one = json.loads(pals("recipes", "table1/cifar10-q0.1-eta0.1/pals", "--json", "--seed", "2").out)
    assert one["config"] == find(one["name"]).config(2).to_dict()
    answer = pals("recipes", "table1/cifar100-q0.03-eta0.2/fredis", "--seed", "3", "--epochs", "25")
    assert answer.code == 0
    head = answer.out.splitlines()[:2]
    assert head[0] == "# table1/cifar100-q0.03-eta0.2/fredis: FREDIS, CIFAR-100, q=0.03, eta=0.2; published: 63.86 ± 0.50"
    assert "q=0.05, eta=0.3" in head[1]
    assert RunConfig.of(yaml.safe_load(answer.out)) == find("table1/cifar100-q0.03-eta0.2/fredis").config(3, 25)
    answer = pals("recipes", "--table", "1", "--methods", "PALS,rc", "--cells", "cifar10-*")
    assert answer.code == 0 and "Table 1" in answer.out and "arXiv 2402.04835" in answer.out
    line = next(line for line in answer.out.splitlines() if line.startswith("table1/cifar10-q0.1-eta0.1/pals"))
    assert line.split()[1:] == ["PALS", "96.28", "±", "0.05", "500"] and "18 recipes, 18 different runs" in answer.out
    assert "23 recipes, 18 different runs" in pals("recipes", "--table", "7", "--cells", "*eta0.3*", "--epochs", "50").out
    assert "221 s" in pals("recipes", "--table", "timing").out
    for arguments, words in (
        (("table1/cifar10-q0.1-eta0.1/palz",), "did you mean"),
        (("nothing like it",), "See `pals recipes`"),
        (("table1/cifar10-q0.1-eta0.1/pals", "--table", "2"), ""),
    ):
        answer = pals("recipes", *arguments)
        assert answer.code == 2 and words in " ".join(answer.err.split())
        assert len(answer.err) < 300  # not all of them
