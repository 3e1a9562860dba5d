"""What a run will take, said before it starts: every stage is tried on a few items, on this machine, and multiplied out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from pals.crowd import LANDMARKS, dawid_skene
from pals.data import Dataset, Items
from pals.fitting.inputs import picture_views, read_matrix
from pals.labeling.neighbors import CPU_BLOCK, DEVICE_BLOCK, nearest
from pals.labels.candidates import CandidateSets
from pals.model import check_saveable
from pals.readers import Votes
from pals.runs import Run
from pals.runs.settings import RunConfig, VotesConfig
from pals.training.engine import Engine, find_device
from pals.training.inference import encode_images
from pals.training.trainer import items_at_once
from pals.util.errors import InputError
from pals.util.words import duration as in_words
from pals.vision.augment import vector_views
from pals.vision.backbones import Network, build_network
from pals.vision.backbones.patches import LOOKED_AT, PatchNetwork
from pals.vision.images import default_cache, load_images
from pals.vision.images.store import Settings, Store, list_of

DECODED = 64  # pictures that are decoded for it
ENCODED = 32  # pictures that go through a frozen network
TRIED = 512  # items that an epoch is made on
COMPARED = 2048  # rows that a search for neighbours is made in
ON_A_GPU = 32  # times as many of both: with few it only waits for the next order
MULTIPLIED = 1024  # rows and columns of a product of matrices
ROUNDS = 250
"""Of expectation and maximisation in all: for every strength of the prior, with and without hard items, with opinions."""
PAGE = 3.0
"""Seconds for tables, thumbnails and the page, which hardly depend on anything."""
PROGRAM = 350 << 20  # bytes of Python and the libraries, before anything is loaded
COPIES = 6
"""Of a table of items by landmarks that a regression on left-out items holds; of responses to patches fewer:"""
COPIES_OF_RESPONSES = 4
MOST_RESPONSES = 512 << 20  # bytes of them that are kept

GREY = ((0.5, 0.5, 0.5), (0.25, 0.25, 0.25))


@dataclass(frozen=True)
class Forecast:
    """Seconds of each stage, and memory."""

    decoding: float
    features: float
    training: float
    results: float
    bytes: int
    compiled: bool = False
    "The network will be compiled, which makes it quicker than the trial was."

    @property
    def seconds(self) -> float:
        return self.decoding + self.features + self.training + self.results

    def __str__(self) -> str:
        stages = ("decoding", "features", "training", "results")
        parts = [f"{name} {in_words(value)}" for name in stages if (value := getattr(self, name)) >= 0.5]
        listed = f" ({', '.join(parts)})" if len(parts) > 1 else ""
        most = "at most " if self.compiled else ""
        return f"{most}about {in_words(self.seconds)}{listed} and {self.bytes / 2**30:.1f} GiB of memory"


def forecast(config: RunConfig, votes: Votes, encoder: Network | None, *, cache: Path | None = None) -> Forecast:
    """For these settings and votes (their items are all that there are). `encoder` is the frozen network, if there is one."""
    data = config.data
    assert isinstance(data, VotesConfig)
    sets = votes.to_candidates(on_empty="drop", use_gold=data.gold)
    items, shape = len(votes.items), _shape(data, encoder)
    run, per_item = _trial(config, sets, shape)
    kept = 0 if encoder is None else bytes_of_responses(encoder, items)
    width = kept // (4 * items) or (shape[0] if len(shape) == 1 else 0)
    searching = _searching(run, len(sets)) if getattr(config.method, "neighbors", None) else 0.0
    return Forecast(
        decoding=_decoding(data, votes, cache) if data.images is not None else 0.0,
        features=_encoding(encoder, data.size, items, config.engine.device) if encoder is not None else 0.0,
        training=per_item * len(sets) * _epochs(data, config.train.epochs) + searching * config.train.epochs,
        results=per_item * items + searching + _weighing(votes) + _regression(items, width) + PAGE,
        bytes=memory_needed(config, run.trainer.engine, shape, items, len(sets), sets.num_classes) + COPIES_OF_RESPONSES * kept,
        compiled=Engine(config.engine).compiled,
    )


def _shape(data: VotesConfig, encoder: Network | None) -> tuple[int, ...]:
    """Of what the trained network reads."""
    if encoder is not None:
        return (encoder.feature_width,)
    return (3, data.size, data.size) if data.images is not None else (read_matrix(data).shape[1],)


def _time(work: Callable[[], object]) -> float:
    """Seconds of the quicker of two times: the first warms up."""
    taken = []
    for _ in range(2):
        started = time.perf_counter()
        work()
        taken.append(time.perf_counter() - started)
    return min(taken)


def _decoding(data: VotesConfig, votes: Votes, cache: Path | None) -> float:
    """Seconds for the pictures that the cache does not have, from some of these."""
    folder = Path(data.images or "")
    settings = Settings(str(folder.resolve()), data.size, data.resize)
    present = Store.read(list_of(cache or default_cache(), settings), settings)
    missing = [name for name in votes.items if name not in present.entries]
    names = missing[:: max(1, len(missing) // DECODED)][:DECODED]
    if not names:
        return 0.0
    started = time.perf_counter()
    with suppress(InputError):  # whatever is wrong will be said when all of them are decoded
        load_images(folder, data.size, cache=None, names=names, skip_bad=True, how=data.resize)
    return (time.perf_counter() - started) / len(names) * len(missing)


def _encoding(encoder: Network, size: int, items: int, device: str) -> float:
    images = torch.full((ENCODED, 3, size, size), 127, dtype=torch.uint8)
    seconds = _time(lambda: encode_images(encoder, images, *GREY, device, batch=64))
    learned_from = min(items, LOOKED_AT) if isinstance(encoder, PatchNetwork) else 0
    return seconds / ENCODED * (items + learned_from)


def _trial(config: RunConfig, sets: CandidateSets, shape: tuple[int, ...]) -> tuple[Run, float]:
    """A run like the real one on a few items, without compiling, and seconds of an epoch for each of them. What the inputs show
    does not matter."""
    assert isinstance(config.data, VotesConfig)
    tried = TRIED * (1 if find_device(config.engine.device).type == "cpu" else ON_A_GPU)
    part = sets.take(torch.arange(min(len(sets), tried)))
    generator = torch.Generator().manual_seed(config.seed)
    inputs, views = torch.randn(len(part), *shape, generator=generator), vector_views(torch.zeros(shape), torch.ones(shape))
    if len(shape) == 3:
        inputs, views = (50 * inputs + 127).clamp(0, 255).byte(), picture_views(config.data, *GREY)
    dataset = Dataset("votes", part.class_names, Items(inputs, part.ids), None, None, None, views, votes=part)
    run = Run(replace(config, engine=replace(config.engine, compile=False)), dataset=dataset)
    taken = [record["seconds"] for record in islice(run.trainer.epochs(), 2)]  # the first warms up; some methods need but one
    check_saveable(run.trainer.method.predictor)  # better refused now than after the training
    return run, min(taken, default=0.0) / len(part)


def _epochs(data: VotesConfig, epochs: int) -> float:
    """Epochs on all items in all. Those of cross-fitting are about half as dear: one view, no features."""
    return epochs + 0.5 * max(data.folds - 1, 0) * data.fold_epochs


def _searching(run: Run, items: int) -> float:
    """Seconds for the neighbours of all items: grows with their square, which a trial on a few items does not show."""
    engine = run.trainer.engine
    rows = min(items, COMPARED * (1 if engine.device.type == "cpu" else ON_A_GPU))
    width = getattr(run.trainer.method.predictor, "feature_width", 512)
    unit_ND = torch.nn.functional.normalize(torch.randn(rows, width)).to(engine.device)

    def search() -> None:
        nearest(unit_ND, max(1, min(15, rows - 1)))
        engine.synchronize()

    return _time(search) * (items / rows) ** 2 if rows > 1 else 0.0


def _weighing(votes: Votes) -> float:
    """Seconds for who errs how and what the answers come to, from one round of it."""
    return ROUNDS * _time(lambda: dawid_skene(votes, strength=1.0, iterations=1, tolerance=0.0))


def bytes_of_responses(encoder: Network, items: int) -> int:
    """What the responses of a patch network to so many pictures take, all of which are compared; 0 where they are too many and
    their principal components must do."""
    needed = 4 * items * encoder.components.shape[1] if isinstance(encoder, PatchNetwork) else 0
    return needed if needed <= MOST_RESPONSES else 0


def _regression(items: int, width: int) -> float:
    """Seconds of `leave_one_out` on vectors of this width (0: there are none), from the multiplications that it makes."""
    if not width:
        return 0.0
    square = torch.rand(MULTIPLIED, MULTIPLIED, dtype=torch.float64)
    landmarks = min(items, LANDMARKS)
    return _time(lambda: square @ square) * _multiplications(items, landmarks, width) / (2 * MULTIPLIED**3)


def _multiplications(items: int, landmarks: int, width: int) -> int:
    """Those of single precision, of the distances, count half."""
    return (5 * items + 2 * landmarks) * landmarks**2 + items * landmarks * width


# ---- memory


def memory_needed(config: RunConfig, engine: Engine, shape: tuple[int, ...], items: int, answered: int, classes: int) -> int:
    """Bytes: the program and the inputs; the views of one stretch of steps, what a step keeps for its gradient, the neighbours'
    similarities and three copies of the weights, or, if that is more, what the regression on left-out items holds."""
    network = build_network(config.network.trained, shape, classes)
    engine.place(network)
    batch = min(config.train.batch_size, answered)
    kept = _kept_by_a_step(engine, network, torch.randn(2 * batch, *shape, device=engine.device))
    size = math.prod(shape)
    whole = items * size * (1 if len(shape) == 3 else 4)
    views = 2 * 4 * size * min(items_at_once(engine, size), answered)
    block = CPU_BLOCK if engine.device.type == "cpu" else DEVICE_BLOCK
    weights = 12 * sum(p.numel() for p in network.parameters())
    regression = COPIES * 8 * items * min(items, LANDMARKS) if len(shape) == 1 else 0
    return PROGRAM + whole + max(views + kept + min(block, 4 * answered**2) + weights, regression)


def _kept_by_a_step(engine: Engine, network: Network, inputs: Tensor) -> int:
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    network.train()
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), engine.autocast():
        network(inputs)
    return sum(kept.values())
