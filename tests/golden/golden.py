"""What the code computes, recorded, so that a move or a renaming can be shown to change nothing.

    python tests/golden/golden.py write FOLDER                       # record
    python tests/golden/golden.py compare FOLDER [--tolerance 1e-4]  # compute again and compare

Recorded are (a) every method on the toy data: the log record of each epoch, the final weights as norms and a digest; (b) the
tables, `report.json`, `summary.json` and weights of six small fits; (c) the kNN vote and selection on random candidate sets.
Without a tolerance, for one machine, all is compared to the bit. With one, for other processors, digests are left out, text is
equal and numbers are close. After a renaming, add the new name to `RENAMED`; after a change of maths, record `recorded/` again.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import csv
import hashlib
import json
import math
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1]))

# All that is taken from the code, to be re-pointed in this one place.
from _toy import run_all, toy_trainer
from pals import METHODS, InputError, fit, nearest, pseudo_label
from pals.pseudo_labels import neighbor_weight, vote

LABELING = {"pseudo": "pseudo_N", "posterior": "posterior_NC", "selected": "selected_N", "label": "label_N", "quota": "quota"}
"""Name in the recording and attribute of what `pseudo_label` returns."""
RENAMED: dict[str, str] = {"belief": "posterior", "worker": "annotator"}
"""Recorded name of a column, key, file or cell, and its name now: `{"worker": "annotator"}`; `{"right: ": "correct: "}` for the
beginning of `right: dark`."""
LEFT_OUT = {"seconds", "created", "version", "title", "command", "settings", "thumbs", "sentences"}
"""Keys that are not recorded: times, paths, versions, compressed images, and the sentences that report.json has too."""
SENTENCES = {"headline", "summary", "warnings", "sentence"}
"""Keys below which text may be reworded: only the numbers in it are compared."""
RECORDED = Path(__file__).parent / "recorded"

CLASSES = ("bright", "checked", "dark", "striped")
PARENT = {"bright": "plain", "dark": "plain", "checked": "pattern", "striped": "pattern"}
ACCURACY = {"ann": 0.9, "bob": 0.75, "cho": 0.55, "dan": 0.8}
ITEMS, SIDE, WIDTH = 36, 12, 5
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "pals": [{"preset": "paper"}, {"preset": "small", "neighbors": "auto"}],
    "srse": [{"neighbors_start": 8}],
}
"""Options of a method that are tried besides its defaults."""
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")


def write_inputs(folder: Path) -> None:
    """`images/*.png`, `features.npy` with `names.txt`, `truth.csv`, `taxonomy.csv`, and the answers in four forms."""
    rng = np.random.default_rng(0)
    (folder / "images").mkdir()
    tree = [("plain", ""), ("pattern", ""), *PARENT.items()]
    tables: dict[str, list[tuple[str, ...]]] = {"answers": [], "coarse": [], "unsure": [], "unnamed": [], "truth": []}
    truth_N = rng.integers(len(CLASSES), size=ITEMS)
    names = [f"i{item:02d}.png" for item in range(ITEMS)]
    features_ND = np.eye(len(CLASSES), WIDTH)[truth_N] + 0.35 * rng.normal(size=(ITEMS, WIDTH))
    for name, truth in zip(names, truth_N, strict=True):
        pixels = rng.integers(0, 90, (SIDE, SIDE, 3))
        x, y = np.indices((SIDE, SIDE))
        pixels += 120 * np.stack([x >= 0, (x + y) % 2 == 0, x < 0, x % 2 == 0])[truth][:, :, None]
        Image.fromarray(pixels.astype(np.uint8)).save(folder / "images" / name)
        tables["truth"].append((name, CLASSES[truth]))
        for annotator in rng.permutation(list(ACCURACY))[:3]:
            right, coarse, unsure = rng.random(3) < (ACCURACY[annotator], 0.3, 0.25)
            answer = CLASSES[truth if right else rng.integers(len(CLASSES))]
            tables["answers"].append((name, annotator, answer))
            tables["coarse"].append((name, annotator, PARENT[answer] if coarse else answer))
            tables["unsure"].append((name, annotator, "don't know" if rng.random() < 0.1 else answer + "?" * bool(unsure)))
            tables["unnamed"].append((name, answer))
    np.save(folder / "features.npy", features_ND.astype(np.float32))
    (folder / "names.txt").write_text("\n".join(names), encoding="utf-8")
    pd.DataFrame(tree, columns=["label", "parent"]).to_csv(folder / "taxonomy.csv", index=False)
    for table, rows in tables.items():
        columns = ["item", "label"] if table in ("unnamed", "truth") else ["item", "worker", "label"]
        pd.DataFrame(rows, columns=columns).to_csv(folder / f"{table}.csv", index=False)


def fits(inputs: Path) -> dict[str, dict[str, Any]]:
    """Arguments of `pals.fit` for the fits; the first of them, to the answers alone, is run by the command line."""
    answers, images = inputs / "answers.csv", {"images": inputs / "images"}
    vectors = {"images": None, "features": inputs / "features.npy", "names": inputs / "names.txt"}
    quick = {"data": {"folds": 2, "fold_epochs": 1}, "train": {"epochs": 2}, "method": {"neighbors": 5}}
    cpu = {"engine": {"device": "cpu"}}
    return {
        "answers-alone": {},
        "closed-form": {
            **images,
            "votes": answers,
            "encoder": "patches",
            "settings": {**cpu, "files": {"all_probabilities": True}},
        },
        "trained": {
            **images,
            "votes": answers,
            "method": "pals",
            "settings": {**cpu, **quick, "network": {"name": "small-cnn"}},
        },
        "taxonomy": {
            **vectors,
            "votes": inputs / "coarse.csv",
            "taxonomy": inputs / "taxonomy.csv",
            "settings": {**cpu, "data": {"sure": 0.8}},
        },
        "unsure": {**vectors, "votes": inputs / "unsure.csv", "settings": cpu},
        "unnamed": {**vectors, "votes": inputs / "unnamed.csv", "settings": cpu},
    }


def record_fits(inputs: Path, runs: Path, folder: Path) -> None:
    """Of each fit its tables, its two JSON files and its weights."""
    write_inputs(inputs)
    for name, given in fits(inputs).items():
        out, truth, found = runs / name, inputs / "truth.csv", folder / name
        if given:
            fit(**given, truth=truth, out=out)
        else:
            call = ["-m", "pals", "fit", "--no-images", str(inputs / "answers.csv"), "--truth", str(truth), "--out", str(out)]
            subprocess.run([sys.executable, *call], check=True, stdout=subprocess.DEVNULL)
        found.mkdir(parents=True)
        for table in out.glob("*.csv"):
            shutil.copy(table, found)
        for file in (out / "report.json", out / "summary.json"):
            text = file.read_text(encoding="utf-8").replace(str(runs), "RUNS").replace(str(inputs), "INPUTS")
            write_json(found / file.name, without_left_out(json.loads(text)))
        if (out / "model.safetensors").exists():
            write_json(found / "weights.json", weights(load_file(out / "model.safetensors").values()))


def methods() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every method on the toy data: log records and weights after four epochs."""
    for name, options in ((method, options) for method in METHODS for options in ({}, *VARIANTS.get(method, []))):
        trainer = toy_trainer(name, options=options)
        records = [without_left_out(record) for record in run_all(trainer)]
        state = [value for value in trainer.method.state_dict().values() if isinstance(value, Tensor)]
        yield title(name, options), {"epochs": records, **weights(state)}


