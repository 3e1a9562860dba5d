"""The tables for people: their columns, their words, and what is in them by hand."""

from __future__ import annotations

import io
import re
import time
from collections import Counter
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from _crowd import simulated, votes_of
from _refused import refused
from pals.crowd import Result, arguing_neighbors, dawid_skene, rank_doubts
from pals.crowd.agreement import agreement
from pals.pipeline.summary import agreement_sentence
from pals.pipeline.tables import result_tables as tables
from pals.util.files import without_mark


def test_the_columns_of_every_table() -> None:
    votes, _ = simulated(30, [0.8, 0.7])
    result = Result(votes, dawid_skene(votes).posterior_NC)
    for columns, table in {
        "item,label,confidence,second,second_probability,third,third_probability,majority,dawid_skene,votes,agreement,in_votes,"
        "status,none_of_these": tables.labels_table(result, dawid_skene(votes)),
        "item,probability: c0,probability: c1,probability: c2": tables.probabilities_table(result),
        "rank,item,annotator,answer,suggestion,probability_wrong,confidence,others,neighbors": tables.doubtful_table(
            result, rank_doubts(result)
        ),
        "annotator,answers,agreement,agreement_low,agreement_high,by_chance,above_chance,flags,evidence,confused,right: c0,"
        "right: c1,right: c2": tables.annotators_table(result),
        "annotator,result,answer,count": tables.confusion_table(result),
        "class,items,answers,majority_items,agreement,confidence,corrected,unsure,doubtful_answers,"
        "confused": tables.classes_table(result),
    }.items():
        assert ",".join(table.columns) == columns
        assert len(pd.read_csv(io.StringIO(tables.csv_text(table)))) == len(table)


def test_tables_of_a_small_case() -> None:
    rows = [(0, 0, 0), (0, 1, 0), (0, 2, 1), (1, 0, 1), (1, 1, 2), (2, 0, 0), (2, 1, 0)]
    votes = replace(votes_of(rows, 3), class_names=("newt", "frog", "toad"), items=("a", "b", "c"), annotators=("x", "y", "z"))
    posterior = np.array([[0.97, 0.02, 0.01], [0.1, 0.2, 0.7], [0.1, 0.85, 0.05]])
    result = Result(votes, posterior)
    labels = tables.labels_table(result)
    assert labels["label"].tolist() == ["newt", "toad", "frog"]
    assert labels["status"].tolist() == ["agreed", "tie-broken", "corrected"]
    assert labels["in_votes"].tolist() == [True, True, False]
    assert labels["agreement"].tolist() == pytest.approx([2 / 3, 1 / 2, 0], abs=1e-6)
    doubts = rank_doubts(result)
    near = np.array([[2, 1], [0, 2], [1, 0]])
    table = tables.doubtful_table(result, doubts, arguing_neighbors(result, doubts, near, np.full((3, 2), 0.5)))
    assert table[["item", "annotator", "answer", "suggestion"]].to_numpy().tolist() == [
        ["a", "z", "frog", "newt"],
        ["c", "x", "newt", "frog"],
        ["c", "y", "newt", "frog"],
        ["b", "x", "frog", "toad"],
    ]
    assert table["others"].tolist() == ["newt x2", "newt", "newt", "toad"]
    assert tables.confusion_table(result)["count"].sum() == 7
    assert tables.classes_table(result).set_index("class").loc["frog", "corrected"] == 1
    assert tables.classes_table(result)["majority_items"].tolist() == [2, 0.5, 0.5]  # nobody won the tie
    assert tables.annotators_table(result).set_index("annotator").loc["z", "confused"] == "newt -> frog 1 of 1"
    assert tables.csv_text(labels).splitlines()[1] == "a,newt,0.97,frog,0.02,toad,0.01,newt,3,0.666667,true,agreed,"
    assert labels["majority"].tolist() == ["newt", "frog|toad", "newt"]


