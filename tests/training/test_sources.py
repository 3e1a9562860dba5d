"""Training on items that are read while it runs: the same numbers as in memory, bit for bit, in bounded memory."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from _shards import write_tar
from _toy import assert_same, run_all, toy_candidates, toy_data, toy_trainer, without_seconds
from pals.data.dataset import Dataset, Items
from pals.data.row_source import FileImages, Inputs, open_array
from pals.data.shards.random_access import ShardImages
from pals.labels.candidates import Truth
from pals.methods import Problem, find_method, method_options
from pals.training.engine import Engine
from pals.training.trainer import Trainer
from pals.util.errors import InputError
from pals.vision.augment import image_views
from pals.vision.networks import build_network

SIDE = 16


@pytest.fixture(autouse=True)
def several_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that some wait while others are trained on."""
    monkeypatch.setattr(Engine, "chunk", 64)


def in_file(folder: Path, data: Dataset) -> Dataset:
    """The same items, training and test, in files that are mapped into memory."""
    assert data.test is not None

    def written(items: Items, name: str) -> Items:
        np.save(folder / name, np.asarray(items.inputs))
        return Items(open_array(folder / name), items.ids)

    return replace(data, train=written(data.train, "train.npy"), test=written(data.test, "test.npy"))


@pytest.mark.parametrize("name", ["pals", "average", "dividemix", "upllrs", "plrc"])  # side groups, some of the rows
def test_a_file_trains_as_a_tensor(name: str, tmp_path: Path) -> None:
    data = toy_data(150)
    made = [toy_trainer(name, items, toy_candidates(data)) for items in (data, in_file(tmp_path, data))]
    records = [without_seconds(run_all(trainer)) for trainer in made]
    assert records[0] == records[1]
    assert_same(made[0].state(), made[1].state())


def picture_data(folder: Path) -> tuple[Dataset, list[Path]]:
    generator = torch.Generator().manual_seed(3)
    label_N = torch.arange(96) % 3
    images = torch.randint(0, 100, (96, 3, SIDE, SIDE), generator=generator, dtype=torch.uint8)
    images += (70 * label_N)[:, None, None, None].to(torch.uint8)
    paths = [folder / f"{number}.png" for number in range(96)]
    for path, image in zip(paths, images, strict=True):
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(path)
    ids, names = tuple(path.name for path in paths), ("dark", "grey", "light")
    views = image_views((0.5,) * 3, (0.25,) * 3, pad=2, flip=True, strong="cifar")
    items, truth = Items(images, ids), Truth(label_N, names)
    return Dataset("shades", names, items, truth, items, truth, views), paths


def picture_trainer(data: Dataset, inputs: Inputs, folder: Path | None = None) -> Trainer:
    torch.manual_seed(0)
    candidates = toy_candidates(data)
    options = method_options("pals", {"neighbors": 5})
    problem = Problem(candidates, lambda name=None: build_network("small-cnn", (3, SIDE, SIDE), 3))
    items = Items(inputs, data.train.ids)
    train = {"epochs": 3, "batch_size": 16, "feature_batch": 40}
    method = find_method("pals")(options, problem)
    return toy_trainer(method, replace(data, train=items, test=items), candidates, train=train, folder=folder)


def test_pictures_train_alike_in_memory_in_a_file_and_decoded_on_the_fly(tmp_path: Path) -> None:
    data, paths = picture_data(tmp_path)
    np.save(tmp_path / "pixels.npy", np.asarray(data.train.inputs))
    made = [picture_trainer(data, data.train.inputs)]
    shard = write_tar(tmp_path / "all.tar", [(path.name, path.read_bytes()) for path in paths])
    packed = ShardImages(shard, SIDE)
    sources = (open_array(tmp_path / "pixels.npy"), FileImages(paths, SIDE), packed, packed.cached(tmp_path).images)
    made += [picture_trainer(data, source) for source in sources]
    first, *others = [without_seconds(run_all(trainer)) for trainer in made]
    assert first[0]["loss"] != first[2]["loss"] and others == [first] * 4
    for trainer in made[1:]:
        assert_same(trainer.state(), made[0].state())


