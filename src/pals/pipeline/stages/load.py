"""Stage 2, loading: images decoded or vectors read, and the annotator model (Dawid-Skene) fitted to the answers alone."""

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
from pals.pipeline.stages.images import READING, ReadImages, read_images
from pals.pipeline.stages.plan import Plan
from pals.pipeline.stages.read_answers import answered_first
from pals.pipeline.stages.vectors import read_matrix, row_names
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


class EncodedAhead(NamedTuple):
    """Number of images that were encoded while others were decoded, and the seconds that both took."""

    images: int = 0
    seconds: float = 0.0


NOTHING_AHEAD = EncodedAhead()


@dataclass(frozen=True)
class Loaded:
    """The inputs of a run; the N items with answers come first.

    Args:
        plan: Stage 1.
        items: Images or vectors, with the names of the items.
        votes: Answers to these items.
        views: Augmentations.
        statistics: Mean and standard deviation of the inputs.
        candidates: Candidate sets of the M items that are trained on.
        trained_M: Row numbers of those items.
        consensus: Annotator model fitted to the answers alone.
        mark: Digest of all inputs: a run is resumed only with the same.
        truth: Known labels, for grading.
        bad: Images that could not be read, and why.
        encoder: The frozen network with its weights, if there is one; patches are not cut yet.
        ahead: What it encoded while other images were decoded.
    """

    plan: Plan
    items: Items
    votes: Votes
    views: Views
    statistics: Normalisation
    candidates: CandidateSets
    trained_M: Tensor
    consensus: Consensus
    mark: str
    truth: Graded | None = None
    bad: tuple[str, ...] = ()
    encoder: Network | None = None
    ahead: EncodedAhead = NOTHING_AHEAD

    @property
    def warnings(self) -> list[str]:
        """Everything in the files that was skipped, did not match or was left out, for the report."""
        return [*self.plan.matched.warnings, *(f"Left out: {line}" for line in self.bad)]


def load(plan: Plan, monitor: Monitor | None = None) -> Loaded:
    """Decode the images or read the vectors, and fit the annotator model to the answers.

    Raises:
        InputError: An input cannot be read, or the inputs are not those that the run began with.
    """
    monitor, encoder = monitor or Monitor(), encoder_of(plan)
    known = None if plan.data.images is None else input_statistics(plan.config.network)
    started = time.perf_counter()
    with _background_encoder(plan, encoder, known) as background:
        watch = None if background is None else background.add
        read = read_inputs(plan.data, plan.matched.votes, known, plan.cache, monitor, plan.stream, watch)
    items, votes, views, statistics, bad = read
    seconds = time.perf_counter() - started
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
        consensus=dawid_skene(
            votes, **({"strength": plan.config.method.strength} if plan.solved or plan.data.answers_only else {})
        ),
        mark=mark,
        truth=None if plan.truth is None else read_truth(plan.truth, votes),
        bad=bad,
        encoder=encoder,
        ahead=NOTHING_AHEAD if background is None else EncodedAhead(background.encoded, seconds),
    )


def encoder_of(plan: Plan) -> Network | None:
    """The frozen network with its weights, if the run has one; patches are not cut yet."""
    network = plan.config.network
    if not network.frozen:
        return None
    return frozen_network(replace(network, name=encoder_name(plan)), plan.data.size, plan.config.seed)


def encoder_name(plan: Plan) -> str:
    name = plan.config.network.name
    return patches_name(plan.data.mirror) if name == PATCHES else name


def as_encoder(plan: Plan, network: Network, statistics: Normalisation) -> Encoder:
    """The network as an encoder of images that have its size."""
    return sized_encoder(plan.config.network.name, network, statistics)


def _background_encoder(
    plan: Plan, network: Network | None, known: Normalisation | None
) -> AbstractContextManager[BackgroundEncoder | None]:
    """Encodes images while others are decoded, for a pretrained network on a GPU. On a CPU, both kinds of work in turn on all
    cores take less time than both at once."""
    if network is None or known is None or isinstance(network, PatchNetwork):
        return nullcontext()
    if find_device(plan.config.engine.device).type == "cpu":
        return nullcontext()
    return BackgroundEncoder(as_encoder(plan, network, known), plan.cache or default_cache(), plan.config.engine.device)


class ReadInputs(NamedTuple):
    """Images or vectors in the order of the votes' items, without those that could not be read."""

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
    """The images or vectors of the votes' items; with answers alone, vectors of width 0.

    Args:
        data: Settings of the data.
        votes: The answers.
        known: Mean and standard deviation that suit the network; default: those of the images.
        cache: Folder of decoded images.
        monitor: Receives progress.
        stream: Whether to decode images whenever they are needed.
        watch: Called with images as they are decoded.
    """
    if data.images is not None:
        images = read_images(data, votes.items, cache or default_cache(), stream, monitor or Monitor(), watch)
        return _images(data, votes, known, images)
    if data.features is not None:
        return _vectors(data, votes)
    nothing = torch.zeros(len(votes.items), 0)
    return ReadInputs(Items(nothing, votes.items), votes, vector_views(nothing[0], nothing[0]), Normalisation((), ()), ())


def _images(data: VotesConfig, votes: Votes, known: Normalisation | None, read: ReadImages) -> ReadInputs:
    inputs, names, left_out = read
    bad = tuple(f"{image.name}: {image.reason}" for image in left_out)
    if bad:
        votes = answered_first(votes.match(names)[0])
    statistics = known or Normalisation(*image_statistics(inputs))
    images = inputs if names == votes.items else subset(inputs, _places(names, votes.items))
    strong: Literal["cifar", "imagenet"] = "cifar" if data.size <= 64 else "imagenet"
    views = image_views(*statistics, pad=max(1, data.size // 8), flip=data.mirror, strong=strong, cutout=data.size // 2)
    return ReadInputs(Items(images, votes.items), votes, views, statistics, bad)


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
    """A run stores the mark of its inputs when it begins (runs of version 0.1 do not)."""
    if read_about(folder).get("data_mark", mark) != mark:
        raise InputError(
            f"The images or vectors have changed since {folder} was started, though their names have not. "
            f"Restore them to resume it, or choose another --out."
        )
