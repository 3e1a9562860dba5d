"""Stage 2, what was given, loaded: pictures decoded or vectors read, and what the answers say by themselves."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pals.crowd import Consensus, dawid_skene
from pals.data import Inputs, Items
from pals.data.source import in_blocks, subset
from pals.fitting.earlier import earlier_posterior
from pals.fitting.grading import Graded, read_truth
from pals.fitting.monitor import Monitor
from pals.fitting.pictures import READING, read_pictures
from pals.fitting.plan import Plan
from pals.fitting.time_left import Count
from pals.fitting.vectors import read_matrix, row_names
from pals.fitting.votes import answered_first
from pals.labels.candidates import CandidateSets
from pals.readers import Votes
from pals.runs.folder import read_about
from pals.runs.networks import Statistics, input_statistics
from pals.runs.settings import NetworkConfig, VotesConfig
from pals.util.errors import InputError
from pals.vision.augment import Views, image_views, vector_views
from pals.vision.images import default_cache, image_statistics


@dataclass(frozen=True)
class Loaded:
    """Everything that a run on one's own items starts from; items with answers come first."""

    plan: Plan
    items: Items
    votes: Votes
    views: Views
    statistics: Statistics
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

    @property
    def warnings(self) -> list[str]:
        """What a reader of the report should know of the files: everything that was skipped, did not match or was left out."""
        return [*self.plan.matched.warnings, *(f"Left out: {line}" for line in self.bad)]


def load(plan: Plan, monitor: Monitor | None = None) -> Loaded:
    """Decode the pictures (once: the cache keeps them, unless they are streamed), or read the vectors. Refuses other inputs
    than the run began with."""
    network, matched = plan.config.network, plan.matched.votes
    items, votes, views, statistics, bad = read_inputs(plan.data, matched, network, plan.cache, monitor, plan.stream)
    candidates = votes.to_candidates(on_empty="drop", use_gold=plan.data.gold)
    mark = _marked(items.inputs, monitor or Monitor())
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
    )


class ReadInputs(NamedTuple):
    """Pictures or vectors in the order of the votes' items, of which those that could not be read are left out."""

    items: Items
    votes: Votes
    views: Views
    statistics: Statistics
    bad: tuple[str, ...]


def read_inputs(
    data: VotesConfig,
    votes: Votes,
    network: NetworkConfig,
    cache: Path | None = None,
    monitor: Monitor | None = None,
    stream: bool | None = None,
) -> ReadInputs:
    """What these votes are about; standardised as the weights that the network starts from want it. Of answers alone, vectors
    without a number."""
    if data.images is not None:
        return _pictures(data, votes, network, cache, stream, monitor or Monitor())
    if data.features is not None:
        return _vectors(data, votes)
    nothing = torch.zeros(len(votes.items), 0)
    return ReadInputs(Items(nothing, votes.items), votes, vector_views(nothing[0], nothing[0]), Statistics((), ()), ())


def _pictures(
    data: VotesConfig, votes: Votes, network: NetworkConfig, cache: Path | None, stream: bool | None, monitor: Monitor
) -> ReadInputs:
    inputs, names, left_out = read_pictures(data, votes.items, cache or default_cache(), stream, monitor)
    bad = tuple(f"{image.name}: {image.reason}" for image in left_out)
    if bad:
        votes = answered_first(votes.match(names)[0])
    statistics = input_statistics(network, data.size) or Statistics(*image_statistics(inputs))
    images = inputs if names == votes.items else subset(inputs, _places(names, votes.items))
    return ReadInputs(Items(images, votes.items), votes, picture_views(data, statistics), statistics, bad)


def picture_views(config: VotesConfig, statistics: Statistics) -> Views:
    """How pictures of this size are varied in training."""
    strong: Literal["cifar", "imagenet"] = "cifar" if config.size <= 64 else "imagenet"
    return image_views(*statistics, pad=max(1, config.size // 8), flip=config.mirror, strong=strong, cutout=config.size // 2)


def _vectors(data: VotesConfig, votes: Votes) -> ReadInputs:
    row_N = _places(row_names(data, votes), votes.items).numpy()
    matrix = torch.from_numpy(np.asarray(read_matrix(data), dtype=np.float32)[row_N])
    mean_D, std_D = matrix.mean(dim=0), matrix.std(dim=0).clamp_min(1e-6)
    statistics = Statistics(tuple(mean_D.tolist()), tuple(std_D.tolist()))
    return ReadInputs(Items(matrix, votes.items), votes, vector_views(mean_D, std_D), statistics, ())


def _places(names: Sequence[str], wanted: Sequence[str]) -> Tensor:
    place = {name: row for row, name in enumerate(names)}
    return torch.tensor([place[name] for name in wanted])


def _marked(inputs: Inputs, monitor: Monitor) -> str:
    if isinstance(inputs, Tensor):
        return content_mark(inputs)
    with monitor.counting(READING) as count:
        return content_mark(inputs, count)


def content_mark(inputs: Inputs, count: Count = lambda done, total: None) -> str:
    """Changes with any pixel or number, and with the order of the items."""
    mark = hashlib.blake2b(repr((tuple(inputs.shape), inputs.dtype)).encode(), digest_size=12)
    done = 0
    for part in in_blocks(inputs):
        mark.update(part.contiguous().numpy().data)
        count(done := done + len(part), len(inputs))
    return mark.hexdigest()


def _refuse_other_inputs(folder: Path, mark: str) -> None:
    """A run that was begun says with what (one of an earlier version does not)."""
    if read_about(folder).get("data_mark", mark) != mark:
        raise InputError(
            f"The pictures or vectors have changed since {folder} was begun, though their names have not. "
            f"Restore them to resume it, or choose another --out."
        )
