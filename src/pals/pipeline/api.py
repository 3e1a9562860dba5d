"""`fit` and `update`: the five stages in order, from Python as from the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from pals.data import find_weights
from pals.model import FILE_NAME, Model
from pals.pipeline.finished_run import tree_of
from pals.pipeline.new_class import added_classes, refuse_without_features
from pals.pipeline.progress import Monitor, monitor_of
from pals.pipeline.reviewed_answers import Review
from pals.pipeline.stages.encode import encode
from pals.pipeline.stages.findings import Findings, find
from pals.pipeline.stages.learn import train
from pals.pipeline.stages.load import load
from pals.pipeline.stages.networks import fold_start, lengths_of
from pals.pipeline.stages.plan import Plan, plan
from pals.pipeline.stages.read_answers import classes_of, votes_of_frame
from pals.pipeline.write_results import write
from pals.readers import Votes, answer_files
from pals.review.rounds import has_answers
from pals.runs.extractor import AUTO, network_settings
from pals.runs.run_config import UNTRAINED, VotesConfig
from pals.runs.run_folder import load_run_config
from pals.training.run_log import read_epochs
from pals.util.config import build, merge
from pals.util.errors import InputError
from pals.util.files import refuse_unwritable
from pals.util.locks import FolderLock
from pals.util.words import duration
from pals.vision.networks.timm_network import DOWNLOAD

PathLike = str | Path


def fit(
    images: PathLike | None,
    votes: PathLike | Sequence[PathLike] | Votes | pd.DataFrame,
    *,
    out: PathLike,
    features: PathLike | None = None,
    names: PathLike | None = None,
    format: str | None = None,
    columns: Mapping[str, str] | None = None,
    classes: Sequence[str] | None = None,
    encoding: str | None = None,
    trust: str | Sequence[str] = (),
    taxonomy: PathLike | None = None,
    sure: float | None = None,
    encoder: str | None = None,
    network: str | None = None,
    weights: PathLike | None = None,
    frozen: bool | None = None,
    size: int | None = None,
    mirror: bool | None = None,
    method: str | None = None,
    epochs: int | None = None,
    folds: int | None = None,
    seed: int | None = None,
    device: str | None = None,
    skip_bad: bool = False,
    cache: PathLike | None = None,
    stream: bool | None = None,
    truth: PathLike | None = None,
    no_images: bool = False,
    all_probabilities: bool = False,
    settings: Mapping[str, Any] | None = None,
    progress: Monitor | Callable[[str], None] | None = None,
) -> Findings:
    """Learn from pictures and several people's answers, like the command `pals fit`.

    Parameters that are not listed work like the command's options of the same name; whatever is not given is chosen for you.

    Args:
        images: A folder of pictures; None with `features` or `no_images`.
        votes: A file, several files, a pandas frame with the columns item, annotator and label (or others, named by
            `columns`), or `Votes`.
        out: The run's folder; the same call with the same folder resumes it.
        features: An .npy file of vectors, instead of pictures.
        names: With `features`: a text file that names the item of each row.
        trust: People who are never overruled.
        taxonomy: A file with a tree over the classes; answers may name any node (`Votes` bring their own).
        encoder: "auto", or one of `pals encoders`.
        no_images: Labels come from the answers alone, and there is no classifier.
        settings: Any other setting by section, `{"method": {"delta": 0.5}}`.
        progress: A function, such as `print`, that is called with each line the command would print.

    Example::

        found = pals.fit("photos", "answers.csv", out="runs/ponds", truth="truth.csv")
        print(*found.summary, sep="\\n")
        found.labels.query("status == 'corrected'")
        found.model.probabilities(images)
    """
    if no_images:
        given_too: dict[str, Any] = {
            "images": images,
            "features": features,
            "names": names,
            "encoder": encoder,
            "network": network,
        }
        given_too |= {"weights": weights, "frozen": frozen, "size": size, "method": method, "epochs": epochs, "folds": folds}
        _refuse_pictures(given_too, Path(out))
    else:
        _refuse_both_or_neither(images, features, names)
    in_memory = isinstance(votes, (Votes, pd.DataFrame))
    if not in_memory:
        _refuse_folder_of_pictures(images, _files(votes), "--no-images" if no_images else "--features")
    data = {
        "images": _absolute(images),
        "features": _absolute(features),
        "names": _absolute(names),
        "votes": () if in_memory else _files(votes),
        "format": format,
        "columns": dict(columns) if columns else None,
        "class_names": None if classes is None else tuple(classes),
        "size": size,
        "mirror": mirror,
        "skip_bad": skip_bad or None,
        "encoding": encoding,
        "folds": folds,
        "trusted": _people(trust),
        "taxonomy": _absolute(taxonomy),
        "sure": sure,
    }
    sections: dict[str, dict[str, Any]] = {
        "data": data,
        "network": _network(encoder, network, _weights(weights), frozen, features is not None),
        "method": {"name": method},
        "train": {"epochs": epochs},
        "engine": {"device": device},
    }
    given = _given(sections) | ({} if seed is None else {"seed": seed})
    values = merge(given, settings or {})
    answers = _in_memory(votes, values["data"]) if in_memory else None
    _refuse_sure_of_nothing(sure, values["data"], answers)
    return run_stages(
        values,
        Path(out),
        votes=answers,
        truth=truth,
        cache=cache,
        stream=stream,
        all_probabilities=all_probabilities,
        monitor=monitor_of(progress),
    )


def update(
    run: PathLike,
    votes: PathLike | Sequence[PathLike] = (),
    *,
    out: PathLike | None = None,
    add_class: str | None = None,
    items: PathLike | None = None,
    columns: Mapping[str, str] | None = None,
    classes: Sequence[str] | None = None,
    encoding: str | None = None,
    trust: str | Sequence[str] = (),
    taxonomy: PathLike | None = None,
    sure: float | None = None,
    epochs: int | None = None,
    device: str | None = None,
    skip_bad: bool = False,
    cache: PathLike | None = None,
    stream: bool | None = None,
    truth: PathLike | None = None,
    all_probabilities: bool = False,
    progress: Monitor | Callable[[str], None] | None = None,
) -> Findings:
    """Update a finished run with new answers or a new class, like the command `pals update`. The old run is left untouched.

    The answers given in `pals review` are always taken in; they replace what the same people said before.

    Args:
        votes: Files with new answers; none where those of `pals review` are all, or a class is added.
        out: Folder for the new run; by default RUN-updated. The same call with the same folder resumes it.
        add_class: A new class. Items that are not listed in `items` can then get it too.
        items: A text file with items known to belong to that class, one per line.
    """
    folder, added, monitor = Path(run), added_classes(add_class, items), monitor_of(progress)
    place = Path(out) if out is not None else folder.with_name(f"{folder.name}-updated")
    values, review = updated_settings(folder, _files(votes), columns, encoding), Review.of(folder)
    if not added and not _files(votes) and not review.answers:
        nobody = "nobody has answered in `pals review` yet; " if has_answers(folder) else ""
        raise InputError(f"Nothing to update {folder} with: {nobody}give files with new answers, or --add-class and --items.")
    changes: dict[str, dict[str, Any]] = {
        "data": {
            "skip_bad": skip_bad or None,
            "class_names": None if classes is None else tuple(classes),
            "trusted": tuple(dict.fromkeys((*review.trusted, *(_people(trust) or ())))) or None,
            "taxonomy": _absolute(taxonomy),
            "sure": sure,
            "added": added or None,
            "reviewed": review.rows_for(place, monitor),
        },
        "train": {"epochs": epochs},
        "engine": {"device": device},
    }
    values = merge(values, _given(changes))
    _refuse_sure_of_nothing(sure, values["data"])
    if added:
        refuse_without_features(folder, values)
    return run_stages(
        values,
        place,
        truth=truth,
        cache=cache,
        stream=stream,
        all_probabilities=all_probabilities,
        monitor=monitor,
    )


def _refuse_sure_of_nothing(sure: float | None, data: Mapping[str, Any], votes: Votes | None = None) -> None:
    if sure is not None and data.get("taxonomy") is None and (votes is None or votes.taxonomy is None):
        raise InputError(
            f"sure = {sure}: there is no taxonomy to roll labels up in. Name one with --taxonomy, or leave out --sure."
        )


def run_stages(
    given: Mapping[str, Any],
    folder: Path,
    *,
    votes: Votes | None = None,
    truth: PathLike | None = None,
    cache: PathLike | None = None,
    stream: bool | None = None,
    all_probabilities: bool = False,
    monitor: Monitor,
) -> Findings:
    """Plan, load, encode, train, find, write: all of it while nobody else works in the folder, so that two commands never mix
    their files, and the second never finds the folder free."""
    refuse_unwritable(folder)
    with FolderLock(folder):
        planned = plan(
            given,
            folder,
            votes=votes,
            truth=None if truth is None else Path(truth),
            cache=None if cache is None else Path(cache),
            stream=stream,
        )
        for line in (*planned.matched.lines, *planned.reasons, _intention(planned)):
            monitor.say(line)
        loaded = load(planned, monitor)
        for line in loaded.bad:
            monitor.say(f"Left out: {line}")
        findings = find(train(encode(loaded, monitor), monitor))
        write(findings, all_probabilities=all_probabilities)
        return findings


def _intention(planned: Plan) -> str:
    """What will be done; of a run that was begun also how long all of it takes, as far as its log tells."""
    logged = read_epochs(planned.folder) if planned.resumed and not planned.solved else []
    if not logged:
        return f"{planned.describe()}."
    if len(logged) >= planned.config.train.epochs:
        return f"{planned.describe()}. Training is finished; writing the results again."
    seconds = (record.get("seconds") for record in logged)
    one = sum(time for time in seconds if isinstance(time, float)) / len(logged)
    whole = one * sum(epochs * cost for epochs, cost in lengths_of(planned))
    return f"{planned.describe()}. Resuming (a full run takes about {duration(whole)})."


def updated_settings(
    run: Path, votes: Sequence[str], columns: Mapping[str, str] | None = None, encoding: str | None = None
) -> dict[str, Any]:
    """The settings of a run that starts from a finished one with further answers: its network, a third of its epochs, a third
    of its learning rate, and its classes, if they were named. How the first files were written says nothing of the further
    ones."""
    begun = all((run / name).exists() for name in ("config.yaml", "votes.csv"))
    config = load_run_config(run) if begun else None
    if config is None or not isinstance(config.data, VotesConfig) or not _is_finished(run, config.data):
        raise InputError(f"{run} is not a finished run of `pals fit`. Run `pals fit` first, or let it finish.")
    values = config.to_dict()
    del values["data"]["fingerprint"]  # it is of the answers; an update that was begun has its own
    values["data"] |= {
        "earlier": str((run / "votes.csv").resolve()),
        "reviewed": 0,
        "votes": tuple(votes),
        "columns": dict(columns or {}),
        "format": None,
        "encoding": encoding,
        "trusted": (),  # what they said is gold in votes.csv
        "taxonomy": tree_of(run),
        "added": {},  # so are the items of these
        "class_names": classes_of(config.data),
    }
    if not config.network.frozen and config.method_name not in UNTRAINED:
        values["data"] |= fold_start(config)
        values["network"]["weights"] = str((run / FILE_NAME).resolve())
        values["train"] |= {"epochs": max(1, round(config.train.epochs / 3)), "lr": config.train.lr / 3}
    return values


def _is_finished(run: Path, data: VotesConfig) -> bool:
    """Whether its classifier is there, if it has one; a damaged one is refused before anything is done."""
    if data.answers_only or not (run / FILE_NAME).exists():
        return data.answers_only
    Model.load(run, "cpu")
    return True


# ---- what was given, as settings


def _given(sections: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Only what was given."""
    kept = {name: {key: value for key, value in section.items() if value is not None} for name, section in sections.items()}
    return {name: section for name, section in kept.items() if section}


