"""A classifier by training: networks that each leave a fold out, where there are folds, and the one on all items."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from pals.crowd import Fusion, closed_form, fuse, leave_one_out
from pals.crowd.closed_form import mean_log_predicted
from pals.crowd.linear_ridge import LARGEST
from pals.data.dataset import Dataset, Items
from pals.data.row_source import Inputs, in_batches, subset
from pals.labels.candidates import CandidateSets
from pals.methods import method_options
from pals.model import Part, fit_temperature, is_model
from pals.pipeline.progress import Monitor
from pals.pipeline.stages.encode import Encoded
from pals.pipeline.stages.load import Loaded
from pals.pipeline.stages.plan import Plan
from pals.pipeline.stages.trained import Trained
from pals.pipeline.time_left import WORTH_SAYING, seconds_left
from pals.runs.run import Run
from pals.runs.run_config import RunConfig, VotesConfig
from pals.training.trainer import Trainer
from pals.util.words import duration
from pals.vision.networks import Output

FOLD_TRAINING: Mapping[str, Any] = {"batch_size": 128, "lr": 0.1, "weight_decay": 5e-4, "tail": "fill"}
"""What soft-votes is trained with where nothing is known of the inputs: from scratch."""
FOLD_COST = 0.5
"""Of an epoch of soft-votes beside one of PALS: one view, no features."""
COMPARED = 20_000  # items at most with which the closed form is tried beside what was trained


@dataclass(frozen=True)
class Networks:
    """What networks that have learned say of all items."""

    network: nn.Module
    "The one that was trained on all items."
    output: Output
    "Its own logits, as the saved classifier gives them, and its features."
    logits_NC: Tensor
    "Its best guess: the mean over a picture and its mirror image, where there is one."
    out_of_fold_MC: Tensor | None
    "Of the items that were trained on: the logits of the network that left them out. None without folds."
    device: torch.device
    training: Mapping[str, Any]


class PlannedRun(NamedTuple):
    """A run on some of the items, before it is made."""

    title: str
    config: RunConfig
    candidates: CandidateSets
    row_M: Tensor
    folder: Path


def train_networks(encoded: Encoded, monitor: Monitor) -> Trained:
    """Networks that each leave a fold out, where there are folds, and the one on all items; then who is believed how far."""
    made = run_all(encoded, monitor)
    loaded, data = encoded.loaded, encoded.statistics or encoded.loaded.statistics
    consensus = loaded.consensus
    fusion = fuse(loaded.votes, opinions(encoded, made), strength=consensus.annotators.strength)
    shape = loaded.items.shape if encoded.encoder is None else (encoded.inputs.shape[1],)
    return Trained(
        encoded=encoded,
        network=made.network,  # type: ignore[arg-type]  # checked before training
        part=Part(encoded.plan.config.network.trained, shape, *data),
        temperature=temperature_of(loaded, made.output.logits[loaded.trained_M], fusion),
        features_ND=made.output.features,
        fusion=fusion,
        predicted_NC=predicted_of(loaded, made, fusion),
        device=made.device,
        training=made.training,
        remarks=preferred(encoded, fusion),
    )


def run_all(encoded: Encoded, monitor: Monitor) -> Networks:
    """First the runs that leave a fold out, then the one on all items; each is resumed where its folder ends."""
    fold_M = folds_of(encoded.loaded)
    *folds, whole = planned_runs(encoded, fold_M)
    lengths = lengths_of(encoded.plan)
    out_of_fold_MC = torch.zeros(len(encoded.loaded.candidates), encoded.loaded.candidates.num_classes)
    with monitor.training():
        for number, planned in enumerate(folds):
            trainer = _follow(encoded, planned, lengths, number, monitor).trainer
            row_M = encoded.loaded.trained_M[fold_M == number]
            out_of_fold_MC[fold_M == number] = best_guess(trainer, encoded, trainer_output(trainer, encoded))[row_M]
        run = _follow(encoded, whole, lengths, len(folds), monitor)
    output = trainer_output(run.trainer, encoded)
    return Networks(
        network=run.trainer.method.predictor,
        output=output,
        logits_NC=best_guess(run.trainer, encoded, output),
        out_of_fold_MC=out_of_fold_MC if folds else None,
        device=run.trainer.engine.device,
        training={**run.describe(), "epochs": run.trainer.progress.total},
    )


def planned_runs(encoded: Encoded, fold_M: Tensor) -> list[PlannedRun]:
    """The one on all items is the last."""
    loaded, plan = encoded.loaded, encoded.plan
    runs, folds = [], plan.data.folds
    config, shares = (fold_config(encoded), answer_shares(loaded)) if folds else (plan.config, loaded.candidates)
    for fold in range(folds):
        kept_M, folder = fold_M != fold, plan.folder / "folds" / f"fold-{fold + 1}"
        title = f"second opinion {fold + 1} of {folds}"
        runs.append(PlannedRun(title, config, shares.take(kept_M), loaded.trained_M[kept_M], folder))
    return [*runs, PlannedRun("classifier", plan.config, loaded.candidates, loaded.trained_M, plan.folder)]


def lengths_of(plan: Plan) -> list[tuple[int, float]]:
    """Of each run its epochs, and what one of them costs beside one of the run on all items, which is the last."""
    folds = plan.data.folds
    return [*[(plan.data.fold_epochs, FOLD_COST * (folds - 1) / max(folds, 1))] * folds, (plan.config.train.epochs, 1.0)]


def folds_of(loaded: Loaded) -> Tensor:
    """The fold of each item that is trained on: the same however often it is asked for."""
    order = np.random.default_rng(loaded.plan.config.seed).permutation(len(loaded.candidates))
    return torch.from_numpy(order) % max(loaded.plan.data.folds, 1)


def fold_config(encoded: Encoded) -> RunConfig:
    """Of the networks that each leave a fold out: quick to train, and without weights that have seen that fold. Where there
    are pretrained weights they start from these, and are trained as the classifier was when it started from them."""
    config, data = encoded.plan.config, encoded.plan.data
    start = fold_start(config)
    training: Mapping[str, Any] = FOLD_TRAINING if start["fold_weights"] is None else {"lr": start["fold_lr"]}
    changes = {"epochs": data.fold_epochs, "checkpoint_every": 10, **({} if encoded.encoder else training)}
    return replace(
        config,
        method_name="soft-votes",
        method=method_options("soft-votes", {}),
        network=replace(config.network, weights=start["fold_weights"]),
        train=replace(config.train, **changes),
    )


def fold_start(config: RunConfig) -> dict[str, Any]:
    """The weights that networks which leave a fold out start from, and their learning rate with these: those of the network
    itself or, in an update, where the network starts from a run that has seen all answers, those of its first run."""
    assert isinstance(config.data, VotesConfig)
    weights = config.network.weights
    if weights is not None and is_model(Path(weights)):
        return {"fold_weights": config.data.fold_weights, "fold_lr": config.data.fold_lr}
    return {"fold_weights": weights, "fold_lr": None if weights is None else config.train.lr}


def answer_shares(loaded: Loaded) -> CandidateSets:
    """The candidates with, as shares of the votes, how likely the answers alone make each of them: who errs how is part of
    that."""
    sets, posterior_NC = loaded.candidates, torch.from_numpy(loaded.consensus.posterior_NC).float()
    share_MC = posterior_NC[loaded.trained_M] * sets.allowed_NC
    total_M1 = share_MC.sum(dim=1, keepdim=True)
    assert sets.frequency_NC is not None
    return replace(sets, frequency_NC=torch.where(total_M1 > 0.1, share_MC / total_M1.clamp_min(0.1), sets.frequency_NC))


def _follow(encoded: Encoded, planned: PlannedRun, lengths: list[tuple[int, float]], number: int, monitor: Monitor) -> Run:
    """Train it, and say after its first epoch how long the rest of the training takes: in the first run and in the last."""
    run, said = _make(encoded, planned), 0 < number < len(lengths) - 1

    def after_epoch(record: Mapping[str, Any]) -> None:
        nonlocal said
        left = seconds_left(record, lengths, number, run.trainer.progress.total)
        if not said and left >= WORTH_SAYING:
            monitor.say(f"About {duration(left)} of training left.")
        said = True

    monitor.follow(planned.title, run, after_epoch)
    return run


def _make(encoded: Encoded, planned: PlannedRun) -> Run:
    loaded, sets = encoded.loaded, planned.candidates
    items = Items(_rows(encoded.inputs, planned.row_M), sets.ids)
    dataset = Dataset("votes", sets.class_names, items, None, None, None, encoded.views, votes=sets)
    own = planned.folder != loaded.plan.folder  # the folder of the fit is locked, and its summary written when all is done
    return Run(planned.config, planned.folder, dataset=dataset, about={"data_mark": loaded.mark}, owner=own)


def trainer_output(trainer: Trainer, encoded: Encoded) -> Output:
    """Logits and features of all items, on the host."""
    output = trainer.infer(trainer.method.predictor, encoded.inputs)
    return Output(output.logits.cpu(), output.features.cpu())


def best_guess(trainer: Trainer, encoded: Encoded, output: Output) -> Tensor:
    """Logits of all items. A second look, at the mirror image, makes a guess better."""
    if encoded.inputs.ndim != 4 or not encoded.plan.data.mirror:
        return output.logits
    turned = (part.flip(-1) for part in in_batches(encoded.inputs, trainer.feature_batch))
    mirrored_NC = torch.cat([trainer.infer(trainer.method.predictor, part).logits for part in turned])
    return (output.logits + mirrored_NC.cpu()) / 2


def _rows(inputs: Inputs, row_M: Tensor) -> Inputs:
    """Those rows; without a copy where they are the first ones."""
    if isinstance(inputs, Tensor) and torch.equal(row_M, torch.arange(len(row_M))):
        return inputs[: len(row_M)]
    return subset(inputs, row_M)


# ---- who is believed how far


def opinions(encoded: Encoded, made: Networks) -> list[np.ndarray]:
    """What those say of the items who have not seen their answers: networks that left them out of training, and, where features
    are not trained, their neighbours. (A network that knows the answers is no second source.)"""
    found, loaded = [], encoded.loaded
    if made.out_of_fold_MC is not None:
        unseen_NC = made.logits_NC.clone()
        unseen_NC[loaded.trained_M] = made.out_of_fold_MC
        found.append(unseen_NC.double().numpy())
    if encoded.inputs.ndim == 2:
        alone = loaded.consensus
        generator = torch.Generator().manual_seed(encoded.plan.config.seed)
        unit_ND = comparable(encoded)
        found.append(leave_one_out(unit_ND, alone.posterior_NC, generator=generator, known_N=alone.answers.known_N))
    return found


def comparable(encoded: Encoded) -> Tensor:
    """Features that no label has touched, as unit vectors."""
    vectors_ND, responses_ND = encoded.vectors_ND, encoded.responses_ND
    if responses_ND is not None or encoded.encoder is None:  # whoever made vectors may have used any units
        vectors_ND = vectors_ND if responses_ND is None else responses_ND
        std_D, mean_D = torch.std_mean(vectors_ND, dim=0)
        vectors_ND = (vectors_ND - mean_D) / std_D.clamp_min(1e-6)
    return torch.nn.functional.normalize(vectors_ND - vectors_ND.mean(dim=0), dim=1)


def predicted_of(loaded: Loaded, made: Networks, fusion: Fusion) -> np.ndarray:
    """Probabilities by classifiers that have not seen an item's answers, each kind with a temperature of its own: the network
    of the item's fold; without folds the neighbours, or, where there are none, no more than how frequent the classes are."""
    row_M = loaded.trained_M
    predicted_NC = _tempered(made.logits_NC, temperature_of(loaded, made.logits_NC[row_M], fusion))
    if made.out_of_fold_MC is not None:
        predicted_NC[row_M] = _tempered(made.out_of_fold_MC, temperature_of(loaded, made.out_of_fold_MC, fusion))
    else:
        predicted_NC[row_M] = torch.from_numpy(np.array(fusion.opinion_NC))[row_M]
    return predicted_NC.numpy()


