"""How fast answers are read: 1,000,000 votes on 300,000 items, against `pandas.read_csv` of the same file.

    python benchmarks/speed/readers.py [--votes 1000000] [--items 300000]

Times are of the whole way: from the file to checked votes, from votes to candidate sets, from names to image files.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from _measure import in_fresh_process, peak_bytes, report, seconds

from pals.readers import read_votes


def make_table(votes: int, items: int, workers: int = 400, classes: int = 100) -> pd.DataFrame:
    """Answers in random order; some people give the same answer twice or do not know."""
    rng = np.random.default_rng(1)
    names = np.array([f"site{i % 50}/img_{i:06d}.jpg" for i in range(items)], dtype=object)
    people = np.array([f"worker{i}" for i in range(workers)], dtype=object)
    labels = np.array(["don't know", *(f"species {c}" for c in range(classes))], dtype=object)
    item = np.concatenate([np.arange(min(items, votes)), rng.integers(0, items, max(votes - items, 0))])
    label = rng.integers(0, classes + 1, votes)
    return pd.DataFrame(
        {"item": names[rng.permutation(item)], "worker": people[rng.integers(0, workers, votes)], "label": labels[label]}
    )


def write_files(frame: pd.DataFrame, folder: Path) -> dict[str, Path]:
    files = {"long CSV": folder / "votes.csv", "JSON Lines": folder / "votes.jsonl", "DCIC JSON": folder / "annotations.json"}
    frame.to_csv(files["long CSV"], index=False)
    frame.to_json(files["JSON Lines"], orient="records", lines=True)
    sets = [
        {"annotations": [{"image_path": i, "class_label": c} for i, c in zip(part["item"], part["label"], strict=True)]}
        for _, part in frame.groupby("worker")
    ]
    files["DCIC JSON"].write_text(json.dumps(sets))
    return files


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--votes", type=int, default=1_000_000)
    parser.add_argument("--items", type=int, default=300_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--memory-of", type=Path, help="only the peak memory of reading this file, for the script itself")
    options = parser.parse_args()
    if options.memory_of is not None:
        print(peak_bytes(lambda: read_votes(options.memory_of)))
        return
    with tempfile.TemporaryDirectory() as folder:
        frame = make_table(options.votes, options.items)
        files = write_files(frame, Path(folder))
        names = sorted(set(frame["item"]))
        del frame
        votes = read_votes(files["long CSV"])
        csv = files["long CSV"]
        times = seconds(
            {
                "pandas.read_csv of the long CSV": lambda: pd.read_csv(csv),
                **{f"read_votes, {kind}": lambda path=path: read_votes(path) for kind, path in files.items()},  # type: ignore[misc]
                "to_candidates": lambda: votes.to_candidates(on_empty="drop"),
                "match with the image files": lambda: votes.match(names),
            },
            options.repeats,
        )
        unit = times["pandas.read_csv of the long CSV"].best
        peak = {f"read_votes, {kind}": in_fresh_process(["--memory-of", str(path)]) for kind, path in files.items()}
        size = {f"read_votes, {kind}": path.stat().st_size for kind, path in files.items()}
    results = [
        {
            "what": what,
            "seconds": time.best,
            "median": time.median,
            "ratio to read_csv": time.best / unit,
            "file MB": size[what] / 1e6 if what in size else None,
            "peak MB": peak[what] / 1e6 if what in peak else None,
        }
        for what, time in times.items()
    ]
    report(f"readers: {options.votes:,} votes on {options.items:,} items, {votes.summary.answers:,} answers kept", results)


if __name__ == "__main__":
    main()