def selections() -> Iterator[tuple[str, dict[str, Any]]]:
    """The kNN vote and the selection on random candidate sets, under each option of `pseudo_label`."""
    options: list[dict[str, Any]] = [{"weighting": weighting} for weighting in ("exp", "cosine", "local")]
    options += [{"include_self": False}, {"vote_on": "candidates"}, {"neighbors": "auto"}, {"prior": True}, {"predicted": True}]
    options += [{"self_weight": "auto"}, {"self_weight": 0.5, "prior": True}, {"self_weight": "auto", "vote_on": "posterior"}]
    options += [{"quantile": quantile} for quantile in (0.5, 0.8, "all")]
    for seed, given in enumerate(options):
        generator = torch.Generator().manual_seed(seed)
        truth_N = torch.arange(24) % 4
        features_ND = torch.eye(4, 6)[truth_N] + 0.5 * torch.randn(24, 6, generator=generator)
        features_ND[-2:] = features_ND[:2]  # ties
        allowed_NC = torch.rand(24, 4, generator=generator) < 0.3
        allowed_NC |= torch.eye(4, dtype=torch.bool)[(truth_N + (torch.rand(24, generator=generator) < 0.15)) % 4]
        table_NC = (2 * torch.randn(24, 4, generator=generator)).softmax(dim=1)
        call = {"neighbors": 5, **{key: value for key, value in given.items() if key not in ("prior", "predicted")}}
        call |= {"prior_NC": table_NC * allowed_NC} if "prior" in given else {}
        call |= {"predicted_NC": table_NC, "threshold": 0.6} if "predicted" in given else {}
        found = pseudo_label(features_ND, allowed_NC, **call)
        index_NK, similarity_NK = nearest(features_ND, 5)
        votes_NC = vote(index_NK, neighbor_weight(similarity_NK, given.get("weighting", "exp")), allowed_NC.float())
        values = {name: getattr(found, attribute) for name, attribute in LABELING.items()} | {"votes": votes_NC}
        yield title("", given), {name: value.tolist() if isinstance(value, Tensor) else value for name, value in values.items()}


