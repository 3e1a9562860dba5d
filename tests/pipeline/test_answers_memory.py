"""Memory of a fit of very many answers, in tables of items by classes in single precision: as many as there must be."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from pals.crowd import Fusion, Result, dawid_skene
from pals.crowd.agreement import agreement
from pals.pipeline.asking_state import AskingState, default_next_table
from pals.pipeline.stages.read_answers import votes_of_frame
from pals.pipeline.tables.result_tables import csv_text, labels_table, write_csv
from pals.readers import Votes
from pals.runs.run_config import VotesConfig

ITEMS, CLASSES, PEOPLE = 6000, 100, 10


@pytest.fixture(scope="module")
def large() -> tuple[Votes, Fusion]:
    """Few enough for a test, treated as too many."""
    rng = np.random.default_rng(0)
    item_R, truth_N = np.repeat(np.arange(ITEMS), 2), rng.permutation(np.arange(ITEMS) % CLASSES)
    label_R = np.where(rng.random(2 * ITEMS) < 0.9, truth_N[item_R], rng.integers(CLASSES, size=2 * ITEMS))
    frame = pd.DataFrame({"item": item_R, "annotator": np.arange(2 * ITEMS) % PEOPLE, "label": [f"c{c:02}" for c in label_R]})
    votes = votes_of_frame(frame, VotesConfig(votes=()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pals.crowd.blocks.MAX_DOUBLE_NUMBERS", 1)
        alone = dawid_skene(votes, correlation=0.0)
        shares_NC = np.broadcast_to(alone.answers.class_share_C, alone.posterior_NC.shape)
        return votes, Fusion.of([alone], alone, shares_NC, None, 0.0)


def held(work: Callable[[], object]) -> tuple[float, float]:
    """Tables that are held afterwards, and at most."""
    tracemalloc.start()
    try:
        kept = work()
        now, most = tracemalloc.get_traced_memory()
        del kept
        return now / (4 * ITEMS * CLASSES), most / (4 * ITEMS * CLASSES)
    finally:
        tracemalloc.stop()


def test_tables_of_items_by_classes_are_few(large: tuple[Votes, Fusion], monkeypatch: pytest.MonkeyPatch) -> None:
    votes, fusion = large
    monkeypatch.setattr("pals.crowd.blocks.MAX_DOUBLE_NUMBERS", 1)
    monkeypatch.setattr("pals.crowd.agreement.MAX_GROUPS", 20)
    monkeypatch.setattr("pals.crowd.agreement.BLOCK_VALUES", 60_000)
    monkeypatch.setattr("pals.crowd.next_answer.MAX_PATH_NUMBERS", 20_000)
    result = Result(votes, fusion.posterior_NC)
    assert result.posterior_NC is fusion.posterior_NC and fusion.posterior_NC.dtype == np.float32

    def standing() -> object:
        state = AskingState.of(fusion, result, 0.05)
        return state.standing, default_next_table(state, votes.items)

    def labels() -> object:
        again = Result(votes, fusion.posterior_NC)
        return again, labels_table(again)

    now, most = held(standing)  # three of which are kept in the run's folder
    assert now < 3.6 and most < 6
    now, most = held(labels)
    assert now < 1 and most < 2 and held(lambda: agreement(votes, rounds=2))[1] < 3


def test_a_table_written_in_parts_is_the_same(
    large: tuple[Votes, Fusion], tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, (votes, _) = tmp_path_factory.mktemp("parts") / "x.csv", large
    monkeypatch.setattr("pals.util.csv_text.CSV_BLOCK_ROWS", 700)
    for table in (votes.to_frame(), votes.to_frame().head(0)):
        write_csv(path, table)
        assert path.read_text() == csv_text(table)
    write_csv(path, votes.frames("|", 900))
    assert path.read_text() == csv_text(votes.to_frame())
