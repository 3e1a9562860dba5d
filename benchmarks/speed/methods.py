"""Time an epoch of every method on a GPU as a multiple of a plain supervised epoch, beside what its passes through the network
make it cost in theory.

    python benchmarks/speed/methods.py
    python benchmarks/speed/methods.py --methods pals pico --network resnet18 --items 50000

All methods train the same network on the same random images (time does not depend on what they show) with batches of 256 in one
run of this script; the supervised epoch is cross-entropy on one weak view, timed first and last. Times are the median of the
epochs after two to warm up, without the test pass. Prints a table and one JSON line per method.
"""

from __future__ import annotations

import argparse
import json
import statistics
from dataclasses import replace
from typing import Any

import torch
from _measure import origin
from epoch import make_dataset

from pals.data import Dataset
from pals.methods import METHODS, find_method
from pals.runs import Run, RunConfig

PLAIN = "average"  # on sets of one label: cross-entropy


def measure(name: str, dataset: Dataset, args: argparse.Namespace) -> dict[str, Any]:
    """Seconds of one epoch of this method, and what the first epochs took on top."""
    values = {
        "data": {"name": "digits", "partial_rate": 0.3, "noise_rate": 0.2},
        "method": {"name": name},
        "network": {"name": args.network},
        "train": {"epochs": 1000, "batch_size": 256, "lr": 0.01, "tail": "fill"},
        "engine": {"device": args.device},
    }
    if name == PLAIN:
        values["data"]["supervision"] = "truth"
    run = Run(RunConfig.of(values), dataset=dataset)
    epochs = run.epochs()
    records = [next(epochs) for _ in range(2 + args.repeats)]
    return {
        "method": name,
        "epoch_s": statistics.median(record["seconds"] for record in records[2:]),
        "warm_up_s": sum(record["seconds"] for record in records[:2]),
        "theory": find_method(name).cost,
        "captured": run.trainer.engine.compiled and run.trainer.method.capturable,
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
        print(f"{name:14} {results[-1]['epoch_s']:.3f} s, first two epochs {results[-1]['warm_up_s']:.1f} s", flush=True)
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
