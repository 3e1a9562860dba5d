"""Stage 1, the plan: the votes are read, the pictures' sizes looked at, and everything that nobody said is chosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pals.fitting.choose import Facts, choose
from pals.fitting.votes import MatchedVotes, answered, fingerprint, match_votes
from pals.methods import preset_for
from pals.readers import Votes
from pals.runs import check_folder
from pals.runs.settings import RunConfig, VotesConfig
from pals.training.engine import find_device
from pals.util.config import build, merge, read_yaml
from pals.util.errors import InputError
from pals.util.words import how_many
from pals.vision.images import survey

CROWD: Mapping[str, Any] = {"delta": 0.75}
"""Of PALS, what the authors use for the answers of real people; shares of the votes weigh the candidates by themselves."""


@dataclass(frozen=True)
class Plan:
    """What will be done, with all settings. Nothing is decoded and nothing written yet."""

    config: RunConfig
    matched: MatchedVotes
    reasons: tuple[str, ...]
    "A sentence for each choice that matters."
    folder: Path
    resumed: bool = False
    "An earlier command has done a part of it, or all."
    truth: Path | None = None
    cache: Path | None = None

    @property
    def data(self) -> VotesConfig:
        assert isinstance(self.config.data, VotesConfig)
        return self.config.data

    def describe(self) -> str:
        """The method, the network and how long, in a few words."""
        network, train = self.config.network, self.config.train
        times = f", {how_many(self.data.folds, 'more network')} for cross-fitting" if self.data.folds else ""
        size = f" on {self.data.size} px" if self.data.images is not None else ""
        frozen = f" on frozen {network.name}" if network.frozen else ""
        return f"{self.config.method_name} with {network.trained}{frozen}{size}, {how_many(train.epochs, 'epoch')}{times}"


def plan(
    given: Mapping[str, Any],
    folder: Path,
    *,
    votes: Votes | None = None,
    truth: Path | None = None,
    cache: Path | None = None,
) -> Plan:
    """Settle what is not given. A folder that exists is resumed with its own settings. `votes` are answers in memory, in place
    of the files that `data.votes` names."""
    earlier = read_yaml(folder / "config.yaml") if (folder / "config.yaml").exists() else None
    values = merge(earlier or {}, given)
    sources = build(VotesConfig, values["data"], "data")
    matched = match_votes(sources, votes)
    mark = fingerprint(matched.votes)
    if earlier is None:
        facts = _facts(sources, matched.votes, given)
        values, reasons = choose(given, facts)
        values = merge(_usual_method(values.get("method", {}), facts), values)
    else:
        _refuse_other_answers(folder, sources, mark)
        reasons = [f"{folder} exists: its settings are kept."]
    chosen = {key: value for key, value in values["data"].items() if key in ("size", "folds", "fold_epochs")}
    config = RunConfig.of(values, data=replace(sources, **chosen, fingerprint=mark))
    check_folder(folder, config)
    return Plan(config, matched, tuple(reasons), folder, earlier is not None, truth, cache)


def _usual_method(given: Mapping[str, Any], facts: Facts) -> dict[str, Any]:
    """The section `method` as far as nobody has said it: PALS, for few items by the preset made for them."""
    if given.get("name", "pals") != "pals":
        return {}
    options = {} if "preset" in given else preset_for("pals", facts.answered)
    return {"method": {"name": "pals", **(options or CROWD)}}


def _refuse_other_answers(folder: Path, sources: VotesConfig, mark: str) -> None:
    if sources.fingerprint != mark:
        raise InputError(
            f"The pictures or answers are not those that {folder} was begun with. Use `pals update {folder} VOTES` to add "
            f"new answers, or choose another --out."
        )


def _facts(data: VotesConfig, votes: Votes, given: Mapping[str, Any]) -> Facts:
    device = str((given.get("engine") or {}).get("device", "auto"))
    side = None if data.images is None else survey(Path(data.images), votes.items).shorter_side
    return Facts(
        answered=max(int(answered(votes).sum()), 1),
        classes=len(votes.class_names),
        side=side,
        accelerated=find_device(device).type != "cpu",
    )
