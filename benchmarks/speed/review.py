"""How quick the page of `pals review` is on many items: until it is there, until the next item, until an answer is on disk.

    python benchmarks/speed/review.py --items 50000

The run's folder is made up: the tables that a fit writes, of so many items, and pictures of noise for some. Times are those
of the server as the command starts it, over HTTP, from the request to the last byte, and what the processor was busy for.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pandas as pd
from _measure import report
from PIL import Image

from pals.pipeline.run_arrays import ItemNeighbors
from pals.pipeline.tables.result_tables import csv_text
from pals.runs.run_config import RunConfig
from pals.util.config import to_yaml
from pals.util.files import write_json, write_text

CLASSES, PEOPLE, PICTURES = 20, 30, 200


def make_run(folder: Path, items: int) -> Path:
    """A run's folder with the tables that a fit writes, of made-up answers: three an item, of people who are right three times
    of four. What the page reads is of the right size and form; the numbers mean nothing."""
    rng, run = np.random.default_rng(0), folder / "run"
    if (run / "summary.json").is_file():
        return run
    names = np.array([f"{item // 1000:03d}/{item:06d}.png" for item in range(items)], dtype=object)
    classes = np.array([f"class {number}" for number in range(CLASSES)], dtype=object)
    people = np.array([f"person {number}" for number in range(PEOPLE)], dtype=object)
    truth_N = rng.integers(CLASSES, size=items)
    item_R, annotator_R = np.repeat(np.arange(items), 3), rng.integers(PEOPLE, size=3 * items)
    label_R = np.where(rng.random(3 * items) < 0.75, truth_N[item_R], rng.integers(CLASSES, size=3 * items))
    wrong_R = label_R != truth_N[item_R]
    confidence_N = rng.beta(8, 1, size=items).round(6)
    agreement_N = (1 - np.bincount(item_R, wrong_R) / 3).round(6)
    decision_N = np.where(confidence_N < 0.85, "one more", "enough")
    tables = {
        "labels": {"item": names, "label": classes[truth_N], "confidence": confidence_N,
                   "second": classes[truth_N - 1], "votes": 3,
                   "agreement": agreement_N, "in_votes": True, "status": "agreed"},
        "doubtful": {"item": names[item_R[wrong_R]], "annotator": people[annotator_R[wrong_R]],
                     "answer": classes[label_R[wrong_R]], "probability_wrong": 0.9},
        "votes": {"item": names[item_R], "annotator": people[annotator_R], "label": classes[label_R], "weight": 1.0,
                  "is_gold": False},
        "next": {"item": names, "decision": decision_N, "gain": 0.1},
        "classes": {"class": classes},
    }  # fmt: skip
    for name, columns in tables.items():
        write_text(run / f"{name}.csv", csv_text(pd.DataFrame(columns)))
    near_NK = rng.integers(items, size=(items, 15))
    ItemNeighbors.of(near_NK, rng.random((items, 15)), rng.dirichlet(np.ones(CLASSES), size=items)).save(run)
    data = {"name": "votes", "votes": ["votes.csv"], "images": str((folder / "images").resolve())}
    write_text(run / "config.yaml", to_yaml(RunConfig.of({"data": data}).to_dict()))
    _draw(folder / "images", names[:PICTURES].tolist())
    write_json(run / "summary.json", {"labels_wrong": 0.08, "labels_wrong_interval": [0.06, 0.1]})
    return run


def _draw(images: Path, names: list[str]) -> None:
    rng = np.random.default_rng(1)
    for name in names:
        (images / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 255, (480, 640, 3), dtype=np.uint8)).save(images / name, compress_level=1)


class Server:
    """`pals review`, as a process of its own."""

    def __init__(self, run: Path) -> None:
        self.started = time.perf_counter()
        command = [sys.executable, "-m", "pals", "review", str(run), "--no-browser", "--name", "bench"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        found = re.search(r"http://\S+", self.process.stdout.readline())
        assert found is not None
        address = urlsplit(found[0])
        self.root, self.host = address.path, address.netloc
        self.connection = http.client.HTTPConnection(address.netloc)

    def ask(self, path: str, body: object = None) -> bytes:
        headers = {"X-Part": "card"} if body is None else {"Content-Type": "application/json", "Origin": f"http://{self.host}"}
        text = None if body is None else json.dumps(body)
        self.connection.request("GET" if body is None else "POST", self.root + path, text, headers)
        answer = self.connection.getresponse()
        data = answer.read()
        assert answer.status == 200, (path, answer.status, data[:200])
        return data

    def megabytes(self, field: str) -> float:
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()


def timed(server: Server, work: Callable[[int], object], times: int) -> dict[str, float]:
    """Milliseconds of one call, and how long the server's processor was busy for it on average."""
    taken, before = [], server.cpu_seconds()
    for number in range(times):
        start = time.perf_counter()
        work(number)
        taken.append(1000 * (time.perf_counter() - start))
    busy = 1000 * (server.cpu_seconds() - before) / times
    return {"median ms": float(np.median(taken)), "p95 ms": float(np.quantile(taken, 0.95)), "cpu ms": busy}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=50_000)
    parser.add_argument("--answers", type=int, default=500)
    parser.add_argument("--out", type=Path, default=Path("/tmp/pals-review-bench"))
    options = parser.parse_args()
    run = make_run(options.out, options.items)
    shutil.rmtree(run / "review-thumbnails", ignore_errors=True)
    for path in run.glob("review.sqlite*"):
        path.unlink()
    server = Server(run)
    results: list[dict[str, object]] = []

    def note(what: str, **values: object) -> None:
        empty = dict.fromkeys(("median ms", "p95 ms", "cpu ms", "MB"))
        results.append({"what": what, **empty, **values})

    key = b""

    def following(_: int) -> None:
        nonlocal key
        page = server.ask(f"item?order=everything&after={key.decode()}")
        found = re.search(rb'data-key="(\w+)"', page)
        assert found is not None
        key = found[1]

    def answering(number: int) -> None:
        said = {"items": [key.decode()], "kind": "label", "labels": ["class 1"], "key": f"bench-{time.time_ns()}-{number}"}
        server.ask("answer", said)
        following(number)

    try:
        following(0)
        ready = 1000 * (time.perf_counter() - server.started)
        note("from the command to the first item", **{"median ms": ready, "cpu ms": 1000 * server.cpu_seconds()})
        note("memory then", MB=server.megabytes("VmRSS"))
        note("whole page", **timed(server, lambda _: server.ask("item?order=everything"), 50))
        note("next item", **timed(server, following, options.answers))
        note("answer on disk, and next item", **timed(server, answering, options.answers))
        note("page of 60 in the grid", **timed(server, lambda _: server.ask("grid?order=class&value=class+1"), 20))
        note("search by name", **timed(server, lambda number: server.ask(f"item?order=search&value={number:03d}/"), 20))
        note("overview", **timed(server, lambda _: server.ask("overview"), 20))
        keys = _first_keys(server)
        note("thumbnail of 640 x 480, made", **timed(server, lambda number: server.ask(f"thumbnail/{keys[number]}"), len(keys)))
        note("the same, kept", **timed(server, lambda number: server.ask(f"thumbnail/{keys[number]}"), len(keys)))
        note("most memory", MB=server.megabytes("VmHWM"))
    finally:
        server.close()
    report(f"review: {options.items:,} items, {3 * options.items:,} answers, {CLASSES} classes", results)


def _first_keys(server: Server) -> list[str]:
    """Of items that have a picture."""
    pages = [server.ask(f"grid?order=search&value={part}").decode() for part in ("000/0000", "000/0001")]
    return [key for page in pages for key in re.findall(r'class="tile"[^>]*data-key="(\w+)"', page)]


if __name__ == "__main__":
    main()