def _absolute(path: PathLike | None) -> str | None:
    """From the root on, so that the settings hold wherever the command is repeated."""
    return None if path is None else str(Path(path).resolve())


def _people(trust: str | Sequence[str]) -> tuple[str, ...] | None:
    return (trust,) if isinstance(trust, str) else tuple(trust) or None


def _files(votes: Any) -> tuple[str, ...]:
    paths = [votes] if isinstance(votes, (str, Path)) else list(votes)
    return tuple(str(Path(path).resolve()) for path in paths)


def _weights(weights: PathLike | None) -> str | None:
    """A file, one of that name in the data folder, or the word that lets timm fetch its own."""
    if weights is None or str(weights) == DOWNLOAD:
        return None if weights is None else str(weights)
    return _absolute(find_weights(str(weights)))


def _network(
    encoder: str | None, network: str | None, weights: str | None, frozen: bool | None, vectors: bool
) -> dict[str, Any]:
    if encoder is None or (vectors and encoder == AUTO):
        return {"name": network, "weights": weights, "frozen": frozen}
    if network is not None or vectors:
        given = "--network" if network is not None else "--features"
        raise InputError(f"Give either --encoder or {given}, not both: an encoder makes features of pictures.")
    return network_settings(encoder, weights, frozen)


def _refuse_both_or_neither(images: PathLike | None, features: PathLike | None, names: PathLike | None) -> None:
    if (images is None) == (features is None):
        raise InputError(
            "Give either a folder of pictures or feature vectors (features=...), not both; with no_images=True, give neither."
        )
    if names is not None and features is None:
        raise InputError(f"--names {names} is of no use without --features (features=...): name the vectors, or leave it out.")


