"""ProMix: two networks train on labels they trust, a class-balanced base set and confident predictions; the rest trains an
auxiliary head.

Each epoch after the warm-up (with the cross-entropy), for each network: the base set holds for every label the same number of
items, those with the smallest losses. A step selects A: base items, items whose label has a probability above tau and, late in
the training, items on whose class both networks agree above tau; U are the others.
    L_z = CE(z + a log pi, t) + w [CE(z' + a log pi, t) + L_mixup + L_fmix]              means over A
    L_u = the same for u + beta [CE(u + a log pi', s) + w CE(u' + a log pi', s)]         the last two over U
    s = softmax((z - b log pi') / T)
    pi, pi' <- m pi + (1 - m) mean prediction over A, over U                              running class distributions

Symbols: z main head, u auxiliary head, which keeps wrong pseudo-labels out of the main head; ' strong view; t labels, one-hot;
s guesses; Q networks.
Reference: Xiao et al., IJCAI 2023, arXiv 2207.10276. Differences between the authors' code and this file, and our extension
`labels=candidates`: docs/methods/promix.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass as plain_dataclass
from typing import ClassVar, Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from pals.methods.bases.two_networks import NetworkPair, single_labels, vote_shares
from pals.methods.epoch_plan import Batch, EpochPlan, Group, Selection
from pals.methods.method import Context, Kind, Method, Problem
from pals.methods.parts import selection
from pals.methods.parts.losses import negative_entropy, set_loss, soft_cross_entropy
from pals.methods.parts.mixup import draw_clouds, draw_weights, fmix_mask
from pals.methods.parts.ramps import linear_ramp
from pals.methods.parts.sampling import part, shuffled
from pals.methods.parts.selection import Blends, Targets, selected_loss, unselected_loss
from pals.pseudo_labels.simplex import best_candidate, one_hot
from pals.util.config import SEEDS, STRICT
from pals.vision.augment.augmentations import PROMIX_VIEWS
from pals.vision.networks import Network, Output


@plain_dataclass(frozen=True)
class Predictions:
    """Predictions of a network for a batch.

    Args:
        logits: of each head, the main one first, for the weak and the strong view.
        share_BC: probabilities of the main head for the weak view, without gradient.
    """

    logits: Sequence[Sequence[Tensor]]
    share_BC: Tensor


class ProMix(Method):
    """Matched high-confidence selection with debiased semi-supervised training.

    Args:
        config: options.
        problem: candidates and networks.
    """

    @dataclass(frozen=True, config=STRICT)
    class Config:
        labels: Literal["majority", "votes", "candidates"] = "majority"
        """What is used of an item: one label, the one with the most votes or a vote drawn at random (ties are broken at random;
        without counted votes, all candidates tie), or all its candidates, which is our extension."""
        label_seed: int = Field(default=42, ge=0, lt=SEEDS)
        "Seed of these draws, so that runs with different seeds learn from the same labels."
        candidate_target: Literal["best", "majority"] = "best"
        "Label of a selected item with `labels=candidates`: its most probable candidate, or the one with the most votes."
        networks: Literal[1, 2] = 2
        "Number of networks. A single one agrees with itself."
        auxiliary: bool = True
        "Add a second head, which also learns from the rest and keeps wrong pseudo-labels out of the main head."
        warm_up: int = Field(default=10, ge=0)
        "E0: number of first epochs with the cross-entropy on all items."
        warm_up_penalty: float = Field(default=0.0, ge=0)
        "Penalty on confident predictions in the warm-up; use 1 if certain classes are confused."
        rho_start: float = Field(default=0.5, ge=0, le=1)
        "rho: size of each class's base set as a share of a mean class, at first..."
        rho_end: float = Field(default=0.5, ge=0, le=1)
        "... and finally..."
        rho_ramp: int = Field(default=50, ge=0)
        "... reached linearly after this many epochs."
        quota: Literal["even", "share"] = "even"
        "The same number of items per label, or the same share of each label's items, which is better if class sizes differ."
        tau: float = Field(default=0.99, ge=0, le=1)
        "Probability above which a label, given or agreed, is trusted."
        debias_output: float = Field(default=0.8, ge=0)
        "a: how much of the log running class shares is added to the logits in the losses."
        debias_guess: float = Field(default=0.8, ge=0)
        "b: how much of them is subtracted from the logits before labels are guessed."
        share_momentum: float = Field(default=0.9999, ge=0, lt=1)
        "Momentum of these class shares."
        guess_last: int = Field(default=250, ge=0)
        "Number of last epochs in which items on which the networks agree are trusted with that label; 0: never."
        most_trusted: float = Field(default=0.9, ge=0, le=1)
        "Such items join until this share of a batch is trusted."
        ramp: int = Field(default=50, ge=0)
        "Epochs over which the weight of the strong view and the mixtures rises linearly from 0 to 1."
        unlabeled_weight: float = Field(default=0.1, ge=0)
        "beta: weight of the rest for the auxiliary head, reached linearly..."
        unlabeled_epochs: int = Field(default=100, ge=0)
        "... over this many epochs, from 0; afterwards the rest does not count."
        temperature: float = Field(default=0.5, gt=0)
        "T: a value below 1 sharpens the guesses for the rest."
        mixup: bool = True
        "Train on weighted sums of two images..."
        zeta: float = Field(default=4.0, gt=0)
        "... with weights from Beta(zeta, zeta); the larger of w and 1 - w is used."
        fmix: bool = True
        "Train on pairs of images combined by random cloud-shaped masks..."
        fmix_zeta: float = Field(default=1.0, gt=0)
        "... whose area comes from Beta(fmix_zeta, fmix_zeta)..."
        fmix_decay: float = Field(default=3.0, ge=0)
        "... and which are smoother if this is larger."

    kind: ClassVar[Kind] = "noisy label"
    reference: ClassVar[str] = "Xiao et al., IJCAI 2023, arXiv 2207.10276"
    networks: ClassVar[int] = 2
    cost: ClassVar[float] = 11.9  # each network: a pass for its losses; two views and four blends of 90% of the items
    counted_in_epochs: ClassVar[tuple[str, ...]] = ("warm_up", "rho_ramp", "guess_last", "ramp", "unlabeled_epochs")
    begins_after: ClassVar[tuple[str, ...]] = ("warm_up",)
    views: tuple[str, ...] = ("weak", "promix_strong")
    own_views = PROMIX_VIEWS

    def __init__(self, config: Config, problem: Problem) -> None:
        super().__init__(config, problem)
        self.config: ProMix.Config = config
        candidates, whole = problem.candidates, config.labels == "candidates"
        generator = torch.Generator().manual_seed(config.label_seed)
        self.label_N = nn.Buffer(single_labels(candidates, "majority" if whole else config.labels, generator))
        self.vote_NC = nn.Buffer(vote_shares(candidates)) if whole else None  # targets of the warm-up with all candidates
        self.share_Q2C = nn.Buffer(torch.full((config.networks, 2, self.num_classes), 1 / self.num_classes))  # pi, pi'
        self.tally_Q2 = nn.Buffer(torch.zeros(config.networks, 2, dtype=torch.int64))  # visits to own_B and joined_B
        self.model = NetworkPair(problem.network(), problem.network()) if config.networks == 2 else problem.network()
        heads = [nn.Linear(own.feature_width, self.num_classes) for own in self.trained if config.auxiliary]
        self.auxiliary = nn.ModuleDict({"classifier": nn.ModuleList(heads)})  # the optimiser uses this name
        # In this epoch:
        self.in_warm_up = True
        self.posterior_NC: Tensor | None = None
        self.counts: dict[str, float] = {}  # for the log
        self.cache: Sequence[tuple[Tensor, Targets]] = ()  # of the last step

    @property
    def predictor(self) -> nn.Module:
        return self.model

    @property
    def trained(self) -> tuple[Network, ...]:
        """The networks that are trained."""
        return self.model.both() if isinstance(self.model, NetworkPair) else (self.model,)

    @property
    def graph_key(self) -> str:
        return "warm-up" if self.in_warm_up else "main"

    def plan_epoch(self, ctx: Context) -> EpochPlan:
        c, done = self.config, ctx.epoch - 1
        self.in_warm_up = ctx.epoch <= c.warm_up
        items_N = torch.arange(self.num_items, device=self.label_N.device)
        order_N = shuffled(items_N, ctx.generator)
        if self.in_warm_up:
            return EpochPlan({"main": Group(order_N, views=("weak",))})
        self.tally_Q2.zero_()
        logits_QNC = torch.stack([ctx.outputs(network).logits for network in self.trained])
        share_QNC = logits_QNC.softmax(dim=2)
        label_QN = torch.stack([self.own_labels(share_NC, items_N) for share_NC in share_QNC])
        share, given_NC = c.rho_start + (c.rho_end - c.rho_start) * linear_ramp(done, c.rho_ramp), self.given(items_N)
        base = []
        for logits_NC, label_N in zip(logits_QNC, label_QN, strict=True):
            count_C = one_hot(label_N, self.num_classes).sum(dim=0)
            quota_C = selection.class_quotas(count_C, share, even=c.quota == "even")
            base.append(selection.smallest_by_class(set_loss(logits_NC, given_NC), label_N, quota_C))
        base_QN = torch.stack(base)
        self.counts = {"base": float(base_QN.sum() / len(base_QN))}
        one_hot_QNC = one_hot(label_QN, self.num_classes).float()
        self.posterior_NC = torch.where(base_QN[..., None], one_hot_QNC, share_QNC).mean(dim=0)
        selected_N = torch.stack([b | self.matched(s, items_N) for b, s in zip(base_QN, share_QNC, strict=True)]).all(dim=0)
        report = Selection(selected_N, self.own_labels(share_QNC.mean(dim=0), items_N))
        return EpochPlan.of(order_N, base_QN.T.contiguous(), selection=report)

    def given(self, index_B: Tensor) -> Tensor:
        """The given label of each item, or all candidates; bool, B x C.

        Args:
            index_B: items.
        """
        if self.config.labels == "candidates":
            return self.allowed_NC[index_B]
        return one_hot(self.label_N[index_B], self.num_classes)

    def own_labels(self, share_BC: Tensor, index_B: Tensor) -> Tensor:
        """The labels of items that are selected with their own, B.

        Args:
            share_BC: class probabilities.
            index_B: items.
        """
        if self.config.labels == "candidates" and self.config.candidate_target == "best":
            return best_candidate(share_BC, self.allowed_NC[index_B])
        return self.label_N[index_B]

    def matched(self, share_BC: Tensor, index_B: Tensor) -> Tensor:
        """Whether the given labels have a probability above tau, bool B.

        Args:
            share_BC: class probabilities.
            index_B: items.
        """
        return (share_BC * self.given(index_B)).sum(dim=1) > self.config.tau

    def random_inputs(self, ctx: Context, steps: int) -> Mapping[str, Tensor]:
        if self.in_warm_up:
            return {}
        c, done, device = self.config, ctx.epoch - 1, self.label_N.device
        rise = done / c.unlabeled_epochs if done < c.unlabeled_epochs else 0.0  # from 0 to 1, then 0 again
        numbers = {
            "weight": linear_ramp(done, c.ramp),
            "unlabeled_weight": c.unlabeled_weight * rise,
            "guess": float(done >= ctx.epochs - c.guess_last),
        }
        random = {name: torch.full((steps,), number, device=device) for name, number in numbers.items()}
        shape, kinds = (steps, c.networks, 1 + c.auxiliary), c.mixup + c.fmix  # each network and head has its own draws
        if kinds:
            random["uniform"] = torch.rand(*shape, kinds, ctx.batch_size, generator=ctx.generator, device=device)
        if c.mixup:
            random["mixup_weight"] = draw_weights(shape, c.zeta, ctx.rng, fold=True).to(device)
        if c.fmix:
            random["fmix_share"] = draw_weights(shape, c.fmix_zeta, ctx.rng, fold=False).to(device)
            random["fmix_cloud"] = draw_clouds(shape, c.fmix_decay, ctx.generator)
        return random

    def loss(self, batch: Batch) -> Tensor:
        if self.in_warm_up:
            return torch.stack([self._warm_up_loss(network, batch) for network in self.trained]).sum()
        predictions = [self._predict(number, batch.views) for number in range(len(self.trained))]
        targets = self._targets(predictions, batch)
        self.cache = [(p.share_BC, t) for p, t in zip(predictions, targets, strict=True)]
        losses = [self._network_loss(q, p, t, batch) for q, (p, t) in enumerate(zip(predictions, targets, strict=True))]
        return torch.stack(losses).sum()

    def _warm_up_loss(self, network: Network, batch: Batch) -> Tensor:
        logits_BC, index_B = network(batch.views[0]).logits, batch.index_B
        target_BC = self.given(index_B).float() if self.vote_NC is None else self.vote_NC[index_B]
        loss_B = soft_cross_entropy(logits_BC, target_BC)
        if self.config.warm_up_penalty:
            loss_B = loss_B + self.config.warm_up_penalty * negative_entropy(logits_BC)
        return loss_B.mean()

    def _heads(self, number: int, output: Output) -> list[Tensor]:
        """Logits of a network's main head and, if there is one, of its auxiliary head."""
        heads = self.auxiliary["classifier"]
        assert isinstance(heads, nn.ModuleList)
        return [output.logits, *(head(output.features) for head in heads[number : number + 1])]

    def _predict(self, number: int, views: Sequence[Tensor]) -> Predictions:
        by_view = [self._heads(number, output) for output in self.trained[number].each(views)]
        by_head = list(zip(*by_view, strict=True))
        return Predictions(by_head, by_head[0][0].detach().float().softmax(dim=1))

    @torch.no_grad()
    def _targets(self, predictions: Sequence[Predictions], batch: Batch) -> list[Targets]:
        """A, t and s of each network."""
        assert batch.target is not None
        c, max_selected = self.config, part(self.config.most_trusted, len(batch.index_B))
        agreed_B, confidence_B = selection.agreement(torch.stack([p.share_BC for p in predictions]), c.tau)
        targets = []
        for p, base_B, share_2C in zip(predictions, batch.target.unbind(dim=1), self.share_Q2C, strict=True):
            own_B = base_B | self.matched(p.share_BC, batch.index_B)
            joined_B = selection.most_confident(own_B, agreed_B & (batch.random["guess"] > 0), confidence_B, max_selected)
            logits_BC, bias_2C = p.logits[0][0].float(), c.debias_guess * selection.log_class_shares(share_2C)
            guess_B = (logits_BC - bias_2C[0]).argmax(dim=1)
            label_B = torch.where(own_B, self.own_labels(p.share_BC, batch.index_B), guess_B)
            soft_BC = ((logits_BC - bias_2C[1]) / c.temperature).softmax(dim=1)
            targets.append(Targets(own_B, joined_B, one_hot(label_B, self.num_classes).float(), soft_BC))
        return targets

    def _network_loss(self, number: int, p: Predictions, t: Targets, batch: Batch) -> Tensor:
        """L_z + L_u of one network."""
        weight, heads = batch.random["weight"], range(len(p.logits))
        shift_2C = self.config.debias_output * selection.log_class_shares(self.share_Q2C[number])
        blends = [self._blends(number, head, t, batch) for head in heads]
        logits = self._blend_logits(number, blends)
        losses = [
            selected_loss(p.logits[head], t, list(zip(logits[head], blends[head], strict=True)), shift_2C[0], weight)
            for head in heads
        ]
        if self.config.auxiliary:
            losses.append(batch.random["unlabeled_weight"] * unselected_loss(p.logits[1], t, shift_2C[1], weight))
        return torch.stack(losses).sum()

    def _blends(self, number: int, head: int, t: Targets, batch: Batch) -> list[Blends]:
        """Mix-up and FMix on the weak view, for one head of one network."""
        random, place, x_B = batch.random, (number, head), batch.views[0]
        masks = []  # the share of the first image in each pixel, and in the label
        if self.config.mixup:
            masks.append((random["mixup_weight"][place], random["mixup_weight"][place]))
        if self.config.fmix:
            size = tuple(x_B.shape[2:] if x_B.ndim == 4 else x_B.shape[1:])  # (H, W), or (D,) of vectors
            mask = fmix_mask(random["fmix_cloud"][place], random["fmix_share"][place], size)
            masks.append((mask, mask.mean()))
        blends = []
        for kind, (mask, weight) in enumerate(masks):
            own_B, partner_B, counts_B = selection.pairs_among(t.selected_B, random["uniform"][number, head, kind, : len(x_B)])
            mixed_B = torch.lerp(x_B[partner_B], x_B[own_B], mask.to(x_B.dtype))
            blends.append(Blends(mixed_B, torch.lerp(t.target_BC[partner_B], t.target_BC[own_B], weight), counts_B))
        return blends

    def _blend_logits(self, number: int, blends: Sequence[Sequence[Blends]]) -> list[list[Tensor]]:
        """Logits of each head for its blends, in one pass with batch statistics per blend."""
        inputs = [one.x_B for own in blends for one in own]
        outputs = iter(self.trained[number].each(inputs) if inputs else ())
        return [[self._heads(number, next(outputs))[head] for _ in own] for head, own in enumerate(blends)]

    def after_step(self, batch: Batch) -> None:
        if self.in_warm_up:
            return
        momentum = self.config.share_momentum
        for share_2C, tally_2, (predicted_BC, t) in zip(self.share_Q2C, self.tally_Q2, self.cache, strict=True):
            for share_C, selected_B in zip(share_2C, (t.selected_B, ~t.selected_B), strict=True):
                share_C.copy_(selection.update_class_shares(share_C, predicted_BC, selected_B, momentum))
            tally_2.add_(torch.stack([t.own_B.sum(), t.joined_B.sum()]))

    def posterior(self) -> Tensor | None:
        return self.posterior_NC

    def statistics(self) -> Mapping[str, float]:
        if self.in_warm_up:
            return {}
        trusted, guessed = self.tally_Q2.double().mean(dim=0).tolist()
        return {**self.counts, "trusted": trusted, "guessed": guessed}
