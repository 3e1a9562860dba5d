"""Predictions written to a file as they come: any number of items, resumed after a kill, divided among machines."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pals.data.shards import Stream
from pals.model.predict import Question, check_question, no_answers, nothing_left, predictions
from pals.model.resumable_table import Parts, Tally
from pals.model.saved import Model, find_model
from pals.training.inference import INFERENCE_BATCH
from pals.util.errors import InputError

Pace = Callable[[int, int | None], None]


@dataclass(frozen=True)
class Written:
    """What is in the file."""

    out: Path
    tally: Tally
    resumed: int
    "Items that were done before."
    bad_file: Path


def predict_to_file(
    run: Path | str,
    items: Path | str | Sequence[Path | str],
    out: Path | str,
    *,
    top: int = 3,
    threshold: float | None = None,
    sure: float | None = None,
    device: str = "auto",
    skip_bad: bool = False,
    batch: int = INFERENCE_BATCH,
    shard: tuple[int, int] | None = None,
    progress: Pace | None = None,
) -> Written:
    """The table of `predict_folder` as a file, CSV or, by its name, Parquet. Memory does not grow with the number of items.

    items: what `predict_folder` takes, or several such.
    shard: (i, n) for the i-th of n shares, from 1; shares follow each other, and together they are all items.
    progress: called with how many items are done, and of how many, if known; at first with how many were done before.

    Finished parts lie in a folder beside the file. The same call goes on after the last of them, and comes to the same file,
    byte for byte, as one that was never stopped; a call with another classifier, other items or options is refused.
    """
    question, out = Question(top, threshold, sure, batch), Path(out)
    if out.is_dir():  # better now than after hours
        raise InputError(f"{out} is a folder: name the file to write in it, such as {out / 'labels.csv'}.")
    model = Model.load(run, device)
    check_question(model, question, run)
    stream = Stream.of(items)
    if shard is not None:
        stream = stream.share(*shard)
    about = {
        "model": _sha256(find_model(run)),
        "items": stream.fingerprint(),
        "shard": None if shard is None else "/".join(map(str, shard)),
        "device": model.engine.device.type,
        **asdict(question),
    }
    total, tell = stream.known_count, progress or (lambda done, total: None)
    with Parts(out, about, no_answers(model, question)) as parts:
        resumed = parts.seen
        if parts.tally.bad and not skip_bad:
            first = parts.tally.first_bad[0]
            raise InputError(
                f"{parts.folder} was started with --skip-bad and left out {first.name} ({first.reason}). Continue with "
                f"--skip-bad (skip_bad=True), or delete that folder to start again."
            )
        tell(resumed, total)
        for part in predictions(model, stream, question, at=parts.end, skip_bad=skip_bad):
            parts.add(part.frame, part.bad, part.end)
            tell(parts.seen, total)
        tally = parts.flush()
        if not tally.items and (tally.bad or shard is None):
            parts.forget()
            raise nothing_left(stream, tally.first_bad, tally.bad)
        parts.finish()
    return Written(out, tally, resumed, parts.bad_file)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
