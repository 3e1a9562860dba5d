"""How fast predictions are written for a folder, tar files and Parquet files, and that memory does not grow with the items.

    python benchmarks/speed/predict.py [--pictures 3000] [--rows 100000] [--repeats 3]

Pictures of 160 x 160 pixels through a small network that reads 32 x 32, the same in each kind of file; the ratio is to the
folder in the same run. Memory is what a fresh process needs beyond what it begins with, at one number of vectors and at
ten times that number, with the frame of `predict_folder`, which holds all rows, beside it.
"""

from __future__ import annotations

import argparse
import io
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from _measure import in_fresh_process, peak_bytes, report, seconds
from PIL import Image

from pals.model import FILE_NAME, Description, Model, Part, predict_folder, predict_to_file
from pals.vision.networks import build_network

SHARD = 1000  # pictures in a tar file


def make_run(folder: Path, network: str, shape: tuple[int, ...]) -> Path:
    torch.manual_seed(0)
    reads = Part(network, shape, (0.5,) * shape[0], (0.25,) * shape[0])
    names = tuple(f"class {number}" for number in range(10))
    Model(Description(names, reads), build_network(network, shape, 10), device="cpu").save(folder / FILE_NAME)
    return folder


def make_pictures(place: Path, count: int) -> dict[str, Path]:
    """The same JPEG pictures as files, in tar files and in a Parquet file."""
    rng = np.random.default_rng(1)
    (place / "folder").mkdir(parents=True)
    (place / "tars").mkdir()
    cells = []
    for number in range(count):
        patches = Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)).resize((160, 160), Image.Resampling.BICUBIC)
        file = io.BytesIO()
        patches.save(file, "JPEG", quality=88)
        (place / "folder" / f"{number:07}.jpg").write_bytes(file.getvalue())
        cells.append({"bytes": file.getvalue(), "path": f"{number:07}.jpg"})
    for start in range(0, count, SHARD):
        with tarfile.open(place / "tars" / f"{start // SHARD:05}.tar", "w") as shard:
            for cell in cells[start : start + SHARD]:
                member = tarfile.TarInfo(cell["path"])
                member.size = len(cell["bytes"])
                shard.addfile(member, io.BytesIO(cell["bytes"]))
    pq.write_table(pa.table({"image": cells}), place / "pictures.parquet", row_group_size=100)
    return {"folder": place / "folder", "tar files": place / "tars", "Parquet": place / "pictures.parquet"}


def speed(place: Path, count: int, repeats: int) -> None:
    run, kinds = make_run(place / "run", "small-cnn", (3, 32, 32)), make_pictures(place / "pictures", count)
    variants: dict[str, Callable[[], object]] = {"folder, a frame in memory": lambda: predict_folder(run, kinds["folder"])}
    for kind, path in kinds.items():
        for ending in ("csv", "parquet"):
            variants[f"{kind}, {ending}"] = lambda path=path, ending=ending: predict_to_file(run, path, place / f"p.{ending}")  # type: ignore[misc]
    times = seconds(variants, repeats)
    unit = times["folder, csv"].best
    rows = [
        {"what": what, "seconds": time.best, "items/s": count / time.best, "ratio to folder, csv": time.best / unit}
        for what, time in times.items()
    ]
    report(f"predict: {count:,} JPEG of 160 x 160", rows)


def memory(place: Path, rows: int) -> None:
    make_run(place / "flat", "linear", (64,))
    found = []
    for count in (rows, 10 * rows):
        array = np.lib.format.open_memmap(place / f"{count}.npy", mode="w+", dtype=np.float32, shape=(count, 64))
        del array  # zeros, which take no room on the disk
        for what in ("csv", "parquet", "frame"):
            arguments = ["--memory-of", what, "--place", str(place), "--rows", str(count)]
            found.append({"what": what, "rows": count, "peak MB": in_fresh_process(arguments) / 1e6})
    few = {row["what"]: row["peak MB"] for row in found if row["rows"] == rows}
    report("predict: memory", [{**row, "ratio to few": row["peak MB"] / few[row["what"]]} for row in found])


def ask(place: Path, rows: int, what: str) -> None:
    run, items = place / "flat", place / f"{rows}.npy"
    if what == "frame":
        predict_folder(run, items)
    else:
        predict_to_file(run, items, place / f"p.{what}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", type=int, default=3000)
    parser.add_argument("--rows", type=int, default=100_000, help="of vectors, for memory; ten times as many, too")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--memory-of", help="only the peak memory of this, for the script itself")
    parser.add_argument("--place", type=Path)
    options = parser.parse_args()
    if options.memory_of is not None:
        print(peak_bytes(lambda: ask(options.place, options.rows, options.memory_of)))
        return
    with tempfile.TemporaryDirectory() as folder:
        speed(Path(folder), options.pictures, options.repeats)
        memory(Path(folder), options.rows)


if __name__ == "__main__":
    main()