def test_a_run_goes_on_in_memory_that_was_begun_on_the_fly(tmp_path: Path) -> None:
    data, paths = picture_data(tmp_path)
    whole = picture_trainer(data, data.train.inputs)
    run_all(whole)
    run_all(picture_trainer(data, FileImages(paths, SIDE), tmp_path), stop_after=1)
    rest = picture_trainer(data, data.train.inputs, tmp_path)
    assert rest.resume()
    run_all(rest)
    assert_same(rest.state(), whole.state())


def reading_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("pals-")]


def test_a_failed_read_or_step_ends_with_its_name_and_no_thread(tmp_path: Path) -> None:
    data, paths = picture_data(tmp_path)
    trainer = picture_trainer(data, FileImages(paths, SIDE))
    epochs = trainer.epochs()
    next(epochs)
    paths[17].unlink()
    with pytest.raises(InputError, match=r"17\.png: the file does not exist\."):
        next(epochs)
    assert not reading_threads()
    data, paths = picture_data(tmp_path)
    trainer = picture_trainer(data, FileImages(paths, SIDE))
    trainer.method.loss = lambda batch: 1 / 0  # type: ignore[method-assign, assignment, return-value]
    with pytest.raises(ZeroDivisionError):
        run_all(trainer)
    assert not reading_threads()


def test_a_gap_in_a_file_is_named(tmp_path: Path) -> None:
    data = toy_data()
    rows = np.asarray(data.train.inputs).copy()
    rows[41, 2] = np.nan
    np.save(tmp_path / "rows.npy", rows)
    with pytest.raises(InputError, match=r"1 of 90 items hold NaN or infinity, first 'train-41'"):
        toy_trainer("average", replace(data, train=Items(open_array(tmp_path / "rows.npy"), data.train.ids)))


LIMITED = """
import resource, sys
from pathlib import Path
import numpy as np, torch
from _toy import run_all, toy_candidates, toy_trainer
from pals.data.dataset import Dataset, Items
from pals.data.row_source import open_array
from pals.data.row_source import TensorRows
from pals.labels.candidates import Truth
from pals.methods import Problem, find_method, method_options
from pals.vision.augment import Views
from pals.vision.networks import build_network

path, way, extra = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])

def thinned(images, generator=None):
    return images[:, :, ::32, ::32].flatten(1) / 255

def trained(inputs):
    label_N, names = torch.arange(len(inputs)) % 3, ("a", "b", "c")
    items, truth = Items(inputs, tuple(map(str, range(len(inputs))))), Truth(label_N, names)
    views = Views(dict.fromkeys(("eval", "weak", "strong"), thinned), lambda x: x)
    data = Dataset("large", names, items, truth, items, truth, views)
    problem = Problem(toy_candidates(data), lambda name=None: build_network("mlp", (768,), 3))
    method = find_method("pals")(method_options("pals", {"neighbors": 3}), problem)
    return run_all(toy_trainer(method, data, problem.candidates, train={"epochs": 1, "batch_size": 8, "feature_batch": 8}))

trained(TensorRows(torch.zeros(32, 3, 512, 512, dtype=torch.uint8)))  # everything is imported and has its buffers
status = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
limit = 1024 * int(status["VmData"].split()[0]) + extra
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
source = open_array(path)
assert source.nbytes >= 10 * extra
print(trained(source if way == "source" else torch.from_numpy(np.load(path)))[0]["steps"])
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA")
@pytest.mark.parametrize("way", ["source", "memory"])
def test_ten_times_as_much_as_the_process_may_use(way: str, tmp_path: Path) -> None:
    """Private memory beyond what the process has before it begins is limited by the system to 100 MB; pages of a file that are
    only read do not count."""
    extra, row = 100 << 20, 3 * 512 * 512
    count = -(-10 * extra // row)
    array = np.lib.format.open_memmap(tmp_path / "large.npy", mode="w+", dtype=np.uint8, shape=(count, 3, 512, 512))
    array[:, 0, 0, 0] = np.arange(count) % 251  # all else is a hole in the file
    array.flush()
    del array
    command = [sys.executable, "-c", LIMITED, str(tmp_path / "large.npy"), way, str(extra)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}  # helpers of the tests too
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if way == "source":
        assert done.returncode == 0, done.stderr[-2000:]
        assert int(done.stdout) > 0
    else:
        assert done.returncode != 0
        assert "MemoryError" in done.stderr or "allocate memory" in done.stderr, done.stderr[-2000:]
