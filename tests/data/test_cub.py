"""CUB-200-2011: both layouts, order, views, damaged files, a short training."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from _picture_sets import BIRDS, make_cub, make_folders
from PIL import Image

from _refused import refused
from pals.data import load_dataset
from pals.data.row_source import ItemSource
from pals.labels.noise import official_candidates
from pals.runs.run import Run
from pals.runs.run_config import RunConfig
from pals.training.engine import Engine
from pals.vision.augment import Views
from pals.vision.augment.augmentations import PICO_VIEWS
from pals.vision.images.decoding import decode
from pals.vision.networks.resnets import IMAGENET


@pytest.fixture(autouse=True)
def _cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PALS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PALS_DATA", raising=False)


def columns(path: Path) -> dict[int, str]:
    return {int(line.split()[0]): line.split()[1] for line in path.read_text().splitlines()}


def test_where_memory_is_short_pictures_stay_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_cub(tmp_path / "CUB_200_2011")
    held = load_dataset("cub200", data_dir=tmp_path)
    monkeypatch.setattr("pals.data.row_source.available_memory", lambda: 1.0)
    read = load_dataset("cub200", data_dir=tmp_path)
    assert isinstance(held.train.inputs, torch.Tensor) and isinstance(read.train.inputs, ItemSource)
    assert torch.equal(read.train.inputs[:], held.train.inputs)
    assert read.train.shape == held.train.shape and read.view_shape == held.view_shape


def test_the_archive_is_read_in_its_own_order_and_comes_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_cub(tmp_path / "CUB_200_2011")
    birds = load_dataset("cub200", data_dir=tmp_path)
    names, label, role = (columns(root / f"{f}.txt") for f in ("images", "image_class_labels", "train_test_split"))
    assert birds.class_names == BIRDS
    for items, truth, wanted in ((birds.train, birds.truth, "1"), (birds.test, birds.test_truth, "0")):
        numbers = [number for number in names if role[number] == wanted]
        assert items.ids == tuple(f"images/{names[number]}" for number in numbers)
        assert truth.label_N.tolist() == [int(label[number]) - 1 for number in numbers]
        assert items.inputs.shape == (len(numbers), 3, 256, 256)
        for row, name in enumerate(items.ids):
            np.testing.assert_array_equal(items.inputs[row].numpy(), decode(root / name, 256, how="torchvision-crop"))
    assert (len(birds.train), len(birds.test), birds.votes) == (25, 5, None)
    root = make_cub(tmp_path / "CUB_200_2011")
    first = load_dataset("cub200", data_dir=root)
    monkeypatch.setenv("PALS_DATA", str(tmp_path))
    monkeypatch.setattr("pals.vision.images.load_folder.read_image", None)  # would be called to decode
    again = load_dataset("cub200")
    assert torch.equal(first.train.inputs, again.train.inputs) and torch.equal(first.test.inputs, again.test.inputs)


def test_class_folders_and_those_that_do_not_fit(tmp_path: Path) -> None:
    root = make_folders(tmp_path / "cub200")
    birds = load_dataset("cub200", data_dir=tmp_path)
    assert birds.class_names == BIRDS and birds.train.ids[0] == f"train/{BIRDS[0]}/0.png"
    assert list(birds.train.ids) == sorted(birds.train.ids)
    assert birds.truth.label_N.tolist() == birds.test_truth.label_N.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    other = root / "test" / "004.Groove_billed_Ani"
    other.mkdir()
    (root / "test" / BIRDS[0] / "0.png").rename(other / "0.png")
    refused("004.Groove_billed_Ani is no class of .*train", load_dataset, "cub200", data_dir=tmp_path)
    (other / "0.png").rename(root / "test" / "0.png")
    refused(r"test/0\.png is in no class folder", load_dataset, "cub200", data_dir=tmp_path)


def test_views(tmp_path: Path) -> None:
    make_cub(tmp_path / "CUB_200_2011", items=12)
    birds = load_dataset("cub200", data_dir=tmp_path)
    inputs, generator = birds.train.inputs, torch.Generator().manual_seed(0)
    assert birds.view_shape == (3, 224, 224)
    middle = inputs[:, :, 16:240, 16:240].float() / 255
    mean, std = (torch.tensor(values)[:, None, None] for values in IMAGENET)
    expected = (middle - mean) / std
    torch.testing.assert_close(birds.views.make("eval", inputs, generator), expected, atol=1e-5, rtol=0)
    views = birds.views.including(PICO_VIEWS)
    for name in ("weak", "strong", "pico_weak"):
        made = views.make(name, inputs, generator)
        assert made.shape == (len(inputs), 3, 224, 224) and made.isfinite().all()
    weak = birds.views.make("weak", inputs.repeat(4, 1, 1, 1), generator)  # boxes of noise: the mean stays
    assert (weak.mean() - birds.views.make("eval", inputs, generator).mean()).abs() < 0.05


@pytest.mark.parametrize("size", [(300, 200), (200, 301), (257, 640), (256, 256), (97, 99)])
def test_eval_pixels_are_torchvisions(tmp_path: Path, size: tuple[int, int]) -> None:
    """Resize(256), CenterCrop(224), as torchvision does them with Pillow."""
    rng = np.random.default_rng(0)
    Image.fromarray(rng.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)).save(tmp_path / "a.jpg", quality=80)
    whole = Image.open(tmp_path / "a.jpg").convert("RGB")
    short, long = min(size), max(size)
    new = (256, int(256 * long / short)) if size[0] <= size[1] else (int(256 * long / short), 256)
    resized = whole.resize(new, Image.Resampling.BILINEAR)
    top, left = round((new[1] - 224) / 2.0), round((new[0] - 224) / 2.0)
    expected = np.asarray(resized.crop((left, top, left + 224, top + 224))).transpose(2, 0, 1)
    kept = decode(tmp_path / "a.jpg", 256, how="torchvision-crop")
    np.testing.assert_array_equal(kept[:, 16:240, 16:240], expected)
    Image.new("RGB", (20_000, 2)).save(tmp_path / "a.png")
    refused("20000 x 2 pixels are too long and narrow", decode, tmp_path / "a.png", 256, how="torchvision-crop")


DAMAGE = {
    "classes.txt": [
        (None, r"classes\.txt is missing. Unpack CUB_200_2011.tgz again"), ("", "it is empty"),
        ("1 a\n2\n", r"line 2 is '2', not a number and"), ("1 a\n1 b\n", "line 2 names number 1 for the second time"),
        ("1 a\n2 b\n", r"image_class_labels.txt .* but this file has 3 for it"),
    ],
    "images.txt": [
        ("x y\n", r"images\.txt does not hold what it should: line 1"),
        ("1 ../../secret.png\n", r"image 1 is '../../secret.png', which is not a path within images/"),
        ("1 /etc/secret.png\n", "not a path within images/"),
        ("99 a.png\n", r"image_class_labels.txt .* image 99 \(a.png\) is in images.txt, but this file does not name it"),
    ],
    "image_class_labels.txt": [(None, "is missing"), ("1 one\n", "image 1 has 'one' where a number belongs")],
    "train_test_split.txt": [(None, "is missing"), ("1 7\n", r"train_test_split.txt .* but this file has 7 for it")],
}  # fmt: skip


@pytest.mark.parametrize(("file", "text", "message"), [(f, t, m) for f, cases in DAMAGE.items() for t, m in cases])
def test_damaged_lists_are_named(tmp_path: Path, file: str, text: str | None, message: str) -> None:
    root = make_cub(tmp_path / "CUB_200_2011", items=6)
    (root / file).unlink()
    if text is not None:
        (root / file).write_text(text)
    refused(message, load_dataset, "cub200", data_dir=tmp_path)


def test_an_absent_set_or_an_absent_or_damaged_picture_is_named(tmp_path: Path) -> None:
    root = make_cub(tmp_path / "CUB_200_2011", items=6)
    absent = root / "images" / BIRDS[1] / "Bird_0001_1.png"
    moved = absent.rename(tmp_path / "away.png")
    refused("No CUB-200-2011 in .*is images.txt or train", load_dataset, "cub200", data_dir=tmp_path / "elsewhere")
    refused("PALS_DATA is not set", load_dataset, "cub200")
    refused(rf"{absent.name} cannot be used: the file does not exist", load_dataset, "cub200", data_dir=tmp_path)
    moved.rename(absent)
    victim = root / "images" / BIRDS[2] / "Bird_0002_2.png"
    victim.write_bytes(victim.read_bytes()[:100])
    refused(f"{victim.name} cannot be used: .* Unpack the data set again", load_dataset, "cub200", data_dir=tmp_path)


@pytest.mark.slow
def test_a_short_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Engine, "chunk", 640)  # of CIFAR's size: ten of these
    make_cub(tmp_path / "CUB_200_2011")
    values = {"data": {"name": "cub200", "draws": "official"}, "network": {"name": "small-cnn", "weights": None}}
    values |= {"train": {"epochs": 1, "batch_size": 8, "feature_batch": 8}, "engine": {"device": "cpu"}}
    run = Run(RunConfig.of(values), tmp_path / "run", tmp_path)
    expected = official_candidates(run.dataset.truth, seed=42, partial_rate=0.05, noise_rate=0.2, ids=run.dataset.train.ids)
    assert torch.equal(run.candidates.allowed_NC, expected.candidates.allowed_NC)
    made: list[int] = []
    views = run.trainer.views
    counted = lambda name, inputs, generator: made.append(len(inputs)) or Views.make(views, name, inputs, generator)  # noqa: E731
    monkeypatch.setitem(vars(views), "make", counted)
    records = list(run.epochs())
    assert max(made) == 8  # large pictures, so one batch at a time
    assert records[0]["steps"] == 4  # 25 pictures in batches of 8, the last one filled
    assert 0 <= records[0]["test_accuracy"] <= 1 and (tmp_path / "run" / "summary.json").exists()
