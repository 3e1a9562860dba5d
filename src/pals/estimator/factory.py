"""One class per method, whose parameters are the method's options, as `GridSearchCV` and `clone` need them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from pals.estimator.classifier import CandidateClassifier
from pals.methods import METHODS, Method, find_method
from pals.methods import describe_options as describe
from pals.util.errors import InputError

ENDING = "Classifier"
_MADE: dict[type[Method], type[CandidateClassifier]] = {}


class MethodClassifier(CandidateClassifier):
    """Base of the classes made here: the method is fixed, its options are parameters."""

    _method_name: str
    _preset_options: frozenset[str]
    "The preset, and options that a preset sets; None: chosen by the number of items, or by the preset."

    def _method(self) -> tuple[str, Mapping[str, Any]]:
        given = {field.name: getattr(self, field.name) for field in fields(find_method(self._method_name).Config)}
        follow = {name for name in self._preset_options if given[name] is None}
        return self._method_name, {name: value for name, value in given.items() if name not in follow}


def classifier_for(name: str) -> type[Any]:
    """The classifier class of a method.

    Args:
        name: of the method, as `pals methods` lists it.

    Returns:
        A subclass of `CandidateClassifier` with the method's options as parameters.

    Raises:
        InputError: the method is unknown, or has an option that every classifier has.

    Example:
        >>> from pals.estimator import classifier_for
        >>> classifier_for("pico").__name__
        'PiCOClassifier'
    """
    method = find_method(name)
    if method not in _MADE:
        _MADE[method] = _make(name, method)
    return _MADE[method]


def find_class(class_name: str) -> type[Any] | None:
    """The class of this name, such as "PALSClassifier"; None for other names. Pickle finds classes by it."""
    for name, method in METHODS.items():
        if class_name == method.__name__ + ENDING:
            return classifier_for(name)
    return None


def class_names() -> list[str]:
    return [method.__name__ + ENDING for method in METHODS.values()]


def _make(name: str, method: type[Method]) -> type[CandidateClassifier]:
    signature = _signature(name, method)

    def __init__(self: CandidateClassifier, **given: Any) -> None:  # noqa: N807
        bound = signature.bind(self, **given)
        bound.apply_defaults()
        for parameter, value in list(bound.arguments.items())[1:]:
            setattr(self, parameter, value)

    vars(__init__)["__signature__"] = signature
    attributes = {
        "__init__": __init__,
        "__doc__": _text(method),
        "__module__": __package__,
        "_method_name": name,
        "_preset_options": _preset_options(method),
    }
    return type(method.__name__ + ENDING, (MethodClassifier,), attributes)


def _signature(name: str, method: type[Method]) -> inspect.Signature:
    """self, and by keyword the method's options and the parameters of `CandidateClassifier` except the method."""
    by_preset = _preset_options(method)
    shared = inspect.signature(CandidateClassifier.__init__).parameters
    keyword = inspect.Parameter.KEYWORD_ONLY
    defaults = method.Config()
    options = [
        inspect.Parameter(field.name, keyword, default=None if field.name in by_preset else getattr(defaults, field.name))
        for field in fields(method.Config)
    ]
    clash = sorted(option.name for option in options if option.name in shared)
    if clash:
        raise InputError(f"Method {name!r} has options that every classifier has: {', '.join(clash)}. Rename them.")
    rest = [parameter for key, parameter in shared.items() if key not in ("self", "method", "method_options")]
    return inspect.Signature([shared["self"], *options, *rest])


def _preset_options(method: type[Method]) -> frozenset[str]:
    chosen = {option for preset in method.PRESETS.values() for option in preset}
    return frozenset({"preset", *chosen} if method.PRESETS else ())


def _text(method: type[Method]) -> str:
    """The docstring: the method and its options."""
    lines = [f"{method.__name__} as a scikit-learn classifier ({method.reference}).", ""]
    lines += ["Options of the method; the other parameters are those of `CandidateClassifier`.", ""]
    for option, default, meaning in describe(method):
        lines.append(f"{option} (default {default}): {meaning}")
    made = f"pals.estimator.{method.__name__}{ENDING}(epochs=5, random_state=0)"
    lines += ["", "Example:", f"    >>> model = {made}.fit([[0.0], [4.0]] * 10, [{{'cat'}}, {{'dog'}}] * 10)"]
    lines += ["    >>> model.predict([[0.0], [4.0]]).tolist()", "    ['cat', 'dog']"]
    return "\n".join(lines)