def title(name: str, options: Mapping[str, Any]) -> str:
    return " ".join([name, *(f"{key}={value}" for key, value in options.items())]).strip()


def weights(tensors: Iterable[Tensor]) -> dict[str, Any]:
    """Shape and norm of each tensor, in an order that their names have no part in, and one digest of all bits."""
    found = sorted((list(t.shape), float(t.double().norm()), hashlib.sha256(t.numpy().tobytes()).hexdigest()) for t in tensors)
    return {"weights": [row[:2] for row in found], "digest": hashlib.sha256(json.dumps(found).encode()).hexdigest()}


def without_left_out(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: without_left_out(inner) for key, inner in value.items() if key not in LEFT_OUT}
    return [without_left_out(inner) for inner in value] if isinstance(value, list) else value


def write_json(file: Path, value: Mapping[str, Any]) -> None:
    """One line for each key of the top, so that a change is seen in `git diff`."""
    lines = [f"{json.dumps(key)}: {json.dumps(inner, separators=(',', ':'))}" for key, inner in value.items()]
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def record(folder: Path) -> None:
    """Compute everything and write it into a new folder."""
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder} is not empty; name a new folder, or remove the recording that is there.")
    torch.set_num_threads(1)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "methods.json", dict(methods()))
    write_json(folder / "selection.json", dict(selections()))
    with tempfile.TemporaryDirectory() as place:
        os.environ["PALS_CACHE"] = f"{place}/cache"
        inputs, runs = Path(place, "inputs"), Path(place, "runs")
        inputs.mkdir()
        record_fits(inputs, runs, folder)


def renamed(name: str) -> str:
    first, colon, rest = name.partition(": ")
    return RENAMED.get(name, RENAMED.get(first + colon, first + colon) + rest)


