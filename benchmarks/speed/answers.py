"""How fast many answers become labels: read, Dawid and Skene's model, tables; against crowd-kit's model of the same answers.

    python benchmarks/speed/answers.py                      # 100,000 and 1,000,000 answers
    python benchmarks/speed/answers.py --sizes 10000000 --no-yardstick
    python benchmarks/speed/answers.py --sizes 10000000 --fit   # the whole of `pals fit --no-images`, stage by stage

Every size is a process of its own, so that peaks of memory are its own. The yardstick is `DawidSkene` of crowd-kit (pip install
crowd-kit), with its own defaults but for 100 iterations at most, on the same answers in the same process; where it is not
installed, the same expectation and maximisation in pandas as plainly as can be. Simulated: five answers an item by random
people, everybody errs in the way of all, some more often. Where others use the same cores, ratios count, and those of the
seconds that the cores worked ("cpu") more than those on the wall.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from _measure import in_fresh_process, report

from pals.crowd import Result, dawid_skene
from pals.pipeline import api
from pals.pipeline.tables.result_tables import annotators_table, csv_text, labels_table
from pals.readers import Votes, read_votes
from pals.util.files import write_text

CROWDS = {100_000: (500, 20), 1_000_000: (5_000, 100), 1_300_000: (100_000, 20), 10_000_000: (50_000, 100)}
"""People and classes for each number of answers."""


def write_answers(path: Path, answers: int, seed: int) -> np.ndarray:
    """A long CSV; gives the truth of the items, in their order."""
    people, classes = CROWDS[answers]
    rng, items = np.random.default_rng(seed), answers // 5
    truth_N, skill_W = rng.integers(classes, size=items), rng.beta(4.0, 1.3, size=people)
    wrong_CC = rng.dirichlet(np.full(classes, 0.3), size=classes) * (1 - np.eye(classes))
    bound_CC = (wrong_CC / wrong_CC.sum(axis=1, keepdims=True)).cumsum(axis=1).clip(max=1 - 1e-9) + np.arange(classes)[:, None]
    item_R = np.repeat(np.arange(items), 5)
    annotator_R = (rng.integers(people, size=items)[:, None] + np.arange(5) * (people // 5)).ravel() % people
    slip_R = np.searchsorted(bound_CC.ravel(), rng.random(answers) * (1 - 1e-9) + truth_N[item_R], side="right") % classes
    label_R = np.where(rng.random(answers) < skill_W[annotator_R], truth_N[item_R], slip_R)
    with path.open("w") as file:
        file.write("item,worker,label\n")
        for start in range(0, answers, 1_000_000):
            part = slice(start, start + 1_000_000)
            rows = zip(item_R[part].tolist(), annotator_R[part].tolist(), label_R[part].tolist(), strict=True)
            file.writelines(f"img_{item:07d}.jpg,w{worker:05d},species {label:02d}\n" for item, worker, label in rows)
    return truth_N


def plain_em(frame: pd.DataFrame, iterations: int = 100, tolerance: float = 1e-5) -> pd.Series:
    """Dawid and Skene's model without priors, the yardstick where crowd-kit is not installed."""
    votes = pd.get_dummies(frame["label"]).groupby(frame["task"]).sum()
    share = votes.div(votes.sum(axis=1), axis=0)
    loss = -np.inf
    for _ in range(iterations):
        joined = frame[["task", "worker", "label"]].join(share, on="task")
        errors = joined.drop(columns="task").groupby(["worker", "label"]).sum().clip(lower=1e-10)
        errors = errors / errors.groupby("worker").transform("sum")
        said = np.log(frame[["task", "worker", "label"]].join(errors, on=["worker", "label"])[share.columns])
        log = said.groupby(frame["task"]).sum() + np.log(share.mean())
        top = log.max(axis=1)
        total = np.log(np.exp(log.sub(top, axis=0)).sum(axis=1)) + top
        share, now = np.exp(log.sub(total, axis=0)), float(total.mean())
        if now - loss < tolerance:
            break
        loss = now
    return share.idxmax(axis=1)


def yardstick() -> tuple[str, Callable[[pd.DataFrame], Any]]:
    try:
        import crowdkit
        from crowdkit.aggregation import DawidSkene
    except ImportError:
        return "plain EM", plain_em
    return f"crowd-kit {crowdkit.__version__}", DawidSkene(n_iter=100).fit_predict


