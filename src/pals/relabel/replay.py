"""A finished run played back: how right the labels would have been with fewer answers, asked for by the rule or of everyone."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from pals.crowd.answers import with_rows
from pals.crowd.closed_form import Again, spectrum_of
from pals.crowd.fusion import Fusion, fuse
from pals.crowd.next_answer import WORTH
from pals.crowd.replay_answers import STEP, Fit, Point, by_the_rule, count_answers, everyone_equally
from pals.labels.metrics import accuracy_of
from pals.pipeline.evaluate import Graded, read_truth
from pals.pipeline.finished_run import read_table, tree_of
from pals.pipeline.progress import Monitor
from pals.pipeline.stages.encode import encode
from pals.pipeline.stages.load import load
from pals.pipeline.stages.plan import Plan
from pals.pipeline.stages.read_answers import MatchedVotes, answered, classes_of
from pals.pipeline.tables.result_tables import DIGITS
from pals.readers import Votes, read_votes
from pals.runs.run_config import RunConfig, VotesConfig
from pals.runs.run_folder import load_run_config
from pals.util.errors import InputError
from pals.util.files import write_bytes
from pals.util.words import how_many

ASKING = RULE, EQUALLY = "by the rule", "everyone equally"
COARSER = 2.5
"""Steps of asking everyone equally, in steps of the rule: that curve is smooth."""
SAME = 0.001
"""Shares of right labels that count as the same: a tenth of a point, less than chance makes of a few thousand items."""
COLOURS = {RULE: "#0072B2", EQUALLY: "#E69F00"}


class Stop(NamedTuple):
    """Where the rule says enough."""

    answers_an_item: float
    right: float


@dataclass(frozen=True)
class Replay:
    """Two ways to ask for the same answers. `table`: for each of them (asking) and each step the answers an item so far and the
    share of the labels that is right; means over the seeds, as in `stop`."""

    table: pd.DataFrame
    stop: Stop
    truth: bool
    "Whether right is meant by a truth; otherwise it is: as with all answers."
    pictures: bool
    "Whether the pictures had their say."
    seeds: int

    def curve(self, asking: str) -> pd.DataFrame:
        return self.table[self.table["asking"] == asking]

    @cached_property
    def saved(self) -> pd.DataFrame:
        """For each step of asking everyone equally, how many answers the rule needs to be as right."""
        rule, equal = self.curve(RULE), self.curve(EQUALLY)
        needed = [answers_for(rule["answers_an_item"], rule["right"], right) for right in equal["right"]]
        return pd.DataFrame(
            {
                "answers_an_item": equal["answers_an_item"].to_numpy(),
                "right": equal["right"].to_numpy(),
                "by_the_rule": np.round(needed, DIGITS),
                "saved": (1 - np.array(needed) / equal["answers_an_item"].to_numpy()).round(DIGITS),
            }
        )

    @property
    def sentences(self) -> list[str]:
        last = self.saved.iloc[-1]
        right = "right" if self.truth else "the same"
        lines = [
            f"With {'pictures and ' if self.pictures else ''}answers; mean of {how_many(self.seeds, 'random order')}."
            + ("" if self.truth else " Without --truth, labels are compared with those from all answers."),
            f"All answers ({last['answers_an_item']:.2f} per item): {_percent(last['right'])} of the labels are {right}.",
        ]
        if np.isfinite(last["by_the_rule"]):
            lines.append(
                f"The rule needs {last['by_the_rule']:.2f} per item for the same, within {100 * SAME:g} points: "
                f"it saves {_percent(last['saved'])} of the answers."
            )
        lines.append(
            f"The rule stops at {self.stop.answers_an_item:.2f} per item, with {_percent(self.stop.right)} {right}; "
            f"asking everyone equally needs {self._equally(self.stop.right)} for that."
        )
        return lines

    def _equally(self, right: float) -> str:
        equal = self.curve(EQUALLY)
        needed = answers_for(equal["answers_an_item"], equal["right"], right)
        return f"{needed:.2f}" if np.isfinite(needed) else "all"

    def draw(self, path: Path) -> None:
        """The two curves as a picture (.png)."""
        with matplotlib.rc_context({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}):
            figure = Figure(figsize=(6.4, 4.0), layout="constrained")
            axes = figure.subplots()
            for asking, style in ((EQUALLY, "o--"), (RULE, "o-")):
                curve = self.curve(asking)
                axes.plot(
                    curve["answers_an_item"], 100 * curve["right"], style, color=COLOURS[asking], label=asking, markersize=3.5
                )
            axes.plot(self.stop.answers_an_item, 100 * self.stop.right, "D", color=COLOURS[RULE], label="the rule stops")
            axes.set_xlabel("answers per item")
            axes.set_ylabel("labels right (%)" if self.truth else "labels as with all answers (%)")
            axes.grid(color="#ECEEF0")
            axes.legend(frameon=False, loc="lower right")
            buffer = io.BytesIO()
            figure.savefig(buffer, format="png", dpi=160)
        write_bytes(path, buffer.getvalue())


def replay(
    run: Path | str,
    *,
    truth: Path | None = None,
    seeds: int = 1,
    step: float = STEP,
    worth: float = WORTH,
    answers_only: bool = False,
    cache: Path | None = None,
    monitor: Monitor | None = None,
) -> Replay:
    """Play the answers of a finished run back. Of a run in closed form the pictures have their say at each step, as in the run;
    of one that trained a network the answers are alone."""
    monitor = monitor or Monitor()
    if seeds < 1:
        raise InputError(f"--seeds {seeds}: give the number of random orders, at least 1.")
    if not 0 < step <= 1:
        raise InputError(f"--step {step:g}: give the answers per item between two estimates, above 0 and up to 1.")
    folder = Path(run)
    config = load_run_config(folder)
    if not isinstance(config.data, VotesConfig):
        raise InputError(f"{folder} is a run of `pals train`. Give the folder of a finished `pals fit`.")
    votes = votes_of(folder, config.data)
    graded = None if truth is None else read_truth(truth, without_gold(votes))
    planned = Plan(config, MatchedVotes(votes), (), folder, resumed=True, cache=cache)
    pictures = planned.solved and not (answers_only or config.data.answers_only)
    new_fit = _with_pictures(planned, config, monitor) if pictures else lambda: _alone
    return play(votes, new_fit, graded, seeds=seeds, step=step, worth=worth, pictures=pictures, monitor=monitor)


def votes_of(folder: Path, data: VotesConfig) -> Votes:
    """The answers of a run about its items, in their order."""
    items = read_table(folder, "labels.csv")["item"].tolist()
    read_table(folder, "votes.csv")
    found = read_votes(folder / "votes.csv", class_names=classes_of(data), separator=data.separator, taxonomy=tree_of(folder))
    return found.match(items)[0]


def without_gold(votes: Votes) -> Votes:
    """Only what people said of items whose label nobody knows: a known label is never graded."""
    rows = np.flatnonzero(votes.gold_I[votes.item_R] < 0)
    return replace(with_rows(votes, rows), gold_I=np.full_like(votes.gold_I, -1))


def _alone(votes: Votes) -> Fusion:
    return fuse(votes, [])


def _with_pictures(planned: Plan, config: RunConfig, monitor: Monitor) -> Callable[[], Fit]:
    features_ND = encode(load(planned, monitor), monitor).vectors_ND
    spectrum = spectrum_of(features_ND, answered(planned.matched.votes))
    return lambda: Again(spectrum, strength=config.method.strength)


def play(
    votes: Votes,
    new_fit: Callable[[], Fit],
    graded: Graded | None,
    *,
    seeds: int = 1,
    step: float = STEP,
    worth: float = WORTH,
    pictures: bool = False,
    monitor: Monitor | None = None,
) -> Replay:
    """Both ways to ask, in so many random orders. `new_fit` makes what estimates the labels, anew for each of them."""
    count_N, truth = count_answers(votes), graded is not None
    if count_N.max(initial=0) < 2:
        raise InputError("No item has two answers: there is nothing to replay.")
    items, total = int(np.count_nonzero(count_N)), int(count_N.sum())
    open_N, whole = np.flatnonzero((count_N > 0) & (votes.gold_I < 0)), seeds * len(ASKING) * total
    monitor, curves = monitor or Monitor(), []
    with monitor.counting("answers") as tell:
        for seed in range(seeds):
            rule = by_the_rule(votes, new_fit(), worth=worth, step=step, seed=seed)
            equal = everyone_equally(votes, new_fit(), step=COARSER * step, seed=seed)
            for number, (asking, points) in enumerate(((RULE, rule), (EQUALLY, equal)), start=seed * len(ASKING)):
                curves.append((asking, _curve(_telling(points, tell, number * total, whole), graded, open_N)))
    means = [_mean([curve for name, curve in curves if name == asking], items) for asking in ASKING]
    table = pd.concat([mean.assign(asking=asking) for asking, mean in zip(ASKING, means, strict=True)], ignore_index=True)
    stops = np.array([curve[curve[:, 2] > 0][0] for asking, curve in curves if asking == RULE]).mean(axis=0)
    stop = Stop(float(stops[0]) / items, float(stops[1]))
    return Replay(table[["asking", "answers_an_item", "right"]].round(DIGITS), stop, truth, pictures, seeds)


def _telling(points: Iterable[Point], tell: Callable[[int, int], None], before: int, whole: int) -> Iterator[Point]:
    """The points, with how far all curves together have come."""
    for point in points:
        yield point
        tell(before + point.answers, whole)


def _curve(points: Iterable[Point], graded: Graded | None, open_N: np.ndarray) -> np.ndarray:
    """K x 3: answers, share of labels right, whether the rule says enough. Without a truth those count as right which the same
    way of asking comes to in the end."""
    curve, labels = [], []
    for point in points:
        labels.append(point.fusion.label_N[open_N])
        curve.append((point.answers, np.nan if graded is None else _right(point, graded), point.enough))
    curve_K3 = np.array(curve, dtype=np.float64)
    if graded is None:
        curve_K3[:, 1] = [(label_N == labels[-1]).mean() for label_N in labels]
    return curve_K3


def _mean(curves: Sequence[np.ndarray], items: int) -> pd.DataFrame:
    """Of several curves that begin and end together, at the points of the first."""
    answers_K = curves[0][:, 0]
    right_K = np.mean([np.interp(answers_K, curve[:, 0], curve[:, 1]) for curve in curves], axis=0)
    return pd.DataFrame({"answers_an_item": answers_K / items, "right": right_K})


def _right(point: Point, graded: Graded) -> float:
    return accuracy_of(point.fusion.consensus.posterior_NC[graded.row_G], graded.truth)


def answers_for(answers: Sequence[float], right: Sequence[float], target: float) -> float:
    """Where a curve first comes to the target, within `SAME`, between two points in a straight line; NaN if it never does."""
    answers_K, right_K = np.asarray(answers, dtype=np.float64), np.asarray(right, dtype=np.float64)
    reached = np.flatnonzero(right_K >= target - SAME - 1e-12)
    if not len(reached):
        return float("nan")
    first = int(reached[0])
    if first == 0:
        return float(answers_K[0])
    (x0, x1), (y0, y1) = answers_K[first - 1 : first + 1], right_K[first - 1 : first + 1]
    return float(x0 + (x1 - x0) * (target - SAME - y0) / (y1 - y0))


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"
