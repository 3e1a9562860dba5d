"""The one loop over batches without gradient, the engine around it, and features of images: the quick way is the plain one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from _toy import toy_trainer
from pals.data.row_source import TensorRows
from pals.methods import Batch
from pals.training.engine import Engine, EngineConfig
from pals.training.extract import ImagePaths, encode, enlarged, folded
from pals.training.inference import InferenceStage, batch_threads, infer, inference_engine, map_in_threads
from pals.util.errors import InputError
from pals.vision.images.decoding import decode
from pals.vision.networks import Network, Output, build_network
from pals.vision.networks.fused import has_clamped_conv
from pals.vision.pretrained import Encoder, find_encoder

CPU = inference_engine("cpu")


class Doubling(nn.Module):
    """Features are twice the inputs, logits three times; memory lasts for `limit` items."""

    def __init__(self, limit: int = 100) -> None:
        super().__init__()
        self.limit, self.batches = limit, list[int]()

    def forward(self, x: Tensor) -> Output:
        if len(x) > self.limit:
            raise torch.OutOfMemoryError("too much")
        self.batches.append(len(x))
        return Output(3 * x, 2 * x)


def numbers(items: int = 10) -> Tensor:
    return torch.arange(2 * items, dtype=torch.float32).view(items, 2)


def test_each_network_reads_the_features_of_the_one_before() -> None:
    first, second = Doubling(), Doubling()
    chain = [InferenceStage(lambda x: x + 1, first), InferenceStage(lambda x: x - 1, second)]
    output = infer(CPU, chain, numbers(), 4)
    assert first.batches == second.batches == [4, 4, 2] and output.logits.equal(3 * (2 * (numbers() + 1) - 1))
    assert output.features.equal(2 * (2 * (numbers() + 1) - 1))
    engine = inference_engine("cpu")
    engine.compiled = True
    first, second = Doubling(), Doubling()
    output = infer(engine, [InferenceStage(lambda x: x, first), InferenceStage(lambda x: x, second)], numbers(), 4)
    assert first.batches == second.batches == [4, 4, 4] and output.logits.equal(6 * numbers())


@pytest.fixture
def three_cores() -> Iterator[None]:
    cores = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(cores)


@pytest.mark.usefixtures("three_cores")
def test_threads_work_at_the_same_time_in_order_on_one_core_each() -> None:
    together = threading.Barrier(3)  # passed by three at once, or not at all

    def work(number: int) -> tuple[int, int]:
        together.wait(timeout=10)
        time.sleep(0.01 * (3 - number % 3))
        return number, torch.get_num_threads()

    assert list(map_in_threads(work, range(9), 3)) == [(number, 1) for number in range(9)]
    with ThreadPoolExecutor(1) as pool:  # a new thread reads the setting for all threads
        assert pool.submit(torch.get_num_threads).result() == torch.get_num_threads() == 3
    taken = iter(range(20))
    results = map_in_threads(lambda number: number, taken, 2, ahead=1)
    next(results)
    assert next(taken) == 3
    results.close()
    with pytest.raises(ZeroDivisionError):
        list(map_in_threads(lambda number: 1 // number, range(4), 2))
    assert torch.get_num_threads() == 3


@pytest.mark.usefixtures("three_cores")
def test_features_are_the_same_with_any_number_of_threads() -> None:
    assert batch_threads(torch.device("cpu")) == 3 and batch_threads(torch.device("cuda")) == 1
    encoder = Encoder("x", build_network("small-cnn", (3, 16, 16), 2).eval(), 16, (0.5,) * 3, (0.2,) * 3, None, "")
    images = torch.randint(256, (23, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    done: list[int] = []
    in_three = encode(images, encoder, batch=4, progress=lambda count, _: done.append(count))
    torch.set_num_threads(1)
    torch.testing.assert_close(in_three, encode(images, encoder, batch=4))
    assert done == [4, 8, 12, 16, 20, 23] and not in_three.is_inference() and not in_three.requires_grad


def test_batches_are_halved_until_they_fit() -> None:
    """And every batch is reported."""
    sizes, done = list[int](), list[tuple[int, int]]()
    network = Doubling(limit=3)
    stages = [InferenceStage(lambda x: x, network)]
    output = infer(CPU, stages, numbers(), 8, on_oom=sizes.append, progress=lambda *counts: done.append(counts))
    assert sizes == [4, 2] and network.batches == [2] * 5
    assert done == [(2 * count, 10) for count in range(1, 6)] and output.logits.equal(3 * numbers())
    with pytest.raises(torch.OutOfMemoryError):
        infer(CPU, [InferenceStage(lambda x: x, Doubling(limit=0))], numbers(), 8)


def test_types_asked_for_and_nothing_at_all() -> None:
    network = build_network("mlp", (2,), 5)
    output = infer(CPU, [InferenceStage(lambda x: x, network)], numbers(0), device="cpu", dtype=torch.float64)
    assert output.logits.shape == (0, 5) and output.features.shape == (0, network.feature_width)
    assert output.logits.dtype == torch.float64
    with pytest.raises(InputError, match="A batch of 0 items"):
        infer(CPU, [InferenceStage(lambda x: x, network)], numbers(), 0)
    network = build_network("mlp", (2,), 5).double()
    output = infer(CPU, [InferenceStage(lambda x: x.double(), network)], numbers(), 4, dtype=torch.float64)
    with torch.no_grad():
        assert output.logits.equal(torch.cat([network.eval()(part.double()).logits for part in numbers().split(4)]))
    assert not output.logits.is_inference()


@pytest.fixture
def deterministic() -> Iterator[None]:
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("deterministic")
def test_determinism_is_of_an_engine_and_not_of_the_process() -> None:
    exact = Engine(EngineConfig(device="cpu", deterministic=True))
    assert torch.are_deterministic_algorithms_enabled()
    loose = Engine(EngineConfig(device="cpu"))
    assert not torch.are_deterministic_algorithms_enabled()
    with exact.inference(Doubling()):
        assert torch.are_deterministic_algorithms_enabled()
    with loose.inference(Doubling()):
        assert not torch.are_deterministic_algorithms_enabled()
    trainer = toy_trainer("average")
    exact.step(trainer.method, torch.optim.SGD(trainer.method.parameters()))
    assert torch.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize(("real", "precision"), [(True, "bf16"), (False, "fp32")])
def test_auto_precision_takes_no_emulated_bf16(real: bool, precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch says that any recent GPU supports bf16, unless it is asked to leave emulation out."""
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation or real)
    engine = Engine(EngineConfig(device="cpu"))
    engine.device = torch.device("cuda")
    assert engine._precision("auto") == precision


