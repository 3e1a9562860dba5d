"""One function per table and figure of the paper, and per study of ours: the recipes, in the order of the paper."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from pals.bench.paper.data_columns import CROWD, Cell, CrowdCell
from pals.bench.paper.experiment import Recipe
from pals.bench.paper.published import published
from pals.bench.paper.rate_settings import ALIM, note_on, settings_in
from pals.runs.run_config import RunConfig
from pals.util.config import merge

METHOD_NAMES = {
    "rc": "RC",
    "cc": "CC",
    "proden": "PRODEN",
    "lws": "LWS",
    "fredis": "FREDIS",
    "pico": "PiCO",
    "crdpll": "CRDPLL",
    "irnet": "IRNet",
    "pico+": "PiCO+",
    "upllrs": "UPLLRS",
    "alim-scale": "ALIM-Scale",
    "alim-onehot": "ALIM-Onehot",
    "apl": "APL",
    "dividemix": "Divide-Mix",
    "elr+": "ELR+",
    "pals": "PALS",
    "srse": "SRSE",
    "papi": "PaPi",
    "plrc": "PLRC",
    "clsp": "CLSP",
    "promix": "ProMix",
}
"""Methods as the paper prints them; the last five are newer."""

HARD, HARDER = Cell("cifar100", 0.05, 0.3), Cell("cifar100", 0.05, 0.5)
NO_MIXUP_NO_CR: Mapping[str, Any] = {"method": {"mixup": False, "consistency": False}}


def recipe(
    table: str,
    method: str,
    cell: Cell | CrowdCell,
    *,
    row: str = "",
    group: str = "",
    slug: str = "",
    differs: str = "",
    changes: Mapping[str, Any] | None = None,
    epochs: int | None = None,
) -> Recipe:
    """A method in a cell; `changes` are made to its settings and named by `differs`. A digit is a table of the paper."""
    row, group = row or METHOD_NAMES[method], group or cell.group
    place = f"table{table}" if table.isdigit() else table
    return Recipe(
        name=f"{place}/{cell.slug}/{slug or method}",
        table=table,
        row=row,
        column=cell.column,
        group=group,
        cell=cell.folder,
        variant=method + differs,
        values=merge(settings_in(method, cell), changes or {}),
        published=published(table, group, row, cell.column),
        epochs=epochs,
        slices=cell.slices,
        note=note_on(method, cell),
    )


def table1() -> Iterator[Recipe]:
    methods = ("rc", "lws", "fredis", "pico", "crdpll", "irnet", "pico+", "upllrs", "alim-scale", "alim-onehot", "pals")
    for data, rates in (("cifar10", (0.1, 0.3, 0.5)), ("cifar100", (0.01, 0.03, 0.05))):
        for method in methods:
            for q in rates:
                for eta in (0.1, 0.2, 0.3):
                    yield recipe("1", method, Cell(data, q, eta))


def table2() -> Iterator[Recipe]:
    for method in ("rc", "lws", "pico", "crdpll", "pico+", "pals"):
        for q in (0.01, 0.05, 0.1):
            yield recipe("2", method, Cell("cifar100", q, 0.0))


def table3() -> Iterator[Recipe]:
    for method in ("fredis", "pico", "crdpll", "upllrs", "pico+", "alim-scale", "alim-onehot", "pals"):
        for eta in (0.4, 0.5):
            yield recipe("3", method, Cell("cifar100", 0.05, eta))


def table4() -> Iterator[Recipe]:
    birds = [Cell("cub200", q, eta) for q, eta in ((0.05, 0.2), (0.01, 0.0), (0.05, 0.0), (0.1, 0.0))]
    for method in ("pico", "pico+", "alim-scale", "alim-onehot", "pals"):
        for cell in (Cell("cifar100h", 0.5, 0.2), *birds):
            yield recipe("4", method, cell)


def table5() -> Iterator[Recipe]:
    for annotators, other in ((10, "pico"), (3, "alim-onehot")):
        for method in ("dividemix", "elr+", other, "pals"):
            for data in CROWD:
                yield recipe("5", method, CrowdCell(data, annotators))


def table6() -> Iterator[Recipe]:
    ten = [Cell("cifar10", q, eta) for q, eta in ((0.1, 0.1), (0.1, 0.3), (0.5, 0.1), (0.5, 0.3))]
    hundred = [Cell("cifar100", q, eta) for q, eta in ((0.03, 0.1), (0.03, 0.3), (0.05, 0.3), (0.05, 0.5))]
    for cells in (ten, hundred):
        for method in ("pico", "pico+", "alim-scale", "alim-onehot", "pals"):
            yield from (_plain(method, cell) for cell in cells)


def _plain(method: str, cell: Cell) -> Recipe:
    """Without mix-up and consistency regularisation; PiCO has neither."""
    if method == "pico":
        return recipe("6", method, cell)
    if method == "pals":
        return recipe("6", method, cell, differs="-nomixup-nocr", changes=NO_MIXUP_NO_CR)
    longer = method != "pico+" and (cell.data, cell.q, cell.eta) == ("cifar10", 0.5, 0.3)  # as the authors of ALIM
    changes = {"method": {"mixup_weight": 0.0}, "train": {"epochs": 2000} if longer else {}}
    return recipe("6", method, cell, differs="-nomixup", changes=changes)


def _ablations() -> Iterator[tuple[str, str, str, str, dict[str, Any]]]:
    """(group, row, last part of the recipe's name, what the variant adds to its name, change) of table 7."""
    for mixup, consistency in ((False, False), (False, True), (True, False), (True, True)):
        words = "mix-up" if mixup else "no mix-up", "CR" if consistency else "no CR"
        slug = f"mixup-{'on' if mixup else 'off'}-cr-{'on' if consistency else 'off'}"
        differs = ("" if mixup else "-nomixup") + ("" if consistency else "-nocr")
        yield "Mix-up and CR", ", ".join(words), slug, differs, {"method": {"mixup": mixup, "consistency": consistency}}
    for K in (10, 15, 25, 50):
        yield "K", f"K = {K}", f"K-{K}", "" if K == 15 else f"-K{K}", {"method": {"neighbors": K}}
    for r in (0.6, 0.5, 0.4, 0.0):
        yield "r", f"r = {r}", f"r-{r:g}", "" if r == 0.5 else f"-r{r:g}", {"method": {"smoothing": r}}
    for delta in (0.0, 0.25, 0.5, 0.75):
        differs = "" if delta == 0.25 else f"-delta{delta:g}"
        yield "delta", f"delta = {delta:.2f}", f"delta-{delta:g}", differs, {"method": {"delta": delta}}
    for row, name in (
        ("Wide-ResNet-34x10", "wrn-34-10"),
        ("ResNeXt-50", "resnext50"),
        ("SE-ResNet-50", "se-resnet50"),
        ("DenseNet-121", "densenet121"),
        ("ResNet-18", "resnet18"),
    ):
        yield "Backbone", row, name, "" if name == "resnet18" else f"-{name}", {"network": {"name": name}}
    yield "Eq. 1", "Eq. 1 off", "eq1-off", "-eq1off", {"method": {"vote_on": "candidates"}}
    yield "Eq. 1", "Eq. 1 on", "eq1-on", "", {"method": {"vote_on": "pseudo"}}


def table7() -> Iterator[Recipe]:
    for group, row, slug, differs, changes in _ablations():
        for cell in (HARD, HARDER):
            yield recipe("7", "pals", cell, row=row, group=group, slug=slug, differs=differs, changes=changes)


def figure2() -> Iterator[Recipe]:
    """The selected pairs and how many of them are right, by epoch. (Figure 1 is a drawing.)"""
    yield recipe("figure2", "pals", HARD)


def timing() -> Iterator[Recipe]:
    """The paper's comparison of training times; it does not say on which set, nor which ALIM."""
    for method, row in (("pals", "PALS"), ("alim-scale", "ALIM")):
        for network, column in (("resnet18", "ResNet-18"), ("wrn-34-10", "WideResNet")):
            changes = {"network": {"name": network}}
            differs = "" if network == "resnet18" else f"-{network}"
            found = recipe("timing", method, HARD, row=row, group="Seconds per epoch", differs=differs, changes=changes)
            yield replace(found, name=f"timing/{network}/{method}", column=column)


COMPARED: Mapping[str, Any] = {"network": {"name": "resnet18"}, "train": {"batch_size": 256}}
"""What all methods have in common in the studies of ours, which have so many epochs:"""
STUDY_EPOCHS = {"partial-check": 30, "noisy-comparison": 30}

_WEAK: Mapping[str, Any] = {"method": {"view": "weak"}}  # published without views, which the others have
_ESTIMATED: Mapping[str, Any] = {
    "method": {"noise_rate": None, "adjust_from": 300}
}  # 10 of 30: so early it cannot tell earlier
_IN_STUDIES: Mapping[str, Mapping[str, Any]] = {
    **dict.fromkeys(("rc", "cc", "proden", "lws"), _WEAK),
    **dict.fromkeys(ALIM, _ESTIMATED),
    "upllrs": {"method": {"ramp": 6}},  # as 100 are to the 500 epochs of others: its own 6721 are never reached
    "dividemix": {"method": {"warm_up": 50, "ramp": 50}},  # 5 of 30: after one epoch its mixture finds nothing
    "elr+": {"method": {"slow_ramp": 20_000}},  # half, as a step has twice the items
    "clsp": {"method": {"tau": 0.2, "spare": True, "view": "weak"}},  # as its page advises for noisy sets
    "promix": {
        "method": {"labels": "candidates", "share_momentum": 0.999}  # one label drawn from a set would be right for 23%
    },
}
"""What differs for a method, in terms of its full schedule, which is then shortened in proportion."""
_NOTES_IN_STUDIES: Mapping[str, str] = {
    **dict.fromkeys(("rc", "cc", "proden", "lws"), "Uses weak views like the others; published without augmentation."),
    **dict.fromkeys(ALIM, "Estimates the noise rate after a third of the schedule."),
    "fredis": "Half of the epochs are warm-up.",
    "upllrs": "Also trains the separating networks: up to 34 times 5 epochs of a ResNet-20.",
    "dividemix": "Learns from one label per item, drawn from its set. The warm-up is a sixth of the schedule.",
    "elr+": "Learns from one label per item, drawn from its set.",
    "plrc": "Estimates both rates and finds neighbours by its own features; a fifth of the epochs are warm-up.",
    "promix": "Learns from all candidates, which is our extension; published for one label per item. Its class shares move ten "
    "times as fast as published, because there are so few steps.",
    "clsp": "Prunes the sets by patch features, then trains PRODEN on weak views.",
}


def _compared(study: str, method: str, cell: Cell) -> Recipe:
    own = settings_in(method, cell)
    changes = merge(COMPARED, _IN_STUDIES.get(method, {}))
    differs = "" if RunConfig.of(own) == RunConfig.of(merge(own, changes)) else "-study"
    found = recipe(study, method, cell, differs=differs, changes=changes, epochs=STUDY_EPOCHS[study])
    parts = 2 if method == "fredis" else 1  # its warm-up is as long again
    cut = f"Shortened from {parts * found.full_epochs:,} epochs."
    return replace(found, parts=parts, note=f"{cut} {_NOTES_IN_STUDIES.get(method, found.note)}".strip())


def partial_check() -> Iterator[Recipe]:
    """A study of ours: methods for partial labels, without noise and with some."""
    for method in ("rc", "cc", "proden", "lws", "crdpll", "pico", "pals"):
        for eta in (0.0, 0.2):
            yield _compared("partial-check", method, Cell("cifar10", 0.3, eta))


def noisy_comparison() -> Iterator[Recipe]:
    """A study of ours: methods for noisy labels side by side, and what the truth would give."""
    cell = Cell("cifar10", 0.3, 0.3)
    for method in (
        "pals", "srse", "pico+", "alim-scale", "alim-onehot", "irnet", "fredis", "upllrs", "papi", "plrc", "clsp", "apl",
        "dividemix", "elr+", "promix",
    ):  # fmt: skip
        yield _compared("noisy-comparison", method, cell)
    truth, epochs = {"data": {"supervision": "truth"}, **COMPARED}, STUDY_EPOCHS["noisy-comparison"]
    found = recipe("noisy-comparison", "average", cell, row="supervised", slug="supervised", changes=truth, epochs=epochs)
    yield replace(found, variant="supervised", note="Trained on the true labels: the upper bound.")
