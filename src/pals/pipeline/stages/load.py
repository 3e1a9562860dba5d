"""Stage 2, what was given, loaded: pictures decoded or vectors read, and what the answers say by themselves."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pals.crowd import Consensus, dawid_skene
from pals.data.dataset import Items
from pals.data.row_source import Inputs, subset
from pals.labels.candidates import CandidateSets
from pals.pipeline.evaluate import Graded, read_truth
from pals.pipeline.progress import Monitor
from pals.pipeline.stages.images import READING, ReadPictures, read_pictures
from pals.pipeline.stages.plan import Plan
from pals.pipeline.stages.read_answers import answered_first
from pals.pipeline.stages.vectors import read_matrix, row_names
from pals.pipeline.stages.warm_start import earlier_posterior
from pals.readers import Votes
from pals.runs.extractor import Normalisation, frozen_network, input_statistics, patches_name, sized_encoder
from pals.runs.feature_cache import BackgroundEncoder, content_mark
from pals.runs.run_config import VotesConfig
from pals.runs.run_json import read_about
from pals.training.engine import find_device
from pals.util.errors import InputError
from pals.vision.augment import Views, image_views, vector_views
from pals.vision.images.image_cache import Watch, default_cache
from pals.vision.images.pixel_statistics import image_statistics
from pals.vision.networks import Network
from pals.vision.networks.patch_features import PatchNetwork
from pals.vision.pretrained import PATCHES, Encoder


class Looked(NamedTuple):
    """Pictures that were encoded for the first time, and how long that took, their decoding included."""

    pictures: int = 0
    seconds: float = 0.0


NOTHING = Looked()


@dataclass(frozen=True)
class Loaded:
    """Everything that a run on one's own items starts from; items with answers come first."""

    plan: Plan
    items: Items
    votes: Votes
    views: Views
    statistics: Normalisation
    candidates: CandidateSets
    "Of the items that are trained on."
    trained_M: Tensor
    "Which items those are."
    consensus: Consensus
    "What the answers say by themselves."
    mark: str
    "Of the content of all pictures or vectors: a run is resumed only with those it began with."
    truth: Graded | None = None
    bad: tuple[str, ...] = ()
    "Pictures that could not be read, and why."
    encoder: Network | None = None
    "The frozen network with its weights, where there is one; patches are still to be cut."
    looked: Looked = NOTHING
    "What it has seen of the pictures while others were decoded."

    @property
    def warnings(self) -> list[str]:
        """What a reader of the report should know of the files: everything that was skipped, did not match or was left out."""
        return [*self.plan.matched.warnings, *(f"Left out: {line}" for line in self.bad)]


def load(plan: Plan, monitor: Monitor | None = None) -> Loaded:
    """Decode the pictures (once: the cache keeps them, unless they are streamed), or read the vectors. Refuses other inputs
    than the run began with."""
    monitor, encoder = monitor or Monitor(), encoder_of(plan)
    known = None if plan.data.images is None else input_statistics(plan.config.network)
    started = time.perf_counter()
    with _looking(plan, encoder, known) as ahead:
        watch = None if ahead is None else ahead.add
        read = read_inputs(plan.data, plan.matched.votes, known, plan.cache, monitor, plan.stream, watch)
    items, votes, views, statistics, bad = read
    looked = NOTHING if ahead is None else Looked(ahead.encoded, time.perf_counter() - started)
    candidates = votes.to_candidates(on_empty="drop", use_gold=plan.data.gold)
    if plan.data.answers_only:  # nothing is trained on their shares, a large table
        candidates = replace(candidates, frequency_NC=None)
    mark = _marked(items.inputs, monitor)
    _refuse_other_inputs(plan.folder, mark)
    return Loaded(
        plan=plan,
        items=items,
        votes=votes,
        views=views,
        statistics=statistics,
        candidates=candidates,
        trained_M=_places(items.ids, candidates.ids),
        consensus=dawid_skene(votes, start_NC=earlier_posterior(votes, plan.data.earlier)),
        mark=mark,
        truth=None if plan.truth is None else read_truth(plan.truth, votes),
        bad=bad,
        encoder=encoder,
        looked=looked,
    )


def encoder_of(plan: Plan) -> Network | None:
    """The frozen network with its weights; patches are still to be cut."""
    network = plan.config.network
    if not network.frozen:
        return None
    return frozen_network(replace(network, name=encoder_name(plan)), plan.data.size, plan.config.seed)


