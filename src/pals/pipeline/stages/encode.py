"""Stage 3, encoding: what the trained network reads, which is images, the given vectors, or features of a frozen network."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from pals.data.row_source import Inputs
from pals.methods import Problem, find_method
from pals.model import check_saveable
from pals.pipeline.progress import Monitor, reporting_time_left
from pals.pipeline.stages.images import ENCODING
from pals.pipeline.stages.load import Loaded, as_encoder
from pals.pipeline.stages.patches import PatchSettings, patch_features
from pals.pipeline.stages.plan import Plan
from pals.runs.extractor import (
    Normalisation,
    feature_normalisation,
    feature_statistics,
    starting_network,
    with_weights_found,
)
from pals.runs.feature_cache import RunFeatures, encode_cached, read_features, write_features
from pals.runs.run_folder import claim_folder
from pals.training.extract import encode as encode_images
from pals.util.words import duration, how_many
from pals.vision.augment import Views, vector_views
from pals.vision.images.image_cache import default_cache
from pals.vision.networks import Network, build_network
from pals.vision.networks.patch_features import PatchNetwork


@dataclass(frozen=True)
class Encoded:
    """Inputs of the network that is trained, for all N items.

    Args:
        loaded: Stage 2.
        inputs: Images, vectors or features.
        views: Their augmentations.
        encoder: The frozen network, if there is one.
        statistics: Mean and standard deviation of its features.
        responses_ND: Responses to patches, by which items are compared.
    """

    loaded: Loaded
    inputs: Inputs
    views: Views
    encoder: Network | None = None
    statistics: Normalisation | None = None
    responses_ND: Tensor | None = None

    @property
    def plan(self) -> Plan:
        return self.loaded.plan

    @property
    def vectors_ND(self) -> Tensor:
        """The inputs if they are vectors or features (N x D)."""
        assert isinstance(self.inputs, Tensor) and self.inputs.ndim == 2
        return self.inputs


def encode(loaded: Loaded, monitor: Monitor | None = None) -> Encoded:
    """Make the run's folder and encode all images, if the run has a frozen network. Stored features are used again if images
    and weights are the same.

    Raises:
        InputError: The folder belongs to another run, or the method's result cannot be saved.
    """
    plan, encoder, monitor = loaded.plan, loaded.encoder, monitor or Monitor()
    if not plan.solved:
        _refuse_unsaveable(loaded, encoder)
    claim_folder(plan.folder, plan.config, {"data_mark": loaded.mark})
    if encoder is None:
        return Encoded(loaded, loaded.items.inputs, loaded.views)
    run_features = _patch_features if isinstance(encoder, PatchNetwork) else _pretrained_features
    made = run_features(loaded, encoder, monitor)  # type: ignore[arg-type]  # checked above
    statistics, views = feature_normalisation(made.features_ND), vector_views(*feature_statistics(made.features_ND))
    return Encoded(loaded, made.features_ND, views, encoder, statistics, made.responses_ND)


def _refuse_unsaveable(loaded: Loaded, encoder: Network | None) -> None:
    """Before training, and before the folder is made: weights that do not fit, a method that does not give a single network."""
    config, sets = loaded.plan.config, loaded.candidates
    shape = loaded.items.shape if encoder is None else (encoder.feature_width,)
    start = with_weights_found(config.network)

    def network(name: str | None = None) -> Network:
        if config.network.frozen or name not in (None, config.network.name):
            return build_network(name or config.network.trained, shape, sets.num_classes)
        return starting_network(start, shape, sets.class_names)

    check_saveable(find_method(config.method_name)(config.method, Problem(sets, network)).predictor)


def _pretrained_features(loaded: Loaded, network: Network, monitor: Monitor) -> RunFeatures:
    """Features are cached, including those computed while decoding."""
    plan, started = loaded.plan, time.perf_counter()
    cache, encoder = plan.cache or default_cache(), as_encoder(plan, network, loaded.statistics)
    with monitor.counting(ENCODING) as count:
        timed = reporting_time_left(count, monitor.say, ENCODING)
        features_ND, fresh = encode_cached(loaded.items.inputs, encoder, cache, plan.config.engine.device, timed)
    seconds = loaded.ahead.seconds + time.perf_counter() - started
    monitor.say(encoded_words(len(features_ND), loaded.ahead.images + fresh, seconds, plan.data.size))
    return RunFeatures(features_ND)


def encoded_words(images: int, fresh: int, seconds: float, size: int) -> str:
    """How many images were encoded now, how fast, and how many before."""
    if not fresh:
        return f"All {images:,} images were encoded earlier."
    pace = f"{how_many(fresh, 'image')} at {size} px in {duration(seconds)} ({fresh / seconds:,.0f} per second)"
    return f"Encoded {pace}{f'; {images - fresh:,} were encoded earlier' if fresh < images else ''}."


def _patch_features(loaded: Loaded, encoder: PatchNetwork, monitor: Monitor) -> RunFeatures:
    """Patches are cut from these images, so that their features are stored in the run's folder, where an update finds them."""
    plan, images = loaded.plan, loaded.items.inputs
    settings = PatchSettings(loaded.statistics, plan.config.seed, plan.data.mirror, plan.solved)
    mark = settings.mark(loaded.mark, encoder)
    found = _known_features(plan, mark)
    if found is not None:
        encoder.load_state_dict(found.learned, strict=False)
        return found

    def encode_all(network: Network) -> Tensor:
        with monitor.counting(ENCODING) as count:
            timed = reporting_time_left(count, monitor.say, ENCODING)
            encoder = as_encoder(plan, network, loaded.statistics)
            return encode_images(images, encoder, plan.config.engine.device, progress=timed)

    made = patch_features(encoder, images, settings, encode_all)
    write_features(plan.folder, mark, made)
    return made


def _known_features(plan: Plan, mark: str) -> RunFeatures | None:
    """Features with this mark from this run, the comparison of encoders, or the run before an update; stored in this run."""
    found = read_features(plan.folder, mark)
    if found is not None:
        return found
    if plan.patches is not None and plan.patches.mark == mark:
        found = plan.patches.features
    elif plan.data.earlier is not None:
        found = read_features(Path(plan.data.earlier).parent, mark)
    if found is not None:
        write_features(plan.folder, mark, found)
    return found
