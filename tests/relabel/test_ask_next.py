"""Whether to ask again, from a run: the decision for every item and the forecast, from Python and from the console."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from _crowd import answered_digits
from _refused import refused
from pals.crowd.next_answer import WORTH
from pals.pipeline import Findings, fit
from pals.pipeline.asking_state import AskingState
from pals.readers import read_votes
from pals.relabel.ask_next import forecast_sentence, next_answers
from pals.util.files import read_json

ITEMS = 200


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    """Three annotators and two hundred digits; one label is known, and cho has not answered for the first fifty."""
    x_ND, y_N, votes = answered_digits(ITEMS)
    folder = tmp_path_factory.mktemp("digits")
    np.save(folder / "x.npy", x_ND[:ITEMS])
    votes = votes[(votes["annotator"] != "cho") | (votes["item"] >= 50)].assign(is_gold=False)
    gold = pd.DataFrame([{"item": 199, "annotator": "", "label": f"d{y_N[199]}", "is_gold": True}])
    pd.concat([votes, gold]).to_csv(folder / "votes.csv", index=False)
    return fit(None, folder / "votes.csv", features=folder / "x.npy", out=folder / "run")


@pytest.fixture
def run(found: Findings, tmp_path: Path) -> Path:
    return Path(shutil.copytree(found.folder, tmp_path / "run"))


def test_the_folder_gives_the_decisions_and_the_state_of_the_fit(found: Findings, run: Path) -> None:
    table = found.tables["next"]
    assert table["item"].tolist() == found.labels["item"].tolist()
    counts = read_json(run / "summary.json")["asking"]
    assert counts == {name: int((table["decision"] == name).sum()) for name in ("enough", "one more", "expert")}
    assert counts["enough"] > 0 < counts["one more"]
    pd.testing.assert_frame_equal(next_answers(run).table, table, check_dtype=False)
    gold = table.set_index("item").loc["199"]
    assert (gold["decision"], gold["gain"], gold["cost"], gold["who"]) == ("enough", 0.0, 0.0, "")
    asked, confidence = table["decision"] != "enough", found.labels["confidence"]
    assert confidence[asked].mean() < confidence[~asked].mean() - 0.1
    judged = found.labels["status"].ne("gold").to_numpy()
    right_N = AskingState.load(found.folder).standing.right_N
    assert 1 - right_N[judged].mean() == pytest.approx(found.noise.labels_wrong, abs=1e-3)
    state, again = AskingState.of(found.trained.fusion, found.result, found.noise.labels_wrong), AskingState.load(found.folder)
    for name in ("decides_NC", "belief_NC"):
        assert (getattr(again.standing, name) == getattr(state.standing, name)).all()
    assert (again.typical_CC == state.typical_CC).all()


def test_forecasts_for_budgets_and_experts(run: Path) -> None:
    few, many = (next_answers(run, budget=budget) for budget in (10, 60))
    for budget, got in ((10, few), (60, many)):
        assert got.table.loc[got.table["asked"], "cost"].sum() <= budget and got.forecast["cost"].iloc[-1] <= budget
    assert few.forecast["right"].iloc[0] == many.forecast["right"].iloc[0]
    assert few.forecast["right"].iloc[-1] < many.forecast["right"].iloc[-1] <= 1
    asked = few.table[few.table["asked"]]
    rest = many.table[many.table["asked"] & ~many.table["item"].isin(asked["item"])]
    assert (asked["gain"] / asked["cost"]).min() >= (rest["gain"] / rest["cost"]).max()
    assert few.sentences[-1].startswith("10 more answers")
    got = next_answers(run, budget=0.5)
    assert not got.table["asked"].any() and "pays for no answer" in got.sentences[1]
    cheap, dear = (next_answers(run, expert_cost=cost).table["decision"] for cost in (0.5, 1000))
    assert (cheap == "expert").sum() > 0 and (dear == "expert").sum() == 0


def test_a_forecast_without_a_rise_and_numbers_out_of_range(run: Path) -> None:
    for after in (0.989, 0.9912):
        table = pd.DataFrame({"answers": [0, 2], "cost": [0.0, 2.0], "right": [0.991, after]})
        assert "hardly change" in forecast_sentence(table, True)
    for name, value in (("budget", 0.0), ("expert_cost", -1.0), ("expert_cost", float("nan")), ("worth", -1.0)):
        refused(f"--{name.replace('_', '-')}", next_answers, run, **{name: value})


def test_items_that_the_budget_does_not_reach_still_lack_answers(run: Path) -> None:
    free, tight = next_answers(run), next_answers(run, budget=5)
    assert tight.table["decision"].tolist() == free.table["decision"].tolist()
    enough = tight.table["decision"] == "enough"
    assert tight.table["asked"].sum() == 5 and not tight.table.loc[enough, "asked"].any()
    assert (tight.table.loc[enough, "gain"] < WORTH * 5).all() and (~enough).sum() > 5
    rich = next_answers(run, budget=float((~enough).sum() + 20)).table  # money is left when all that is worth it is paid for
    assert rich["asked"].sum() > (~enough).sum() and (rich["decision"] != "enough").equals(rich["asked"])


def test_damaged_folders(run: Path) -> None:
    labels = (run / "labels.csv").read_text()
    (run / "labels.csv").write_text("\n".join(labels.splitlines()[:-1]) + "\n")
    refused(r"labels\.csv .*199 rows", next_answers, run)
    (run / "summary.json").unlink()  # then the number of rows is compared with standing.npz alone
    refused(r"standing\.npz are from different fits", next_answers, run)
    with np.load(run / "standing.npz") as arrays:
        np.savez(run / "standing.npz", typical_CC=arrays["typical_CC"])
    refused(r"standing\.npz \(no belief_NC", next_answers, run)
    (run / "standing.npz").write_bytes(b"PK nonsense")
    refused(r"Cannot read .*standing\.npz", next_answers, run)
    (run / "standing.npz").unlink()
    refused(r"holds no standing\.npz", next_answers, run)


def test_the_command(pals: Callable[..., Any], run: Path) -> None:
    answer = pals("relabel", run, "--out", "queue.csv", "--top", "20", "--budget", "40", "--expert-cost", "4", code=0)
    queue, table = (pd.read_csv(f"queue{end}.csv") for end in ("", "-next"))
    assert list(queue.columns)[-3:] == ["decision", "gain", "asked"]
    paid = set(table["item"][table["asked"]])
    assert len(paid) > 20 and paid == set(queue["item"][queue["asked"]])  # all of them, though --top says 20
    assert queue["asked"][20:].all() and not queue["asked"][:20].all()
    assert list(table.columns) == ["item", "decision", "who", "gain", "cost", "asked"] and len(table) == ITEMS
    assert f"pals update {run} queue.csv" in " ".join(answer.out.split())
    queue.assign(label=queue["suggestion"], annotator="eve").to_csv("filled.csv", index=False)
    filled = read_votes("filled.csv")
    assert filled.num_answers == len(queue) and not filled.summary.skipped  # the other columns are no answers
    assert len(filled.summary.notes) == 1  # "only one annotator"; our own columns are not listed as unread