def test_steps_whose_batches_differ_in_their_groups_are_captured_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two batches with tensors of the same shapes, one of which has a target and the other a second group."""
    seen: list[Batch] = []
    trainer = toy_trainer("average")

    class Replayed:
        def __init__(self, function: Callable[..., Any], engine: Engine) -> None:
            self.function = function

        def __call__(self, *inputs: Tensor) -> Any:
            return self.function(*inputs)

    def loss(batch: Batch) -> Tensor:
        seen.append(batch)
        return torch.cat([parameter.flatten() for parameter in trainer.method.parameters()]).sum()

    monkeypatch.setattr("pals.training.engine.CapturedFunction", Replayed)
    monkeypatch.setattr(trainer.engine, "_captures", lambda module: True)
    monkeypatch.setattr(trainer.method, "loss", loss)
    step = trainer.engine.step(trainer.method, torch.optim.SGD(trainer.method.parameters()))
    row_B = torch.arange(3)
    step(Batch(row_B, (), row_B + 10))
    step(Batch(row_B, (), None, groups={"side": Batch(row_B + 20, (), None)}))
    first, second = seen
    assert first.target is not None and first.target.tolist() == [10, 11, 12] and not first.groups
    assert second.target is None and second.groups["side"].index_B.tolist() == [20, 21, 22]


@pytest.mark.parametrize("captured", [True, False])
def test_a_graph_records_no_cached_weights(captured: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    class Asking(Network):
        def forward(self, x: Tensor) -> Any:
            cached.append(torch.is_autocast_cache_enabled())
            return Output(x, x)

    cached: list[bool] = []
    engine = Engine(EngineConfig(device="cpu", precision="bf16"))
    monkeypatch.setattr(engine, "_captures", lambda network: captured)
    monkeypatch.setattr(engine, "_forward", lambda network: network)
    infer(engine, [InferenceStage(lambda x: x, Asking())], numbers())
    assert cached == [not captured]


def test_what_a_gpu_cannot_hold_is_pinned_batch_by_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole set stays as it is; the rows that are sent are copied from pinned memory, asynchronously."""
    engine, inputs = Engine(EngineConfig(device="cpu")), torch.arange(60, dtype=torch.uint8).view(20, 3)
    source = TensorRows(inputs)
    assert engine.place_inputs(inputs) is inputs and engine.place_inputs(source) is source
    assert torch.equal(engine.send(inputs[2:5]), inputs[2:5])
    engine, to = Engine(EngineConfig(device="cpu")), Tensor.to
    pinned, sent = list[int](), list[Tensor]()

    def spy_pin(self: Tensor) -> Tensor:
        pinned.append(self.data_ptr())
        return self

    def spy_to(self: Tensor, *target: Any, non_blocking: bool = False, **more: Any) -> Tensor:
        if target != (torch.device("cuda"),):
            return to(self, *target, **more)
        assert non_blocking and self.data_ptr() in pinned
        sent.append(self)
        return self

    inputs = torch.arange(60.0).view(20, 3)
    monkeypatch.setattr(engine, "device", torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (2 * inputs.nbytes - 1, 2**40))
    monkeypatch.setattr(Tensor, "pin_memory", spy_pin)
    monkeypatch.setattr(Tensor, "to", spy_to)
    placed = engine.place_inputs(inputs)
    assert isinstance(placed, TensorRows) and not pinned
    taken, first = engine.send(placed.take(torch.tensor([7, 0, 7]))), engine.send(placed[:4])
    assert torch.equal(taken, inputs[[7, 0, 7]]) and torch.equal(first, inputs[:4]) and len(sent) == 2