def temperature_of(loaded: Loaded, logits_MC: Tensor, fusion: Fusion) -> float:
    """What makes logits of the items that were trained on agree with what answers and opinions come to as independent sources,
    as in `solve`. The answers alone, or the posterior that allows for their correlation, would not do as the target: they are
    less sure than a network that has learned from all of them is right."""
    return fit_temperature(logits_MC, torch.from_numpy(fusion.consensus.posterior_NC)[loaded.trained_M])


def _tempered(logits: Tensor, temperature: float) -> Tensor:
    return (logits.double() / temperature).softmax(dim=1)


def preferred(encoded: Encoded, fusion: Fusion) -> tuple[str, ...]:
    """On frozen features: whether people's answers are predicted better by these opinions or by those of the closed form, each
    answer from the other answers to its item and an opinion that has seen none of them."""
    if encoded.inputs.ndim != 2:
        return ()
    inputs = encoded.vectors_ND
    if len(inputs) > COMPARED or min(inputs.shape) > LARGEST or fusion.calibration is None:
        return ()
    other = closed_form(encoded.loaded.votes, inputs)
    own, theirs = (mean_log_predicted(other.alone, made.opinion_NC) for made in (fusion, other))
    better, worse = (f"{np.exp(value):.1%}" for value in (max(own, theirs), min(own, theirs)))
    if theirs > own:
        return (
            f"The closed form, which needs no training, would do better: it gives held-out answers a typical probability of "
            f"{better}, this classifier {worse}. Leave out --method to use it.",
        )
    return (
        f"Training paid off: the classifier gives held-out answers a typical probability of {better}, the closed form, which "
        f"needs no training, {worse}.",
    )
