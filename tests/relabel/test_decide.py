"""Whether to ask again, from a run: the decision for every item, the forecast, and the replay; from Python and the console."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from _crowd import answered_digits
from pals.crowd.closed_form import Again, closed_form, spectrum_of
from pals.crowd.fusion import Fusion, fuse
from pals.crowd.next_answer import WORTH
from pals.pipeline import Findings, fit
from pals.readers import Votes, read_votes
from pals.relabel.decide import Kept, _in_words, next_answers, sources_of
from pals.relabel.replay import EQUALLY, RULE, answers_for, play, replay
from pals.util.errors import InputError
from pals.util.files import read_json, write_json

ITEMS = 200


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    """Three people about two hundred digits; one label is known, and cho has not answered for the first fifty."""
    x_ND, y_N, votes = answered_digits(ITEMS)
    folder = tmp_path_factory.mktemp("digits")
    np.save(folder / "x.npy", x_ND[:ITEMS])
    pd.DataFrame({"item": range(ITEMS), "label": [f"d{y}" for y in y_N[:ITEMS]]}).to_csv(folder / "truth.csv", index=False)
    votes = votes[(votes["annotator"] != "cho") | (votes["item"] >= 50)].assign(is_gold=False)
    gold = pd.DataFrame([{"item": 199, "annotator": "", "label": f"d{y_N[199]}", "is_gold": True}])
    pd.concat([votes, gold]).to_csv(folder / "votes.csv", index=False)
    return fit(None, folder / "votes.csv", features=folder / "x.npy", out=folder / "run")


@pytest.fixture
def run(found: Findings, tmp_path: Path) -> Path:
    return Path(shutil.copytree(found.folder, tmp_path / "run"))


# ---- the decision for every item


def test_a_fit_says_it_and_so_does_its_folder(found: Findings, run: Path) -> None:
    table = found.tables["next"]
    assert table["item"].tolist() == found.labels["item"].tolist()
    counts = read_json(run / "summary.json")["asking"]
    assert counts == {name: int((table["decision"] == name).sum()) for name in ("enough", "one more", "expert")}
    assert counts["enough"] > 0 < counts["one more"]
    again = next_answers(run).table
    pd.testing.assert_frame_equal(again, table, check_dtype=False)
    gold = table.set_index("item").loc["199"]
    assert (gold["decision"], gold["gain"], gold["cost"], gold["who"]) == ("enough", 0.0, 0.0, "")
    asked, confidence = table["decision"] != "enough", found.labels["confidence"]
    assert confidence[asked].mean() < confidence[~asked].mean() - 0.1


def test_as_many_labels_are_wrong_as_the_run_says(found: Findings) -> None:
    judged = found.labels["status"].ne("gold").to_numpy()
    assert 1 - found.kept.standing.right_N[judged].mean() == pytest.approx(found.noise.labels_wrong, abs=1e-3)


def test_a_forecast_for_a_budget(run: Path) -> None:
    few, many = (next_answers(run, budget=budget) for budget in (10, 60))
    for budget, got in ((10, few), (60, many)):
        assert got.table.loc[got.table["asked"], "cost"].sum() <= budget and got.forecast["cost"].iloc[-1] <= budget
        assert got.forecast["right"].is_monotonic_increasing or got.forecast["right"].iloc[-1] > got.forecast["right"].iloc[0]
    assert few.forecast["right"].iloc[0] == many.forecast["right"].iloc[0]
    assert few.forecast["right"].iloc[-1] < many.forecast["right"].iloc[-1] <= 1
    asked = few.table[few.table["asked"]]
    rest = many.table[many.table["asked"] & ~many.table["item"].isin(asked["item"])]
    assert (asked["gain"] / asked["cost"]).min() >= (rest["gain"] / rest["cost"]).max()
    assert few.sentences[-1].startswith("10 more answers raise labels right from ")


@pytest.mark.parametrize("after", [0.989, 0.9912])
def test_a_forecast_that_promises_nothing_does_not_speak_of_a_rise(after: float) -> None:
    table = pd.DataFrame({"answers": [0, 2], "cost": [0.0, 2.0], "right": [0.991, after]})
    assert _in_words(table, True) == "2 more answers hardly change labels right: about 99.1% either way."


def test_a_budget_that_the_best_answer_exceeds(run: Path) -> None:
    """It goes to others; and where it pays for none, that is the reason, not what answers are worth."""
    dear = next_answers(run, budget=3, costs={"expert": 3.5, "anyone": 3})
    assert dear.table["asked"].sum() == 1 and dear.forecast["answers"].iloc[-1] == 1
    none = next_answers(run, budget=0.5).sentences
    assert "the budget pays for 0 of these" in none[0] and none[1].startswith("The budget pays for no answer; about ")


def test_what_a_budget_does_not_reach_has_not_enough_answers(run: Path) -> None:
    free, tight = next_answers(run), next_answers(run, budget=5)
    assert tight.table["decision"].tolist() == free.table["decision"].tolist()
    enough = tight.table["decision"] == "enough"
    assert tight.table["asked"].sum() == 5 and not tight.table.loc[enough, "asked"].any()
    assert (tight.table.loc[enough, "gain"] < WORTH * 5).all() and (~enough).sum() > 5
    assert "; the budget pays for 5 of these." in tight.sentences[0]
    rich = next_answers(run, budget=float((~enough).sum() + 20)).table  # money is left when all that is worth it is paid for
    assert rich["asked"].sum() > (~enough).sum() and (rich["decision"] != "enough").equals(rich["asked"])


def test_who_has_answered_is_not_asked_again(run: Path) -> None:
    """Only cho is there, and only for the first fifty; all others can get an expert or nothing."""
    table = next_answers(run, annotators=["cho"], costs={"expert": 1000}).table
    asked = table[table["decision"] == "one more"]
    assert len(asked) and set(asked["who"]) == {"cho"} and asked["item"].astype(int).max() < 50
    assert not (table["decision"] == "expert").any()
    cheap = next_answers(run, annotators=["cho"], costs={"expert": 0.5}).table
    assert (cheap["decision"] == "expert").sum() > len(asked) and set(cheap["who"]) <= {"", "cho", "expert"}


def test_people_with_a_cost_of_their_own(found: Findings) -> None:
    nobody = np.array([], dtype=np.int64)
    answered = {"ann": nobody, "bob": nobody, "cho": np.arange(50, ITEMS)}
    crowd, ann, expert = sources_of(found.kept, answered, costs={"ann": 2.0, "anyone": 1.5})
    assert (crowd.cost, ann.name, ann.cost, ann.expert, expert.expert) == (1.5, "ann", 2.0, True, True)
    assert not sources_of(found.kept, answered, ["ann"], {"ann": 2.0})[0].left_N.any()  # nobody is left at the usual cost
    pool, *_ = sources_of(found.kept, answered, ["bob", "cho"])
    assert pool.name == "bob or cho" and pool.left_N[0] == 2 and pool.left_N[-1] == 1 and len(pool.people) == 2
    easy = dict(zip(found.kept.names, found.kept.easy_KCC, strict=True))
    bob_alone, both = (next(p for p, n in zip(pool.people, (1, 2), strict=True) if n == wanted) for wanted in (1, 2))
    assert bob_alone.easy_CC == pytest.approx(easy["bob"])
    assert both.easy_CC == pytest.approx((easy["bob"] + easy["cho"]) / 2)


def test_what_is_kept_is_read_as_it_was(found: Findings, tmp_path: Path) -> None:
    found.kept.save(tmp_path)
    again = Kept.load(tmp_path)
    assert again.names == ("ann", "bob", "cho")
    for name in ("decides_NC", "belief_NC", "hard_NC"):
        assert (getattr(again.standing, name) == getattr(found.kept.standing, name)).all()
    assert (again.easy_KCC == found.kept.easy_KCC).all() and (again.typical.easy_CC == found.kept.typical.easy_CC).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"annotators": ["anne"]}, r"Unknown annotator 'anne': did you mean 'ann'\?"),
        ({"costs": {"dan": 3.0}}, "Unknown annotator 'dan'"),
        ({"costs": {"expert": -1.0}}, "--cost expert=-1: a cost is a number above zero"),
        ({"costs": {"expert": float("nan")}}, "a cost is a number above zero"),
        ({"budget": 0.0}, "--budget 0: give the most to spend"),
        ({"worth": -1.0}, "--worth -1: give how many more right labels"),
        ({"expert_right": 1.5}, "--expert-right 1.5: give the share"),
    ],
)
def test_bad_wishes(run: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        next_answers(run, **options)
    assert "\n" not in str(error.value)


def test_folders_that_say_nothing(run: Path) -> None:
    labels = (run / "labels.csv").read_text()
    (run / "labels.csv").write_text("\n".join(labels.splitlines()[:-1]) + "\n")
    with pytest.raises(InputError, match=r"labels\.csv is cut off: it has 199 rows"):
        next_answers(run)
    (run / "summary.json").unlink()  # then nobody can tell, but for what stands beside it
    with pytest.raises(InputError, match="are from different fits"):
        next_answers(run)
    (run / "standing.npz").write_bytes(b"PK nonsense")
    with pytest.raises(InputError, match=r"Cannot read .*standing\.npz \(.*Python objects, which are never loaded\)"):
        next_answers(run)
    (run / "standing.npz").unlink()
    with pytest.raises(InputError, match=r"holds no standing\.npz.*Run `pals fit` again"):
        next_answers(run)


# ---- the replay


def test_a_replay(found: Findings, run: Path) -> None:
    got = replay(run, truth=found.folder.parent / "truth.csv", step=0.4)
    rule, equal = got.curve(RULE), got.curve(EQUALLY)
    assert got.pictures and got.truth
    assert rule["answers_an_item"].iloc[-1] == equal["answers_an_item"].iloc[-1] == 2.75
    assert equal["answers_an_item"].iloc[0] == 1 and rule["answers_an_item"].iloc[0] == 1.05
    assert rule["right"].iloc[-1] == pytest.approx(equal["right"].iloc[-1], abs=0.03)
    assert 1.05 <= got.stop.answers_an_item <= 2.75 and list(got.saved) == ["answers_an_item", "right", "by_the_rule", "saved"]
    assert any(line.startswith("The rule stops at ") for line in got.sentences)


@pytest.mark.slow
def test_a_replay_without_truth_or_pictures(run: Path) -> None:
    got = replay(run, step=1.0, answers_only=True)
    assert not got.truth and not got.pictures
    assert got.curve(EQUALLY)["right"].iloc[-1] == 1.0  # as with all answers
    assert got.curve(EQUALLY)["right"].iloc[0] < 1.0
    assert "Without --truth" in got.sentences[0]


def test_where_a_curve_comes_to() -> None:
    assert answers_for([1, 2, 3], [0.5, 0.7, 0.9], 0.8) == pytest.approx(2.495)
    assert answers_for([1, 2, 3], [0.5, 0.7, 0.6], 0.4) == 1
    assert np.isnan(answers_for([1, 2], [0.5, 0.7], 0.8))


def test_again_is_the_closed_form(found: Findings) -> None:
    """The first time exactly; then the penalty stays."""
    votes, inputs = found.result.votes, found.trained.encoded.inputs
    known_N = np.ones(len(votes.items), dtype=bool)
    again = Again(spectrum_of(inputs, known_N))
    assert again(votes).posterior_NC == pytest.approx(closed_form(votes, inputs).posterior_NC)
    assert len(again.penalties) == 1


def test_without_a_truth_all_answers_come_to_the_same(found: Findings) -> None:
    """Also where the first answers decide what the pictures weigh, so that a single fit to all of them has other labels."""

    def new_fit() -> Callable[[Votes], Fusion]:
        weak: list[bool] = []

        def estimate(votes: Votes) -> Fusion:
            weak.append(votes.num_answers < found.result.votes.num_answers)
            return fuse(votes, [], strength=1000.0 if weak[0] else 1.0)

        return estimate

    got = play(found.result.votes, new_fit, None, step=1.0)
    assert [got.curve(asking)["right"].iloc[-1] for asking in (RULE, EQUALLY)] == [1, 1]


def test_what_cannot_be_played(found: Findings, run: Path, tmp_path: Path) -> None:
    for options, message in (({"step": 0.0}, "--step 0: give"), ({"seeds": 0}, "--seeds 0: give")):
        with pytest.raises(InputError, match=message):
            replay(run, **options)
    votes = pd.read_csv(run / "votes.csv")
    votes[votes["annotator"] == "ann"].to_csv(run / "votes.csv", index=False)
    write_json(run / "summary.json", read_json(run / "summary.json") | {"answers": 200})
    with pytest.raises(InputError, match="No item has two answers"):
        replay(run, answers_only=True)
    with pytest.raises(InputError, match="is not a run folder"):
        replay(tmp_path / "nowhere")


# ---- from the console


def test_the_commands(pals: Callable[..., Any], run: Path) -> None:
    answer = pals("relabel", run, "--out", "queue.csv", "--top", "20", "--budget", "40", "--cost", "expert=4")
    assert answer.code == 0, answer.err
    assert "more answers" in answer.out and "labels right from" in " ".join(answer.out.split())
    queue, table, curve = (pd.read_csv(f"queue{end}.csv") for end in ("", "-next", "-forecast"))
    assert list(queue.columns)[-3:] == ["decision", "gain", "asked"]
    paid = set(table["item"][table["asked"]])
    assert len(paid) > 20 and paid == set(queue["item"][queue["asked"]])  # all of them, though --top says 20
    assert queue["asked"][20:].all() and not queue["asked"][:20].all()
    assert list(table.columns) == ["item", "decision", "who", "gain", "cost", "asked"] and len(table) == ITEMS
    assert list(curve.columns) == ["answers", "cost", "right"] and curve["answers"].iloc[0] == 0
    queue.assign(label=queue["suggestion"], annotator="eve").to_csv("filled.csv", index=False)
    filled = read_votes("filled.csv")
    assert filled.num_answers == len(queue) and not filled.summary.skipped  # the other columns are no answers
    assert filled.summary.notes == ("Only one annotator: eve",)  # and as they are ours, there is nothing to say of them
    answer = pals("replay", run, "--out", "r.csv", "--step", "1")
    assert answer.code == 0, answer.err
    assert Path("r.png").read_bytes().startswith(b"\x89PNG") and len(pd.read_csv("r-saved.csv")) == 2
    assert set(pd.read_csv("r.csv")["asking"]) == {RULE, EQUALLY}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("relabel", "--out", "q.csv", "--cost", "expert"), "such as expert=5"),
        (("relabel", "--out", "q.csv", "--cost", "expert=cheap"), "such as expert=5"),
        (("relabel", "--out", "q.csv", "--annotators", "dan"), "Unknown annotator 'dan'"),
        (("relabel", "--out", "q.csv", "--annotators", " ,"), "--annotators names nobody"),
        (("replay", "--out", "curve.png"), "ends in .csv"),
        (("replay", "--truth", "no.csv"), "no.csv"),
    ],
)
def test_bad_words(pals: Callable[..., Any], run: Path, words: tuple[str, ...], message: str) -> None:
    answer = pals(words[0], run, *words[1:])
    assert answer.code == 2 and message in " ".join(answer.err.split())
    assert "Traceback" not in answer.err


def test_a_run_of_an_earlier_version_still_has_a_queue(pals: Callable[..., Any], run: Path) -> None:
    (run / "standing.npz").unlink()
    answer = pals("relabel", run, "--out", "queue.csv", "--top", "5")
    assert answer.code == 0 and "an earlier version made it" in " ".join(answer.out.split())
    assert "decision" not in pd.read_csv("queue.csv").columns
    assert pals("relabel", run, "--out", "queue.csv", "--budget", "5").code == 2
