"""The training loop of all methods: plan the epoch, make views, compute the loss, step, evaluate, log, save.

A run has phases (`Method.phase`), a phase has epochs, and in each epoch
    plan    <- method.plan_epoch(context)            # which items, in which order, with which targets
    batches <- random views of these items           # `BatchMaker`
    theta   <- theta - rate(t) * grad loss(batch)    # `Engine.step`, for every batch
    method.end_epoch(context); test scores; one line of log.jsonl; every `checkpoint_every` epochs a checkpoint
A checkpoint holds everything that the rest of the run depends on, so that a resumed run is the same to the last bit on a CPU.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from types import UnionType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from pals.data.dataset import Items
from pals.data.row_source import Inputs, subset
from pals.labels import metrics
from pals.labels.candidates import Truth
from pals.labels.covering import agreement, read_agreement
from pals.methods import EpochPlan, Method, Phase
from pals.methods.parts.sampling import shuffled
from pals.training.batches import BatchMaker, check_inputs
from pals.training.checkpoint import CHECKPOINT_HINT, Migrate, incomplete, load_checkpoint, save_checkpoint, tensors_in
from pals.training.engine import Engine, Step
from pals.training.inference import InferenceStage, infer
from pals.training.optim import TrainConfig, learning_rate, make_optimizer
from pals.training.run_log import RunLog
from pals.util.errors import InputError
from pals.vision.augment import Views
from pals.vision.networks import Network, Output
from pals.vision.networks.weight_loading import refuse_not_finite

STATE_TYPES: Mapping[str, type | UnionType] = {
    "progress": dict,
    "method": dict,
    "optimizer": dict | None,
    "generator": Tensor,
    "rng": str,
    "torch": dict,
}
"""Keys of a run's state, and their types."""
MAX_PHASES = 1000
"""Of one run; methods have one to a dozen."""


@dataclass
class Progress:
    """The phase and the number of finished epochs; part of the checkpoint."""

    phase: int = 0
    epoch: int = 0
    "Finished epochs of this phase."
    total: int = 0
    "Finished epochs of all phases."
    done: bool = False

    def check(self) -> None:
        """Refuse numbers that no run can reach."""
        counts = (self.phase, self.epoch, self.total)
        if not all(type(count) is int and count >= 0 for count in counts) or self.phase > MAX_PHASES:
            raise ValueError(f"no run is in phase {self.phase!r} after {self.epoch!r} epochs of it and {self.total!r} in all")


@dataclass
class EpochContext:
    """What a method can use of the run in one epoch (`methods.method.Context`); outputs are computed once per epoch."""

    trainer: Trainer
    phase: str
    epoch: int
    epochs: int
    batch_size: int
    generator: torch.Generator
    rng: np.random.Generator
    agreement: Tensor | None = None
    "Agreement of the predictor with the candidates, from the last outputs that the method used."
    _outputs: dict[tuple[nn.Module, str, Tensor | None], Output] = field(default_factory=dict)

    def outputs(self, network: nn.Module | None = None, view: str = "eval", rows_M: Tensor | None = None) -> Output:
        trainer = self.trainer
        network = network if network is not None else trainer.method.predictor
        key = (network, view, rows_M)  # the objects, because an id may be used again
        if key not in self._outputs:
            inputs = trainer.inputs if rows_M is None else subset(trainer.inputs, rows_M)
            self._outputs[key] = trainer.infer(network, inputs, view)
        return self._outputs[key]

    def features(self, network: nn.Module | None = None) -> Tensor:
        return self.outputs(network).features

    def probabilities(self, view: str = "eval", network: nn.Module | None = None) -> Tensor:
        return self.outputs(network, view).logits.softmax(dim=1)

    def clear(self) -> None:
        """Drop the outputs, because the network is about to change, after the agreement is computed from them on the device."""
        trainer = self.trainer
        output = self._outputs.get((trainer.method.predictor, "eval", None))
        if output is not None:
            trainer.candidates_NC = trainer.candidates_NC.to(output.logits.device)
            self.agreement = agreement(output.logits, trainer.candidates_NC)
        self._outputs.clear()


