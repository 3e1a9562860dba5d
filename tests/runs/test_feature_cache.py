"""Features on disk: by pixels and weights, written block by block, never believed when damaged."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from pals.data.row_source import TensorRows
from pals.runs import feature_cache
from pals.runs.feature_cache import BackgroundEncoder, encode_cached
from pals.training.extract import encode
from pals.vision.networks import build_network
from pals.vision.pretrained import Encoder


def encoder(seed: int = 0, mean: float = 0.5) -> Encoder:
    torch.manual_seed(seed)
    network = build_network("small-cnn", (3, 16, 16), 2).eval()
    return Encoder("small-cnn", network, None, (mean,) * 3, (0.25,) * 3, None, "")


def pictures(count: int = 10, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(256, (count, 3, 16, 16), dtype=torch.uint8, generator=generator)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feature_cache, "BLOCK_IMAGES", 4)


def files(cache: Path) -> list[Path]:
    return sorted((cache / feature_cache.CACHE_FOLDER).rglob("*.safetensors"))


def test_every_image_is_encoded_once(tmp_path: Path) -> None:
    images, told = pictures(), list[tuple[int, int]]()
    first, fresh = encode_cached(images, encoder(), tmp_path, progress=lambda done, total: told.append((done, total)))
    torch.testing.assert_close(first, encode(images, encoder()))
    assert fresh == 10 and told[-1] == (10, 10) and len(files(tmp_path)) == 3
    again, fresh = encode_cached(images.flip(0), encoder(), tmp_path)  # in another order, too
    assert fresh == 0 and torch.equal(again, first.flip(0))
    images[3, 0, 0, 0] ^= 1
    twice = images[[0, 3, 0, 3]]  # a changed one, and each of them twice
    features_ND, fresh = encode_cached(twice, encoder(), tmp_path)
    assert fresh == 1
    torch.testing.assert_close(features_ND, encode(twice, encoder()))


def test_images_of_a_source_are_read_block_by_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images, taken = pictures(), list[int]()
    for name in ("take", "rows"):
        read = getattr(TensorRows, name)
        monkeypatch.setattr(TensorRows, name, lambda self, which, read=read: taken.append(len(out := read(self, which))) or out)
    source = TensorRows(images)
    kept, fresh = encode_cached(source, encoder(), tmp_path)
    assert fresh == 10 and 0 < max(taken) <= feature_cache.BLOCK_IMAGES
    assert torch.equal(kept, encode_cached(images, encoder(), tmp_path / "other")[0])
    torch.testing.assert_close(encode(source, encoder(), batch=3), kept)


@pytest.mark.parametrize("other", [{"seed": 1}, {"mean": 0.4}])
def test_other_weights_or_another_standardisation_share_nothing(tmp_path: Path, other: dict[str, Any]) -> None:
    encode_cached(pictures(), encoder(), tmp_path)
    features_ND, fresh = encode_cached(pictures(), encoder(**other), tmp_path)
    assert fresh == 10
    torch.testing.assert_close(features_ND, encode(pictures(), encoder(**other)))


def test_what_was_finished_before_a_crash_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def crashing(images: Tensor, *rest: Any, **options: Any) -> Tensor:
        calls.append(len(images))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return encode(images, *rest, **options)

    monkeypatch.setattr(feature_cache, "encode", crashing)
    with pytest.raises(KeyboardInterrupt):
        encode_cached(pictures(), encoder(), tmp_path)
    features_ND, fresh = encode_cached(pictures(), encoder(), tmp_path)
    assert fresh == 2
    torch.testing.assert_close(features_ND, encode(pictures(), encoder()))


@pytest.mark.parametrize("spoil", [lambda data: data[:-9], lambda data: data[:-9] + b"\1" + data[-8:], lambda _: b""])
def test_a_damaged_block_is_made_again(tmp_path: Path, spoil: Any) -> None:
    encode_cached(pictures(), encoder(), tmp_path)
    path = max(files(tmp_path), key=lambda path: path.stat().st_size)
    path.write_bytes(spoil(path.read_bytes()))
    features_ND, fresh = encode_cached(pictures(), encoder(), tmp_path)
    assert fresh == 4
    torch.testing.assert_close(features_ND, encode(pictures(), encoder()))
    assert encode_cached(pictures(), encoder(), tmp_path)[1] == 0


def test_no_room_does_not_cost_the_features(tmp_path: Path) -> None:
    (tmp_path / "features").write_text("a file where the folder would be")
    with pytest.warns(UserWarning, match="cannot be kept in .* computed again next time"):
        features_ND, fresh = encode_cached(pictures(), encoder(), tmp_path)
    assert fresh == len(features_ND)
    torch.testing.assert_close(features_ND, encode(pictures(), encoder()))
    (tmp_path / "features").write_text("a file where the folder would be")
    ahead = BackgroundEncoder(encoder(), tmp_path)
    with pytest.warns(UserWarning, match="cannot be kept") as said:
        see(ahead, pictures(20))
    assert len(said) == 1 and ahead.encoded == 0
    ahead.pool.shutdown()


def see(ahead: BackgroundEncoder, images: Tensor) -> None:
    for image in images:
        ahead.add(image.numpy())


def test_full_blocks_are_encoded_ahead_and_once(tmp_path: Path) -> None:
    images = pictures()
    encode_cached(images[:4], encoder(), tmp_path)
    with BackgroundEncoder(encoder(), tmp_path) as ahead:
        see(ahead, torch.cat([images[:8], images[4:]]))  # eight known or twice; the last two images fill no block
    assert ahead.encoded == 4
    features_ND, fresh = encode_cached(images, encoder(), tmp_path)
    assert fresh == 2 and torch.equal(features_ND, encode_cached(images, encoder(), tmp_path / "other")[0])


def test_decoding_goes_on_meanwhile_but_never_more_than_a_block_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, may_end = threading.Semaphore(0), threading.Semaphore(0)

    def slow(images: Tensor, *rest: Any) -> Tensor:
        begun.release()
        assert may_end.acquire(timeout=10)
        return encode(images, *rest)

    monkeypatch.setattr(feature_cache, "encode", slow)
    images = pictures(12)
    with BackgroundEncoder(encoder(), tmp_path) as ahead:
        see(ahead, images[:7])  # does not wait, though the first block is not done
        assert begun.acquire(timeout=10) and ahead.encoded == 0
        eighth = threading.Thread(target=see, args=(ahead, images[7:8]))
        eighth.start()
        eighth.join(0.1)
        assert eighth.is_alive()  # two full blocks: it waits for the first
        may_end.release(3)
        eighth.join(10)
        assert not eighth.is_alive()
        see(ahead, images[8:])
    assert ahead.encoded == 12


def test_what_fails_ahead_is_an_error_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feature_cache, "encode", lambda *_: 1 // 0)
    with pytest.raises(ZeroDivisionError), BackgroundEncoder(encoder(), tmp_path) as ahead:
        see(ahead, pictures(4))
