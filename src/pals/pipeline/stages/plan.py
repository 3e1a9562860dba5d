"""Stage 1, the plan: the answers are read and matched, and every setting that was not given is chosen.

To choose an encoder, a sample of the images is decoded and encoded (`encoder_choice`); otherwise only their sizes are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pals.crowd.dawid_skene.em import DAWID_SKENE
from pals.methods import preset_for
from pals.pipeline.stages.encoder_choice import Comparison, EncoderChoice, choose_encoder
from pals.pipeline.stages.fit_defaults import Facts, choose, is_open, is_solved
from pals.pipeline.stages.images import shorter_side
from pals.pipeline.stages.patches import CutPatches
from pals.pipeline.stages.read_answers import MatchedVotes, answered, fingerprint, match_votes
from pals.pipeline.stages.vectors import read_matrix
from pals.readers import Votes
from pals.runs.extractor import AUTO
from pals.runs.rounds import run_of
from pals.runs.run_config import UNTRAINED, RunConfig, VotesConfig, checked_seed
from pals.runs.run_folder import check_folder, load_run_config
from pals.training.engine import find_device
from pals.util.config import build, merge, read_yaml
from pals.util.errors import InputError
from pals.util.files import refuse_unwritable
from pals.util.words import how_many
from pals.vision.images.image_cache import default_cache
from pals.vision.images.pixel_statistics import MIN_SIDE

CROWD_OPTIONS: Mapping[str, Any] = {"delta": 0.75}
"""Options of PALS that its authors use for answers of human annotators; shares of the votes weigh the candidates as they
are."""

ANSWERS_ONLY: Mapping[str, Any] = {"method": {"name": DAWID_SKENE}, "network": {"name": "none"}}
"""Settings without images and vectors."""


@dataclass(frozen=True)
class Plan:
    """All settings of a run. Nothing is written yet.

    Args:
        config: The settings.
        matched: The answers, matched to the items.
        reasons: A sentence for each choice that matters.
        folder: The run's folder.
        resumed: Whether an earlier command has done a part of the run, or all.
        truth: File with known labels.
        cache: Folder of decoded images and features.
        stream: Whether to decode images whenever they are needed; None: if the disk has no room for all.
        patches: Features by patches that the comparison of encoders made.
    """

    config: RunConfig
    matched: MatchedVotes
    reasons: tuple[str, ...]
    folder: Path
    resumed: bool = False
    truth: Path | None = None
    cache: Path | None = None
    stream: bool | None = None
    patches: CutPatches | None = None

    @property
    def data(self) -> VotesConfig:
        assert isinstance(self.config.data, VotesConfig)
        return self.config.data

    @property
    def solved(self) -> bool:
        """Whether nothing is trained: labels in closed form, or from the answers alone."""
        return self.config.method_name in UNTRAINED

    def describe(self) -> str:
        """The method, the network and the epochs, in a sentence."""
        network, train = self.config.network, self.config.train
        if self.data.answers_only:
            return "No images: labels come from the answers alone, weighted by the errors of each annotator (Dawid-Skene model)"
        if self.solved:
            on = f"{network.name} at {self.data.size} px" if network.frozen else "the feature vectors"
            return f"Closed form on {on}: labels are computed directly from features and answers, without training"
        folds = self.data.folds
        times = f", and {how_many(folds, 'more network')} for predictions on items left out of training" if folds else ""
        size = f" at {self.data.size} px" if self.data.images is not None else ""
        frozen = f" on the features of {network.name}" if network.frozen else ""
        passes = f"{how_many(train.epochs, 'epoch')}, each a pass over the items"
        return f"Training a classifier (method {self.config.method_name}, {network.trained}{frozen}{size}) in {passes}{times}"


def plan(
    given: Mapping[str, Any],
    folder: Path,
    *,
    votes: Votes | None = None,
    truth: Path | None = None,
    cache: Path | None = None,
    stream: bool | None = None,
) -> Plan:
    """Choose every setting that is not given; a run that was begun keeps its own.

    Args:
        given: Settings by section.
        folder: The run's folder.
        votes: Answers in memory, in place of the files that `data.votes` names.
        truth: File with known labels.
        cache: Folder of decoded images and features.
        stream: Whether to decode images whenever they are needed.

    Raises:
        InputError: A file or setting is not valid, or the folder holds another run.
    """
    refuse_unwritable(folder)
    earlier = _begun(folder)
    if earlier is not None and dict(given.get("network") or {}).get("name") == AUTO:
        given = {**given, "network": {}}  # it was chosen when the run was begun
    values = merge(earlier or {}, given)
    sources = build(VotesConfig, values["data"], "data")
    matched = match_votes(sources, votes)
    _refuse_folds(sources.folds, matched.votes)
    mark = fingerprint(matched.votes)
    reasons: list[str] = []
    found: EncoderChoice | None = None
    if earlier is None and sources.answers_only:
        values = merge(ANSWERS_ONLY, given)
    elif earlier is None:
        facts = _facts(sources, matched.votes, given)
        found = _compare(given, facts, sources, matched.votes, cache or default_cache())
        if found is not None:
            given = merge(given, {"network": {"name": found.name, "frozen": True}})
        values, reasons = choose(given, facts)
        reasons = reasons if found is None else [found.reason, *reasons[1:]]
        values = merge(_usual_method(values["method"], facts), values)
        if sources.earlier is not None:  # an update chooses nothing
            start = Path(sources.earlier).parent
            reasons = [f"Network and method are those of {run_of(start) or start}."]
    else:
        _refuse_other_answers(folder, sources, matched.votes, mark)
        reasons = [f"{folder} exists: keeping its settings."]
    chosen = {key: value for key, value in values["data"].items() if key in ("size", "folds", "fold_epochs")}
    config = RunConfig.of(values, data=replace(sources, **chosen, fingerprint=mark))
    check_folder(folder, config)
    patches = None if found is None else found.patches
    return Plan(config, matched, tuple(reasons), folder, earlier is not None, truth, cache, stream, patches)


def _begun(folder: Path) -> dict[str, Any] | None:
    """The settings of the run in the folder, if there is one."""
    path = folder / "config.yaml"
    if not path.exists():
        return None
    if not isinstance(load_run_config(folder).data, VotesConfig):
        raise InputError(
            f"{path} does not belong to a run of `pals fit`. Choose another --out, or restore the file from a copy."
        )
    return read_yaml(path)


def _usual_method(given: Mapping[str, Any], facts: Facts) -> dict[str, Any]:
    """The section `method` if none was given: PALS, for few items with the preset made for them."""
    if given.get("name", "pals") != "pals":
        return {}
    options = {} if "preset" in given else preset_for("pals", facts.answered)
    return {"method": {"name": "pals", **(options or CROWD_OPTIONS)}}


def _refuse_folds(folds: int, votes: Votes) -> None:
    """Each network needs items to train on and others to predict."""
    most = int(answered(votes).sum())
    if folds == 1 or folds > most:
        raise InputError(f"--folds {folds}: give 2 to {most:,}, the items with an answer, or 0 for no cross-fitting.")


def _refuse_other_answers(folder: Path, sources: VotesConfig, votes: Votes, mark: str) -> None:
    if sources.fingerprint != mark:
        raise InputError(
            f"The images or answers are not those that {folder} was started with. Use `pals update {folder} VOTES` to add "
            f"new answers, or choose another --out."
        )


def _compare(given: Mapping[str, Any], facts: Facts, data: VotesConfig, votes: Votes, cache: Path) -> EncoderChoice | None:
    """The encoder that a comparison chooses; None if it was given."""
    if not is_open(given, facts) or facts.side is None:
        return None
    seed, solved = checked_seed(given.get("seed")), is_solved(given, facts, fixed=True)
    return choose_encoder(Comparison(data, votes, facts.side, cache, _device(given), seed, solved))


def _device(given: Mapping[str, Any]) -> str:
    return str((given.get("engine") or {}).get("device", "auto"))


def _facts(data: VotesConfig, votes: Votes, given: Mapping[str, Any]) -> Facts:
    side = None if data.images is None else shorter_side(data.images, votes.items)
    if side is not None and side < MIN_SIDE:
        raise InputError(
            f"The images in {data.images} are {side} pixels high or wide, too small to show anything. Give the originals, of "
            f"at least {MIN_SIDE} pixels, or vectors with --features."
        )
    return Facts(
        answered=max(int(answered(votes).sum()), 1),
        classes=len(votes.class_names),
        side=side,
        accelerated=find_device(_device(given)).type != "cpu",
        width=None if data.features is None else read_matrix(data).shape[1],
    )