class Trainer:
    """Trains a method on items; `epochs()` yields one record per finished epoch and can be abandoned at any time."""

    def __init__(
        self,
        method: Method,
        items: Items,
        views: Views,
        config: TrainConfig,
        engine: Engine,
        *,
        seed: int,
        truth: Truth | None = None,
        test: tuple[Items, Truth] | None = None,
        folder: Path | None = None,
        settings: Mapping[str, Any] | None = None,
        migrate_settings: Migrate = dict,
    ) -> None:
        """Check the inputs and place everything on the device.

        Args:
            method: with the candidates of N items.
            items: N inputs with their ids.
            views: random and fixed views of the inputs.
            config: epochs, batches, optimizer, schedule.
            engine: device and precision.
            seed: of the order of items and of the views.
            truth: of the N items; only for scores in the log.
            test: items and truth that each epoch is scored on.
            folder: of log.jsonl and checkpoint.pt; None: nothing is written.
            settings: saved with the state; a checkpoint of other settings is refused.
            migrate_settings: brings the settings of an older checkpoint up to date before they are compared.

        Raises:
            InputError: there are not N inputs, or some are NaN or infinite.
        """
        self.method, self.config, self.engine, self.ranks = method, config, engine, engine.ranks
        self.views = views.including(method.own_views)
        self.truth, self.settings, self.migrate_settings = truth, settings or {}, migrate_settings
        self.candidates_NC = method.allowed_NC.clone()  # a copy: a method may change its own
        self.feature_batch = config.feature_batch
        check_inputs(items, method.num_items)
        view = self.views.make("eval", items.inputs[:1], torch.Generator())  # may be larger than the input
        with engine.memory("Use a smaller network or --device cpu, or close other programs that use the GPU."):
            engine.place(method)
            self.inputs = engine.place_inputs(items.inputs)
            self.test = None if test is None else (engine.place_inputs(test[0].inputs), test[1])
        self.generator = engine.generator(seed)
        self.batches = BatchMaker(engine, self.inputs, self.views, self.generator, max(prod(items.shape), view.numel()))
        self.rng = np.random.default_rng(seed)
        self.progress = Progress()
        self.optimizer: Optimizer | None = None
        self.step: Step | None = None
        self.checkpoint = None if folder is None else folder / "checkpoint.pt"
        self.log = None if folder is None else RunLog(folder / "log.jsonl")

    def epochs(self, stop_after: int | None = None) -> Iterator[dict[str, Any]]:
        """Train to the end, or for `stop_after` more epochs.

        Yields:
            The record of each epoch once it is logged and saved: phase, epoch, steps, lr, loss, seconds, scores.
        """
        progress = self.progress
        last = math.inf if stop_after is None else progress.total + stop_after
        while not progress.done and progress.total < last:
            phase = self._phase()
            if phase is None:
                progress.done = True
                self.save()
                return
            config = replace(self.config, **dict(phase.settings))
            epochs = config.epochs if phase.epochs is None else phase.epochs
            started, warmed_up = time.perf_counter(), self.engine.warmup_seconds
            sizes = f"train.batch_size (now {config.batch_size}) or train.feature_batch (now {self.feature_batch})"
            with self.engine.memory(f"Lower {sizes}, use a smaller network, or close other programs that use the GPU."):
                ctx = EpochContext(self, phase.name, progress.epoch + 1, epochs, config.batch_size, self.generator, self.rng)
                plan, steps, random = self._plan_epoch(ctx, config)
                assert self.optimizer is not None and self.step is not None
                self.method.train()
                total = torch.zeros((), device=self.engine.device)  # read once an epoch, because reading waits for the device
                with closing(self.batches.make(plan, steps, config.batch_size, self.method.views, random)) as batches:
                    for number, batch in zip(range(steps), batches, strict=True):
                        rate = learning_rate(config, progress.epoch + number / steps, epochs, 1 / steps)
                        self.engine.set_learning_rate(self.optimizer, rate)
                        total += self.step(batch)  # forward, backward, update, Method.after_step
                self.ranks.sync_module(self.method)
                self.method.eval()
                loss = self._mean_loss(total, steps, config)
                with torch.no_grad(), self.ranks.sharded():
                    ended = self.ranks.broadcast(self.method.end_epoch(ctx))
                rate = learning_rate(config, progress.epoch, epochs, 1 / max(steps, 1))
                values = {"steps": steps, "lr": rate, "loss": loss, **self._grade(ctx, plan)}
            values["seconds"] = round(time.perf_counter() - started, 4)
            if self.engine.warmup_seconds > warmed_up:  # compilation and graph capture, which `seconds` includes
                values["warmup_seconds"] = round(self.engine.warmup_seconds - warmed_up, 4)
            progress.epoch += 1
            progress.total += 1
            record = {"phase": phase.name, "epoch": progress.epoch, "epochs": epochs, "total_epoch": progress.total, **values}
            if ended or progress.epoch >= epochs:
                progress.phase, progress.epoch, self.optimizer = progress.phase + 1, 0, None
                progress.done = self.method.phase(progress.phase) is None
            if self.log is not None:
                self.log.append("epoch", **record)
            if progress.done or progress.total == last or progress.total % config.checkpoint_every == 0:
                self.save()
            yield record

    def _phase(self) -> Phase | None:
        """The current phase with its optimizer and step, after `begin_phase` in its first epoch; None after the last phase."""
        number = self.progress.phase
        if self.method.phase(number) is None:
            return None
        if self.progress.epoch == 0:
            self.method.begin_phase(number)
            self.engine.place(self.method)
            self.ranks.sync_module(self.method)
            self.optimizer = None
        phase = self.method.phase(number)  # again: `begin_phase` may have made its modules
        if self.optimizer is None and phase is not None:
            self._make_step(phase)
        return phase

    def _make_step(self, phase: Phase) -> Optimizer:
        config = replace(self.config, **dict(phase.settings))
        self.optimizer = make_optimizer(self.engine, self.method, phase, config)
        self.step = self.engine.step(self.method, self.optimizer)
        return self.optimizer

    @torch.no_grad()
    def _plan_epoch(self, ctx: EpochContext, config: TrainConfig) -> tuple[EpochPlan, int, Mapping[str, Tensor]]:
        """The plan (by default all items, shuffled), its number of steps, and the random inputs of its losses."""
        with self.ranks.sharded():
            plan = self.method.plan_epoch(ctx)
            if plan is None:
                plan = EpochPlan.of(shuffled(torch.arange(len(self.inputs), device=self.engine.device), self.generator))
            plan = self.ranks.broadcast_plan(plan)
            plan = plan.filled(config.batch_size) if config.tail == "fill" else plan
            steps = plan.steps(config.batch_size)
            random = self.ranks.broadcast_tensors(self.method.random_inputs(ctx, steps))
            ctx.clear()
        return plan, steps, random

    def _mean_loss(self, total: Tensor, steps: int, config: TrainConfig) -> float | None:
        if not steps:
            return None
        loss = float(total / steps)
        if not math.isfinite(loss):
            raise InputError(
                f"The loss is {loss} in epoch {self.progress.total + 1}: training has diverged. Lower train.lr "
                f"(now {config.lr}); the last checkpoint is from before."
            )
        return loss

    def infer(self, network: nn.Module, inputs: Inputs, view: str = "eval") -> Output:
        """Logits and features of all inputs, in order.

        Args:
            network: gives an `Output`.
            inputs: N rows.
            view: through which the network reads them.

        Returns:
            N x C and N x D, float32, on the device. Batches that exceed its memory are halved for the rest of the run.
        """
        generator_state = self.generator.get_state()

        def on_oom(batch: int) -> None:
            self.feature_batch = batch
            self.generator.set_state(generator_state)
            if self.log is not None:
                self.log.append("memory", feature_batch=batch)

        stage = InferenceStage(lambda part: self.views.make(view, part, self.generator), network)
        return infer(self.engine, [stage], inputs, self.feature_batch, on_oom=on_oom)

    def evaluate(self) -> dict[str, float]:
        """Scores of the predictor on the test items."""
        if self.test is None:
            return {}
        inputs, truth = self.test
        return metrics.score_predictions(self.infer(self.method.predictor, inputs).logits, truth)

    def _grade(self, ctx: EpochContext, plan: EpochPlan) -> dict[str, Any]:
        """Statistics of the method, and scores that the method cannot use."""
        ctx.clear()
        record: dict[str, Any] = {**self.method.statistics()}
        record |= {} if ctx.agreement is None else read_agreement(ctx.agreement)
        record |= {f"test_{name}": value for name, value in self.evaluate().items()}
        posterior_NC = self.method.posterior()
        if posterior_NC is not None:
            record["posterior"] = metrics.posterior_histogram(posterior_NC, self.truth)
        if plan.selection is not None and self.truth is not None:
            record |= metrics.grade_selection(plan.selection.selected_N, plan.selection.label_N, self.truth)
        elif plan.selection is not None:
            record["selected"] = int(plan.selection.selected_N.sum())
        return record

    def save(self) -> None:
        """Write a checkpoint; only between two epochs."""
        if self.checkpoint is not None:
            save_checkpoint(self.checkpoint, self.settings, self.state())

    def state(self) -> dict[str, Any]:
        """Everything that the rest of the run depends on."""
        return {
            "progress": dict(vars(self.progress)),
            "method": self.method.state_dict(),
            "optimizer": None if self.optimizer is None else self.optimizer.state_dict(),
            "generator": self.generator.get_state(),
            "rng": json.dumps(self.rng.bit_generator.state),
            "torch": self.engine.random_state(),
            "scaler": self.engine.scaler.state_dict(),  # empty except for fp16
        }

    def resume(self) -> bool:
        """Continue from the checkpoint in the folder, if there is one; the first process reads it for all."""
        path = self.checkpoint
        state = self.ranks.once(lambda: self._read(path, self.settings) if path is not None and path.exists() else None)
        if state is None:
            return False
        self._restore(state, path)
        if self.log is not None:
            self.log.truncate(self.progress.total)
        return True

    def load(self, path: Path, settings: Mapping[str, Any], *, weights_only: bool = False) -> None:
        """Load a checkpoint.

        Args:
            path: of the checkpoint.
            settings: that it must have been written under.
            weights_only: leave out optimizer and generators, which fit one kind of device: enough to predict.

        Raises:
            InputError: the file is missing, damaged, of other settings, or does not fit the method.
        """
        self._restore(self._read(path, settings, weights_only=weights_only), path, weights_only=weights_only)

    def _read(self, path: Path, settings: Mapping[str, Any], *, weights_only: bool = False) -> dict[str, Any]:
        """A saved state, checked to be complete and finite."""
        state = load_checkpoint(path, settings, self.migrate_settings)
        for key, kind in STATE_TYPES.items():
            if key not in state or not isinstance(state[key], kind):
                raise incomplete(path, key, state)
        # Weights of networks must be finite; other tensors of a method may be infinite.
        networks = tuple(f"{name}." for name, part in self.method.named_modules() if isinstance(part, Network))
        found = {name: x for name, x in state["method"].items() if isinstance(x, Tensor) and name.startswith(networks)}
        found |= {} if weights_only else dict(tensors_in(state["optimizer"], "optimizer"))
        refuse_not_finite(found, path, CHECKPOINT_HINT)
        return state

    def _restore(self, state: Mapping[str, Any], path: Path | None, *, weights_only: bool = False) -> None:
        try:
            self._load_method(state)
            if not weights_only:
                self._load_training(state)
        except (RuntimeError, ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise InputError(
                f"The checkpoint {path} does not fit this data, device or version ({reason}). "
                f"Go back to those it was written with, or delete it to start the run again."
            ) from None

    def _load_method(self, state: Mapping[str, Any]) -> None:
        self.progress = Progress(**state["progress"])
        self.progress.check()
        for number in range(self.progress.phase + (self.progress.epoch > 0)):
            self.method.begin_phase(number)  # makes the modules that the state belongs to
        self.engine.place(self.method)
        self.method.load_state_dict(state["method"])

    def _load_training(self, state: Mapping[str, Any]) -> None:
        phase = self.method.phase(self.progress.phase)
        if state["optimizer"] is not None and phase is not None:
            self.engine.load_optimizer(self._make_step(phase), state["optimizer"])
        self.generator.set_state(state["generator"])
        self.rng.bit_generator.state = json.loads(state["rng"])
        self.engine.set_random_state(state["torch"])
        if state.get("scaler"):  # older checkpoints have none
            self.engine.scaler.load_state_dict(state["scaler"])
