"""Large tables, whose texts are kept once each, are read as small ones are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pals.readers import Votes, read_votes, source
from pals.util.errors import InputError

CELLS = st.sampled_from(
    ["cat", " cat", "Cat", "", "NA", "1", "01", "1.0", "cat|dog", "cat?", "don't know", "'=x", '"a, b"', "é", "nan", "label"]
)


def outcome(path: Path) -> Votes | str:
    try:
        return read_votes(path)
    except InputError as error:
        return str(error)


def both(path: Path) -> tuple[Votes | str, Votes | str]:
    with pytest.MonkeyPatch.context() as patch:
        small = outcome(path)
        patch.setattr(source, "MIN_CATEGORY_BYTES", 0)
        return small, outcome(path)


def assert_same(small: Votes | str, large: Votes | str) -> None:
    if isinstance(small, str) or isinstance(large, str):
        assert small == large
        return
    assert (small.items, small.annotators, small.class_names, small.summary) == (
        large.items, large.annotators, large.class_names, large.summary
    )  # fmt: skip
    for name in ("item_R", "annotator_R", "label_R", "answer_R", "weight_R", "sure_R", "gold_I", "unknown_item_U", "time_R"):
        np.testing.assert_array_equal(getattr(small, name), getattr(large, name), name)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.tuples(CELLS, CELLS, CELLS, CELLS), min_size=1, max_size=8), weighted=st.booleans(), wide=st.booleans())
def test_any_table(tmp_path: Path, rows: list[tuple[str, ...]], weighted: bool, wide: bool) -> None:
    header = "item,ann,bob,eve" if wide else f"item,annotator,label,{'is_gold' if weighted else 'other'}"
    path = tmp_path / "votes.csv"
    path.write_text("\n".join([header, *(",".join(row) for row in rows)]) + "\n", encoding="utf-8")
    assert_same(*both(path))


@pytest.mark.parametrize(
    "text",
    ["item,annotator,label\na,w,x\nitem,annotator,label\n", "item,item,label\na,b,x\n",
     'item,annotator,label\n"a,w,x\n', "item,annotator,label\na,w,x,y\n",
     "item,annotator,label,weight\na,w,x,heavy\n"],
)  # fmt: skip
def test_what_is_wrong_is_said_in_the_same_words(tmp_path: Path, text: str) -> None:
    path = tmp_path / "votes.csv"
    path.write_text(text)
    small, large = both(path)
    assert isinstance(small, str) and small == large


def test_a_text_that_occurs_often_is_kept_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "votes.csv"
    path.write_text("item,annotator,label\n" + "a,w,x\nb,w,y\n" * 50)
    monkeypatch.setattr(source, "MIN_CATEGORY_BYTES", 100)
    frame = source.Source(path).frame
    assert all(isinstance(dtype, pd.CategoricalDtype) for dtype in frame.dtypes)
