"""Predictions written to a file part by part: for any number of items, resumable, and divisible among machines."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pals.data.shards.stream import Stream
from pals.model.predict import PredictionOptions, empty_rows, no_items_error, predictions
from pals.model.resumable_table import ResumableTable, RowCounts
from pals.model.saved import Model, find_model
from pals.training.inference import INFERENCE_BATCH
from pals.util.errors import InputError

OnItems = Callable[[int, int | None], None]
"""Called with the number of items done and the total, None where it is unknown."""


@dataclass(frozen=True)
class WrittenPredictions:
    """A finished file of predictions."""

    out: Path
    counts: RowCounts
    resumed: int
    "Items that were done before this call."
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
    progress: OnItems | None = None,
) -> WrittenPredictions:
    """Write the table of `predict_folder` as CSV or, by its name, Parquet. Memory does not grow with the number of items.

    Finished parts are kept in a folder beside the file. The same call resumes after the last of them and writes the same
    bytes as one that was never stopped; a call with another classifier, other items or options is refused.

    Args:
        run: the run folder, or its model.safetensors.
        items: what `predict_folder` takes, or several of these.
        out: the file to write.
        top: as in `predict_folder`.
        threshold: as in `predict_folder`.
        sure: as in `predict_folder`.
        device: as in `predict_folder`.
        skip_bad: leave out images that cannot be read, and list them in `OUT.bad.csv`.
        batch: items per batch; default: 256.
        shard: (i, n) for the i-th of n consecutive shares of the items, from 1; default: all items.
        progress: called with the number of items done and the total, first with those done before.

    Returns:
        The file, its counts, and how many items were done before.

    Raises:
        InputError: as in `predict_folder`, or because the parts beside the file belong to another call.
    """
    options, out = PredictionOptions(top, threshold, sure, batch), Path(out)
    if out.is_dir():  # found now rather than after hours
        raise InputError(f"{out} is a folder: name the file to write in it, such as {out / 'labels.csv'}.")
    model = Model.load(run, device)
    options.check(model, run)
    stream = Stream.of(items)
    if shard is not None:
        stream = stream.share(*shard)
    with find_model(run).open("rb") as file:
        model_mark = hashlib.file_digest(file, "sha256").hexdigest()
    about = {
        "model": model_mark,
        "items": stream.fingerprint(),
        "shard": None if shard is None else "/".join(map(str, shard)),
        "device": model.engine.device.type,
        **asdict(options),
    }
    total, report = stream.known_count, progress or (lambda done, total: None)
    with ResumableTable(out, about, empty_rows(model, options)) as table:
        resumed = table.num_rows
        if table.counts.bad and not skip_bad:
            first = table.counts.first_bad[0]
            raise InputError(
                f"{table.folder} was started with --skip-bad and left out {first.name} ({first.reason}). Continue with "
                f"--skip-bad (skip_bad=True), or delete that folder to start again."
            )
        report(resumed, total)
        for part in predictions(model, stream, options, at=table.end, skip_bad=skip_bad):
            table.add(part.frame, part.bad, part.end)
            report(table.num_rows, total)
        counts = table.flush()
        if not counts.items and (counts.bad or shard is None):
            table.discard()
            raise no_items_error(stream, counts.first_bad, counts.bad)
        table.finish()
    return WrittenPredictions(out, counts, resumed, table.bad_file)
