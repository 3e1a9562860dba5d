"""Candidate sets made from the truth by the published noise protocols, for experiments where the answer is known.

`partial_rate` (q) is the chance that a wrong label enters a set, `noise_rate` (eta) the nominal chance that the true one
is left out. The protocols define them differently, so results are comparable only under the same protocol:

====  ==============================  ===============================================================  =====================
name  used by                         protocol                                                         true label missing
====  ==============================  ===============================================================  =====================
g1    PALS, PiCO+                     true label in with 1-eta, wrong ones with q; empty sets redrawn  eta w / (1-eta+eta w)
g2    IRNet, ALIM on CIFAR ("flip")   wrong ones with q; with eta the true label is replaced by a      eta (1 - q^m)
                                      label not yet in the set; full sets are unchanged
g3    FREDIS                          a label that is wrong with eta; wrong ones with q, at least one  eta
g4    UPLLRS                          a label that is wrong with eta; every label, the true one        eta (1 - q)
                                      included, with q
====  ==============================  ===============================================================  =====================

m is the number of wrong labels that an item may get and w = 1-(1-q)^m the chance that at least one of them enters.
With groups (super-classes) all wrong labels come from the group of the true one; a class alone in its group keeps its
true label in g1, g2 and g4.

References: g1 Wang et al. 2022, arXiv 2201.08984, and Saravanan et al. 2024, arXiv 2402.04835; g2 Lian et al. 2022, arXiv
2211.04774, and Xu et al. 2023, arXiv 2301.12077; g3 Qiao et al. 2023 (ICML); g4 Shi et al. 2023, arXiv 2302.09891.

Symbols: N items, C classes, B items drawn at a time, G groups, T rows of uniform numbers, L labels drawn per item.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from pals.labels.candidates import CandidateSets, Truth, covered
from pals.util.errors import InputError, unknown

Protocol = Literal["g1", "g2", "g3", "g4"]

MAX_DRAWN_ENTRIES = 1 << 22  # at a time: the draws then need little memory beside the result
MAX_REDRAWS = 1000  # mean number of rows per item that `official_candidates` rejects


@dataclass(frozen=True)
class Noise:
    """Candidate sets with the nominal, the expected and the measured rates."""

    candidates: CandidateSets
    protocol: Protocol
    partial_rate: float
    noise_rate: float
    "Nominal; see the table above for its meaning in each protocol."
    expected_rate: float
    "Share of items whose true label is missing, by the protocol's closed form."
    effective_rate: float
    "The same share, counted."
    mean_size: float


@dataclass(frozen=True)
class _Rows:
    """Items to draw sets for: their true label, the wrong ones that they may get, and the rates."""

    own_NC: Tensor  # bool, one true entry per row
    other_NC: Tensor  # bool
    q: float
    eta: float
    pair_flip: bool
    generator: torch.Generator

    def chance(self, probability: float | Tensor) -> Tensor:
        """Per item: true with this probability."""
        return self.uniform() < probability

    def uniform(self) -> Tensor:
        # double: in single precision one draw in 2^24 is exactly 0, too many for rare events among millions of items
        return torch.rand(len(self.own_NC), dtype=torch.float64, device=self.own_NC.device, generator=self.generator)

    def each(self, may_NC: Tensor) -> Tensor:
        """Those of these labels that enter, each independently with probability q."""
        draw_NC = torch.rand(may_NC.shape, device=may_NC.device, generator=self.generator)
        return may_NC & (draw_NC < self.q)


def make_candidates(
    truth: Truth,
    *,
    partial_rate: float,
    noise_rate: float = 0.0,
    protocol: Protocol = "g1",
    generator: torch.Generator,
    group_C: Tensor | None = None,
    pair_flip: bool = False,
    ids: Sequence[str] | None = None,
) -> Noise:
    """Draws candidate sets by a noise protocol.

    Args:
        truth: True labels.
        partial_rate: q, from 0 to 1.
        noise_rate: eta, from 0 to 1; default 0.
        protocol: "g1" to "g4"; default "g1".
        generator: Source of the draws, on the device of the truth.
        group_C: Super-class of each class; default None: all wrong labels are possible.
        pair_flip: For g4: a wrong first label is always the next class (after the last class the first); default False.
        ids: Names of the items; default "0", "1", ...

    Returns:
        `Noise`: the candidates, and their expected and measured rates.

    Raises:
        InputError: A rate outside [0, 1], or settings for which no candidate set exists.

    >>> import torch
    >>> from pals import Truth, make_candidates
    >>> truth = Truth.of([0, 1, 2, 3])
    >>> noise = make_candidates(truth, partial_rate=0.0, protocol="g2", generator=torch.Generator().manual_seed(0))
    >>> noise.candidates.size_N.tolist(), noise.effective_rate
    ([1, 1, 1, 1], 0.0)
    """
    if protocol not in _DRAW:
        raise unknown("noise protocol", protocol, _DRAW)
    if pair_flip and protocol != "g4":
        raise InputError(f"pair_flip belongs to protocol g4, not {protocol}. Leave it out, or pass protocol='g4'.")
    device = truth.label_N.device
    if generator.device.type != device.type:
        raise InputError(f"The generator is on {generator.device}, the true labels on {device}; create it on the same device.")
    group_C = _groups(truth, group_C)
    expected = _expected_rate(protocol, partial_rate, noise_rate, truth, group_C)

    def draw(label_B: Tensor) -> Tensor:
        own_BC = label_B[:, None] == torch.arange(truth.num_classes, device=device)
        other_BC = (group_C[label_B][:, None] == group_C) & ~own_BC
        return _DRAW[protocol](_Rows(own_BC, other_BC, partial_rate, noise_rate, pair_flip, generator))

    allowed_NC = torch.cat(
        [draw(label_B) for label_B in torch.split(truth.label_N, max(1, MAX_DRAWN_ENTRIES // truth.num_classes))]
    )
    return _noise(allowed_NC, truth, protocol, partial_rate, noise_rate, expected, ids)


def official_candidates(
    truth: Truth,
    *,
    partial_rate: float,
    noise_rate: float,
    seed: int = 42,
    group_C: Tensor | None = None,
    ids: Sequence[str] | None = None,
) -> Noise:
    """Exactly the sets that the authors' code draws for this seed: the distribution of `make_candidates(protocol="g1")`.

    Args:
        truth: True labels.
        partial_rate: q, from 0 to 1.
        noise_rate: eta, from 0 to 1.
        seed: Of numpy's legacy generator, 0 to 2^32 - 1; default 42.
        group_C: Super-class of each class; default None: all wrong labels are possible.
        ids: Names of the items; default "0", "1", ...

    Returns:
        `Noise`: the candidates, and their expected and measured rates.

    Raises:
        InputError: A rate outside [0, 1], or rates for which nearly all sets would be drawn again.

    >>> from pals import Truth, official_candidates
    >>> noise = official_candidates(Truth.of([0, 1, 2, 0, 1, 2]), partial_rate=0.3, noise_rate=0.5)
    >>> noise.candidates.size_N.tolist()
    [2, 2, 1, 1, 2, 1]
    """
    _check_seed(seed, below=2**32)
    group_C = _groups(truth, group_C)
    expected = _expected_rate("g1", partial_rate, noise_rate, truth, group_C)
    filled = 1 - noise_rate + noise_rate * float(_any_wrong(partial_rate, _others(truth, group_C)).min())
    if filled * MAX_REDRAWS < 1:
        raise InputError(
            f"With partial_rate={partial_rate} and noise_rate={noise_rate} nearly all sets are empty and would be drawn "
            f"again about {1 / filled:.3g} times each. make_candidates draws from the same distribution without redraws."
        )
    label_N, group = truth.label_N.cpu().numpy(), group_C.cpu().numpy()
    rng = np.random.RandomState(seed)
    rng.random_sample((len(truth), truth.num_classes))  # the authors' code draws a first block and never uses it
    draw_NC = _accepted_draws(rng, label_N, group, partial_rate, noise_rate)
    own_NC = label_N[:, None] == np.arange(truth.num_classes)
    wrong_NC = (group[label_N][:, None] == group) & (draw_NC <= partial_rate)
    allowed_NC = torch.from_numpy(np.where(own_NC, draw_NC <= 1 - noise_rate, wrong_NC)).to(truth.label_N.device)
    return _noise(allowed_NC, truth, "g1", partial_rate, noise_rate, expected, ids)


def draw_annotators(frequency_NC: Tensor | np.ndarray, labels_per_item: int, seed: int = 42) -> Tensor:
    """Answers of a small crowd: labels of each item drawn with replacement from the answers of a large crowd.

    The draws are those of numpy's `default_rng(seed).choice`, item by item.

    Args:
        frequency_NC: Shares (or counts) of the labels in the large crowd.
        labels_per_item: Labels to draw for each item.
        seed: From 0; default 42.

    Returns:
        Counts of the labels, N x C, int64; candidates have a count above 0, and frequencies are `count / labels_per_item`.

    Raises:
        InputError: A row that holds no shares; it gives the row.

    >>> import numpy as np
    >>> from pals import draw_annotators
    >>> draw_annotators(np.array([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]), 3).tolist()
    [[1, 2, 0], [0, 0, 3]]
    """
    _check_seed(seed)
    if labels_per_item < 1:
        raise InputError(f"labels_per_item is {labels_per_item}; every item needs at least one label.")
    weight_NC = torch.as_tensor(frequency_NC).cpu().to(torch.float64).numpy()
    if weight_NC.ndim != 2:
        raise InputError(f"Label frequencies are a matrix, items by classes; found shape {weight_NC.shape}.")
    good_N = np.isfinite(weight_NC).all(axis=1) & (weight_NC >= 0).all(axis=1) & (weight_NC > 0).any(axis=1)
    if not good_N.all():
        row = int(good_N.argmin())
        raise InputError(f"Row {row} of the label frequencies must hold shares or counts with a positive sum; drop or fix it.")
    below_NC = weight_NC.cumsum(axis=1)
    below_NC /= below_NC[:, -1:]
    draw_NL = np.random.default_rng(seed).random((len(weight_NC), labels_per_item))
    label_NL = torch.searchsorted(torch.from_numpy(below_NC), torch.from_numpy(draw_NL), right=True)
    count_NC = torch.zeros(weight_NC.shape, dtype=torch.int64)
    return count_NC.scatter_add_(1, label_NL, torch.ones_like(label_NL))


def _draw_g1(rows: _Rows) -> Tensor:
    missing_N = rows.chance(_rate_g1(rows.q, rows.eta, rows.other_NC.sum(dim=1)))
    return (rows.own_NC & ~missing_N[:, None]) | _wrong_labels(rows, at_least_one_N=missing_N)


def _draw_g2(rows: _Rows) -> Tensor:
    wrong_NC = rows.each(rows.other_NC)
    free_NC = rows.other_NC & ~wrong_NC
    swap_N = rows.chance(rows.eta) & free_NC.any(dim=1)
    return wrong_NC | torch.where(swap_N[:, None], _any_one(rows, free_NC), rows.own_NC)


def _draw_g3(rows: _Rows) -> Tensor:
    return _first_label(rows) | _wrong_labels(rows, at_least_one_N=torch.ones_like(rows.own_NC[:, 0]))


def _draw_g4(rows: _Rows) -> Tensor:
    return _first_label(rows) | rows.each(rows.own_NC | rows.other_NC)


_DRAW: dict[str, Callable[[_Rows], Tensor]] = {"g1": _draw_g1, "g2": _draw_g2, "g3": _draw_g3, "g4": _draw_g4}


def _first_label(rows: _Rows) -> Tensor:
    """One label per item: the true one or, with probability eta, a wrong one."""
    if rows.pair_flip:
        count_N = rows.other_NC.sum(dim=1)
        smaller_N = (rows.other_NC & (_place(rows.own_NC) < 0)).sum(dim=1)  # wrong labels left of the true one
        wrong_NC = _nth(rows.other_NC, smaller_N % count_N.clamp_min(1))
    else:
        wrong_NC = _any_one(rows, rows.other_NC)
    flip_N = rows.chance(rows.eta) & rows.other_NC.any(dim=1)
    return torch.where(flip_N[:, None], wrong_NC, rows.own_NC)


def _wrong_labels(rows: _Rows, at_least_one_N: Tensor) -> Tensor:
    """Wrong labels, each with probability q; for the items of `at_least_one_N` on the condition that one or more enter.

    Nothing is redrawn: the first label to enter is drawn from its own distribution (geometric, truncated at the last label);
    labels before it do not enter, and those after it enter independently. Redrawing empty rows gives the same distribution.
    """
    count_N = rows.other_NC.sum(dim=1)
    log_out = math.log1p(-min(max(rows.q, 1e-300), 1 - 1e-16))  # the limits for q = 0 and q = 1 are right and finite
    first_N = torch.log1p(-rows.uniform() * _any_wrong(rows.q, count_N)) / log_out
    first_N = torch.where(at_least_one_N, first_N.long().minimum(count_N - 1), -1).int()
    after_NC = _place(rows.other_NC) - first_N[:, None]
    return rows.each(rows.other_NC & (after_NC > 0)) | (rows.other_NC & (after_NC == 0))


def _any_one(rows: _Rows, may_NC: Tensor) -> Tensor:
    """One of these labels, each equally likely; none if there are none."""
    return _nth(may_NC, (rows.uniform() * may_NC.sum(dim=1)).long())


def _nth(mask_NC: Tensor, n_N: Tensor) -> Tensor:
    """Only the n-th true entry of each row, counted from 0."""
    return mask_NC & (_place(mask_NC) == n_N[:, None])


def _place(mask_NC: Tensor) -> Tensor:
    """Numbers the true entries of each row 0, 1, ...; an entry between two has the number of the left one."""
    return mask_NC.cumsum(dim=1, dtype=torch.int32) - 1


def _any_wrong(q: float, count_N: Tensor) -> Tensor:
    """w, the chance that at least one of `count_N` wrong labels enters: 1 - (1-q)^count, exact for tiny q too."""
    q_N = torch.full_like(count_N, q, dtype=torch.float64)
    return torch.expm1(torch.special.xlog1py(count_N.double(), -q_N)).abs()


def _rate_g1(q: float, eta: float, count_N: Tensor) -> Tensor:
    left_N = eta * _any_wrong(q, count_N)
    return left_N / (1 - eta + left_N)


def _expected_rate(protocol: str, q: float, eta: float, truth: Truth, group_C: Tensor) -> float:
    """The closed form of the last column above, averaged over the items; refuses rates for which no candidate set exists."""
    for name, rate in (("partial_rate", q), ("noise_rate", eta)):
        if not 0 <= rate <= 1:
            raise InputError(f"{name} is {rate}; it is a probability, from 0 to 1.")
    if not len(truth):
        raise InputError("There are no items to make candidate sets for.")
    count_N = _others(truth, group_C)
    if protocol == "g3" or (protocol == "g1" and eta == 1):
        _refuse_no_wrong_label(protocol, q, truth, count_N)
    if protocol == "g1":
        rate_N = _rate_g1(q, eta, count_N)
    elif protocol == "g2":
        rate_N = eta * (1 - torch.full_like(count_N, q, dtype=torch.float64) ** count_N)
    else:
        rate_N = (count_N > 0).double() * eta * (1 - q if protocol == "g4" else 1)
    return float(rate_N.mean())


def _refuse_no_wrong_label(protocol: str, q: float, truth: Truth, count_N: Tensor) -> None:
    """Refuses settings in which an item must, but cannot, get a wrong label."""
    why = "g3 puts at least one wrong label into every set" if protocol == "g3" else "with noise_rate=1 no true label is left"
    if q == 0:
        raise InputError(f"Protocol {why}, but with partial_rate=0 none enters. Raise partial_rate, or change the protocol.")
    if (count_N == 0).any():
        row = int((count_N == 0).int().argmax())
        name = truth.class_names[int(truth.label_N[row])]
        raise InputError(
            f"Protocol {why}, but item {row} has the true class {name!r}, which is alone in its group. "
            "Put it into a larger group, or use protocol g1, g2 or g4 with noise_rate below 1."
        )


def _groups(truth: Truth, group_C: Tensor | None) -> Tensor:
    """Number of each class's group; one group of all if none is given."""
    device = truth.label_N.device
    if group_C is None:
        return torch.zeros(truth.num_classes, dtype=torch.int64, device=device)
    group_C = torch.as_tensor(group_C)
    if group_C.shape != (truth.num_classes,) or group_C.is_floating_point():
        raise InputError(
            f"group_C must hold one whole number, its group, for each of the {truth.num_classes} classes; "
            f"found shape {tuple(group_C.shape)} of {str(group_C.dtype).removeprefix('torch.')}."
        )
    return torch.from_numpy(np.unique(group_C.cpu().numpy(), return_inverse=True)[1]).to(device)