def cells(file: Path, mapped: bool) -> dict[str, tuple[Any, bool]]:
    """Each value of a file by the place where it stands, and whether it is a sentence; with the names of now, if `mapped`."""
    new = renamed if mapped else str
    found: dict[str, tuple[Any, bool]] = {}

    def walk(value: Any, place: str, sentence: bool) -> None:
        if isinstance(value, Mapping):
            for key, inner in value.items():
                walk(inner, f"{place}.{new(key)}", sentence or (file.name == "report.json" and key in SENTENCES))
        elif isinstance(value, list):
            found[f"{place}, length"] = len(value), False
            for number, inner in enumerate(value):
                walk(inner, f"{place}[{number}]", sentence)
        else:
            found[place] = new(value) if isinstance(value, str) else value, sentence

    if file.suffix == ".json":
        walk(json.loads(file.read_text(encoding="utf-8")), "", False)
        return found
    with file.open(newline="", encoding="utf-8") as text:
        head, *rows = csv.reader(text)
    found["columns"] = ", ".join(map(new, head)), False
    for number, row in enumerate(rows, start=2):
        found |= {f"row {number}, {new(column)}": (new(cell), False) for column, cell in zip(head, row, strict=True)}
    return found


def same(a: Any, b: Any, tolerance: float, sentence: bool) -> bool:
    """Whether two values are equal or, with a tolerance, close. Within a text the last digit of a number may differ."""
    if tolerance and isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance / 5)
    if not (isinstance(a, str) and isinstance(b, str)) or not (tolerance or sentence):
        return type(a) is type(b) and bool(a == b)
    left, right = NUMBER.findall(a), NUMBER.findall(b)
    if not tolerance or len(left) != len(right) or not (sentence or NUMBER.sub("#", a) == NUMBER.sub("#", b)):
        return sentence and left == right
    last = tolerance / 5 if left == [a] else 0.101 if sentence else 0.0101
    return all(
        math.isclose(float(x), float(y), rel_tol=tolerance, abs_tol=last if "." in x + y else 0.0)
        for x, y in zip(left, right, strict=True)
    )


def differences(before: Path, now: Path, tolerance: float = 0.0) -> list[str]:
    """For each file that differs a line with the first place, what it held and what it holds."""
    old = {"/".join(map(renamed, file.relative_to(before).parts)): file for file in before.rglob("*") if file.is_file()}
    new = {file.relative_to(now).as_posix(): file for file in now.rglob("*") if file.is_file()}
    lines = [f"{name}: only in {'the recording' if name in old else 'this version'}" for name in sorted({*old} ^ {*new})]
    for name in sorted({*old} & {*new}):
        left, right = cells(old[name], True), cells(new[name], False)
        if tolerance:
            left, right = ({k: v for k, v in c.items() if not k.endswith("digest")} for c in (left, right))
        near = 10 * tolerance if "/" in name else tolerance  # a fit has more steps that each add to a difference of rounding
        wrong = [k for k in left if k not in right or not same(left[k][0], right[k][0], near, left[k][1])]
        wrong += [k for k in right if k not in left]
        if wrong:
            was, found = (side.get(wrong[0], ("nothing",))[0] for side in (left, right))
            lines.append(f"{name}, {wrong[0]}: was {was!r}, is {found!r} (first of {len(wrong)} of {len(left)} values)")
        elif not (tolerance or RENAMED) and name.endswith(".csv") and old[name].read_bytes() != new[name].read_bytes():
            lines.append(f"{name}: equal values, other bytes")
    return lines


def main(mode: str, folder: str, *options: str) -> int:
    """Write or compare; the exit status is 1 where something differs."""
    if mode == "write":
        record(Path(folder))
        return 0
    tolerance = float(options[1]) if options else 0.0
    with tempfile.TemporaryDirectory() as place:
        record(Path(place))
        lines = differences(Path(folder), Path(place), tolerance)
    sys.stdout.write("\n".join([*(lines or ["No difference."]), ""]))
    return int(bool(lines))


if __name__ == "__main__":
    if len(sys.argv) not in (3, 5) or sys.argv[1] not in ("write", "compare"):
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
