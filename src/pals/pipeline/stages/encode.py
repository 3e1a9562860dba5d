"""Stage 3, what the trained network reads: pictures, vectors as they were given, or the features of a frozen network."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from pals.data.row_source import Inputs
from pals.methods import Problem, find_method
from pals.model import check_saveable
from pals.pipeline.progress import Monitor
from pals.pipeline.stages.images import LOOKING
from pals.pipeline.stages.load import Loaded, as_encoder
from pals.pipeline.stages.patches import PatchSettings, by_patches
from pals.pipeline.stages.plan import Plan
from pals.pipeline.time_left import said_once
from pals.runs.extractor import (
    Normalisation,
    feature_normalisation,
    feature_statistics,
    starting_network,
    with_weights_found,
)
from pals.runs.feature_cache import RunFeatures, encode_cached, read_features, write_features
from pals.runs.run_folder import claim_folder
from pals.training.extract import encode as encode_pictures
from pals.util.words import duration, how_many
from pals.vision.augment import Views, vector_views
from pals.vision.images.image_cache import default_cache
from pals.vision.networks import Network, build_network
from pals.vision.networks.patch_features import PatchNetwork


@dataclass(frozen=True)
class Encoded:
    """Inputs of the network that is trained, of all items."""

    loaded: Loaded
    inputs: Inputs
    views: Views
    encoder: Network | None = None
    "The frozen network, where there is one."
    statistics: Normalisation | None = None
    "Of its features."
    responses_ND: Tensor | None = None
    "To patches, by which items are compared."

    @property
    def plan(self) -> Plan:
        return self.loaded.plan

    @property
    def vectors_ND(self) -> Tensor:
        """The inputs where they are vectors or features, which are held in memory."""
        assert isinstance(self.inputs, Tensor) and self.inputs.ndim == 2
        return self.inputs


def encode(loaded: Loaded, monitor: Monitor | None = None) -> Encoded:
    """Make the run's folder, and let a frozen network, if there is one, look at all pictures. Features that are kept are used
    again if pictures and weights are still the same."""
    plan, encoder, monitor = loaded.plan, loaded.encoder, monitor or Monitor()
    if not plan.solved:
        _refuse_unsaveable(loaded, encoder)
    claim_folder(plan.folder, plan.config, {"data_mark": loaded.mark})
    if encoder is None:
        return Encoded(loaded, loaded.items.inputs, loaded.views)
    made = _by_patches(loaded, encoder, monitor) if isinstance(encoder, PatchNetwork) else _pretrained(loaded, encoder, monitor)
    statistics, views = feature_normalisation(made.features_ND), vector_views(*feature_statistics(made.features_ND))
    return Encoded(loaded, made.features_ND, views, encoder, statistics, made.responses_ND)


def _refuse_unsaveable(loaded: Loaded, encoder: Network | None) -> None:
    """Better now than after the training, and before the folder is made: weights that do not fit, a method that leaves no
    single network."""
    config, sets = loaded.plan.config, loaded.candidates
    shape = loaded.items.shape if encoder is None else (encoder.feature_width,)
    start = with_weights_found(config.network)

    def network(name: str | None = None) -> Network:
        if config.network.frozen or name not in (None, config.network.name):
            return build_network(name or config.network.trained, shape, sets.num_classes)
        return starting_network(start, shape, sets.class_names)

    check_saveable(find_method(config.method_name)(config.method, Problem(sets, network)).predictor)


def _pretrained(loaded: Loaded, network: Network, monitor: Monitor) -> RunFeatures:
    """A picture that this network has ever looked at is not encoded again, be it a minute ago, when it was decoded."""
    plan, started = loaded.plan, time.perf_counter()
    cache, device, encoder = (
        plan.cache or default_cache(),
        plan.config.engine.device,
        as_encoder(plan, network, loaded.statistics),
    )
    with monitor.counting(LOOKING) as count:
        timed = said_once(count, monitor.say, LOOKING)
        features_ND, fresh = encode_cached(loaded.items.inputs, encoder, cache, device, timed)
    seconds = loaded.looked.seconds + time.perf_counter() - started
    monitor.say(looked_at(len(features_ND), loaded.looked.pictures + fresh, seconds, plan))
    return RunFeatures(features_ND)


def looked_at(pictures: int, fresh: int, seconds: float, plan: Plan) -> str:
    """How many now, how many when encoders were compared, and how many by an earlier command."""
    compared = min(plan.compared, pictures - fresh)
    before = pictures - fresh - compared
    if before == pictures:
        return f"All {pictures:,} pictures were encoded earlier."
    pace = f"{how_many(fresh, 'picture')} at {plan.data.size} px in {duration(seconds)} ({fresh / seconds:,.0f} per second)"
    parts = [f"encoded {pace}"] if fresh else []
    parts += [f"encoded {compared:,} of {pictures:,} when encoders were compared"] if compared else []
    parts += [f"{before:,} were encoded earlier"] if before else []
    said = "; ".join(parts)
    return f"{said[0].upper()}{said[1:]}."


def _by_patches(loaded: Loaded, encoder: PatchNetwork, monitor: Monitor) -> RunFeatures:
    """They are cut from these very pictures, so that their features are kept in the run's folder, where an update finds
    them."""
    plan, images = loaded.plan, loaded.items.inputs
    settings = PatchSettings(loaded.statistics, plan.config.seed, plan.data.mirror, plan.solved)
    mark = settings.mark(loaded.mark, encoder)
    found = _known(plan, mark)
    if found is not None:
        encoder.load_state_dict(found.learned, strict=False)
        return found

    def look(network: Network) -> Tensor:
        with monitor.counting(LOOKING) as count:
            timed = said_once(count, monitor.say, LOOKING)
            encoder = as_encoder(plan, network, loaded.statistics)
            return encode_pictures(images, encoder, plan.config.engine.device, progress=timed)

    made = by_patches(encoder, images, settings, look)
    write_features(plan.folder, mark, made)
    return made


def _known(plan: Plan, mark: str) -> RunFeatures | None:
    """What this run, the comparison of encoders or the run before an update has made under this mark; the first keeps it."""
    found = read_features(plan.folder, mark)
    if found is not None:
        return found
    if plan.seen is not None and plan.seen.mark == mark:
        found = plan.seen.made
    elif plan.data.earlier is not None:
        found = read_features(Path(plan.data.earlier).parent, mark)
    if found is not None:
        write_features(plan.folder, mark, found)
    return found