def test_every_status_and_choices_beside_the_result() -> None:
    rows = [(0, 0, 0), (0, 1, 1), (1, 0, 0), (1, 1, 0), (2, 0, 0), (3, 0, 0), (4, 0, 1)]
    votes = votes_of(rows, 6, gold={4: 2})
    posterior_NC = np.array([[0.9, 0.1, 0], [1, 0, 0], [0, 0, 1.0], [0.4, 0.3, 0.3], [0, 0, 1], [0.2, 0.8, 0]])
    status = ["tie-broken", "agreed", "corrected", "unsure", "gold", "no-answer"]
    table = tables.labels_table(Result(votes, posterior_NC))
    assert table["status"].tolist() == status and np.isnan(table["agreement"][5])
    assert tables.labels_table(Result(votes, posterior_NC, unsure=0.95))["status"].tolist()[0] == "unsure"
    # The result is 2. Of two others with one answer each neither is ahead; but that nobody said 2 is news.
    for unsure, said, expected in ((2, (0, 1, 2), "tie-broken"), (2, (0, 0, 2), "corrected"), (9, (0, 1), "corrected")):
        rows = [(0, person, label) for person, label in enumerate(said)]
        votes = votes_of(rows, 1, sure=[label != unsure for label in said])
        assert tables.labels_table(Result(votes, np.array([[0.1, 0.1, 0.8]])))["status"].tolist() == [expected]
    votes = votes_of([(0, 0, 1), (0, 1, 1)], 2, 2)
    table = tables.labels_table(Result(votes, np.array([[0.3, 0.7], [0.6, 0.4]])), dawid_skene(votes))
    assert table["second"].tolist() == ["c0", "c1"] and table["second_probability"].tolist() == [0.3, 0.4]
    assert table["third"].tolist() == ["", ""] and table["third_probability"].isna().all()
    assert table["majority"].tolist() == table["dawid_skene"].tolist() == ["c1", ""]
    assert tables.probabilities_table(Result(votes, np.array([[0.3, 0.7], [0.6, 0.4]])))["probability: c1"].tolist() == [
        0.7,
        0.4,
    ]


def test_people_worst_first_with_flags_and_evidence() -> None:
    """A clicker is flagged and first; then whoever surely agrees least, which one wrong answer does not show."""
    rng = np.random.default_rng(0)
    truth_N = rng.integers(3, size=300)
    skills = (0.0, 0.95, 0.7, 0.9)
    rows: list[tuple[int, int, int]] = [
        (item, person, int(label if rng.random() < skill else rng.integers(3)))
        for item, label in enumerate(truth_N)
        for person, skill in enumerate(skills)
    ]
    votes = votes_of([*rows, (0, 4, int(truth_N[0] + 1) % 3)], 300)
    table = tables.annotators_table(Result(votes, np.eye(3)[truth_N]))
    assert " ".join(table["annotator"]) in ("w0 w2 w3 w4 w1", "w0 w2 w4 w3 w1")
    assert table["flags"].tolist() == ["chance", "", "", "", ""]
    assert re.fullmatch(r"agrees with others 3\d% of 300 times, where chance gives 3\d%", table["evidence"][0])
    assert ((table["agreement_low"] <= table["agreement"]) & (table["agreement"] <= table["agreement_high"])).all()


def test_odd_names_survive_and_odd_probabilities_are_refused() -> None:
    names = ('a,"b"', "two\nlines", "=1+1; x")
    votes = votes_of([(0, 0, 0), (0, 1, 1), (1, 0, 2)], 2)
    odd = replace(votes, class_names=names, items=names[:2], annotators=names[:2])
    back = pd.read_csv(io.StringIO(tables.csv_text(tables.labels_table(Result(odd, np.eye(3)[[1, 2]])))))
    assert back["item"].tolist() == list(names[:2])
    assert back["label"].tolist() == ["two\nlines", "'=1+1; x"]  # a spreadsheet must not run it
    assert back["label"].map(without_mark).tolist() == list(names[1:])
    votes = votes_of([(0, 0, 1)], 2)
    for bad in (np.full((2, 3), 0.5), np.array([[1.0, 0, 0], [np.nan, 0, 1]])):
        refused("not shares that sum to one", Result, votes, bad)
    refused("shape", Result, votes, np.eye(3))


