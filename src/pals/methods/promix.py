"""ProMix: two networks train on the labels that they trust, a class-balanced base set and all that is predicted with great
confidence; the rest teaches an auxiliary head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass as plain_dataclass
from typing import ClassVar, Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from pals.methods.bases.prototypes import best_of, members
from pals.methods.bases.two_networks import Pair, single_labels, vote_shares
from pals.methods.method import Batch, Context, EpochPlan, Group, Kind, Method, Problem, Selection
from pals.methods.parts.fmix import draw_clouds, mask_of, put_together
from pals.methods.parts.losses import negative_entropy, set_loss, soft_cross_entropy
from pals.methods.parts.mixup import draw_weights
from pals.methods.parts.sampling import part, shuffled
from pals.methods.parts.selection import (
    agreed,
    joining,
    log_shares_of,
    mean_over,
    moved_share,
    pairs_among,
    quotas,
    smallest_by_class,
)
from pals.util.config import SEEDS, STRICT
from pals.vision.augment.augmentations import PROMIX_VIEWS
from pals.vision.networks import Network, Output


@plain_dataclass(frozen=True)
class Look:
    """What a network says of a batch."""

    logits: Sequence[Sequence[Tensor]]  # of each head, the main one first: for the weak and the strong view
    share_BC: Tensor  # the main head's probabilities for the weak view, without gradient


@plain_dataclass(frozen=True)
class Side:
    """What a network is to learn from a batch, without gradient."""

    kept_B: Tensor  # bool: trusted with their own label
    joined_B: Tensor  # bool: trusted with a guessed one
    target_BC: Tensor  # one-hot
    guess_BC: Tensor  # soft, for the rest

    @property
    def trusted_B(self) -> Tensor:
        return self.kept_B | self.joined_B


@plain_dataclass(frozen=True)
class Mixed:
    """Blends of trusted items; see `trusted.Among` for rows that do not count."""

    x_B: Tensor
    target_BC: Tensor
    counts_B: Tensor


class ProMix(Method):
    """After a warm-up with the cross-entropy, each epoch begins with a base set for each network: of every label the items with
    the smallest losses, as many of each. In each step join those whose label has a probability above tau and, late in the
    training, those on which both networks agree with such confidence. These, A, are trained on with labels t on a weak view,
    a strong view (') and two kinds of blends, by the main head (z) and an auxiliary one (u); the rest, U, by the latter alone:

        L_z = CE(z + a log pi, t) + w [CE(z' + a log pi, t) + L_mixup + L_fmix]         means over A
        L_u = the same for u  +  beta [CE(u + a log pi', s) + w CE(u' + a log pi', s)]  the last two over U
        s = sharpen(softmax(z - b log pi'))

    with the running mean predictions pi of A and pi' of U. The losses of both networks add up. `docs/methods/promix.md` has the
    rest, and every difference between the authors' code and this; `labels=candidates` is our extension.
    """

    @dataclass(frozen=True, config=STRICT)
    class Config:
        labels: Literal["majority", "votes", "candidates"] = "majority"
        """What is used of an item: one label, the one with the most votes or a vote drawn at random (ties are broken at random;
        without counted votes, all candidates tie), or all its candidates, which is our extension."""
        label_seed: int = Field(default=42, ge=0, lt=SEEDS)
        "Seed of these draws, so that runs with different seeds learn from the same labels."
        candidate_target: Literal["best", "majority"] = "best"
        "Label of a trusted item with `labels=candidates`: its most probable candidate, or the one with the most votes."
        networks: Literal[1, 2] = 2
        "Number of networks. A single one agrees with itself."
        auxiliary: bool = True
        "Add a second head, which also learns from the rest and keeps its errors from the first."
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
    cost: ClassVar[float] = 11.9  # each network: a pass for its losses; two views and four blends of the trusted items, say 90%
    counted_in_epochs: ClassVar[tuple[str, ...]] = ("warm_up", "rho_ramp", "guess_last", "ramp", "unlabeled_epochs")
    begins_after: ClassVar[tuple[str, ...]] = ("warm_up",)
    views: tuple[str, ...] = ("weak", "promix_strong")
    own_views = PROMIX_VIEWS

    def __init__(self, config: Config, problem: Problem) -> None:
        super().__init__(config, problem)
        self.config: ProMix.Config = config
        self.label_N: Tensor
        self.vote_NC: Tensor | None  # in the warm-up with several labels
        self.share_Q2C: Tensor  # pi and pi' of each network
        self.tally_Q2: Tensor  # visits in this epoch to items trusted with their own label, and with a guessed one
        candidates, whole = problem.candidates, config.labels == "candidates"
        generator = torch.Generator().manual_seed(config.label_seed)
        self.register_buffer("label_N", single_labels(candidates, "majority" if whole else config.labels, generator))
        self.register_buffer("vote_NC", vote_shares(candidates) if whole else None)
        self.register_buffer("share_Q2C", torch.full((config.networks, 2, self.num_classes), 1 / self.num_classes))
        self.register_buffer("tally_Q2", torch.zeros(config.networks, 2, dtype=torch.int64))
        self.model = Pair(problem.network(), problem.network()) if config.networks == 2 else problem.network()
        heads = [nn.Linear(own.feature_width, self.num_classes) for own in self.trained if config.auxiliary]
        self.auxiliary = nn.ModuleDict({"classifier": nn.ModuleList(heads)})  # so called for the optimiser
        self.warm = True  # set anew each epoch, as are the next two
        self.posterior_NC: Tensor | None = None
        self.counted: dict[str, float] = {}
        self.seen: Sequence[tuple[Tensor, Side]] = ()

    @property
    def predictor(self) -> nn.Module:
        return self.model

    @property
    def trained(self) -> tuple[Network, ...]:
        """The networks."""
        return self.model.both() if isinstance(self.model, Pair) else (self.model,)

    @property
    def graph_key(self) -> str:
        return "warm-up" if self.warm else "main"

    # ---- before an epoch

    def plan_epoch(self, ctx: Context) -> EpochPlan:
        self.warm = ctx.epoch <= self.config.warm_up
        everything = torch.arange(self.num_items, device=self.label_N.device)
        order_N = shuffled(everything, ctx.generator)
        if self.warm:
            return EpochPlan({"main": Group(order_N, views=("weak",))})
        self.tally_Q2.zero_()
        logits_QNC = torch.stack([ctx.outputs(network).logits for network in self.trained])
        share_QNC = logits_QNC.softmax(dim=2)
        label_QN = torch.stack([self.own_labels(share_NC, everything) for share_NC in share_QNC])
        base_QN = self._base_sets(logits_QNC, label_QN, ctx.epoch - 1)
        self.counted = {"base": float(base_QN.sum() / len(base_QN))}
        one_hot_QNC = label_QN[..., None] == torch.arange(self.num_classes, device=label_QN.device)
        self.posterior_NC = torch.where(base_QN[..., None], one_hot_QNC.float(), share_QNC).mean(dim=0)
        trusted_N = torch.stack([b | self.matched(s, everything) for b, s in zip(base_QN, share_QNC, strict=True)]).all(dim=0)
        selection = Selection(trusted_N, self.own_labels(share_QNC.mean(dim=0), everything))
        return EpochPlan.of(order_N, base_QN.T.contiguous(), selection=selection)

    def _base_sets(self, logits_QNC: Tensor, label_QN: Tensor, epochs_done: int) -> Tensor:
        """Of each network its own."""
        c = self.config
        share = c.rho_start + (c.rho_end - c.rho_start) * ramp_at(epochs_done, c.rho_ramp)
        given_NC = self.given(torch.arange(self.num_items, device=label_QN.device))
        base = []
        for logits_NC, label_N in zip(logits_QNC, label_QN, strict=True):
            quota_C = quotas(members(label_N, self.num_classes).sum(dim=0), share, even=c.quota == "even")
            base.append(smallest_by_class(set_loss(logits_NC, given_NC), label_N, quota_C))
        return torch.stack(base)

    def given(self, index_B: Tensor) -> Tensor:
        """B x C bool: what people said of these items, one label or all candidates."""
        if self.config.labels == "candidates":
            return self.allowed_NC[index_B]
        return members(self.label_N[index_B], self.num_classes)

    def own_labels(self, share_BC: Tensor, index_B: Tensor) -> Tensor:
        """Their labels while they are trusted with their own."""
        if self.config.labels == "candidates" and self.config.candidate_target == "best":
            return best_of(share_BC, self.allowed_NC[index_B])
        return self.label_N[index_B]

    def matched(self, share_BC: Tensor, index_B: Tensor) -> Tensor:
        """Bool: where what was given has a probability above tau."""
        return (share_BC * self.given(index_B)).sum(dim=1) > self.config.tau

    def random_inputs(self, ctx: Context, steps: int) -> Mapping[str, Tensor]:
        if self.warm:
            return {}
        c, done = self.config, ctx.epoch - 1
        numbers = {
            "weight": ramp_at(done, c.ramp),
            "unlabeled_weight": c.unlabeled_weight * rise_and_end(done, c.unlabeled_epochs),
            "guess": float(done >= ctx.epochs - c.guess_last),
        }
        same = {name: torch.full((steps,), number, device=self.label_N.device) for name, number in numbers.items()}
        return {**same, **self._draw_mixing(ctx, steps)}

    def _draw_mixing(self, ctx: Context, steps: int) -> dict[str, Tensor]:
        """For each step, network and head a draw of its own."""
        c, device = self.config, self.label_N.device
        shape, kinds = (steps, c.networks, 1 + c.auxiliary), c.mixup + c.fmix
        drawn = {}
        if kinds:
            drawn["uniform"] = torch.rand(*shape, kinds, ctx.batch_size, generator=ctx.generator, device=device)
        if c.mixup:
            drawn["mixup_weight"] = draw_weights(shape, c.zeta, ctx.rng, fold=True).to(device)
        if c.fmix:
            drawn["fmix_share"] = draw_weights(shape, c.fmix_zeta, ctx.rng, fold=False).to(device)
            drawn["fmix_cloud"] = draw_clouds(shape, c.fmix_decay, ctx.generator)
        return drawn

    # ---- a step

    def loss(self, batch: Batch) -> Tensor:
        if self.warm:
            return torch.stack([self._warm_up_loss(network, batch) for network in self.trained]).sum()
        looks = [self._look(number, batch.views) for number in range(len(self.trained))]
        sides = self._sides(looks, batch)
        self.seen = [(look.share_BC, side) for look, side in zip(looks, sides, strict=True)]
        losses = [self._network_loss(q, look, side, batch) for q, (look, side) in enumerate(zip(looks, sides, strict=True))]
        return torch.stack(losses).sum()

    def _warm_up_loss(self, network: Network, batch: Batch) -> Tensor:
        logits_BC, index_B = network(batch.views[0]).logits, batch.index_B
        target_BC = self.given(index_B).float() if self.vote_NC is None else self.vote_NC[index_B]
        loss_B = soft_cross_entropy(logits_BC, target_BC)
        if self.config.warm_up_penalty:
            loss_B = loss_B + self.config.warm_up_penalty * negative_entropy(logits_BC)
        return loss_B.mean()

    def _heads(self, number: int, output: Output) -> list[Tensor]:
        """Logits of a network's main head and, if it has one, of its auxiliary one."""
        heads = self.auxiliary["classifier"]
        assert isinstance(heads, nn.ModuleList)
        return [output.logits, *(head(output.features) for head in heads[number : number + 1])]

    def _look(self, number: int, views: Sequence[Tensor]) -> Look:
        by_view = [self._heads(number, output) for output in self.trained[number].each(views)]
        by_head = list(zip(*by_view, strict=True))
        return Look(by_head, by_head[0][0].detach().float().softmax(dim=1))

    @torch.no_grad()
    def _sides(self, looks: Sequence[Look], batch: Batch) -> list[Side]:
        """Who is trusted by each network, with which label."""
        assert batch.target is not None
        c, most = self.config, part(self.config.most_trusted, len(batch.index_B))
        agreed_B, sure_B = agreed(torch.stack([look.share_BC for look in looks]), c.tau)
        sides = []
        for look, base_B, share_2C in zip(looks, batch.target.unbind(dim=1), self.share_Q2C, strict=True):
            kept_B = base_B | self.matched(look.share_BC, batch.index_B)
            joined_B = joining(kept_B, agreed_B & (batch.random["guess"] > 0), sure_B, most)
            logits_BC, bias_2C = look.logits[0][0].float(), c.debias_guess * log_shares_of(share_2C)
            guess_B = (logits_BC - bias_2C[0]).argmax(dim=1)
            label_B = torch.where(kept_B, self.own_labels(look.share_BC, batch.index_B), guess_B)
            soft_BC = ((logits_BC - bias_2C[1]) / c.temperature).softmax(dim=1)
            sides.append(Side(kept_B, joined_B, members(label_B, self.num_classes).float(), soft_BC))
        return sides

    def _network_loss(self, number: int, look: Look, side: Side, batch: Batch) -> Tensor:
        weight, heads = batch.random["weight"], range(len(look.logits))
        shift_2C = self.config.debias_output * log_shares_of(self.share_Q2C[number])
        blends = [self._blends(number, head, side, batch) for head in heads]
        logits = self._blend_logits(number, blends)
        losses = [
            trusted_loss(look.logits[head], side, list(zip(logits[head], blends[head], strict=True)), shift_2C[0], weight)
            for head in heads
        ]
        if self.config.auxiliary:
            losses.append(batch.random["unlabeled_weight"] * rest_loss(look.logits[1], side, shift_2C[1], weight))
        return torch.stack(losses).sum()

    def _blends(self, number: int, head: int, side: Side, batch: Batch) -> list[Mixed]:
        """Of each kind, on the weak view, one for each head of each network."""
        x_B, target_BC = batch.views[0], side.target_BC
        made = []
        for place, (mask, weight) in enumerate(self._masks(number, head, batch)):
            uniform_B = batch.random["uniform"][number, head, place, : len(x_B)]
            own_B, partner_B, counts_B = pairs_among(side.trusted_B, uniform_B)
            mixed_B = put_together(x_B[own_B], x_B[partner_B], mask)
            made.append(Mixed(mixed_B, torch.lerp(target_BC[partner_B], target_BC[own_B], weight), counts_B))
        return made

    def _masks(self, number: int, head: int, batch: Batch) -> list[tuple[Tensor, Tensor]]:
        """How much of the first of two images is taken, pixel by pixel, and of its label."""
        random, place, made = batch.random, (number, head), []
        if self.config.mixup:
            made.append((random["mixup_weight"][place], random["mixup_weight"][place]))
        if self.config.fmix:
            mask = mask_of(random["fmix_cloud"][place], random["fmix_share"][place], size_of(batch.views[0]))
            made.append((mask, mask.mean()))
        return made

    def _blend_logits(self, number: int, blends: Sequence[Sequence[Mixed]]) -> list[list[Tensor]]:
        """Of each head for its own blends; all of them in one pass, each with batch statistics of its own."""
        inputs = [one.x_B for own in blends for one in own]
        outputs = iter(self.trained[number].each(inputs) if inputs else ())
        return [[self._heads(number, next(outputs))[head] for _ in own] for head, own in enumerate(blends)]

    def after_step(self, batch: Batch) -> None:
        if self.warm:
            return
        momentum = self.config.share_momentum
        for share_2C, tally_2, (seen_BC, side) in zip(self.share_Q2C, self.tally_Q2, self.seen, strict=True):
            for share_C, chosen_B in zip(share_2C, (side.trusted_B, ~side.trusted_B), strict=True):
                share_C.copy_(moved_share(share_C, seen_BC, chosen_B, momentum))
            tally_2.add_(torch.stack([side.kept_B.sum(), side.joined_B.sum()]))

    def posterior(self) -> Tensor | None:
        return self.posterior_NC

    def statistics(self) -> Mapping[str, float]:
        if self.warm:
            return {}
        trusted, guessed = self.tally_Q2.double().mean(dim=0).tolist()
        return {**self.counted, "trusted": trusted, "guessed": guessed}


def trusted_loss(
    logits: Sequence[Tensor], side: Side, blends: Sequence[tuple[Tensor, Mixed]], shift_C: Tensor, weight: Tensor
) -> Tensor:
    """Of a head for the items that are trusted: on the weak view, and with this weight on the strong one and on blends."""
    weak, *others = [
        *(mean_over(soft_cross_entropy(z_BC + shift_C, side.target_BC), side.trusted_B) for z_BC in logits),
        *(mean_over(soft_cross_entropy(z_BC + shift_C, one.target_BC), one.counts_B) for z_BC, one in blends),
    ]
    return weak + weight * torch.stack(others).sum()


def rest_loss(logits: Sequence[Tensor], side: Side, shift_C: Tensor, weight: Tensor) -> Tensor:
    """Of the items that are not trusted, on both views, against their guesses."""
    weak, strong = (mean_over(soft_cross_entropy(u_BC + shift_C, side.guess_BC), ~side.trusted_B) for u_BC in logits)
    return weak + weight * strong


def size_of(x_B: Tensor) -> tuple[int, ...]:
    """Height and width of images, or the width of vectors."""
    return tuple(x_B.shape[2:] if x_B.ndim == 4 else x_B.shape[1:])


def ramp_at(epochs_done: int, length: int) -> float:
    """From 0 to 1 in so many epochs; always 1 if there are none."""
    return min(1.0, epochs_done / length) if length else 1.0


def rise_and_end(epochs_done: int, length: int) -> float:
    """From 0 to 1 in so many epochs, then 0 again."""
    return epochs_done / length if epochs_done < length else 0.0
