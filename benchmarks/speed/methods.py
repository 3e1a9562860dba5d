"""Time an epoch of every method on a GPU as a multiple of a plain supervised epoch, beside what its passes through the network
make it cost in theory.

    python benchmarks/speed/methods.py
    python benchmarks/speed/methods.py --methods pals pico --network resnet18 --items 50000

All methods train the same network on the same random images (what they show hardly matters for time) with batches of 256 in one
run of this script; the supervised epoch is cross-entropy on one weak view, timed first and last. Times are the median of the
epochs after two to warm up, without the test pass. Prints a table and one JSON line per method.

A method with stages is timed in its last one, which is what theory counts: under the settings of `LAST_STAGE` it comes in the
second epoch at the latest, for UPLLRS after one epoch of separation. In the JSON line `path` is the method's own name for
what it does there, `steps` are those of the epochs timed, and `statistics` are its own of the last one. All items are
trained on: ALIM and IRNet are given the noise rate, which they would otherwise estimate from a holdout, and UPLLRS has no
holdout for early stopping. FREDIS edits the sets after every epoch, as published after every tenth or later.

An epoch of DivideMix has as many steps as its mixture trusts items make, and of random images it may trust any number. So its
threshold is 0 here: it trusts all but those whose probability is 0 to the last digit, and its time is the most that an epoch
can take. Where it trusts half of the items an epoch takes about half of that. `labeled_0` and `labeled_1` are their numbers.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from _measure import origin
from epoch import make_dataset

from pals.data.dataset import Dataset
from pals.methods import METHODS, find_method
from pals.runs.run import Run
from pals.runs.run_config import RunConfig

PLAIN = "average"  # on sets of one label: cross-entropy
NOISE_RATE = 0.2
WARM_UP = 2  # epochs of the phase that is timed, before those that count
LAST_STAGE: Mapping[str, Mapping[str, Any]] = {
    "pico+": {"prototypes_from": 2, "neighbors_from": 2},
    "alim-scale": {"adjust_from": 1, "noise_rate": NOISE_RATE},
    "alim-onehot": {"adjust_from": 1, "noise_rate": NOISE_RATE},
    "irnet": {"correct_from": 2, "noise_rate": NOISE_RATE},
    "fredis": {"warm_up": 1, "update_every": 1},
    "upllrs": {"separation_epochs": 1, "max_steps": 1, "held_out": 0.0},
    "dividemix": {"warm_up": 1, "threshold": 0.0},
    "promix": {"warm_up": 1},
}
"""Options under which a method's last stage comes at once. Stages that change no more than a weight are left as they are."""


def measure(name: str, dataset: Dataset, args: argparse.Namespace) -> dict[str, Any]:
    """Seconds of one epoch of this method, and what all before it took."""
    values = {
        "data": {"name": "digits", "partial_rate": 0.3, "noise_rate": NOISE_RATE},
        "method": {"name": name, **LAST_STAGE.get(name, {})},
        "network": {"name": args.network},
        "train": {"epochs": 1000, "batch_size": 256, "lr": 0.01, "tail": "fill"},
        "engine": {"device": args.device},
    }
    if name == PLAIN:
        values["data"]["supervision"] = "truth"
    run = Run(RunConfig.of(values), dataset=dataset)
    method = run.trainer.method
    records: list[dict[str, Any]] = []
    for record in run.epochs():
        records.append(record)
        if record["phase"] == "main" and record["epoch"] == WARM_UP + args.repeats:
            break
    before, timed = records[: -args.repeats], records[-args.repeats :]
    return {
        "method": name,
        "epoch_s": statistics.median(record["seconds"] for record in timed),
        "warm_up_s": sum(record["seconds"] for record in before),
        "theory": method.cost,
        "captured": run.trainer.engine.compiled and method.capturable,
        "path": method.graph_key,
        "steps": [record["steps"] for record in timed],
        "statistics": dict(method.statistics()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    trained = [name for name in METHODS if find_method(name).views and name != PLAIN]
    parser.add_argument("--methods", nargs="+", default=trained, choices=[*METHODS])
    parser.add_argument("--items", type=int, default=50_000)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--network", default="resnet18")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--repeats", type=int, default=4)
    args = parser.parse_args()
    dataset = make_dataset(args.items, args.classes)
    dataset = replace(dataset, test=None, test_truth=None)
    results = []
    for name in (PLAIN, *args.methods, PLAIN):
        results.append(measure(name, dataset, args))
        print(f"{name:14} {results[-1]['epoch_s']:.3f} s, before it {results[-1]['warm_up_s']:.1f} s", flush=True)
    plain = statistics.mean(result["epoch_s"] for result in results if result["method"] == PLAIN)
    about = {"items": args.items, "classes": args.classes, "network": args.network}
    print(f"\n{'method':14} {'epoch':>8} {'times plain':>12} {'theory':>8} {'of theory':>10}")
    for result in results:
        times = result["epoch_s"] / plain
        result |= {"times_plain": times, "of_theory": times / result["theory"]}
        print(
            f"{result['method']:14} {result['epoch_s']:7.3f}s {times:12.2f} {result['theory']:8.2f} {result['of_theory']:10.2f}"
        )
    device = torch.device("cpu") if args.device == "cpu" else torch.device("cuda" if torch.cuda.is_available() else "cpu")
    for result in results:
        print(json.dumps({**about, **result, **origin(device.type)}), flush=True)


if __name__ == "__main__":
    main()
