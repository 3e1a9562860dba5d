"""DivideMix: two networks divide the items for each other, by their losses, into labelled and unlabelled ones.

After a warm-up with the cross-entropy, at the start of each epoch a mixture of two Gaussians is fitted to the losses of each
network; w is the posterior of the component with the smaller mean, the probability that the label y is right. Items with
w > threshold are labelled, and each network is trained by the division of the OTHER one, on two weak views of each item:
    labelled     t = sharpen(w y + (1 - w) (p(x) + p(x')) / 2)
    unlabelled   t = sharpen((p(u) + p(u') + q(u) + q(u')) / 4),    sharpen(v)_c = v_c^(1/T) / sum_k v_k^(1/T)
    L = mean_labelled(-sum_c t_c log p_c) + lambda(epoch) mean_unlabelled,c((p_c - t_c)^2) + sum_c 1/C log(1/C / mean p_c)

All rows are mixed with one another (mix-up), inputs and targets, with a weight of at least 1/2.
Symbols: p predictions of the network, q of the other one; H epochs whose losses are averaged.
Reference: Li, Socher and Hoi, ICLR 2020, arXiv 2002.07394. Differences between paper and code: docs/methods/dividemix.md.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from pals.methods.bases.two_networks import TwoNetworkMethod
from pals.methods.epoch_plan import Batch, EpochPlan, Group, Selection
from pals.methods.method import Context, Problem
from pals.methods.parts.losses import negative_entropy, soft_cross_entropy
from pals.methods.parts.mixup import blend, draw_mixup, partners
from pals.methods.parts.sampling import passes
from pals.pseudo_labels.simplex import one_hot
from pals.util.config import STRICT
from pals.vision.networks import Network

LABELED, UNLABELED = ("main", "second"), ("main_unlabeled", "second_unlabeled")  # groups of the two networks


class DivideMix(TwoNetworkMethod):
    """Co-divide by mixtures fitted to the losses, then MixMatch.

    Args:
        config: options.
        problem: candidates and networks.
    """

    @dataclass(frozen=True, config=STRICT)
    class Config(TwoNetworkMethod.Config):
        warm_up: int = Field(default=10, ge=0)
        "Number of first epochs with the cross-entropy on all items, in batches of twice the size."
        warm_up_penalty: float = Field(default=0.0, ge=0)
        "Penalty on confident predictions in the warm-up; use 1 if certain classes are confused."
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
        self.loss_2HN = nn.Buffer(torch.zeros(2, config.history, self.num_items))  # of both networks, in the last epochs
        # In this epoch:
        self.in_warm_up = True
        self.own_steps: tuple[int, ...] = ()  # of each network
        self.posterior_NC: Tensor | None = None
        self.counts: Mapping[str, float] = {}  # for the log

    @property
    def graph_key(self) -> str:
        return "warm-up" if self.in_warm_up else "main"

    def plan_epoch(self, ctx: Context) -> EpochPlan:
        self.in_warm_up = ctx.epoch <= self.config.warm_up
        if self.in_warm_up:
            size = 2 * ctx.batch_size
            return EpochPlan(
                {name: Group(o, batch_size=size, views=("weak",)) for name, o in zip(LABELED, self.orders(ctx), strict=True)}
            )
        size, threshold = ctx.batch_size, self.config.threshold
        clean_2N = self._clean_probabilities(ctx)
        splits = [divide(clean_N, threshold, size) for clean_N in clean_2N]
        self.counts = {f"labeled_{k}": len(splits[1 - k][0]) for k in range(2)}
        self.own_steps = tuple(-(-len(splits[1 - k][0]) // size) for k in range(2))
        length = max(self.own_steps) * size
        groups = {}
        for k in range(2):  # each uses the division of the other
            labeled_M, unlabeled_M = splits[1 - k]
            groups[LABELED[k]] = Group(passes(labeled_M, length, ctx.generator), clean_2N[1 - k])
            groups[UNLABELED[k]] = Group(passes(unlabeled_M, length, ctx.generator))
        return EpochPlan(groups, Selection(clean_2N.mean(dim=0) > threshold, self.label_N))

    def _clean_probabilities(self, ctx: Context) -> Tensor:
        """w by both networks, 2 x N."""
        before = ctx.epoch - self.config.warm_up - 1  # epochs with a division
        kept = min(before + 1, self.config.history)
        logits = [ctx.outputs(network).logits for network in self.pair.both()]
        for k, logits_NC in enumerate(logits):
            loss_N = F.cross_entropy(logits_NC, self.label_N, reduction="none")
            self.loss_2HN[k, before % self.config.history] = scale_to_unit(loss_N)
        mean_2N = self.loss_2HN[:, :kept].mean(dim=1)
        clean_2N = torch.stack([clean_probability(loss_N, int(ctx.rng.integers(2**31))) for loss_N in mean_2N])
        share_NC = torch.stack(logits).softmax(dim=2).mean(dim=0)
        self.posterior_NC = torch.lerp(share_NC, one_hot(self.label_N, self.num_classes).float(), clean_2N.mean(dim=0)[:, None])
        return clean_2N

    def random_inputs(self, ctx: Context, steps: int) -> Mapping[str, Tensor]:
        if self.in_warm_up:
            return {}
        c, device, rows = self.config, self.label_N.device, 4 * ctx.batch_size  # two views of labelled and unlabelled items
        mixing = draw_mixup((steps, 2), rows, c.zeta, ctx.rng, ctx.generator, fold=True)
        done_M2 = torch.arange(steps)[:, None] / torch.tensor(self.own_steps)  # of each network's pass
        weight_M2 = c.unlabeled_weight * ((ctx.epoch - 1 + done_M2 - c.warm_up) / c.ramp).clamp(0, 1)
        return {**mixing, "unlabeled_weight": weight_M2.to(device), "active": (done_M2 < 1).float().to(device)}

    def loss(self, batch: Batch) -> Tensor:
        groups, losses = {"main": batch, **batch.groups}, []
        networks = self.pair.both()
        for k, (own, peer) in enumerate(zip(networks, reversed(networks), strict=True)):
            labeled = groups[LABELED[k]]
            if self.in_warm_up:
                losses.append(self.warm_up_loss(own, labeled))
            else:
                random = {name: rows[k] for name, rows in batch.random.items()}
                # 0 once this network has finished its pass
                losses.append(random["active"] * self.mixed_loss(own, peer, labeled, groups[UNLABELED[k]], random))
        return losses[0] + losses[1]

    def warm_up_loss(self, own: Network, batch: Batch) -> Tensor:
        """Cross-entropy of one network, perhaps with a penalty on confident predictions.

        Args:
            own: the network.
            batch: its batch.
        """
        logits_BC = own(batch.views[0]).logits
        loss_B = soft_cross_entropy(logits_BC, self.targets(batch.index_B))
        if self.config.warm_up_penalty:
            loss_B = loss_B + self.config.warm_up_penalty * negative_entropy(logits_BC)
        return loss_B.mean()

    def mixed_loss(self, own: Network, peer: Network, labeled: Batch, unlabeled: Batch, random: Mapping[str, Tensor]) -> Tensor:
        """L of one network. The mixed rows share one pass and its batch statistics, as published.

        Args:
            own: the network.
            peer: the other one.
            labeled: labelled items.
            unlabeled: unlabelled items.
            random: its random inputs.
        """
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
        """The targets t. The network predicts with batch statistics of each view, its peer with running ones.

        Args:
            own: the network.
            peer: the other one, which is not changed.
            labeled: labelled items.
            unlabeled: unlabelled items.

        Returns:
            Targets of labelled and of unlabelled items, B x C each.
        """
        assert labeled.target is not None
        x, x2, u, u2 = (o.logits.float().softmax(dim=1) for o in own.each([*labeled.views, *unlabeled.views]))
        was_training = peer.training
        v, v2 = peer.eval()(torch.cat(unlabeled.views)).logits.float().softmax(dim=1).chunk(2)
        peer.train(was_training)
        torch.clear_autocast_cache()  # older torch would reuse weights cast here, without gradient, in training
        refined_BC = torch.lerp((x + x2) / 2, self.targets(labeled.index_B), labeled.target[:, None])
        temperature = self.config.temperature
        return sharpen(refined_BC, temperature), sharpen((u + u2 + v + v2) / 4, temperature)

    def posterior(self) -> Tensor | None:
        return self.posterior_NC

    def statistics(self) -> Mapping[str, float]:
        return self.counts


def scale_to_unit(loss_N: Tensor) -> Tensor:
    """Scale losses to the range from 0 to 1.

    Args:
        loss_N: losses.

    Returns:
        All 0 where all losses are equal.

    >>> scale_to_unit(torch.tensor([1.0, 3.0, 2.0])).tolist()
    [0.0, 1.0, 0.5]
    """
    low, high = loss_N.aminmax()
    return (loss_N - low) / (high - low).where(high > low, 1.0)


def clean_probability(loss_N: Tensor, seed: int) -> Tensor:
    """w, the posterior of the Gaussian with the smaller mean, in a mixture of two that is fitted on the host.

    Args:
        loss_N: losses.
        seed: of the initial mixture.

    Returns:
        N; 1 where all losses are equal.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    values_N1 = loss_N.double().cpu().numpy()[:, None]
    if values_N1.max() == values_N1.min():
        return torch.ones_like(loss_N)
    mixture = GaussianMixture(2, max_iter=10, tol=1e-2, reg_covar=5e-4, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # ten iterations, as published
        clean_N = mixture.fit(values_N1).predict_proba(values_N1)[:, mixture.means_.argmin()]
    return torch.from_numpy(clean_N).to(loss_N)


def divide(clean_N: Tensor, threshold: float, batch_size: int) -> tuple[Tensor, Tensor]:
    """Divide the items into labelled and unlabelled ones.

    Args:
        clean_N: w.
        threshold: smallest w of labelled items.
        batch_size: smallest number of labelled items.

    Returns:
        Labelled items, highest w first, and all others; if there are none, a batch of those with the lowest w.
    """
    order_N = clean_N.argsort(descending=True, stable=True)
    count = max(int((clean_N > threshold).sum()), batch_size)
    unlabeled_M = order_N[count:]
    return order_N[:count], unlabeled_M if len(unlabeled_M) else order_N[-batch_size:]


def sharpen(share_BC: Tensor, temperature: float) -> Tensor:
    """v_c^(1/T) / sum_k v_k^(1/T).

    Args:
        share_BC: v.
        temperature: T.

    Returns:
        B x C, rows sum to one.
    """
    return (share_BC.log() / temperature).softmax(dim=1)


def prior_penalty(logits_MC: Tensor) -> Tensor:
    """sum_c 1/C log(1/C / mean p_c), 0 where the mean prediction is uniform.

    Args:
        logits_MC: logits.

    Returns:
        A scalar.
    """
    rows, classes = logits_MC.shape
    log_mean_C = F.log_softmax(logits_MC, dim=1).logsumexp(dim=0) - math.log(rows)
    return -(log_mean_C.mean() + math.log(classes))
