"""What the user gave to `pals.fit` and `pals.update`, as the settings of a run by section, and what does not go together."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic.dataclasses import dataclass as checked_settings

from pals.data.download import find_weights
from pals.model import FILE_NAME, Model
from pals.pipeline.finished_run import tree_of
from pals.pipeline.stages.networks import fold_start
from pals.pipeline.stages.read_answers import classes_of, votes_of_frame
from pals.readers import Votes, answer_files
from pals.runs.extractor import AUTO, network_settings
from pals.runs.run_config import UNTRAINED, VotesConfig
from pals.runs.run_folder import load_run_config
from pals.util.config import STRICT, build, merge, to_dict
from pals.util.errors import InputError
from pals.vision.networks.timm_network import DOWNLOAD

PathLike = str | Path

OLD_KEYWORDS = {
    "fit": {
        "format": "data.format", "columns": "data.columns", "classes": "data.class_names", "encoding": "data.encoding",
        "trust": "data.trusted", "sure": "data.sure", "size": "data.size", "mirror": "data.mirror", "folds": "data.folds",
        "skip_bad": "data.skip_bad", "network": "network.name", "weights": "network.weights", "frozen": "network.frozen",
        "epochs": "train.epochs", "device": "engine.device", "seed": "seed", "cache": "files.cache", "stream": "files.stream",
        "all_probabilities": "files.all_probabilities",
    },
    "update": {
        "columns": "data.columns", "classes": "data.class_names", "encoding": "data.encoding", "trust": "data.trusted",
        "sure": "data.sure", "skip_bad": "data.skip_bad", "epochs": "train.epochs", "device": "engine.device",
        "cache": "files.cache", "stream": "files.stream", "all_probabilities": "files.all_probabilities",
    },
}  # fmt: skip
"""Keywords of version 0.2, and where they are in `settings` now. `update` can change no other settings of a run."""
PATHS = ("images", "features", "names", "taxonomy")


@checked_settings(frozen=True, config=STRICT)
class FilesConfig:
    """Where a fit keeps decoded images, and which files it writes; the section `files` of the settings of `pals.fit`."""

    cache: str | None = None
    "Folder of decoded images and of features; by default that of the user."
    stream: bool | None = None
    "Decode images whenever they are needed instead of once into the cache; by default if the disk has no room."
    all_probabilities: bool = False
    "Also write probabilities.csv, with the probability of every class."


def given_settings(
    function: str, settings: Mapping[str, Any] | None, old: Mapping[str, Any]
) -> tuple[dict[str, Any], FilesConfig]:
    """The settings by section, and those of the section `files`.

    Args:
        function: `fit` or `update`.
        settings: Section to values, or to a config object, whose values count where they are not its defaults; `seed` to a
            number.
        old: Keywords of version 0.2, which warn.

    Raises:
        TypeError: A keyword is unknown.
        InputError: A value of `files` is not valid.
    """
    layers: list[dict[str, Any]] = []
    for name, value in old.items():
        if name not in OLD_KEYWORDS[function]:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")
        section, _, key = OLD_KEYWORDS[function][name].partition(".")
        if value is None:
            continue
        value = (value,) if name == "trust" and isinstance(value, str) else str(value) if isinstance(value, Path) else value
        layers.append({section: {key: value} if key else value})
        text = f"pals.{function}({name}=...) is now settings={layers[-1]!r}."
        warnings.warn(text, DeprecationWarning, stacklevel=3)
    sections = {name: _changed(value) if is_dataclass(value) else value for name, value in (settings or {}).items()}
    values = merge(*layers, sections)
    files = build(
        FilesConfig, {key: str(v) if isinstance(v, Path) else v for key, v in values.pop("files", {}).items()}, "files"
    )
    data = values.get("data", {})
    values["data"] = data | {key: absolute(data[key]) for key in PATHS if data.get(key) is not None}
    return values, files


def _changed(config: Any) -> dict[str, Any]:
    """The values of a config object that are not its defaults."""
    required = [field.name for field in fields(config) if field.default is MISSING and field.default_factory is MISSING]
    default = to_dict(type(config)(**{name: getattr(config, name) for name in required}))
    return {name: value for name, value in to_dict(config).items() if value != default[name]}


def fit_settings(
    given: Mapping[str, Any],
    places: Mapping[str, PathLike | None],
    votes: Any,
    encoder: str | None,
    method: str | None,
    no_images: bool,
    out: Path,
) -> dict[str, Any]:
    """The settings of a new run: `given`, with what the keywords of `pals.fit` name; contradictions are errors."""
    data: Mapping[str, Any] = {key: absolute(path) for key, path in places.items() if path is not None}
    images, features, names = (places.get(key) for key in ("images", "features", "names"))
    if no_images:
        _refuse_images(given, {**places, "encoder": encoder, "method": method}, out)
    elif (images is None) == (features is None):
        raise InputError(
            "Give either a folder of images or feature vectors (features=...), not both; with no_images=True, give neither."
        )
    elif names is not None and features is None:
        raise InputError(f"--names {names} is of no use without --features (features=...): name the vectors, or leave it out.")
    if not isinstance(votes, (Votes, pd.DataFrame)):
        _refuse_folder_of_images(images, paths_of(votes), "--no-images" if no_images else "--features")
        data = {**data, "votes": paths_of(votes)}
    else:
        data = {**data, "votes": ()}
    network = _network_section(encoder, given.get("network", {}), features is not None)
    named: dict[str, Any] = {} if method is None else {"method": {"name": method}}
    return merge(named, given, {"data": data, "network": network})


def update_settings(run: Path, earlier: Path, votes: Sequence[str], given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of an update: those of the finished run with its network as start, a third of its epochs and of its learning
    rate, and its classes if they were named. How the first files are written does not matter to the further ones.

    Raises:
        InputError: The folder is no finished run, or a setting cannot be changed by an update.
    """
    known = {"data.notation", "data.taxonomy", "data.trust_review", *OLD_KEYWORDS["update"].values()}
    for section, values in given.items():
        for key in values if isinstance(values, Mapping) else ("",):
            if f"{section}.{key}".strip(".") not in known:
                raise InputError(f"An update keeps {section}.{key} of the run. It can change {', '.join(sorted(known))}.")
    begun = all((run / name).exists() for name in ("config.yaml", "votes.csv"))
    config = load_run_config(run) if begun else None
    if config is None or not isinstance(config.data, VotesConfig) or not _is_finished(run, config.data):
        raise InputError(f"{run} is not a finished run of `pals fit`. Run `pals fit` first, or let it finish.")
    values = config.to_dict()
    del values["data"]["fingerprint"]  # of the answers; an update that was begun has its own
    values["data"] |= {
        "earlier": str(earlier),
        "before": None,
        "reviewed": 0,
        "trust_review": False,
        "votes": tuple(votes),
        "columns": {},
        "format": None,
        "notation": None,
        "encoding": None,
        "trusted": (),  # their answers are gold in votes.csv
        "taxonomy": tree_of(run),
        "added": {},  # their items are gold in votes.csv, too
        "class_names": classes_of(config.data),
    }
    if not config.network.frozen and config.method_name not in UNTRAINED:
        values["data"] |= fold_start(config)
        values["network"]["weights"] = str((run / FILE_NAME).resolve())
        values["train"] |= {"epochs": max(1, round(config.train.epochs / 3)), "lr": config.train.lr / 3}
    return merge(values, given)


