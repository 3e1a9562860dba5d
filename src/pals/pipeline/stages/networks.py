"""Training with cross-fitting: one network per fold, trained without it, and the classifier on all items."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from pals.crowd import Fusion, fuse, leave_one_out
from pals.crowd.closed_form import solve
from pals.crowd.image_likelihood import mean_log_predicted
from pals.crowd.linear_ridge import MAX_SIDE
from pals.data.dataset import Dataset, Items
from pals.data.row_source import Inputs, in_batches, subset
from pals.labels.candidates import CandidateSets
from pals.methods import method_options
from pals.model import Part, fit_temperature, is_model
from pals.pipeline.progress import MIN_REPORTED_SECONDS, Monitor, seconds_left
from pals.pipeline.stages.encode import Encoded
from pals.pipeline.stages.load import Loaded
from pals.pipeline.stages.plan import Plan
from pals.pipeline.stages.trained import Trained
from pals.runs.run import Run
from pals.runs.run_config import RunConfig, VotesConfig
from pals.training.trainer import Trainer
from pals.util.words import duration
from pals.vision.networks import Output

FOLD_TRAINING: Mapping[str, Any] = {"batch_size": 128, "lr": 0.1, "weight_decay": 5e-4, "tail": "fill"}
"""Settings of soft-votes from scratch."""
FOLD_COST = 0.5
"""Cost of an epoch of soft-votes (one view, no features) relative to one of PALS."""
MAX_COMPARED_ITEMS = 20_000  # with which the closed form is compared with a trained network


@dataclass(frozen=True)
class Networks:
    """Predictions of the trained networks for all items.

    Args:
        network: The classifier, trained on all items.
        output: Its logits, as the saved classifier gives them, and its features.
        logits_NC: Its logits, averaged over an image and its mirror image if both show the same.
        out_of_fold_MC: For the items that were trained on, logits of the network that left them out; None without folds.
        device: Where it was trained.
        training: What was run.
    """

    network: nn.Module
    output: Output
    logits_NC: Tensor
    out_of_fold_MC: Tensor | None
    device: torch.device
    training: Mapping[str, Any]


class PlannedRun(NamedTuple):
    """A training run on M of the items."""

    title: str
    config: RunConfig
    candidates: CandidateSets
    row_M: Tensor
    folder: Path


def train_networks(encoded: Encoded, monitor: Monitor) -> Trained:
    """Train the networks of the folds and the classifier, and fuse their predictions with the answers."""
    made = run_all(encoded, monitor)
    loaded, data = encoded.loaded, encoded.statistics or encoded.loaded.statistics
    fusion = fuse(loaded.votes, predictions(encoded, made), alone=loaded.consensus)
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
    """Train the networks of the folds, then the classifier; each is resumed from its folder."""
    fold_M = folds_of(encoded.loaded)
    *folds, whole = planned_runs(encoded, fold_M)
    lengths = lengths_of(encoded.plan)
    out_of_fold_MC = torch.zeros(len(encoded.loaded.candidates), encoded.loaded.candidates.num_classes)
    with monitor.training():
        for number, planned in enumerate(folds):
            trainer = _follow(encoded, planned, lengths, number, monitor).trainer
            row_M = encoded.loaded.trained_M[fold_M == number]
            out_of_fold_MC[fold_M == number] = mirrored_logits(trainer, encoded, trainer_output(trainer, encoded))[row_M]
        run = _follow(encoded, whole, lengths, len(folds), monitor)
    output = trainer_output(run.trainer, encoded)
    return Networks(
        network=run.trainer.method.predictor,
        output=output,
        logits_NC=mirrored_logits(run.trainer, encoded, output),
        out_of_fold_MC=out_of_fold_MC if folds else None,
        device=run.trainer.engine.device,
        training={**run.describe(), "epochs": run.trainer.progress.total},
    )


def planned_runs(encoded: Encoded, fold_M: Tensor) -> list[PlannedRun]:
    """The runs of the folds; the last is the classifier on all items."""
    loaded, plan = encoded.loaded, encoded.plan
    runs, folds = [], plan.data.folds
    config, shares = (fold_config(encoded), answer_shares(loaded)) if folds else (plan.config, loaded.candidates)
    for fold in range(folds):
        kept_M, folder = fold_M != fold, plan.folder / "folds" / f"fold-{fold + 1}"
        title = f"fold {fold + 1} of {folds}"
        runs.append(PlannedRun(title, config, shares.take(kept_M), loaded.trained_M[kept_M], folder))
    return [*runs, PlannedRun("classifier", plan.config, loaded.candidates, loaded.trained_M, plan.folder)]


def lengths_of(plan: Plan) -> list[tuple[int, float]]:
    """Epochs of each run, and the cost of one of them relative to one of the last run, the classifier."""
    folds = plan.data.folds
    return [*[(plan.data.fold_epochs, FOLD_COST * (folds - 1) / max(folds, 1))] * folds, (plan.config.train.epochs, 1.0)]


def folds_of(loaded: Loaded) -> Tensor:
    """The fold of each item that is trained on: the same however often it is asked for."""
    order = np.random.default_rng(loaded.plan.config.seed).permutation(len(loaded.candidates))
    return torch.from_numpy(order) % max(loaded.plan.data.folds, 1)


def fold_config(encoded: Encoded) -> RunConfig:
    """Settings of the networks of the folds: quick to train, and without weights trained on the fold. They start from
    pretrained weights if there are any, and are then trained as the classifier was when it started from them."""
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
    """The weights that the networks of the folds start from, and their learning rate with these: those of the classifier or, in
    an update, whose classifier starts from one that was trained on all answers, those of the first run."""
    assert isinstance(config.data, VotesConfig)
    weights = config.network.weights
    if weights is not None and is_model(Path(weights)):
        return {"fold_weights": config.data.fold_weights, "fold_lr": config.data.fold_lr}
    return {"fold_weights": weights, "fold_lr": None if weights is None else config.train.lr}


def answer_shares(loaded: Loaded) -> CandidateSets:
    """The candidate sets with the posterior of the annotator model in place of vote shares."""
    sets, posterior_NC = loaded.candidates, torch.from_numpy(loaded.consensus.posterior_NC).float()
    share_MC = posterior_NC[loaded.trained_M] * sets.allowed_NC
    total_M1 = share_MC.sum(dim=1, keepdim=True)
    assert sets.frequency_NC is not None
    return replace(sets, frequency_NC=torch.where(total_M1 > 0.1, share_MC / total_M1.clamp_min(0.1), sets.frequency_NC))


def _follow(encoded: Encoded, planned: PlannedRun, lengths: list[tuple[int, float]], number: int, monitor: Monitor) -> Run:
    """Train a run, and report the time left after the first epoch of the first and of the last run."""
    run, reported = _make(encoded, planned), 0 < number < len(lengths) - 1

    def after_epoch(record: Mapping[str, Any]) -> None:
        nonlocal reported
        left = seconds_left(record, lengths, number, run.trainer.progress.total)
        if not reported and left >= MIN_REPORTED_SECONDS:
            monitor.say(f"About {duration(left)} of training left.")
        reported = True

    monitor.follow(planned.title, run, after_epoch)
    return run


def _make(encoded: Encoded, planned: PlannedRun) -> Run:
    loaded, sets = encoded.loaded, planned.candidates
    items = Items(_rows(encoded.inputs, planned.row_M), sets.ids)
    dataset = Dataset("votes", sets.class_names, items, None, None, None, encoded.views, votes=sets)
    own = planned.folder != loaded.plan.folder  # the fit has locked its folder, and writes its summary itself
    return Run(planned.config, planned.folder, dataset=dataset, about={"data_mark": loaded.mark}, owner=own)


def trainer_output(trainer: Trainer, encoded: Encoded) -> Output:
    """Logits and features of all items, on the host."""
    output = trainer.infer(trainer.method.predictor, encoded.inputs)
    return Output(output.logits.cpu(), output.features.cpu())


def mirrored_logits(trainer: Trainer, encoded: Encoded, output: Output) -> Tensor:
    """Logits of all items, averaged with those of the mirror images if these show the same."""
    if encoded.inputs.ndim != 4 or not encoded.plan.data.mirror:
        return output.logits
    turned = (part.flip(-1) for part in in_batches(encoded.inputs, trainer.feature_batch))
    mirrored_NC = torch.cat([trainer.infer(trainer.method.predictor, part).logits for part in turned])
    return (output.logits + mirrored_NC.cpu()) / 2


def _rows(inputs: Inputs, row_M: Tensor) -> Inputs:
    """These rows; not copied if they are the first ones."""
    if isinstance(inputs, Tensor) and torch.equal(row_M, torch.arange(len(row_M))):
        return inputs[: len(row_M)]
    return subset(inputs, row_M)


def predictions(encoded: Encoded, made: Networks) -> list[np.ndarray]:
    """Logits (N x C) by sources that were not trained on the item's answers: the networks of the folds and, on frozen features,
    the nearest neighbours. A network that was trained on the answers is no independent source."""
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
    """Features that were not trained on labels, as unit vectors."""
    vectors_ND, responses_ND = encoded.vectors_ND, encoded.responses_ND
    if responses_ND is not None or encoded.encoder is None:  # vectors may have any units
        vectors_ND = vectors_ND if responses_ND is None else responses_ND
        std_D, mean_D = torch.std_mean(vectors_ND, dim=0)
        vectors_ND = (vectors_ND - mean_D) / std_D.clamp_min(1e-6)
    return torch.nn.functional.normalize(vectors_ND - vectors_ND.mean(dim=0), dim=1)


def predicted_of(loaded: Loaded, made: Networks, fusion: Fusion) -> np.ndarray:
    """Probabilities by classifiers that were not trained on the item's answers, calibrated separately: the network of the
    item's fold; without folds the neighbours or, without these, the class frequencies."""
    row_M = loaded.trained_M
    predicted_NC = _tempered(made.logits_NC, temperature_of(loaded, made.logits_NC[row_M], fusion))
    if made.out_of_fold_MC is not None:
        predicted_NC[row_M] = _tempered(made.out_of_fold_MC, temperature_of(loaded, made.out_of_fold_MC, fusion))
    else:
        predicted_NC[row_M] = torch.from_numpy(np.array(fusion.prediction_NC))[row_M]
    return predicted_NC.numpy()


def temperature_of(loaded: Loaded, logits_MC: Tensor, fusion: Fusion) -> float:
    """The softmax temperature at which the logits fit the posterior of answers and predictions as independent sources.

    The posterior of the answers alone, or the one tempered by the correlation of the sources, would be a wrong target: a
    network trained on all answers is right more often than these are sure.
    """
    return fit_temperature(logits_MC, torch.from_numpy(fusion.consensus.posterior_NC)[loaded.trained_M])


def _tempered(logits: Tensor, temperature: float) -> Tensor:
    return (logits.double() / temperature).softmax(dim=1)


def preferred(encoded: Encoded, fusion: Fusion) -> tuple[str, ...]:
    """On frozen features, whether this classifier or the closed form predicts held-out answers better, each answer from the
    other answers to its item and a prediction that used none of them."""
    if encoded.inputs.ndim != 2:
        return ()
    inputs = encoded.vectors_ND
    if len(inputs) > MAX_COMPARED_ITEMS or min(inputs.shape) > MAX_SIDE or fusion.calibration is None:
        return ()
    other = solve(encoded.loaded.votes, inputs, alone=encoded.loaded.consensus).fusion
    own, theirs = (mean_log_predicted(other.alone, made.prediction_NC) for made in (fusion, other))
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
