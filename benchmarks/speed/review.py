"""How quick the page of `pals review` is on many items: until it is there, until the next item, until an answer is on disk.

    python benchmarks/speed/review.py --items 50000 --out /tmp/review-bench

A real fit on vectors of so many items is made first (once: the folder is used again); then some get a picture of noise, so
that thumbnails can be asked for. Times are those of the server as the command starts it, over HTTP, from request to last
byte.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
from _measure import report
from PIL import Image

from pals import fit
from pals.util.config import read_yaml, to_yaml

CLASSES, PEOPLE, WIDTH = 20, 30, 64


def make_run(folder: Path, items: int) -> Path:
    """Three answers an item, of people who are right three times of four."""
    run = folder / "run"
    if (run / "summary.json").is_file():
        return run
    rng = np.random.default_rng(0)
    truth_N = rng.integers(CLASSES, size=items)
    center_CD = rng.normal(size=(CLASSES, WIDTH))
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "x.npy", (center_CD[truth_N] + 1.5 * rng.normal(size=(items, WIDTH))).astype(np.float32))
    names = [f"{item // 1000:03d}/{item:06d}.png" for item in range(items)]
    (folder / "names.txt").write_text("\n".join(names))
    with (folder / "votes.csv").open("w") as file:
        file.write("item,worker,label\n")
        for item, name in enumerate(names):
            for person in rng.choice(PEOPLE, size=3, replace=False):
                label = truth_N[item] if rng.random() < 0.75 else rng.integers(CLASSES)
                file.write(f"{name},person {person},class {label}\n")
    fit(
        None, folder / "votes.csv", features=folder / "x.npy", names=folder / "names.txt", out=run, device="cpu", progress=print
    )
    _with_pictures(run, folder / "images", names[:2000])
    return run


def _with_pictures(run: Path, images: Path, names: list[str]) -> None:
    """The page shows pictures from now on."""
    rng = np.random.default_rng(1)
    for name in names:
        (images / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 255, (480, 640, 3), dtype=np.uint8)).save(images / name, compress_level=1)
    config = read_yaml(run / "config.yaml")
    config["data"] |= {"images": str(images.resolve()), "features": None, "names": None}
    (run / "config.yaml").write_text(to_yaml(config))


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


def timed(work: Callable[[int], object], times: int) -> dict[str, float]:
    """Milliseconds of one call."""
    taken = []
    for number in range(times):
        start = time.perf_counter()
        work(number)
        taken.append(1000 * (time.perf_counter() - start))
    return {"median ms": float(np.median(taken)), "p95 ms": float(np.quantile(taken, 0.95)), "most ms": max(taken)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=50_000)
    parser.add_argument("--answers", type=int, default=500)
    parser.add_argument("--out", type=Path, default=Path("/tmp/pals-review-bench"))
    options = parser.parse_args()
    run = make_run(options.out, options.items)
    server = Server(run)
    results: list[dict[str, object]] = []

    def note(what: str, **values: object) -> None:
        empty = dict.fromkeys(("median ms", "p95 ms", "most ms", "MB"))
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
        note("from the command to the first item", **{"median ms": ready})
        note("of which the processor was busy", **{"median ms": 1000 * server.cpu_seconds()})
        note("memory then", MB=server.megabytes("VmRSS"))
        note("whole page", **timed(lambda _: server.ask("item?order=everything"), 50))
        note("next item", **timed(following, options.answers))
        note("answer on disk, and next item", **timed(answering, options.answers))
        note("page of 60 in the grid", **timed(lambda _: server.ask("grid?order=class&value=class+1"), 20))
        note("search by name", **timed(lambda number: server.ask(f"item?order=search&value={number:03d}/"), 20))
        note("overview", **timed(lambda _: server.ask("overview"), 20))
        keys = _first_keys(server)
        note("thumbnail of 640 x 480, made", **timed(lambda number: server.ask(f"thumbnail/{keys[number]}"), len(keys)))
        note("the same, kept", **timed(lambda number: server.ask(f"thumbnail/{keys[number]}"), len(keys)))
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