def encoder_name(plan: Plan) -> str:
    name = plan.config.network.name
    return patches_name(plan.data.mirror) if name == PATCHES else name


def as_encoder(plan: Plan, network: Network, statistics: Normalisation) -> Encoder:
    """For pictures that have its size already."""
    return sized_encoder(plan.config.network.name, network, statistics)


def _looking(
    plan: Plan, network: Network | None, known: Normalisation | None
) -> AbstractContextManager[BackgroundEncoder | None]:
    """What encodes pictures while others are decoded: pretrained networks, which need to know of no other picture, where they
    do not want the cores that decode. Two kinds of work in turn on all cores of a CPU take less time than both at once."""
    if network is None or known is None or isinstance(network, PatchNetwork):
        return nullcontext()
    if find_device(plan.config.engine.device).type == "cpu":
        return nullcontext()
    return BackgroundEncoder(as_encoder(plan, network, known), plan.cache or default_cache(), plan.config.engine.device)


class ReadInputs(NamedTuple):
    """Pictures or vectors in the order of the votes' items, of which those that could not be read are left out."""

    items: Items
    votes: Votes
    views: Views
    statistics: Normalisation
    bad: tuple[str, ...]


def read_inputs(
    data: VotesConfig,
    votes: Votes,
    known: Normalisation | None = None,
    cache: Path | None = None,
    monitor: Monitor | None = None,
    stream: bool | None = None,
    watch: Watch | None = None,
) -> ReadInputs:
    """What these votes are about; pictures standardised by what is known to suit the network, or by their own statistics. Of
    answers alone, vectors without a number. `watch` sees pictures as they are decoded."""
    if data.images is not None:
        pictures = read_pictures(data, votes.items, cache or default_cache(), stream, monitor or Monitor(), watch)
        return _pictures(data, votes, known, pictures)
    if data.features is not None:
        return _vectors(data, votes)
    nothing = torch.zeros(len(votes.items), 0)
    return ReadInputs(Items(nothing, votes.items), votes, vector_views(nothing[0], nothing[0]), Normalisation((), ()), ())


def _pictures(data: VotesConfig, votes: Votes, known: Normalisation | None, pictures: ReadPictures) -> ReadInputs:
    inputs, names, left_out = pictures
    bad = tuple(f"{image.name}: {image.reason}" for image in left_out)
    if bad:
        votes = answered_first(votes.match(names)[0])
    statistics = known or Normalisation(*image_statistics(inputs))
    images = inputs if names == votes.items else subset(inputs, _places(names, votes.items))
    return ReadInputs(Items(images, votes.items), votes, picture_views(data, statistics), statistics, bad)


def picture_views(config: VotesConfig, statistics: Normalisation) -> Views:
    """How pictures of this size are varied in training."""
    strong: Literal["cifar", "imagenet"] = "cifar" if config.size <= 64 else "imagenet"
    return image_views(*statistics, pad=max(1, config.size // 8), flip=config.mirror, strong=strong, cutout=config.size // 2)


def _vectors(data: VotesConfig, votes: Votes) -> ReadInputs:
    row_N = _places(row_names(data, votes), votes.items).numpy()
    matrix = torch.from_numpy(np.asarray(read_matrix(data), dtype=np.float32)[row_N])
    mean_D, std_D = matrix.mean(dim=0), matrix.std(dim=0).clamp_min(1e-6)
    statistics = Normalisation(tuple(mean_D.tolist()), tuple(std_D.tolist()))
    return ReadInputs(Items(matrix, votes.items), votes, vector_views(mean_D, std_D), statistics, ())


def _places(names: Sequence[str], wanted: Sequence[str]) -> Tensor:
    place = {name: row for row, name in enumerate(names)}
    return torch.tensor([place[name] for name in wanted])


def _marked(inputs: Inputs, monitor: Monitor) -> str:
    if isinstance(inputs, Tensor):
        return content_mark(inputs)
    with monitor.counting(READING) as count:
        return content_mark(inputs, count)


def _refuse_other_inputs(folder: Path, mark: str) -> None:
    """A run that was begun says with what (one of an earlier version does not)."""
    if read_about(folder).get("data_mark", mark) != mark:
        raise InputError(
            f"The pictures or vectors have changed since {folder} was started, though their names have not. "
            f"Restore them to resume it, or choose another --out."
        )