def _is_finished(run: Path, data: VotesConfig) -> bool:
    """Whether the run has its classifier, if it has one; a damaged one is an error before anything is done."""
    if data.answers_only or not (run / FILE_NAME).exists():
        return data.answers_only
    Model.load(run, "cpu")
    return True


def votes_in_memory(votes: Votes | pd.DataFrame, data: Mapping[str, Any]) -> Votes:
    """Votes as they are; a frame is read like the same table in a file."""
    if isinstance(votes, Votes) and data.get("taxonomy") is not None:
        raise InputError("Votes bring their own taxonomy: pass it to read_votes(..., taxonomy=...) instead.")
    return votes if isinstance(votes, Votes) else votes_of_frame(votes, build(VotesConfig, data, "data"))


def absolute(path: PathLike | None) -> str | None:
    """From the root on, so that the settings are valid wherever the command is repeated."""
    return None if path is None else str(Path(path).resolve())


def paths_of(votes: Any) -> tuple[str, ...]:
    """One file, or several, as absolute paths."""
    paths = [votes] if isinstance(votes, (str, Path)) else list(votes)
    return tuple(str(Path(path).resolve()) for path in paths)


def _network_section(encoder: str | None, given: Mapping[str, Any], vectors: bool) -> dict[str, Any]:
    """The section `network`; weights are a file, one of that name in the data folder, or `DOWNLOAD`."""
    weights, found = given.get("weights"), dict(given)
    if weights is not None and str(weights) != DOWNLOAD:
        found["weights"] = absolute(find_weights(str(weights)))
    if encoder is None or (vectors and encoder == AUTO):
        return found
    if "name" in found or vectors:
        option = "--network" if "name" in found else "--features"
        raise InputError(f"Give either --encoder or {option}, not both: an encoder makes features of images.")
    return {**found, **network_settings(encoder, found.get("weights"), found.get("frozen"))}


def refuse_sure_without_taxonomy(given: Mapping[str, Any], data: Mapping[str, Any], votes: Votes | None = None) -> None:
    """`sure` is the probability above which a label is rolled up in a taxonomy."""
    sure = given.get("data", {}).get("sure")
    if sure is not None and data.get("taxonomy") is None and (votes is None or votes.taxonomy is None):
        raise InputError(
            f"sure = {sure}: there is no taxonomy to roll labels up in. Name one with --taxonomy, or leave out --sure."
        )


def _refuse_folder_of_images(images: PathLike | None, votes: Sequence[str], instead: str) -> None:
    """A folder of images among the files of answers; `instead` is the option that was given in place of images."""
    folder = next((path for path in map(Path, votes) if path.is_dir() and not answer_files(path)), None)
    if folder is None:
        return
    if images is not None and Path(images).is_file():
        raise InputError(
            f"{Path(images).resolve()} is a file, and {folder} a folder without answers: swap them. The images come first."
        )
    if images is None and len(votes) > 1:
        raise InputError(f"{folder} is a folder without answers. With {instead} no images are read: leave the folder out.")


def _refuse_images(given: Mapping[str, Any], keywords: Mapping[str, Any], folder: Path) -> None:
    """What needs images or a classifier, in a fit to the answers alone."""
    needs = {name: keywords.get(name) for name in ("images", "features", "names", "encoder", "method")}
    for name, place in OLD_KEYWORDS["fit"].items():
        section, _, key = place.partition(".")
        if name in ("network", "weights", "frozen", "epochs", "folds"):
            needs[name] = given.get(section, {}).get(key)
    found = next((name for name, value in needs.items() if value), None)
    if found is not None:
        raise InputError(f"--no-images fits the answers alone: leave out {found}, which needs images or a classifier.")
    earlier = load_run_config(folder).data if (folder / "config.yaml").exists() else None
    if isinstance(earlier, VotesConfig) and not earlier.answers_only:
        raise InputError(f"{folder} holds a run with images or vectors. Choose another --out for the answers alone.")
