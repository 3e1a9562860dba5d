"""Ridge regression on wide features, exact, every item left out in turn: one decomposition serves all penalties and targets."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from pals.util.errors import InputError

ROWS_PER_BLOCK = 4096
"""Rows handled at once, in double precision."""
MAX_SIDE = 4096
"""Rows and columns of the largest matrix that is decomposed."""
MAX_AXES = 400
"""Principal axes that a regression with weights uses: it is solved again for each set of weights."""


@dataclass(frozen=True)
class Spectrum:
    """Items along the principal axes (R) of the features of those that teach, as `decompose` makes it."""

    code_NR: Tensor  # float32
    value_R: Tensor  # float64: sum of squares along each axis, over the items that teach
    teach_N: Tensor  # bool
    mean_D: Tensor  # float64: of the items that teach
    axes_DR: Tensor  # float64
    leverages: dict[float, Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)
    "N x 1 by penalty: they are the same for all targets."

    @property
    def total(self) -> float:
        """Sum of squares of all features of all items that teach: the unit of penalties."""
        return float(self.value_R.sum())

    def left_out(self, target_NC: np.ndarray, penalty: float) -> np.ndarray:
        """N x C: what ridge regression on all other items that teach predicts for each. `penalty` is a share of `total`; the
        intercept is not penalised. By the leverage of an item, which says how its own target moves what is fitted to it."""
        aim_NC, codes = self._aim(target_NC), self._codes()
        weight_RC, mean_C = self._fit(aim_NC, penalty, codes)
        fitted_NC = torch.cat([mean_C + code_BR @ weight_RC for code_BR in codes])
        leverage_N1 = self._leverage(penalty, codes)
        score_NC: np.ndarray = ((fitted_NC - leverage_N1 * aim_NC) / (1 - leverage_N1).clamp_min(1e-9)).cpu().numpy()
        return score_NC

    def regression(self, target_NC: np.ndarray, penalty: float) -> tuple[np.ndarray, np.ndarray]:
        """Weights D x C and intercepts C of the regression on all items that teach: what it predicts for features to come."""
        weight_RC, mean_C = self._fit(self._aim(target_NC), penalty, self._codes())
        weight_DC = self.axes_DR @ weight_RC
        return weight_DC.cpu().numpy(), (mean_C - self.mean_D @ weight_DC).cpu().numpy()

    def _aim(self, target_NC: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(target_NC, dtype=np.float64)).to(self.code_NR.device)

    def _fit(self, aim_NC: Tensor, penalty: float, codes: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Weights along the axes, and the mean target."""
        mean_C = aim_NC[self.teach_N].sum(dim=0) / max(int(self.teach_N.sum()), 1)
        taught_NC = (aim_NC - mean_C) * self.teach_N.double()[:, None]
        parts = zip(codes, torch.split(taught_NC, ROWS_PER_BLOCK), strict=True)
        product_RC = torch.stack([code_BR.T @ taught_BC for code_BR, taught_BC in parts]).sum(dim=0)
        return self._shrunk(penalty)[:, None] * product_RC, mean_C

    def _leverage(self, penalty: float, codes: list[Tensor]) -> Tensor:
        """N x 1: how far an item's own target moves what is fitted to it; of items that do not teach not at all."""
        if penalty not in self.leverages:
            count, shrunk_R = max(int(self.teach_N.sum()), 1), self._shrunk(penalty)
            leverage_N = torch.cat([1 / count + code_BR.square() @ shrunk_R for code_BR in codes]) * self.teach_N.double()
            self.leverages[penalty] = leverage_N[:, None]
        return self.leverages[penalty]

    def _shrunk(self, penalty: float) -> Tensor:
        """What each axis is shrunk by."""
        return 1 / (self.value_R + max(penalty * self.total, 1e-12))

    def _codes(self) -> list[Tensor]:
        return [code_BR.double() for code_BR in torch.split(self.code_NR, ROWS_PER_BLOCK)]


def decompose(features_ND: Tensor, teach_N: np.ndarray) -> Spectrum:
    """The principal axes of the features of the items that teach, and all items along them."""
    _check(features_ND, teach_N)
    data_ND = features_ND.detach().to(torch.float32)
    known_N = torch.from_numpy(np.asarray(teach_N, dtype=bool)).to(data_ND.device)
    taught_ND = data_ND[known_N]
    if not len(taught_ND):
        mean_D = torch.zeros(data_ND.shape[1], dtype=torch.float64, device=data_ND.device)
        return Spectrum(data_ND[:, :0], mean_D[:0], known_N, mean_D, mean_D[:, None][:, :0])
    mean_D = torch.stack([part.double().sum(dim=0) for part in torch.split(taught_ND, ROWS_PER_BLOCK)]).sum(dim=0) / len(
        taught_ND
    )
    value_R, axes_DR = _axes(taught_ND, mean_D)
    codes = [((part.double() - mean_D) @ axes_DR).float() for part in torch.split(data_ND, ROWS_PER_BLOCK)]
    return Spectrum(torch.cat(codes), value_R, known_N, mean_D, axes_DR)