def test_agreement_by_hand_in_a_table_and_a_sentence() -> None:
    """w0 says c0, c0, c1 where the results are c0, c1, c1: right twice; blindly (2/3)(1/3) + (1/3)(2/3) = 4/9."""
    votes = votes_of([(0, 0, 0), (1, 0, 0), (2, 0, 1)], 3)
    row = tables.annotators_table(Result(votes, np.eye(3)[[0, 1, 1]])).iloc[0]
    assert row["agreement"] == pytest.approx(2 / 3, abs=1e-6) and row["by_chance"] == pytest.approx(4 / 9, abs=1e-6)
    assert row["above_chance"] == pytest.approx((2 / 3 - 4 / 9) / (1 - 4 / 9), abs=1e-6)
    assert row["confused"] == "c1 -> c0 1 of 2" and row["right: c1"] == pytest.approx(0.5)
    assert np.isnan(row["right: c2"])
    votes, _ = simulated(60, (0.95, 0.9, 0.3), seed=4)
    result, found = Result(votes, dawid_skene(votes).posterior_NC), agreement(votes, rounds=100)
    table = tables.agreement_table(found, result)
    assert table["of"].tolist() == ["everybody"] * 3 + ["class"] * 6 + ["pair"] * 3
    measures = ["krippendorff_alpha", "fleiss_kappa"]
    assert table["measure"].tolist() == [*measures, "gwet_ac1", *np.repeat(measures, 3), *["cohen_kappa"] * 3]
    assert (table["low"] <= table["value"]).all() and (table["value"] <= table["high"]).all()
    pairs = table[table["of"] == "pair"].set_index(["name", "other"])["value"]
    assert pairs.idxmax() == ("w0", "w1")
    (sentence,) = agreement_sentence(found)
    assert "agreement is weak" in sentence and f"alpha is {found.alpha.value:.2f} (" in sentence
    assert agreement_sentence(agreement(votes_of([(0, 0, 1)], 1), rounds=10)) == []


def test_what_others_said_and_neighbours_that_argue_against_an_answer() -> None:
    """One pass over the answers, not one for each that is in doubt: 8,000 of 20,000 here."""
    rng, people = np.random.default_rng(0), 20_000
    label = np.where(rng.random(people) < 0.6, 0, rng.integers(1, 4, size=people))
    votes = votes_of([(0, person, said) for person, said in enumerate(label.tolist())], 1, 4)
    result = Result(votes, np.array([[0.97, 0.01, 0.01, 0.01]]))
    doubts = rank_doubts(result)
    begin = time.process_time()
    table = tables.doubtful_table(result, doubts)
    assert time.process_time() - begin < 4
    for row, answer in list(enumerate(doubts.answer_M.tolist()))[::500]:
        counted = Counter(f"c{said}" for other, said in enumerate(label.tolist()) if other != answer)
        assert table["others"][row] == "; ".join(f"{name} x{count}" for name, count in counted.most_common())
    votes = votes_of([(0, 0, 1), (0, 1, 2), (0, 2, 1), (0, 3, 2), (0, 4, 3)], 1, 4)
    result = Result(votes, np.array([[0.97, 0.01, 0.01, 0.01]]))
    others = tables.doubtful_table(result, rank_doubts(result)).set_index("annotator")["others"]
    assert others["w0"] == "c2 x2; c1; c3" and others["w1"] == "c1 x2; c2; c3" and others["w4"] == "c1 x2; c2 x2"
    votes = votes_of([(0, 0, 1)], 5)
    result = Result(votes, np.eye(3)[[0, 1, 0, 2, 0]])
    doubts = rank_doubts(result)
    neighbor_NK, similarity_NK = np.tile([1, 2, 3, 4], (5, 1)), np.tile([0.9, 0.8, 0.7, 0.6], (5, 1))
    arguing = arguing_neighbors(result, doubts, neighbor_NK, similarity_NK, count=4)
    assert arguing.index_MK.tolist() == [[2, 4, 3, -1]]
    words = tables.doubtful_table(result, doubts, arguing)["neighbors"][0]
    assert words == "i2 (c0 0.80); i4 (c0 0.60); i3 (c2 0.70)"