@pytest.fixture(scope="module")
def lite0() -> Encoder:
    return find_encoder("efficientnet-lite0")


def pictures(count: int, side: int, seed: int = 0) -> Tensor:
    """Smooth, so that filters matter little."""
    coarse = torch.rand(count, 3, 5, 5, generator=torch.Generator().manual_seed(seed)) * 255
    return nn.functional.interpolate(coarse, size=(side, side), mode="bilinear").to(torch.uint8)


def slowly(images: Tensor, encoder: Encoder) -> Tensor:
    """One by one, with the norms where they were."""
    mean, std = (torch.tensor(values)[:, None, None] for values in (encoder.mean, encoder.std))
    with torch.inference_mode():
        return torch.cat([encoder.network.encode(((image / 255 - mean) / std)[None]) for image in images])


def test_it_is_what_the_network_says(lite0: Encoder) -> None:
    images = pictures(5, 64)
    small = Encoder(**{**vars(lite0), "size": 64})
    got = encode(images, small, batch=2)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, slowly(images, small), atol=1e-4, rtol=1e-3)
    before = {name: value.clone() for name, value in lite0.network.state_dict().items()}
    quick = folded(lite0.network)
    assert not any(isinstance(module, nn.BatchNorm2d) for module in quick.modules())
    after = lite0.network.state_dict()
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)
    assert encode(torch.zeros(0, 3, 8, 8, dtype=torch.uint8), lite0).shape == (0, 1280)
    image = pictures(1, 32)
    by_pillow = Image.fromarray(image[0].permute(1, 2, 0).numpy()).resize((112, 112), Image.Resampling.BICUBIC)
    difference = enlarged(image, lite0)[0].permute(1, 2, 0).numpy().astype(int) - np.asarray(by_pillow)
    assert abs(difference).max() <= 1


