"""DivideMix: two networks sort the items for each other, by their losses, into labelled and unlabelled ones."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from pals.methods.bases.two_networks import TwoNetworks
from pals.methods.method import Batch, Context, EpochPlan, Group, Problem, Selection
from pals.methods.parts.losses import negative_entropy, soft_cross_entropy
from pals.methods.parts.mixup import blend, partners
from pals.methods.parts.sampling import passes
from pals.util.config import STRICT
from pals.vision.networks import Network

LABELED, UNLABELED = ("main", "second"), ("main_unlabeled", "second_unlabeled")  # groups of the two networks


class DivideMix(TwoNetworks):
    """After a warm-up with the cross-entropy, each epoch begins with a mixture of two Gaussians fitted to the losses of each
    network. The share w of the component with the smaller mean is the probability that the label y is right. Items with
    w > threshold keep their label, the others lose it, and each network is trained on what the OTHER one has found:

        labelled:    t = sharpen(w y + (1 - w) (p(x) + p(x')) / 2)               p: own prediction
        unlabelled:  t = sharpen((p(u) + p(u') + q(u) + q(u')) / 4)              q: the other network's
        sharpen(v)_c = v_c^(1/T) / sum_k v_k^(1/T)

    for two weak views each. All rows are mixed with one another, inputs and targets alike, with a weight of at least a half:

        L = mean_labelled(-sum_c t_c log p_c) + lambda(epoch) mean_unlabelled,c((p_c - t_c)^2) + sum_c 1/C log(1/C / mean(p_c))

    `docs/methods/dividemix.md` has the differences between the paper and the authors' code.
    """

    @dataclass(frozen=True, config=STRICT)
    class Config(TwoNetworks.Config):
        warm_up: int = Field(default=10, ge=0)
        "Number of first epochs with the cross-entropy on all items, in batches of twice the size."
        warm_up_penalty: float = Field(default=0.0, ge=0)
        "Penalty on confident predictions in the warm-up; use 1 if certain classes are confused, as people do."
        threshold: float = Field(default=0.5, ge=0, le=1)
        "tau: an item keeps its label if that is right with a probability above this."
        history: int = Field(default=1, ge=1)
        "Epochs over which an item's loss is averaged before the mixture is fitted; use 5 if 90% of the labels are wrong."
        temperature: float = Field(default=0.5, gt=0)
        "T: a value below 1 sharpens the targets."
        zeta: float = Field(default=4.0, gt=0)
        "Mix-up weights come from Beta(zeta, zeta)."
        unlabeled_weight: float = Field(default=25.0, ge=0)
        "lambda: final weight of the unlabelled items..."
        ramp: int = Field(default=16, ge=1)
        "... and the epochs after the warm-up over which it rises from 0."
        train_on: Literal["all", "labeled"] = "all"
        "Mixed rows to train on: all, or only those of labelled items (with any partner)."

    reference: ClassVar[str] = "Li, Socher and Hoi, ICLR 2020, arXiv 2002.07394"
    cost: ClassVar[float] = 12.0  # each network: four passes for targets, two of its peer's, four trained on
    counted_in_epochs: ClassVar[tuple[str, ...]] = ("warm_up", "ramp")
    begins_after: ClassVar[tuple[str, ...]] = ("warm_up",)
    views: tuple[str, ...] = ("weak", "weak")
    config: Config

    def __init__(self, config: Config, problem: Problem) -> None:
        super().__init__(config, problem)
        self.loss_2HN: Tensor  # of both networks, in the last epochs
        self.register_buffer("loss_2HN", torch.zeros(2, config.history, self.num_items))
        self.warm = True  # set anew each epoch, as are the next three
        self.own_steps: tuple[int, ...] = ()  # of each network
        self.posterior_NC: Tensor | None = None
        self.counted: Mapping[str, float] = {}

    @property
    def graph_key(self) -> str:
        return "warm-up" if self.warm else "main"

    def plan_epoch(self, ctx: Context) -> EpochPlan:
        self.warm = ctx.epoch <= self.config.warm_up
        if self.warm:
            size = 2 * ctx.batch_size
            return EpochPlan(
                {name: Group(o, batch_size=size, views=("weak",)) for name, o in zip(LABELED, self.orders(ctx), strict=True)}
            )
        size, threshold = ctx.batch_size, self.config.threshold
        clean_2N = self._clean_probabilities(ctx)
        splits = [divided(clean_N, threshold, size) for clean_N in clean_2N]
        self.counted = {f"labeled_{k}": len(splits[1 - k][0]) for k in range(2)}
        self.own_steps = tuple(-(-len(splits[1 - k][0]) // size) for k in range(2))
        length = max(self.own_steps) * size
        groups = {}
        for k in range(2):  # each learns from what the other found
            labeled_M, unlabeled_M = splits[1 - k]
            groups[LABELED[k]] = Group(passes(labeled_M, length, ctx.generator), clean_2N[1 - k])
            groups[UNLABELED[k]] = Group(passes(unlabeled_M, length, ctx.generator))
        return EpochPlan(groups, Selection(clean_2N.mean(dim=0) > threshold, self.label_N))

    def _clean_probabilities(self, ctx: Context) -> Tensor:
        """Of both networks: how likely each label is to be right."""
        before = ctx.epoch - self.config.warm_up - 1  # epochs that have begun so
        kept = min(before + 1, self.config.history)
        logits = [ctx.outputs(network).logits for network in self.pair.both()]
        for k, logits_NC in enumerate(logits):
            loss_N = F.cross_entropy(logits_NC, self.label_N, reduction="none")
            self.loss_2HN[k, before % self.config.history] = scaled(loss_N)
        mean_2N = self.loss_2HN[:, :kept].mean(dim=1)
        clean_2N = torch.stack([clean_probability(loss_N, int(ctx.rng.integers(2**31))) for loss_N in mean_2N])
        share_NC = torch.stack(logits).softmax(dim=2).mean(dim=0)
        everything = torch.arange(self.num_items, device=self.label_N.device)
        self.posterior_NC = torch.lerp(share_NC, self.targets(everything), clean_2N.mean(dim=0)[:, None])
        return clean_2N

    def random_inputs(self, ctx: Context, steps: int) -> Mapping[str, Tensor]:
        if self.warm:
            return {}
        c, device, rows = self.config, self.label_N.device, 4 * ctx.batch_size  # two views of labelled and unlabelled items
        mixing = self.draw_mixing(ctx, steps, rows, c.zeta)
        done_M2 = torch.arange(steps)[:, None] / torch.tensor(self.own_steps)  # of the network's pass
        weight_M2 = c.unlabeled_weight * ramp_at(ctx.epoch - 1 + done_M2, c.warm_up, c.ramp)
        return {**mixing, "unlabeled_weight": weight_M2.to(device), "at_work": (done_M2 < 1).float().to(device)}

    def loss(self, batch: Batch) -> Tensor:
        groups, losses = {"main": batch, **batch.groups}, []
        for k, (own, peer) in enumerate(self.pair.pairs()):
            labeled = groups[LABELED[k]]
            if self.warm:
                losses.append(self.warm_up_loss(own, labeled))
            else:
                random = {name: rows[k] for name, rows in batch.random.items()}
                # one whose pass is over waits, without a gradient, for the other
                losses.append(random["at_work"] * self.mixed_loss(own, peer, labeled, groups[UNLABELED[k]], random))
        return losses[0] + losses[1]

    def warm_up_loss(self, own: Network, batch: Batch) -> Tensor:
        logits_BC = own(batch.views[0]).logits
        loss_B = soft_cross_entropy(logits_BC, self.targets(batch.index_B))
        if self.config.warm_up_penalty:
            loss_B = loss_B + self.config.warm_up_penalty * negative_entropy(logits_BC)
        return loss_B.mean()

    def mixed_loss(self, own: Network, peer: Network, labeled: Batch, unlabeled: Batch, random: Mapping[str, Tensor]) -> Tensor:
        """Of one network. The mixed rows go through it in one pass with common batch statistics, as published."""
        target_BC, guess_BC = self.soft_targets(own, peer, labeled, unlabeled)
        x_M = torch.cat([*labeled.views, *unlabeled.views])
        target_MC = torch.cat([target_BC, target_BC, guess_BC, guess_BC])
        partner_M, count = partners(random["uniform"]), 2 * len(target_BC)
        rows = count if self.config.train_on == "labeled" else len(x_M)
        mixed_M, mixed_MC = (blend(table, partner_M, random["weight"])[:rows] for table in (x_M, target_MC))
        logits_MC = own(mixed_M).logits.float()
        loss = soft_cross_entropy(logits_MC[:count], mixed_MC[:count]).mean() + prior_penalty(logits_MC)
        if self.config.train_on == "labeled":
            return loss
        error = (logits_MC[count:].softmax(dim=1) - mixed_MC[count:]).square().mean()
        return loss + random["unlabeled_weight"] * error

    @torch.no_grad()
    def soft_targets(self, own: Network, peer: Network, labeled: Batch, unlabeled: Batch) -> tuple[Tensor, Tensor]:
        """Refined labels of the labelled items, guessed ones of the others. The network itself predicts with batch statistics,
        each view its own; its peer, which stays as it is, with running ones."""
        assert labeled.target is not None
        x, x2, u, u2 = (o.logits.float().softmax(dim=1) for o in own.each([*labeled.views, *unlabeled.views]))
        was_training = peer.training
        v, v2 = peer.eval()(torch.cat(unlabeled.views)).logits.float().softmax(dim=1).chunk(2)
        peer.train(was_training)
        torch.clear_autocast_cache()  # older versions of torch would take weights cast here, without gradient, for the training
        refined_BC = torch.lerp((x + x2) / 2, self.targets(labeled.index_B), labeled.target[:, None])
        temperature = self.config.temperature
        return sharpened(refined_BC, temperature), sharpened((u + u2 + v + v2) / 4, temperature)

    def posterior(self) -> Tensor | None:
        return self.posterior_NC

    def statistics(self) -> Mapping[str, float]:
        return self.counted


def scaled(loss_N: Tensor) -> Tensor:
    """To the range from 0 to 1; all 0 where all are the same."""
    low, high = loss_N.aminmax()
    return (loss_N - low) / (high - low).where(high > low, 1.0)


def clean_probability(loss_N: Tensor, seed: int) -> Tensor:
    """How likely each loss is to be of the lower of two Gaussians, fitted to all on the host; 1 where all are the same."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    values_N1 = loss_N.double().cpu().numpy()[:, None]
    if values_N1.max() == values_N1.min():
        return torch.ones_like(loss_N)
    mixture = GaussianMixture(2, max_iter=10, tol=1e-2, reg_covar=5e-4, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # ten rounds are meant to be all
        clean_N = mixture.fit(values_N1).predict_proba(values_N1)[:, mixture.means_.argmin()]
    return torch.from_numpy(clean_N).to(loss_N)


def divided(clean_N: Tensor, threshold: float, batch_size: int) -> tuple[Tensor, Tensor]:
    """The items that keep their label, at least those likeliest to be clean that fill a batch, and all others; if there are no
    others, a batch of the least likely."""
    order_N = clean_N.argsort(descending=True, stable=True)
    count = max(int((clean_N > threshold).sum()), batch_size)
    unlabeled_M = order_N[count:]
    return order_N[:count], unlabeled_M if len(unlabeled_M) else order_N[-batch_size:]


def ramp_at(epochs: Tensor, warm_up: int, length: int) -> Tensor:
    """From 0 at the end of the warm-up to 1 so many epochs later."""
    return ((epochs - warm_up) / length).clamp(0, 1)


def sharpened(share_BC: Tensor, temperature: float) -> Tensor:
    """v^(1/T), scaled to sum to one."""
    return (share_BC.log() / temperature).softmax(dim=1)


def prior_penalty(logits_MC: Tensor) -> Tensor:
    """sum_c 1/C log(1/C / mean p_c): 0 where the mean prediction is uniform, else above."""
    rows, classes = logits_MC.shape
    log_mean_C = F.log_softmax(logits_MC, dim=1).logsumexp(dim=0) - math.log(rows)
    return -(log_mean_C.mean() + math.log(classes))