def measure(answers: int, seed: int, compare: bool, folder: Path) -> list[dict[str, Any]]:
    """Seconds of each stage, on the wall and of all cores, and the highest size of the process until then."""
    csv = folder / "votes.csv"
    truth_N = write_answers(csv, answers, seed)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
    rows: list[dict[str, Any]] = []

    def stage(what: str, work: Callable[[], Any]) -> Any:
        return timed(rows, answers, what, work)

    def tables(votes: Votes, posterior_NC: np.ndarray) -> None:
        result = Result(votes, posterior_NC)
        for name, table in (("labels", labels_table(result)), ("annotators", annotators_table(result))):
            write_text(folder / f"{name}.csv", csv_text(table))

    def right(names: Any) -> float:
        return float((np.asarray(names) == np.array([f"species {label:02d}" for label in truth_N])).mean())

    votes = stage("read_votes", lambda: read_votes(csv))
    consensus = stage("dawid_skene", lambda: dawid_skene(votes))
    rows[-1]["right"] = right(np.array(votes.class_names)[consensus.label_N])
    found = [consensus.posterior_NC]
    del consensus  # and what it knows of people
    stage("tables", lambda: tables(votes, found.pop()))
    if compare:
        name, fit = yardstick()
        frame = pd.DataFrame(
            {
                "task": np.array(votes.items, dtype=object)[votes.item_R],
                "worker": np.array(votes.annotators, dtype=object)[votes.annotator_R],
                "label": np.array(votes.class_names, dtype=object)[votes.label_R],
            }
        )
        labels = stage(name, lambda: fit(frame))
        rows[-1]["right"] = right(labels.reindex(votes.items))
    last = rows[-1] if compare else None
    return [
        {
            **row,
            "ratio": row["seconds"] / last["seconds"] if last else None,
            "cpu ratio": row["cpu seconds"] / last["cpu seconds"] if last else None,
            "seed": seed,
            "people": CROWDS[answers][0],
        }
        for row in rows
    ]


def measure_fit(answers: int, seed: int, folder: Path) -> list[dict[str, Any]]:
    """The same of the stages of `pals fit --no-images`: read, the annotator model, its replicates, all that is found (the
    agreement, the estimate of what is wrong, the tables), and the files."""
    truth_N = write_answers(folder / "votes.csv", answers, seed)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
    rows: list[dict[str, Any]] = []

    def stage(work: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given, **named: timed(rows, answers, work.__name__, lambda: work(*given, **named))

    for name in ("plan", "load", "train", "find", "write"):
        setattr(api, name, stage(getattr(api, name)))
    found = timed(rows, answers, "all", lambda: api.fit(None, folder / "votes.csv", out=folder / "run", no_images=True))
    number_N = found.labels["item"].str[4:11].astype(int).to_numpy()  # items stand in the order of their names
    label_N = found.labels["label"].str.removeprefix("species ").astype(int).to_numpy()
    rows[-1] |= {"right": float((label_N == truth_N[number_N]).mean()), "labels wrong": found.noise.labels_wrong}
    return [{**row, "seed": seed, "people": CROWDS[answers][0]} for row in rows]


def timed(rows: list[dict[str, Any]], answers: int, what: str, work: Callable[[], Any]) -> Any:
    wall, cpu = time.perf_counter(), time.process_time()
    found = work()
    spent = {"seconds": time.perf_counter() - wall, "cpu seconds": time.process_time() - cpu}
    rows.append({"answers": answers, "what": what, **spent, "peak GB": peak(), "right": None})
    print(json.dumps(rows[-1]), file=sys.stderr, flush=True)  # what is done, should the rest take too long
    return found


def peak() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024 / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 1_000_000], choices=sorted(CROWDS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-yardstick", action="store_true", help="leave crowd-kit out: at ten million it takes very long")
    parser.add_argument("--fit", action="store_true", help="measure the whole of `pals fit --no-images`, without a yardstick")
    parser.add_argument("--one", type=int, help="measure this size alone, for the script itself")
    options = parser.parse_args()
    if options.one is not None:
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            if options.fit:
                found = measure_fit(options.one, options.seed, place)
            else:
                found = measure(options.one, options.seed, not options.no_yardstick, place)
            print(json.dumps(found))
        return
    flags = {"--no-yardstick": options.no_yardstick, "--fit": options.fit}
    rest = ["--seed", str(options.seed), *(flag for flag, given in flags.items() if given)]
    for size in options.sizes:
        found = in_fresh_process(["--one", str(size), *rest])
        report(f"answers: {size:,} on {size // 5:,} items, {CROWDS[size][1]} classes", found)


if __name__ == "__main__":
    main()