def test_files_give_the_features_of_their_pixels(lite0: Encoder, tmp_path: Path) -> None:
    images = pictures(5, 32)
    for number, image in enumerate(images):
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(tmp_path / f"{number}.png")
    files = ImagePaths([tmp_path / f"{number}.png" for number in range(5)], side=32)
    told: list[tuple[int, int]] = []
    got = encode(files, lite0, batch=2, progress=lambda done, total: told.append((done, total)))
    assert told == [(2, 5), (4, 5), (5, 5)]
    pixels = torch.stack([torch.from_numpy(decode(path, 112)) for path in files.paths])
    torch.testing.assert_close(got, slowly(pixels, lite0), atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(encode(files.paths, lite0), got, atol=1e-4, rtol=1e-3)  # by name, their size looked up
    torch.testing.assert_close(encode([str(path) for path in files.paths], lite0), got, atol=1e-4, rtol=1e-3)
    alike = nn.functional.cosine_similarity(got, encode(images, lite0))  # another code for the same filter
    assert alike.min() > 0.99


def test_arrays_are_read_with_channels_first_or_last(lite0: Encoder) -> None:
    images = pictures(3, 16)
    small = Encoder(**{**vars(lite0), "size": 64})
    expected = encode(images, small)
    for array in (images.numpy(), images.permute(0, 2, 3, 1).numpy(), images.permute(0, 2, 3, 1)):
        torch.testing.assert_close(encode(array, small), expected, atol=1e-5, rtol=1e-4)


def test_patches_are_encoded_as_they_are() -> None:
    images = pictures(30, 16)
    encoder = find_encoder("patches", images=images)
    torch.testing.assert_close(encode(images, encoder), slowly(images, encoder), atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize(
    ("images", "batch", "text"),
    [
        (torch.zeros(2, 3, 8, 8), 4, "uint8"),
        (np.zeros((2, 3, 8, 8)), 4, "found torch.float64"),
        (torch.zeros(2, 3, 8, 8, dtype=torch.uint8), 0, "batch of 0"),
        (torch.zeros(2, 3, 8, 7, dtype=torch.uint8), 4, "7 pixels high or wide"),
        (torch.zeros(2, 5, 8, 8, dtype=torch.uint8), 4, "N x 3 x H x W"),
        ("a.png", 4, "a list of names"),
        ([1, 2], 4, "a list of names"),
        (None, 4, "a list of names"),
        (["no.png"], 4, "no.png"),
        (ImagePaths(["broken.png"], side=32), 4, r"broken\.png"),
    ],
)
def test_bad_input(images: Any, batch: int, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("broken.png").write_bytes(b"\x89PNG")
    encoder = Encoder("x", build_network("small-cnn", (3, 8, 8), 2), 8, (0.5,) * 3, (0.5,) * 3, None, "")
    with pytest.raises(InputError, match=text):
        encode(images, encoder, batch=batch)


def test_a_pass_is_saved_where_torch_can_and_changes_nothing(lite0: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    images = pictures(3, 64)
    small = Encoder(**{**vars(lite0), "size": 64})
    quick = encode(images, small)
    monkeypatch.setattr("pals.vision.networks.fused.has_clamped_conv", lambda: False)
    torch.testing.assert_close(encode(images, small), quick, atol=1e-4, rtol=1e-3)
    assert has_clamped_conv.__wrapped__() == torch.backends.mkldnn.is_available()

    def another_door(*_: object) -> Tensor:
        raise RuntimeError("expected other arguments")

    monkeypatch.setattr("pals.vision.networks.fused._clamped_conv", another_door)
    assert not has_clamped_conv.__wrapped__()
