"""PALS: learn a classifier from ambiguous, noisy labels.

From images and several annotators' answers to labels:

    found = pals.fit("photos", "answers.csv", out="runs/ponds")     learn labels and a classifier; found.labels, found.doubtful
    pals.review(found)                                              correct labels in the browser
    found = pals.update("runs/ponds")                               learn from those corrections, or from more answers
    pals.export_labels(found, "folder")                             hand the labels on
    pals.predict_folder("runs/ponds", "new-photos")                 classify new images
    model = pals.load_model("runs/ponds")                           the classifier itself

The public API are the names in `__init__.pyi`, each described in docs/api.md; nothing else is promised to stay. They are loaded
when first used, so `import pals` costs nothing.
"""

from __future__ import annotations

from importlib import import_module

_RENAMED = {"Pictures": "FileImages", "ShardPictures": "ShardImages"}
"""Names of version 0.2: they work, with a warning."""
_STUB = __spec__.loader.get_data(f"{__file__}i").decode()  # type: ignore[union-attr]  # also in a zip file
_HOME = {line.split()[3]: line.split()[1] for line in _STUB.splitlines() if line.startswith("from ")}  # from X import Y as Y

__all__ = sorted([*_HOME, "__version__"])


def __getattr__(name: str) -> object:
    if name in _RENAMED:
        import warnings

        warnings.warn(f"pals.{name} is now called pals.{_RENAMED[name]}", DeprecationWarning, stacklevel=2)
        return __getattr__(_RENAMED[name])
    if name == "__version__":
        value: object = _version()
    elif name in _HOME:
        home = _HOME[name]  # "pals" itself of a module: `estimator` has a class for every method, `review` can be called
        value = import_module(f"pals.{name}") if home == "pals" else getattr(import_module(home), name)
    else:
        raise AttributeError(f"module 'pals' has no attribute {name!r}; its names are listed in docs/api.md")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("pals-learn")
    except PackageNotFoundError:  # run from a source tree that was not installed
        return "0+source"
