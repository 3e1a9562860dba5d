"""The command `pals prune` without its command line: answers or candidate sets in, out what their neighbours leave of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from pals.data import Items
from pals.data.row_source import in_batches
from pals.labels.candidates import CandidateSets, Truth
from pals.labels.metrics import grade_pruning
from pals.pipeline.evaluate import read_truth
from pals.pipeline.progress import Monitor
from pals.pipeline.stages.load import read_inputs
from pals.pipeline.stages.read_answers import match_votes
from pals.pipeline.tables.result_tables import csv_text
from pals.pseudo_labels.prune_sets import CLASS_SHARE, NEIGHBORS, neighbors_for, prune
from pals.readers import ReadSummary, Votes
from pals.runs.run import candidates_for, chosen_dataset
from pals.runs.run_config import RunConfig, VotesConfig
from pals.training.inference import Link, infer, make_engine
from pals.util.words import how_many
from pals.vision.augment import Views
from pals.vision.networks.patch_features import PATCH, PATCH_IMAGES, POOL_GRID, learned_patches

Look = Literal["patches", "pixels"]
AT_ONCE = 1000  # pictures that are encoded at a time


@dataclass(frozen=True)
class Pruned:
    """What was left of candidate sets."""

    votes: Votes
    "The answers without those labels that are gone."
    given: CandidateSets
    kept_NC: Tensor
    neighbors: int
    "How many voted."
    truth: tuple[Tensor, Truth] | None = None
    "Rows of `given` whose true label is known, and it."

    def lines(self) -> Iterator[str]:
        """For people: how much is gone and, where the truth is known, how much of it rightly."""
        given_N, kept_N = self.given.size_N, self.kept_NC.sum(dim=1)
        gone, changed = int((given_N - kept_N).sum()), int((given_N > kept_N).sum())
        yield (
            f"{how_many(self.neighbors, 'neighbour')} voted: {gone:,} of {int(given_N.sum()):,} candidates were removed, from "
            f"{changed:,} of {how_many(len(self.given), 'set')}; {given_N.double().mean():.2f} labels per set before, "
            f"{kept_N.double().mean():.2f} after"
        )
        if self.truth is not None:
            row_G, truth = self.truth
            grades = grade_pruning(self.given.allowed_NC[row_G], self.kept_NC[row_G], truth)
            yield (
                f"Against the truth of {how_many(len(row_G), 'item')}: {100 * grades['coverage']:.1f}% of the wrong candidates "
                f"were removed (coverage), {100 * grades['error']:.1f}% of the items have lost their true label (error); F "
                f"{grades['f']:.3f}"
            )

    def to_csv(self, separator: str | None = "|") -> str:
        """A table that `read_votes` reads."""
        return csv_text(self.votes.to_frame(separator))


def prune_votes(votes: Votes, features_ND: Tensor, **options: Any) -> Pruned:
    """`prune` for answers; one row of features per item of the votes. Items that nobody answered for take no part, and
    a known right label (gold) is the only candidate of its item."""
    given = votes.to_candidates(on_empty="drop", use_gold=True)
    place = {name: row for row, name in enumerate(votes.items)}
    row_M = torch.tensor([place[name] for name in given.ids])
    kept_NC = prune(given.allowed_NC, features_ND[row_M], **options).cpu()
    gone_IC = np.zeros((len(votes.items), given.num_classes), dtype=bool)
    gone_IC[row_M.numpy()] = (given.allowed_NC & ~kept_NC).numpy()
    wanted = options.get("neighbors", NEIGHBORS)
    voted = neighbors_for(wanted, len(given), given.num_classes, options.get("class_share", CLASS_SHARE))
    return Pruned(without(votes, gone_IC), given, kept_NC, voted)


def without(votes: Votes, gone_IC: np.ndarray) -> Votes:
    """The votes less these labels. Of an answer that named several the others stay; one that named no other is left out."""
    return votes.take((~gone_IC[votes.item_R, votes.label_R]).nonzero()[0])


def prune_files(
    config: VotesConfig,
    *,
    look: Look | None = None,
    truth: Path | None = None,
    device: str = "auto",
    cache: Path | None = None,
    monitor: Monitor | None = None,
    **options: Any,
) -> tuple[Pruned, tuple[str, ...]]:
    """Of files of answers with pictures or feature vectors; and what is to be said of the files."""
    matched = match_votes(config)
    inputs = read_inputs(config, matched.votes, None, cache, monitor)
    features_ND = seen_as(look, inputs.items, inputs.views, device)
    made = prune_votes(inputs.votes, features_ND, **options)
    lines = (*matched.lines, *(f"Left out: {line}" for line in inputs.bad))
    if truth is None:
        return made, lines
    known, place = read_truth(truth, inputs.votes), {name: row for row, name in enumerate(made.given.ids)}
    row_G = torch.tensor([place[inputs.votes.items[row]] for row in known.row_G.tolist()])
    return replace(made, truth=(row_G, known.truth)), lines


def prune_dataset(
    config: RunConfig, *, look: Look | None = None, data_dir: Path | None = None, device: str = "auto", **options: Any
) -> Pruned:
    """Of a data set with candidate sets drawn as a run of these settings would; graded, since its truth is known."""
    dataset = chosen_dataset(config, data_dir)
    sets, _ = candidates_for(config, dataset)
    features_ND = seen_as(look, dataset.train, dataset.views, device)
    made = prune_votes(votes_of(sets, config.data.name), features_ND, **options)
    return made if dataset.truth is None else replace(made, truth=(torch.arange(len(sets)), dataset.truth))


def votes_of(sets: CandidateSets, source: str) -> Votes:
    """Candidate sets as one unnamed answer per item."""
    item_R, label_R = (column.numpy() for column in sets.allowed_NC.nonzero(as_tuple=True))
    nobody_R, gold_I = np.full(len(item_R), -1), np.full(len(sets), -1)
    summary = ReadSummary((source,), "candidates", len(sets), len(sets), len(sets), 0, sets.num_classes, 0)
    columns = (item_R, nobody_R, label_R, item_R, np.ones(len(item_R)), gold_I)
    return Votes(sets.ids, (), sets.class_names, *columns, summary)


@torch.no_grad()
def seen_as(look: Look | None, items: Items, views: Views, device: str = "auto") -> Tensor:
    """N x D features of pictures that need no training: similarity to patches cut from them, or their pixels; if not told,
    patches where they are large enough. Vectors are taken as they are."""
    if items.inputs.ndim == 2:
        return items.inputs[:]
    generator = torch.Generator().manual_seed(0)
    view = partial(views.make, "eval", generator=generator)
    if look == "pixels" or (look is None and min(items.shape[1:]) < PATCH + POOL_GRID):
        return torch.cat([view(part).flatten(1) for part in in_batches(items.inputs, AT_ONCE)])
    sample = torch.randperm(len(items), generator=generator)[:PATCH_IMAGES]
    network, engine = learned_patches(view(items.inputs[sample]), generator), make_engine(device, "fp32")
    engine.place(network)
    return infer(engine, [Link(view, network)], items.inputs, AT_ONCE).features
