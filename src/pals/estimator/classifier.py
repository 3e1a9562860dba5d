"""A scikit-learn classifier that learns from candidate labels by any method of this package, in memory."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_array, check_consistent_length, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from pals.data.dataset import Items
from pals.estimator.doubt import doubt_of
from pals.estimator.inputs import EncodedImages, Images, Vectors, encoder_config, file_names
from pals.estimator.targets import OnEmptyTarget, Target, read_target
from pals.methods import Method, Problem, find_method, method_options, preset_for
from pals.pseudo_labels.simplex import masked_softmax
from pals.runs.extractor import starting_network
from pals.runs.run_config import NetworkConfig
from pals.training.engine import Engine, EngineConfig
from pals.training.inference import OUT_OF_MEMORY_HINT, InferenceStage, infer
from pals.training.optim import TrainConfig
from pals.training.trainer import Trainer
from pals.util.config import build
from pals.util.display import Reporter
from pals.util.errors import InputError
from pals.vision.networks import Network, build_network

MAX_ESTIMATOR_SEED = 2**31 - 1
"""Valid for every version of numpy on every system."""
MIN_EPOCHS, MAX_EPOCHS = 60, 200
"""Default epochs, and those with few items, which are visited as often as the method's preset asks."""


class CandidateClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Learns from items with several candidate labels, answers of several annotators, or labels that may be wrong.

    Parameters
    ----------
    method : str, default "pals"
        Name of a method; `pals methods` lists them.
    method_options : {option: value}, default None
        For the method. Classes for a single method (`PALSClassifier`, ...) have each option as a parameter instead.
    encoder : str, default None
        A pretrained network for images (arrays or file names), one of `pals encoders`; the method then learns from its
        features. None: the method learns from the images themselves.
    encoder_options : {option: value}, default None
        frozen (False: the encoder itself is fine-tuned), weights (for an encoder "timm:NAME"), cache (the folder for features
        of files; by default that of `pals fit`).
    network : str, default "auto"
        A network's name, or "auto": an MLP for vectors, a small CNN for images. Methods without training use none.
    epochs : int, default None
        None: 60, or up to 200 if the method has a preset for few items, as PALS does.
    batch_size, lr, weight_decay : int, float, float
        For training; a batch is never larger than the data. Defaults: 64, 0.1, 0.001.
    train_options : {option: value}, default None
        Other training settings, such as {"optimizer": "adam", "schedule": "constant"}.
    standardize : bool, default True
        Scale every feature of vectors to mean 0 and deviation 1. Images always are, channel by channel.
    view_options : {option: value}, default None
        For the random augmentations. Vectors: noise, dropout. Images: pad, flip, strong, cutout.
    classes : sequence, default None
        All classes, in order, if `y` alone does not show them; names for the columns of a matrix.
    on_empty : {"error", "all"}, default "error"
        An item without any label is an error, or every class is a candidate for it.
    device : str, default "cpu"
        "auto" for a GPU if there is one, which pays off for images and large networks.
    engine_options : {option: value}, default None
        precision, compile, deterministic. By default nothing is compiled, because fits here are many and short.
    random_state : int, RandomState or None, default None
        A number gives the same result each time.
    verbose : bool, default False
        Show progress by epoch.

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
        The class of each column of `predict_proba` and `posterior_`.
    labels_ : ndarray of shape (N,)
        The estimated label of each training item, the largest entry of `posterior_`.
    posterior_ : ndarray of shape (N, C)
        The method's posterior of each training item; rows sum to one.
    doubt_ : ndarray of shape (N,)
        Evidence against the given labels of each training item, from 0 to 1.
    doubtful_ : ndarray
        The rows with a doubt above one half, the largest doubt first.
    predictor_ : torch.nn.Module
        The trained network.
    n_iter_ : int
        Number of epochs trained.
    loss_curve_ : list of float
        Loss of each epoch.
    n_features_in_, feature_names_in_
        As in scikit-learn; for images the number of values.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.repeat([[0.0, 0.0], [4.0, 4.0]], 20, axis=0) + np.random.default_rng(0).normal(size=(40, 2))
    >>> y = [{"cat", "dog"} if row % 3 == 0 else {"cat"} if row < 20 else {"dog"} for row in range(40)]
    >>> model = pals.PALSClassifier(epochs=5, random_state=0).fit(X, y)
    >>> model.predict([[0.0, 0.0], [4.0, 4.0]]).tolist()
    ['cat', 'dog']
    """

    inputs_: Vectors | Images | EncodedImages

    def __init__(
        self,
        method: str = "pals",
        *,
        method_options: Mapping[str, Any] | None = None,
        encoder: str | None = None,
        encoder_options: Mapping[str, Any] | None = None,
        network: str = "auto",
        epochs: int | None = None,
        batch_size: int = 64,
        lr: float = 0.1,
        weight_decay: float = 1e-3,
        train_options: Mapping[str, Any] | None = None,
        standardize: bool = True,
        view_options: Mapping[str, Any] | None = None,
        classes: Sequence[Any] | None = None,
        on_empty: OnEmptyTarget = "error",
        device: str = "cpu",
        engine_options: Mapping[str, Any] | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.method = method
        self.method_options = method_options
        self.encoder = encoder
        self.encoder_options = encoder_options
        self.network = network
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.weight_decay = weight_decay
        self.train_options = train_options
        self.standardize = standardize
        self.view_options = view_options
        self.classes = classes
        self.on_empty = on_empty
        self.device = device
        self.engine_options = engine_options
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True  # pictures
        return tags

    def fit(self, X: Any, y: Any) -> CandidateClassifier:
        """Train on items with uncertain labels.

        Args:
            X: vectors, N x D; images, N x height x width, with channels before or after; or, with an encoder, file names.
            y: candidate labels, votes or labels of the N items, in any form that `read_target` reads.

        Raises:
            InputError: a parameter, X or y is invalid.
        """
        X = self._checked(X, first=True)
        target = read_target(y, self.classes, on_empty=self.on_empty)
        check_consistent_length(X, target.allowed_NC)
        if len(X) < 2:
            raise InputError("There is only one sample (n_samples=1); learning takes at least two.")
        engine = self._engine(self.device)
        seed = int(check_random_state(self.random_state).randint(MAX_ESTIMATOR_SEED))
        inputs = self._learn_inputs(X, seed)
        with _own_randomness(engine, seed):
            trainer = self._trainer(inputs, target, engine, seed)
            records = self._train(trainer)
            self._store_results(trainer, target)
        self.n_iter_ = trainer.progress.total
        self.loss_curve_ = [record["loss"] for record in records if record["loss"] is not None]
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities, N x C, of inputs as in `fit`."""
        probability_NC: np.ndarray = self._logits(X).softmax(dim=1).numpy()
        return probability_NC

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each of N items."""
        best_N = self.predict_proba(X).argmax(axis=1)
        predicted_N: np.ndarray = self.classes_[best_N]
        return predicted_N

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The accuracy for plain labels; for candidates the share of predictions among them (covering rate).

        Args:
            X: inputs of N items.
            y: labels or candidates, in any form that `fit` takes.
            sample_weight: N weights; by default all are 1.
        """
        column_N = self.predict_proba(X).argmax(axis=1)
        allowed_NC = read_target(y, self.classes_, lenient=True).allowed_NC
        check_consistent_length(column_N, allowed_NC, sample_weight)
        return float(np.average(allowed_NC[np.arange(len(column_N)), column_N], weights=sample_weight))

    # ---- parts of a run

    def _method(self) -> tuple[str, Mapping[str, Any]]:
        """The method's name and the options that are given."""
        return self.method, self.method_options or {}

    def _checked(self, X: Any, *, first: bool = False) -> Any:
        """X as a checked array, or as a list of file names."""
        X = X.detach().cpu().numpy() if isinstance(X, Tensor) else X
        names = file_names(X)
        if names is not None:
            if self.encoder if first else isinstance(self.inputs_, EncodedImages):
                return names
            raise InputError(f"X holds file names, such as {names[0]!r}: give encoder=... to read them.")
        is_image = (X.ndim if hasattr(X, "ndim") else np.asarray(X).ndim) > 2
        if not first and is_image == isinstance(self.inputs_, Vectors):
            raise InputError(f"fit has seen inputs of the shape {self.inputs_.given.shape}; these are of another kind.")
        if not is_image:
            return np.asarray(validate_data(self, X, reset=first, dtype=(np.float64, np.float32)))
        return np.asarray(check_array(X, allow_nd=True, dtype="numeric", estimator=self, input_name="X"))

    def _learn_inputs(self, X: Any, seed: int) -> Tensor:
        """Learn kind and scale of the inputs; returns them as they are trained on."""
        if self.encoder is None:
            if self.encoder_options:
                raise InputError("encoder_options is for an encoder: give encoder=..., or leave it out.")
            self.inputs_ = Images.fit(X) if X.ndim > 2 else Vectors.fit(X, self.standardize)
            inputs = self.inputs_.prepare(X)
        else:
            self.inputs_, inputs = self._encoded(X, encoder_config(self.encoder, self.encoder_options), seed)
        if isinstance(self.inputs_, Vectors):
            return inputs
        self.__dict__.pop("feature_names_in_", None)  # of an earlier fit on a frame
        self.n_features_in_ = int(np.prod(self.inputs_.given.shape))
        return inputs

    def _encoded(self, X: Any, config: NetworkConfig, seed: int) -> tuple[EncodedImages, Tensor]:
        if isinstance(X, np.ndarray) and X.ndim == 2:
            raise InputError(
                f"Encoder {self.encoder!r} looks at pictures, but X holds vectors of width {X.shape[1]}: leave out encoder, or "
                "give pictures (N x height x width x 3) or names of files."
            )
        if self.network != "auto":
            if not config.frozen:
                raise InputError(f"The encoder is the network that is trained: leave out network={self.network!r}.")
            config = replace(config, head=self.network)
        cache = (self.encoder_options or {}).get("cache")
        return EncodedImages.fit(X, config, seed, self.device, None if cache is None else Path(cache))

    def _engine(self, device: str) -> Engine:
        return Engine(build(EngineConfig, {"compile": False, **(self.engine_options or {}), "device": device}))

    def _trainer(self, inputs: Tensor, target: Target, engine: Engine, seed: int) -> Trainer:
        items = len(inputs)
        config = build(TrainConfig, self._training(items), "train_options")
        candidates = target.sets()
        method = self._build_method(Problem(candidates, partial(self._network, [str(name) for name in target.classes])))
        return Trainer(method, Items(inputs, candidates.ids), self.inputs_.views(self.view_options), config, engine, seed=seed)

    def _network(self, class_names: Sequence[str], name: str | None = None) -> Network:
        """A new network; an encoder that is fine-tuned starts from its weights."""
        inputs = self.inputs_
        if isinstance(inputs, EncodedImages) and inputs.extractor.network is None and name in (None, inputs.network):
            return starting_network(inputs.config, inputs.shape, class_names)
        own = self.network if self.network != "auto" else inputs.network
        return build_network(name or own, inputs.shape, len(class_names))

    def _training(self, items: int) -> dict[str, Any]:
        size = plain(self.batch_size)
        size = min(size, items) if isinstance(size, int) else size
        own = {"epochs": self._epochs(items), "batch_size": size, "lr": self.lr, "weight_decay": self.weight_decay}
        more = self.train_options or {}
        clash = sorted(own.keys() & more.keys())
        if clash:
            raise InputError(f"train_options has {clash[0]!r}, which is a parameter of the classifier itself. Set it there.")
        return {key: plain(value) for key, value in {"tail": "fill", **more, **own}.items()}

    def _epochs(self, items: int) -> Any:
        if self.epochs is not None:
            return self.epochs
        name, options = self._options(items)
        draws = find_method(name).preset_draws.get(getattr(options, "preset", ""), 0)
        return min(max(MIN_EPOCHS, math.ceil(draws / items)), MAX_EPOCHS)

    def _options(self, items: int) -> tuple[str, Any]:
        """The method's name and its options, with the preset for this number of items unless one is given."""
        name, given = self._method()
        chosen = {option: plain(value) for option, value in given.items()}
        return name, method_options(name, {**preset_for(name, items), **chosen})

    def _build_method(self, problem: Problem) -> Method:
        name, options = self._options(len(problem.candidates))
        others = len(problem.candidates) - 1
        wanted = getattr(options, "neighbors", 0)
        if isinstance(wanted, int) and wanted > others:
            warnings.warn(
                f"neighbors={wanted}, but each of the {others + 1} items has only {others} others; all of them are used.",
                UserWarning,
                stacklevel=4,
            )
            options = replace(options, neighbors=others)
        return find_method(name)(options, problem)

    def _train(self, trainer: Trainer) -> list[dict[str, Any]]:
        if not self.verbose:
            return list(trainer.epochs())
        records: list[dict[str, Any]] = []

        def recorded() -> Iterator[dict[str, Any]]:
            for record in trainer.epochs():
                records.append(record)
                yield record

        with Reporter(Console()).showing() as reporter:
            reporter.follow(type(self).__name__, recorded(), trainer.config.epochs)
        return records

    # ---- fitted attributes

    def _store_results(self, trainer: Trainer, target: Target) -> None:
        method = trainer.method
        output = trainer.infer(method.predictor, trainer.inputs)
        posterior_NC = method.posterior()
        if posterior_NC is None:
            posterior_NC = masked_softmax(output.logits, method.allowed_NC)
        self.classes_ = target.classes
        self.posterior_ = posterior_NC.double().cpu().numpy()
        self.posterior_ /= self.posterior_.sum(axis=1, keepdims=True)
        self.labels_ = self.classes_[self.posterior_.argmax(axis=1)]
        self.doubt_ = doubt_of(output.features, posterior_NC, target)
        doubtful = (self.doubt_ > 0.5).nonzero()[0]
        self.doubtful_ = doubtful[np.argsort(-self.doubt_[doubtful], kind="stable")]
        predictor = copy.deepcopy(method.predictor).eval().cpu()  # a copy is neither compiled nor captured
        # In float64 a prediction does not depend on the other items of the batch. For images that would be slow.
        self.predictor_ = predictor.double() if len(self.inputs_.shape) == 1 else predictor

    @property
    def belief_(self) -> np.ndarray:
        """Old name of `posterior_`."""
        warnings.warn("belief_ is now called posterior_.", FutureWarning, stacklevel=2)
        return self.posterior_

    def _logits(self, X: Any) -> Tensor:
        check_is_fitted(self, "predictor_")
        inputs, views = self.inputs_.prepare(self._checked(X)), self.inputs_.views(self.view_options)
        exact = len(self.inputs_.shape) == 1
        engine = self._engine("cpu" if exact else self.device)
        dtype = torch.float64 if exact else torch.float32
        generator = engine.generator(0)  # the eval view is not random
        link = InferenceStage(lambda part: views.make("eval", part, generator).to(dtype), self.predictor_)
        engine.place(self.predictor_)
        try:
            with engine.memory(OUT_OF_MEMORY_HINT):
                return infer(engine, [link], inputs, TrainConfig().feature_batch, device="cpu", dtype=torch.float64).logits
        finally:
            self.predictor_.cpu()  # where it can be pickled for any machine


def plain(value: Any) -> Any:
    """A Python number for one of numpy, as in a grid made by `np.arange`."""
    return value.item() if isinstance(value, np.generic) else value


@contextmanager
def _own_randomness(engine: Engine, seed: int) -> Iterator[None]:
    """Seed torch's global generators, which initial weights and dropout use, and restore them afterwards."""
    before = engine.random_state()
    torch.manual_seed(seed)
    try:
        yield
    finally:
        engine.set_random_state(before)
