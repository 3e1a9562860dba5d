"""Time one PALS epoch on a GPU, stage by stage, beside its floor.

    python benchmarks/speed/epoch.py --classes 10 100
    python benchmarks/speed/epoch.py --classes 10 --view-pass separate
    python benchmarks/speed/epoch.py --classes 10 100 --growth

Images are random; what they show matters for time only if features collapse, for then neighbours are searched twice. Everything
else is the real thing: the project's own trainer, ResNet-18 at 32 px, batch 256, two views, the official settings. Prints a
table and one JSON line per case.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from _measure import origin

from pals.data.dataset import Dataset, Items
from pals.labels.candidates import Truth, default_names
from pals.methods import find_method
from pals.pseudo_labels import pseudo_label
from pals.pseudo_labels.knn import nearest
from pals.runs.run import Run
from pals.runs.run_config import RunConfig
from pals.training.engine import find_device, forget_compiled, release_memory
from pals.vision.augment import image_views

FORWARD_GFLOP = {"resnet18": 1.111, "wrn-34-10": 10.5, "small-cnn": 0.02}  # per image of 32 px
CEILING_TFLOPS = 790.0  # bf16 matrix products on an H200, measured


def make_dataset(items: int, classes: int) -> Dataset:
    generator = torch.Generator().manual_seed(0)
    names = default_names(classes)

    def part(count: int) -> tuple[Items, Truth]:
        images = torch.randint(256, (count, 3, 32, 32), dtype=torch.uint8, generator=generator)
        label_N = torch.randint(classes, (count,), generator=generator)
        return Items(images, tuple(map(str, range(count)))), Truth.of(label_N, names)

    train, truth = part(items)
    test, test_truth = part(10_000)
    views = image_views((0.49, 0.48, 0.45), (0.2, 0.2, 0.2), pad=4, flip=True, strong="cifar", cutout=16)
    return Dataset("random", names, train, truth, test, test_truth, views)


def clock(run: Run, action: Callable[[], Any], repeats: int = 3) -> float:
    """Median seconds of an action, with the device idle before and after."""
    times = []
    for _ in range(repeats):
        run.trainer.engine.synchronize()
        started = time.perf_counter()
        action()
        run.trainer.engine.synchronize()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def measure(items: int, classes: int, args: argparse.Namespace) -> dict[str, Any]:
    values = {
        "data": {"name": "cifar10", "partial_rate": 0.5 if classes == 10 else 0.05},
        "method": {"name": args.method},
        "network": {"name": args.network},
        "engine": {"device": args.device, "precision": args.precision, "compile": not args.no_compile},
    }
    if args.method == "pals":
        values["method"]["view_pass"] = args.view_pass
    run = Run(RunConfig.of(values), dataset=make_dataset(items, classes))
    trainer = run.trainer
    started = time.perf_counter()
    epochs = run.epochs()
    for _ in range(2):
        next(epochs)
    warm = time.perf_counter() - started
    whole = [next(epochs)["seconds"] for _ in range(args.repeats)]
    result: dict[str, Any] = {
        "items": items,
        "classes": classes,
        "epoch_s": statistics.median(whole),
        "first_two_epochs_s": warm,
    }
    result |= {"epochs_s": whole, "warmup_s": trainer.engine.warmup_seconds, **stages(run)}
    steps = -(-items // trainer.config.batch_size)
    work = FORWARD_GFLOP[args.network] * items * 3 * find_method(args.method).cost / 1e3  # a backward pass is worth two forward
    result |= {"steps": steps, "floor_s": work / CEILING_TFLOPS, "ratio_to_floor": result["epoch_s"] / (work / CEILING_TFLOPS)}
    return result


def stages(run: Run) -> dict[str, float]:
    trainer, method = run.trainer, run.trainer.method
    output = trainer.infer(method.predictor, trainer.inputs)
    result = {"features_s": clock(run, lambda: trainer.infer(method.predictor, trainer.inputs))}
    if run.config.method_name == "pals":
        result["neighbors_s"] = clock(run, lambda: nearest(output.features, 15))
        result["labelling_s"] = clock(run, lambda: pseudo_label(output.features, method.allowed_NC)) - result["neighbors_s"]
    order = torch.randint(len(trainer.inputs), (len(trainer.inputs),), device=trainer.engine.device)
    draw = trainer.inputs[order]
    for view in method.views:
        result[f"view_{view}_s"] = clock(run, lambda view=view: trainer.views.make(view, draw, trainer.generator))
    result["evaluate_s"] = clock(run, trainer.evaluate)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, nargs="+", default=[50_000])
    parser.add_argument("--classes", type=int, nargs="+", default=[10])
    parser.add_argument("--growth", action="store_true", help="and fewer and more items, and 1,000 classes")
    parser.add_argument("--method", default="pals")
    parser.add_argument("--network", default="resnet18", choices=FORWARD_GFLOP)
    parser.add_argument("--view-pass", default="together")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    cases = [(items, classes) for classes in args.classes for items in args.items]
    if args.growth:
        cases += [(args.items[0], 1_000), *((items, args.classes[0]) for items in (12_500, 25_000, 200_000))]
    for items, classes in cases:
        result = measure(items, classes, args)
        for name, value in result.items():
            print(f"  {name:20} {value if not isinstance(value, float) else round(value, 4)}")
        print(json.dumps({**vars(args), **result, **origin(find_device(args.device).type)}), flush=True)
        forget_compiled()
        release_memory()


if __name__ == "__main__":
    main()