def _others(truth: Truth, group_C: Tensor) -> Tensor:
    """m, the number of wrong labels that each item may get."""
    return (group_C.bincount()[group_C] - 1)[truth.label_N]


def _accepted_draws(rng: np.random.RandomState, label_N: np.ndarray, group_C: np.ndarray, q: float, eta: float) -> np.ndarray:
    """For each item in order, the first row of uniform numbers that gives it a non-empty set."""
    N, C = len(label_N), len(group_C)
    member_CG = (group_C[:, None] == np.arange(group_C.max() + 1)).astype(np.float32)
    draw_NC = np.empty((N, C))
    done, labels = 0, label_N.tolist()
    while done < N:
        draw_TC = rng.random_sample((N - done, C))  # at most one item per row, so no row too many is drawn
        low_TC = draw_TC <= q
        another_TC = (low_TC.astype(np.float32) @ member_CG)[:, group_C] > low_TC
        # Whether a row is accepted depends on the item's true class, and which item it is for on the rows rejected before:
        # the first is computed for all classes at once, the second in a loop over the rows.
        fits = ((draw_TC <= 1 - eta) | another_TC).tobytes()
        taken: list[int] = []
        for row in range(N - done):
            if fits[row * C + labels[done + len(taken)]]:
                taken.append(row)
        draw_NC[done : done + len(taken)] = draw_TC[taken]
        done += len(taken)
    return draw_NC


def _check_seed(seed: int, below: int | None = None) -> None:
    if seed < 0 or (below is not None and seed >= below):
        raise InputError(f"The seed is {seed}; use a whole number from 0{'' if below is None else f' to {below - 1}'}.")


def _noise(
    allowed_NC: Tensor, truth: Truth, protocol: Protocol, q: float, eta: float, expected: float, ids: Sequence[str] | None
) -> Noise:
    candidates = CandidateSets.from_matrix(allowed_NC, class_names=truth.class_names, ids=ids)
    effective = 1 - float(covered(candidates, truth).double().mean())
    return Noise(candidates, protocol, q, eta, expected, effective, float(candidates.size_N.double().mean()))
