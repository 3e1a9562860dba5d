"""What an encoder is worth to `PALSClassifier` on few pictures: random CIFAR-10 pictures with noisy candidates, a fit on
features of a frozen encoder beside one on pixels with the small CNN.

    python benchmarks/estimator_encoder.py --data-dir FOLDER [--items 1000] [--seeds 3] [--encoder efficientnet-lite0]

Prints one line per fit: accuracy on test pictures, share of right labels of the training pictures, seconds.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pals import PALSClassifier, Truth, load_dataset, make_candidates

PHOTOGRAPHS = {"flip": True, "pad": 4, "strong": "cifar", "cutout": 16}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--items", type=int, default=1000)
    parser.add_argument("--tested", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--preset", default="small", help="of PALS; small is the default for so few items")
    parser.add_argument("--encoder", default="efficientnet-lite0")
    args = parser.parse_args()
    data = load_dataset("cifar10", data_dir=args.data_dir)
    assert data.truth is not None and data.test is not None and data.test_truth is not None
    rng = np.random.default_rng(0)
    train, test = (rng.permutation(len(items))[:count] for items, count in ((data.train, args.items), (data.test, args.tested)))
    X, X_test = data.train.inputs[train].numpy(), data.test.inputs[test].numpy()
    y, y_test = data.truth.label_N[train], data.test_truth.label_N[test].numpy()
    drawn = make_candidates(
        Truth.of(y), partial_rate=0.5, noise_rate=0.3, generator=torch.Generator().manual_seed(0)
    ).candidates.allowed_NC.numpy()
    ways: dict[str, dict[str, Any]] = {
        args.encoder: {"encoder": args.encoder, "lr": 0.05},
        "small-cnn": {"view_options": PHOTOGRAPHS},
    }
    for name, options in ways.items():
        for seed in range(args.seeds):
            started = time.perf_counter()
            model = PALSClassifier(preset=args.preset, epochs=60, random_state=seed, **options).fit(X, drawn)
            right, cleaned = model.score(X_test, y_test), (model.labels_ == y.numpy()).mean()
            seconds = time.perf_counter() - started
            print(
                f"{name} seed {seed}: {100 * right:.2f} right, {100 * cleaned:.2f} of the labels, {seconds:.0f} s", flush=True
            )


if __name__ == "__main__":
    main()
