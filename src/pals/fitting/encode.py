"""Stage 3, what the trained network reads: pictures, vectors as they were given, or the features of a frozen network."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pals.fitting.features import Features, body_of, features_mark, read_features, write_features
from pals.fitting.load import Loaded, Statistics
from pals.fitting.monitor import Monitor
from pals.fitting.plan import Plan
from pals.fitting.time_left import said_once
from pals.methods import Problem, find_method
from pals.model import check_saveable
from pals.runs import claim_folder, starting_network
from pals.runs.run import with_weights_found
from pals.training.inference import encode_images, image_standardizer
from pals.vision.augment import Views, vector_views
from pals.vision.backbones import Network, build_network
from pals.vision.backbones.patches import PICTURES, PatchNetwork, Responses, learn_patches

BATCH = 64  # pictures that go through a frozen network at a time
REDUCED = 10_000  # items whose responses are brought to principal components at a time
MOST_RESPONSES = 512 << 20  # bytes of responses to patches that are kept, in memory and on disk


@dataclass(frozen=True)
class Encoded:
    """Inputs of the network that is trained, of all items."""

    loaded: Loaded
    inputs: Tensor
    views: Views
    encoder: Network | None = None
    "The frozen network, where there is one."
    statistics: Statistics | None = None
    "Of its features."
    responses_ND: Tensor | None = None
    "To patches, by which items are compared."

    @property
    def plan(self) -> Plan:
        return self.loaded.plan


def encode(loaded: Loaded, monitor: Monitor | None = None) -> Encoded:
    """Make the run's folder, and let a frozen network, if there is one, look at all pictures. Features that an earlier command
    left in the folder are used again if pictures, network and weights are still the same."""
    plan, encoder = loaded.plan, encoder_of(loaded.plan)
    if not plan.solved:
        _refuse_unsaveable(loaded, encoder)
    claim_folder(plan.folder, plan.config, {"data_mark": loaded.mark})
    if encoder is None:
        return Encoded(loaded, loaded.items.inputs, loaded.views)
    more = (*loaded.statistics, plan.config.seed, plan.data.mirror)
    mark = features_mark(loaded.mark, plan.config.network.name, encoder, more)
    found = read_features(plan.folder, mark)
    if found is None:
        found = _compute(loaded, encoder, monitor or Monitor())
        write_features(plan.folder, mark, found)
    else:
        encoder.load_state_dict(found.learned, strict=False)
    mean_D, std_D = _statistics(found.features_ND)
    statistics = Statistics(tuple(mean_D.tolist()), tuple(std_D.tolist()))
    return Encoded(loaded, found.features_ND, vector_views(mean_D, std_D), encoder, statistics, found.responses_ND)


def encoder_of(plan: Plan) -> Network | None:
    """The frozen network with its weights; patches are still to be cut."""
    if not plan.config.network.frozen:
        return None
    torch.manual_seed(plan.config.seed)
    shape = (3, plan.data.size, plan.data.size)
    network = replace(plan.config.network, name=encoder_name(plan))
    return starting_network(network, shape, plan.matched.votes.class_names)


def encoder_name(plan: Plan) -> str:
    name = plan.config.network.name
    return "patches-no-mirror" if name == "patches" and not plan.data.mirror else name


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


def _compute(loaded: Loaded, encoder: Network, monitor: Monitor) -> Features:
    """Features of all pictures; of patches all responses are kept as well, if there is room."""
    device, images, statistics = loaded.plan.config.engine.device, loaded.items.inputs, loaded.statistics
    if isinstance(encoder, PatchNetwork):
        _cut_patches(loaded, encoder)

    def features_of(network: Network) -> Tensor:
        with monitor.counting("features") as count:
            timed = said_once(count, monitor.say, "features")
            return encode_images(network, images, *statistics, device, batch=BATCH, progress=timed)

    if not isinstance(encoder, PatchNetwork):
        return Features(features_of(encoder))
    if not bytes_of_responses(encoder, len(images)):
        return Features(features_of(encoder), learned=body_of(encoder))
    responses_ND = features_of(Responses(encoder))
    encoder.cpu()
    with torch.no_grad():
        features_ND = torch.cat([encoder.reduced(part_BD) for part_BD in torch.split(responses_ND, REDUCED)])
    return Features(features_ND, responses_ND, body_of(encoder))


def _cut_patches(loaded: Loaded, encoder: PatchNetwork) -> None:
    images = loaded.items.inputs
    sample = images[torch.linspace(0, len(images) - 1, min(len(images), PICTURES)).long()]
    generator = torch.Generator().manual_seed(loaded.plan.config.seed)
    learn_patches(encoder.cpu(), image_standardizer(*loaded.statistics)(sample), generator)


def bytes_of_responses(encoder: PatchNetwork, items: int) -> int:
    """What the responses of a patch network to so many pictures take, all of which are compared; 0 where they are too many and
    their principal components must do."""
    needed = 4 * items * encoder.components.shape[1]
    return needed if needed <= MOST_RESPONSES else 0


def _statistics(features_ND: Tensor) -> tuple[Tensor, Tensor]:
    """The mean of each feature and one deviation for all: large ones stay large."""
    mean_D = features_ND.mean(dim=0)
    return mean_D, (features_ND - mean_D).square().mean().sqrt().expand_as(mean_D)
