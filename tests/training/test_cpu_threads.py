"""Several batches at a time, each on a core of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
import torch

from pals.training.extract import encode
from pals.training.inference import batch_threads, map_in_threads
from pals.vision.networks import build_network
from pals.vision.pretrained import Encoder


@pytest.fixture(autouse=True)
def three_cores() -> Iterator[None]:
    cores = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(cores)


def test_in_order_and_at_the_same_time() -> None:
    together = threading.Barrier(3)  # passed by three at once, or not at all

    def work(number: int) -> int:
        together.wait(timeout=10)
        time.sleep(0.01 * (3 - number % 3))
        return number

    assert list(map_in_threads(work, range(9), 3)) == list(range(9))


def test_each_uses_one_core_and_afterwards_all_are_there() -> None:
    assert set(map_in_threads(lambda _: torch.get_num_threads(), range(9), 3)) == {1}
    assert torch.get_num_threads() == 3
    seen = []
    thread = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))  # which asks what all threads are to use
    thread.start()
    thread.join()
    assert seen == [3]


def test_no_more_is_taken_than_is_needed_soon() -> None:
    taken = []

    def parts() -> Iterator[int]:
        for number in range(20):
            taken.append(number)
            yield number

    results = map_in_threads(lambda number: number, parts(), 2, ahead=1)
    next(results)
    assert len(taken) == 3
    results.close()
    assert torch.get_num_threads() == 3


def test_an_error_comes_through() -> None:
    with pytest.raises(ZeroDivisionError):
        list(map_in_threads(lambda number: 1 // number, range(4), 2))
    assert torch.get_num_threads() == 3


def test_features_are_the_same_with_any_number_of_lanes() -> None:
    assert batch_threads(torch.device("cpu")) == 3 and batch_threads(torch.device("cuda")) == 1
    network = build_network("small-cnn", (3, 16, 16), 2).eval()
    encoder = Encoder("x", network, 16, (0.5,) * 3, (0.2,) * 3, None, "")
    images = torch.randint(256, (23, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    told: list[int] = []
    in_three = encode(images, encoder, batch=4, progress=lambda done, _: told.append(done))
    torch.set_num_threads(1)
    torch.testing.assert_close(in_three, encode(images, encoder, batch=4))
    assert told == [4, 8, 12, 16, 20, 23]
    assert not in_three.is_inference() and not in_three.requires_grad
