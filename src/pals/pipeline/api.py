"""`fit` and `update`: the five stages in order, from Python as from the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from pals.pipeline.fit_settings import (
    PathLike,
    absolute,
    fit_settings,
    given_settings,
    paths_of,
    refuse_sure_without_taxonomy,
    votes_in_memory,
)
from pals.pipeline.new_class import added_classes
from pals.pipeline.new_round import Update
from pals.pipeline.progress import Monitor, monitor_of
from pals.pipeline.stages.encode import encode
from pals.pipeline.stages.findings import Findings, find
from pals.pipeline.stages.learn import train
from pals.pipeline.stages.load import load
from pals.pipeline.stages.networks import lengths_of
from pals.pipeline.stages.plan import Plan, plan
from pals.pipeline.write_results import write
from pals.readers import Votes
from pals.runs.rounds import round_folder
from pals.training.run_log import read_epochs
from pals.util.config import to_dict
from pals.util.files import refuse_unwritable
from pals.util.locks import FolderLock
from pals.util.words import duration


def fit(
    images: PathLike | None,
    votes: PathLike | Sequence[PathLike] | Votes | pd.DataFrame,
    *,
    out: PathLike,
    features: PathLike | None = None,
    names: PathLike | None = None,
    taxonomy: PathLike | None = None,
    truth: PathLike | None = None,
    encoder: str | None = None,
    method: str | None = None,
    no_images: bool = False,
    settings: Mapping[str, Any] | None = None,
    progress: Monitor | Callable[[str], None] | None = None,
    **old: Any,
) -> Findings:
    """Learn a classifier and cleaned labels from images and several annotators' answers, like the command `pals fit`.

    What is not given is chosen from the data and the device, and stored in the run's folder.

    Args:
        images: Folder of the images, or shards; None with `features` or `no_images`.
        votes: File or files of answers, a data frame with the columns item, annotator and label, or `Votes`.
        out: The run's folder. The same call with the same folder resumes the run.
        features: An .npy file of feature vectors, one row per item, in place of images.
        names: With `features`, a text file with the item of each row; default: the row numbers.
        taxonomy: A file with a tree whose leaves are the classes; an answer may name any node. `Votes` bring their own.
        truth: A file with known labels, used for grading alone.
        encoder: "auto", a name in `pals.ENCODERS`, "timm:NAME", or a file of weights: labels come from its frozen features.
        method: "closed-form", or a name in `pals.METHODS` to train a network; default: closed form on frozen features.
        no_images: Use the answers alone; no classifier is made.
        settings: Any other setting, by section: `data` (`VotesConfig`: size, folds, mirror, columns, trusted, ...), `method`
            (its own options), `network` (`NetworkConfig`), `train` (`TrainConfig`), `engine` (`EngineConfig`), `files`
            (`FilesConfig`), and `seed`. A section is a mapping, or a config object, whose values count where they are not its
            defaults.
        progress: A function that is called with each line the command would print, such as `print`, or a `Monitor`.
        old: Keywords of version 0.2, such as `epochs`; they warn and name the setting that replaces them.

    Returns:
        The findings: the tables `labels`, `doubtful`, `annotators`, `classes`, `confusion` and `agreement`, the sentences
        `summary`, the dictionary `numbers`, the `folder`, and the classifier `model`.

    Raises:
        InputError: A file, an answer or a setting is not valid, or `out` holds another run.

    Example:
        >>> rows = [(item, who, "ab"[item % 2 if who != "cy" else 0]) for item in range(20) for who in ("al", "bo", "cy")]
        >>> table = __import__("pandas").DataFrame(rows, columns=["item", "annotator", "label"])
        >>> found = pals.fit(None, table, out="run", no_images=True, settings={"data": {"trusted": ["al"]}})
        >>> found.labels.loc[:1, ["item", "label", "status"]].values.tolist()
        [['0', 'a', 'gold'], ['1', 'b', 'gold']]
    """
    given, files = given_settings("fit", settings, old)
    out = round_folder(Path(out), 0)
    places = {"images": images, "features": features, "names": names, "taxonomy": taxonomy}
    values = fit_settings(given, places, votes, encoder, method, no_images, out)
    answers = votes_in_memory(votes, values["data"]) if isinstance(votes, (Votes, pd.DataFrame)) else None
    refuse_sure_without_taxonomy(given, values["data"], answers)
    return run_stages(values, out, votes=answers, truth=truth, **to_dict(files), monitor=monitor_of(progress))


def update(
    run: PathLike,
    votes: PathLike | Sequence[PathLike] = (),
    *,
    out: PathLike | None = None,
    add_class: str | None = None,
    items: PathLike | None = None,
    taxonomy: PathLike | None = None,
    truth: PathLike | None = None,
    settings: Mapping[str, Any] | None = None,
    progress: Monitor | Callable[[str], None] | None = None,
    **old: Any,
) -> Findings:
    """Update a finished run with new answers or a new class, like the command `pals update`.

    The result is the next round of the run: RUN shows it from then on, and the rounds before it stay under RUN/rounds, each
    with the labels that it changed (`changes.csv`). Later updates keep the files, classes and settings given here.

    The answers given in `pals review` are always used; each replaces the same annotator's earlier answer to the item. They are
    trusted (never overruled) unless the setting `data.trust_review` is False; the review keeps that choice for later updates.

    Args:
        run: Folder of the finished run.
        votes: Files with new answers; none if only those of `pals review` are new, or a class is added.
        out: Folder of a separate run, which leaves this one as it is; default: the next round of the run. The same call with
            the same folder resumes it.
        add_class: A new class. Items that are not listed in `items` can get it too.
        items: A text file with items known to belong to that class, one per line.
        taxonomy: A file with another tree over the classes; default: that of the run.
        truth: A file with known labels, used for grading alone.
        settings: Settings by section: of `data` columns, class_names, encoding, trusted, trust_review, sure, skip_bad;
            `train.epochs` (default: a third of the run's), `engine.device`, and `files`.
        progress: A function that is called with each line the command would print, or a `Monitor`.
        old: Keywords of version 0.2; they warn and name the setting that replaces them.

    Returns:
        The findings of the new round, or of the run in `out`.

    Raises:
        InputError: The run is not finished, nothing is new, or a file or setting is not valid.

    Example:
        >>> rows = [(item, who, "ab"[item % 2 if who != "cy" else 0]) for item in range(20) for who in ("al", "bo", "cy")]
        >>> table = __import__("pandas").DataFrame(rows, columns=["item", "annotator", "label"])
        >>> _ = pals.fit(None, table, out="run", no_images=True)
        >>> table[::3].assign(annotator="di").to_csv("more.csv", index=False)
        >>> pals.update("run", "more.csv").numbers["answers"]
        80
        >>> len(__import__("pandas").read_csv("run/votes.csv"))
        80
    """
    folder, added, monitor = Path(run), added_classes(add_class, items), monitor_of(progress)
    given, files = given_settings("update", settings, old)
    if taxonomy is not None:
        given["data"]["taxonomy"] = absolute(taxonomy)
    update = Update(folder, paths_of(votes), given, added, monitor, apart=out is not None)
    if out is not None:
        return run_stages(update.settings(Path(out)), Path(out), truth=truth, **to_dict(files), monitor=monitor)
    with update.next_round() as place:
        return update.finished(run_stages(update.settings(place), place, truth=truth, **to_dict(files), monitor=monitor))


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
    """Plan, load, encode, train, find, write. The folder is locked throughout, so that two commands never mix their files.

    Args:
        given: Settings by section.
        folder: The run's folder.
        votes: Answers in memory, in place of the files that `data.votes` names.
        truth: A file with known labels.
        cache: Folder of decoded images and of features.
        stream: Whether to decode images whenever they are needed.
        all_probabilities: Whether to write probabilities.csv.
        monitor: Receives progress.

    Raises:
        InputError: The input is not valid, or another command works in the folder.
    """
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
    """What will be done; for a run that is resumed also the time that all of it takes, estimated from its log."""
    logged = read_epochs(planned.folder) if planned.resumed and not planned.solved else []
    if not logged:
        return f"{planned.describe()}."
    if len(logged) >= planned.config.train.epochs:
        return f"{planned.describe()}. Training is finished; writing the results again."
    seconds = (record.get("seconds") for record in logged)
    one = sum(time for time in seconds if isinstance(time, float)) / len(logged)
    whole = one * sum(epochs * cost for epochs, cost in lengths_of(planned))
    return f"{planned.describe()}. Resuming (a full run takes about {duration(whole)})."