def _refuse_folder_of_pictures(images: PathLike | None, votes: Sequence[str], instead: str) -> None:
    """Where a file of answers should be; `instead` of pictures that option was given."""
    folder = next((path for path in map(Path, votes) if path.is_dir() and not answer_files(path)), None)
    if folder is None:
        return
    if images is not None and Path(images).is_file():
        raise InputError(
            f"{Path(images).resolve()} is a file, and {folder} a folder without answers: swap them. The pictures come first."
        )
    if images is None and len(votes) > 1:
        raise InputError(f"{folder} is a folder without answers. With {instead} no pictures are read: leave the folder out.")


def _refuse_pictures(given: Mapping[str, Any], folder: Path) -> None:
    for name, value in given.items():
        if value is not None:
            raise InputError(f"--no-images fits the answers alone: leave out {name}, which needs pictures or a classifier.")
    earlier = load_run_config(folder).data if (folder / "config.yaml").exists() else None
    if isinstance(earlier, VotesConfig) and not earlier.answers_only:
        raise InputError(f"{folder} holds a run with pictures or vectors. Choose another --out for the answers alone.")


def _in_memory(votes: Any, data: Mapping[str, Any]) -> Votes:
    if isinstance(votes, Votes) and data.get("taxonomy") is not None:
        raise InputError("Votes bring their own taxonomy: pass it to read_votes(..., taxonomy=...) instead.")
    return votes if isinstance(votes, Votes) else votes_of_frame(votes, build(VotesConfig, data, "data"))
