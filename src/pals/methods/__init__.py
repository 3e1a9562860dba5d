"""Methods by name. To add one, write a file in this folder and a line in this table, or a plug-in (docs/plugins.md).

`method` is the interface, `bases` holds base classes, `parts` functions that several methods share. A method builds no
optimiser, reads no file, prints nothing, and knows neither the truth nor its data set.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pals.methods.alim import ALIMOnehot, ALIMScale
from pals.methods.apl import APL
from pals.methods.average import Average
from pals.methods.cc import CC
from pals.methods.clsp import CLSP
from pals.methods.crdpll import CRDPLL
from pals.methods.dividemix import DivideMix
from pals.methods.elr_plus import ELRPlus
from pals.methods.epoch_plan import Batch, EpochPlan, Group, Selection
from pals.methods.fredis import FREDIS
from pals.methods.ipal import IPAL
from pals.methods.irnet import IRNet
from pals.methods.lws import LWS
from pals.methods.method import Context, Method, Phase, Problem
from pals.methods.pals import PALS
from pals.methods.papi import PaPi
from pals.methods.pico import PiCO
from pals.methods.pico_plus import PiCOPlus
from pals.methods.plknn import PLKNN
from pals.methods.plrc import PLRC
from pals.methods.proden import PRODEN
from pals.methods.promix import ProMix
from pals.methods.rc import RC
from pals.methods.soft_votes import SoftVotes
from pals.methods.srse import SRSE
from pals.methods.upllrs import UPLLRS
from pals.util.config import build, describe
from pals.util.errors import InputError, unknown
from pals.util.registry import Registry

__all__ = ["METHODS", "Batch", "Context", "EpochPlan", "Group", "Method", "Phase", "Problem", "Selection"]


def _check(name: str, method: Any) -> None:
    if not (isinstance(method, type) and issubclass(method, Method)):
        raise InputError(f"The method {name!r} is {method!r}, not a subclass of pals.Method.")


_BUILT_IN: dict[str, type[Method]] = {
    "pals": PALS,
    "srse": SRSE,
    "average": Average,
    "soft-votes": SoftVotes,
    "pl-knn": PLKNN,
    "ipal": IPAL,
    "rc": RC,
    "cc": CC,
    "proden": PRODEN,
    "lws": LWS,
    "clsp": CLSP,
    "crdpll": CRDPLL,
    "pico": PiCO,
    "papi": PaPi,
    "pico+": PiCOPlus,
    "alim-scale": ALIMScale,
    "alim-onehot": ALIMOnehot,
    "irnet": IRNet,
    "plrc": PLRC,
    "apl": APL,
    "fredis": FREDIS,
    "upllrs": UPLLRS,
    "dividemix": DivideMix,
    "elr+": ELRPlus,
    "promix": ProMix,
}
METHODS: Registry[type[Method]] = Registry("method", "pals.methods", _BUILT_IN, _check)


def find_method(name: str) -> type[Method]:
    """Find a method by name.

    Args:
        name: built in or of a plug-in.

    Raises:
        InputError: for an unknown name, with the nearest known one.

    >>> find_method("pals").__name__
    'PALS'
    """
    return METHODS.find(name)


def method_options(name: str, given: Mapping[str, Any]) -> Any:
    """Build and check the options of a method: its defaults, then the preset, then what is given.

    Args:
        name: of the method.
        given: options by name. One of an earlier version is accepted at the value at which it did nothing.

    Returns:
        An instance of the method's `Config`.

    Raises:
        InputError: for an unknown option or preset, or a value out of range.

    >>> method_options("pals", {"preset": "paper"}).weighting
    'cosine'
    """
    cls = find_method(name)
    given = {key: value for key, value in given.items() if (key, value) not in cls.removed_options.items()}
    preset = str(given.get("preset", next(iter(cls.PRESETS), "")))
    if cls.PRESETS and preset not in cls.PRESETS:
        raise unknown(f"preset of {name}", preset, cls.PRESETS)
    return build(cls.Config, {**cls.PRESETS.get(preset, {}), **given}, "method")


def preset_for(name: str, items: int) -> dict[str, str]:
    """The option `preset` for a number of items, where the user names none.

    Args:
        name: of the method.
        items: number of items.

    Returns:
        Empty if the default preset is used.

    >>> preset_for("pals", 1000), preset_for("pals", 50_000)
    ({'preset': 'small'}, {})
    """
    small = find_method(name).small_preset
    return {"preset": small[0]} if small is not None and items <= small[1] else {}


def describe_options(method: type[Method]) -> Iterator[tuple[str, str, str]]:
    """Describe each option.

    Args:
        method: the method.

    Yields:
        Its name, default and meaning.
    """
    for name, default, meaning in describe(method.Config):
        yield name, str(default), meaning