def _axes(taught_ND: Tensor, mean_D: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors of the Gram matrix, features by features or, where there are fewer, items by items."""
    items, width = taught_ND.shape
    if items < width:
        centred_ND = taught_ND.double() - mean_D
        value_R, vector_NR = torch.linalg.eigh(centred_ND @ centred_ND.T)
        kept = value_R > 1e-10 * value_R[-1].clamp_min(1e-300)
        value_R = value_R[kept]
        return value_R, centred_ND.T @ (vector_NR[:, kept] / value_R.sqrt())
    gram_DD = torch.zeros(width, width, dtype=torch.float64, device=taught_ND.device)
    for part in torch.split(taught_ND, ROWS_PER_BLOCK):
        centred = part.double() - mean_D
        gram_DD += centred.T @ centred
    value_D, axes_DD = torch.linalg.eigh(gram_DD)
    return value_D.clamp_min(0), axes_DD


def _check(features_ND: Tensor, teach_N: np.ndarray) -> None:
    if features_ND.ndim != 2 or len(features_ND) != len(teach_N):
        raise InputError(
            f"Features of shape {tuple(features_ND.shape)} for {len(teach_N)} items; give one row of features per item."
        )
    if min(features_ND.shape) > MAX_SIDE:
        raise InputError(
            f"{features_ND.shape[1]:,} features are too many for an exact regression; reduce them to {MAX_SIDE:,} or fewer, "
            "or use `leave_one_out`, which works with landmarks."
        )
    for number, part in enumerate(torch.split(features_ND, ROWS_PER_BLOCK)):
        bad_B = ~torch.isfinite(part).all(dim=1)
        if bool(bad_B.any()):
            row = number * ROWS_PER_BLOCK + int(bad_B.int().argmax())
            raise InputError(f"The features of item {row} hold NaN or infinity. Clean the input first.")


class BalancedRidge:
    """Ridge regression in which items have weights, each left out in turn; on the leading principal axes.

        W = argmin sum_i w_i |t_i - b - x_i W|^2 + penalty * trace(X' diag(w) X) |W|^2
        left out: (f_i - l_i t_i) / (1 - l_i), with the leverage l_i = w_i (x_i' G x_i + 1 / sum w)

    Args:
        spectrum: The decomposed features.
        items: Rows to use, for a part of the items; all by default.
    """

    def __init__(self, spectrum: Spectrum, items: np.ndarray | None = None) -> None:
        axes = spectrum.value_R.argsort(descending=True)[:MAX_AXES]
        code_NR = spectrum.code_NR[:, axes].double().cpu().numpy()
        self._spectrum, self._axes = spectrum, axes
        self._code_NR = code_NR if items is None else code_NR[items]

    def weigh(self, weight_N: np.ndarray) -> None:
        """Set the weights of the items; those of weight zero do not teach."""
        self._weight_N1 = (weight_N / max(weight_N.sum(), 1e-300))[:, None]
        self._mean_R = (self._weight_N1 * self._code_NR).sum(axis=0)
        centred_NR = self._code_NR - self._mean_R
        value_R, self._vector_RR = np.linalg.eigh(centred_NR.T @ (self._weight_N1 * centred_NR))
        self._value_R, self._turned_NR = np.maximum(value_R, 0), centred_NR @ self._vector_RR

    def left_out(self, target_NC: np.ndarray, penalty: float) -> np.ndarray:
        """N x C: the fit to each item by all others. `penalty`: a share of the weighted sum of squares."""
        weight_RC, mean_C, shrunk_R = self._fit(target_NC, penalty)
        leverage_N1 = self._weight_N1 * ((self._turned_NR**2 @ shrunk_R)[:, None] + 1)
        fitted_NC = self._turned_NR @ weight_RC + mean_C
        score_NC: np.ndarray = (fitted_NC - leverage_N1 * target_NC) / np.maximum(1 - leverage_N1, 1e-9)
        return score_NC

    def regression(self, target_NC: np.ndarray, penalty: float) -> tuple[np.ndarray, np.ndarray]:
        """Weights D x C and intercepts C of the regression on all items."""
        weight_RC, mean_C, _ = self._fit(target_NC, penalty)
        weight_RC = self._vector_RR @ weight_RC
        weight_DC: np.ndarray = self._spectrum.axes_DR[:, self._axes].cpu().numpy() @ weight_RC
        bias_C: np.ndarray = mean_C - self._mean_R @ weight_RC - self._spectrum.mean_D.cpu().numpy() @ weight_DC
        return weight_DC, bias_C

    def _fit(self, target_NC: np.ndarray, penalty: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        mean_C = (self._weight_N1 * target_NC).sum(axis=0)
        shrunk_R = 1 / (self._value_R + max(penalty * self._value_R.sum(), 1e-12))
        weight_RC = shrunk_R[:, None] * (self._turned_NR.T @ (self._weight_N1 * (target_NC - mean_C)))
        return weight_RC, mean_C, shrunk_R
