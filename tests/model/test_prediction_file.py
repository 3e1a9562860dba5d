"""Predictions of any number of items: the same file however often it was stopped, however it was divided, wherever they lie."""

from __future__ import annotations

import multiprocessing
import signal
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from _models import save_model

from _locks import held_by_another
from _refused import refused
from _shards import png, write_folder, write_pictures, write_samples
from _slow import rest_slow
from _toy import Answer
from pals.labels.taxonomy import Taxonomy
from pals.model import FILE_NAME, Description, Model, Part, WrittenPredictions, predict_folder, predict_to_file
from pals.model import resumable_table as model_parts
from pals.util.csv_text import csv_text
from pals.util.errors import InputError
from pals.vision.images.decoding import BadImageError, decode, decode_bytes
from pals.vision.networks import build_network

COUNT = 23


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return save_model(tmp_path / "run", "small-cnn", (3, 8, 8))


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    save_model(tmp_path / "flat", "linear", (4,))
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(COUNT, 4)).astype(np.float32))
    return tmp_path / "x.npy"


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "photos", range(COUNT))


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_parts, "MAX_PART_ROWS", 8)


def predict(run: Path, items: Any, out: Path, **options: Any) -> WrittenPredictions:
    return predict_to_file(run, items, out, **{"device": "cpu", "batch": 3, **options})


def left(out: Path) -> list[str]:
    """What lies beside the table that begins with its name."""
    return sorted(path.name for path in out.parent.iterdir() if path.name.startswith(out.name) or path.name.startswith("."))


@pytest.mark.parametrize("ending", ["csv", "parquet", "txt"])
def test_the_file_is_the_frame(run: Path, photos: Path, tmp_path: Path, ending: str) -> None:
    frame = predict_folder(run, photos, device="cpu", batch=3, threshold=0.35, top=2)
    out, told = tmp_path / "new" / f"p.{ending}", list[tuple[int, int | None]]()
    written = predict(run, photos, out, threshold=0.35, top=2, progress=lambda done, total: told.append((done, total)))
    if ending == "parquet":
        pd.testing.assert_frame_equal(pd.read_parquet(out), frame, check_dtype=False)
    else:
        assert out.read_text(encoding="utf-8") == csv_text(frame)
    assert 0 < written.counts.abstained == frame["abstained"].sum() < COUNT
    assert (written.out, written.counts.items, written.counts.bad, written.resumed) == (out, COUNT, 0, 0)
    assert told == [(0, COUNT), *((min(done, COUNT), COUNT) for done in range(3, COUNT + 3, 3))]
    assert left(out) == [out.name]


def test_row_groups_of_parquet_files_and_small_parts_of_wide_tables(
    run: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal row groups, wherever parts ended; the types do not depend on what the rows hold."""
    import pyarrow.parquet as pq

    predict(run, photos, tmp_path / "p.parquet", threshold=1.0)
    file = pq.ParquetFile(tmp_path / "p.parquet")
    assert [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)] == [8, 8, 7]
    types = {field.name: str(field.type) for field in file.schema_arrow}
    assert types["item"] == types["label"] == types["top"] == types["label_3"] == "string"
    assert (types["confidence"], types["p_3"], types["abstained"]) == ("double", "double", "bool")
    monkeypatch.setattr(model_parts, "MAX_PART_ROWS", 65_536)
    assert model_parts.rows_of_part(pd.DataFrame(columns=range(11))) == 65_536
    assert model_parts.rows_of_part(pd.DataFrame(columns=range(2005))) == (1 << 20) // 2005


def test_pictures_give_the_same_wherever_they_lie(run: Path, photos: Path, tmp_path: Path) -> None:
    expected = predict_folder(run, photos, device="cpu")
    write_samples(tmp_path / "a-0.tar", range(10))
    write_samples(tmp_path / "a-1.tar", range(10, COUNT))
    write_pictures(tmp_path / "a.parquet", range(COUNT))
    told: list[tuple[int, int]] = []
    tars = predict_folder(
        run, f"{tmp_path}/a-{{0..1}}.tar", device="cpu", batch=8, progress=lambda *counts: told.append(counts)
    )
    assert told == [(8, COUNT), (10, COUNT), (18, COUNT), (COUNT, COUNT)]
    table = predict_folder(run, tmp_path / "a.parquet", device="cpu")
    assert (tars["item"] + ".png").tolist() == table["item"].tolist() == expected["item"].tolist()
    for frame in (tars, table):
        assert frame["confidence"].tolist() == pytest.approx(expected["confidence"].tolist(), abs=2e-6)


@pytest.mark.parametrize("how", ["squash", "crop", "pad"])
def test_an_image_in_memory_is_decoded_like_a_file(how: Any, photos: Path) -> None:
    np.testing.assert_array_equal(decode_bytes(png(3), "x", 8, how=how), decode(photos / "0003.png", 8, how=how))
    for data, reason in ((b"", "the file is empty"), (png(3)[:60], "damaged or cut off|cut off|cannot be decoded")):
        with pytest.raises(BadImageError, match=f"^some name: .*({reason})"):
            decode_bytes(data, "some name", 8)


def test_a_taxonomy_is_rolled_up_in_every_part(vectors: Path, tmp_path: Path) -> None:
    tree = Taxonomy.from_parents({"frog": "pond", "newt": "pond", "=toad": "land", "pond": None, "land": None})
    names = tree.leaves
    reads = Part("linear", (4,), (0.5,) * 4, (0.25,) * 4)
    Model(Description(names, reads, taxonomy=tree), build_network("linear", (4,), 3), device="cpu").save(tmp_path / FILE_NAME)
    frame = predict_folder(tmp_path, vectors, device="cpu", batch=3, sure=0.5)
    predict(tmp_path, vectors, tmp_path / "p.csv", sure=0.5)
    assert (tmp_path / "p.csv").read_text() == csv_text(frame) and "rolled_up_probability" in frame
    refused("has no taxonomy", predict, tmp_path / "flat", vectors, tmp_path / "q.csv", sure=0.5)


class StopError(Exception):
    """Like a kill, at a chosen moment."""


def stop_after(calls: int) -> Callable[[int, int | None], None]:
    def count(done: int, total: int | None) -> None:
        nonlocal calls
        calls -= 1
        if calls < 0:
            raise StopError

    return count


@pytest.mark.parametrize("ending", rest_slow(1, ["csv", "parquet"]))
def test_stopped_anywhere_it_comes_to_the_same(run: Path, tmp_path: Path, ending: str) -> None:
    """After so many batches each time, in a long chain; two shards are bad."""
    write_samples(tmp_path / "a-0.tar", range(10))
    write_samples(tmp_path / "a-1.tar", range(10, COUNT))
    cut = tmp_path / "a-0.tar"
    cut.write_bytes(cut.read_bytes()[: cut.read_bytes().index(b"0007.cls")])
    write_pictures(tmp_path / "b.parquet", range(9))
    items = [f"{tmp_path}/a-{{0..2}}.tar", tmp_path / "b.parquet"]
    expected = predict(run, items, tmp_path / f"whole.{ending}", skip_bad=True)
    assert (expected.counts.items, expected.counts.bad) == (7 + 13 + 9, 2)
    for calls in (1, 3, 4, 8):
        out, resumed, stops = tmp_path / f"{calls}.{ending}", [0], 0
        while True:
            try:
                written = predict(run, items, out, skip_bad=True, progress=stop_after(calls))
                break
            except StopError:
                assert not out.exists()
                parts = out.with_name(f"{out.name}.parts")
                resumed.append(8 * len(list(parts.glob("0*.json"))) if parts.exists() else 0)
                stops += 1
                if resumed[-1] == resumed[-2]:  # it stops before a part is finished, each time: go on to the end
                    calls = 1000
        assert out.read_bytes() == (tmp_path / f"whole.{ending}").read_bytes()
        assert written.counts == expected.counts and left(out) == [out.name, f"{out.name}.bad.csv"]
        bad = [path.with_name(f"{path.name}.bad.csv").read_bytes() for path in (out, tmp_path / f"whole.{ending}")]
        assert bad[0] == bad[1]


def test_what_was_done_is_not_done_again(run: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "p.csv"
    with pytest.raises(StopError):
        predict(run, photos, out, progress=stop_after(5))
    asked: list[int] = []
    probabilities = Model.probabilities
    monkeypatch.setattr(
        Model, "probabilities", lambda self, inputs, batch: asked.append(len(inputs)) or probabilities(self, inputs, batch)
    )
    told: list[int] = []
    written = predict(run, photos, out, progress=lambda done, total: told.append(done))
    assert told[0] == written.resumed == 9 and sum(asked) == COUNT - 9  # parts end with a batch: 9 rows, not 8
    assert written.counts.items == COUNT and len(pd.read_csv(out)) == COUNT


def test_a_part_counts_only_with_its_record(run: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill between the two, and in the middle of writing either."""
    whole, out = tmp_path / "whole.csv", tmp_path / "p.csv"
    predict(run, photos, whole)
    with pytest.raises(StopError):
        predict(run, photos, out, progress=stop_after(8))
    folder = tmp_path / "p.csv.parts"
    (folder / "00002.csv").write_text("rows of a part that was never finished\n")
    (folder / ".00002.csv.abc.part").write_text("half of one")
    assert predict(run, photos, out).resumed == 18
    assert out.read_bytes() == whole.read_bytes() and not folder.exists()


def test_parts_hold_what_a_kill_leaves_and_end_after_some_time(
    run: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the midst of joining, too; so it goes with them."""
    seen: list[list[str]] = []
    join = model_parts.join_csv
    monkeypatch.setattr(model_parts, "join_csv", lambda *given: seen.append(left(tmp_path / "p.csv")) or join(*given))
    predict(run, photos, tmp_path / "p.csv")
    assert seen == [["p.csv.parts"]] and left(tmp_path / "p.csv") == ["p.csv"]
    predict(run, photos, tmp_path / "whole.parquet")
    monkeypatch.setattr(model_parts, "MAX_PART_SECONDS", 0.0)
    with pytest.raises(StopError):
        predict(run, photos, tmp_path / "p.parquet", progress=stop_after(3))
    assert predict(run, photos, tmp_path / "p.parquet").resumed == 9
    assert (tmp_path / "p.parquet").read_bytes() == (tmp_path / "whole.parquet").read_bytes()


def predict_slowly(tmp_path: Path, told: Any) -> None:
    """In a process of its own; a word after each batch."""

    def tell(done: int, total: int | None) -> None:
        told.send(done)
        time.sleep(0.02)

    predict(tmp_path / "run", tmp_path / "x.npy", tmp_path / "p.parquet", batch=64, progress=tell)


def killed_and_resumed(tmp_path: Path, kills: int) -> None:
    """The same bytes as if nothing had happened, and no batch of a finished part twice."""
    save_model(tmp_path / "run", "linear", (4,))
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(3000, 4)).astype(np.float32))
    predict(tmp_path / "run", tmp_path / "x.npy", tmp_path / "whole.parquet", batch=64)
    out, done = tmp_path / "p.parquet", 0
    for number in range(kills):
        here, there = (context := multiprocessing.get_context("fork")).Pipe(duplex=False)
        process = context.Process(target=predict_slowly, args=(tmp_path, there))
        process.start()
        assert here.recv() == 64 * done
        for _ in range(3):
            here.recv()
        time.sleep(0.01 * (number % 4))  # in the middle of whatever comes then
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL and not out.exists()
        before, done = done, len(list((tmp_path / "p.parquet.parts").glob("0*.json")))
        assert done >= before + 2
    written = predict(tmp_path / "run", tmp_path / "x.npy", out, batch=64)
    assert written.resumed == 64 * done < 3000 and written.counts.items == 3000
    assert out.read_bytes() == (tmp_path / "whole.parquet").read_bytes() and left(out) == [out.name]


@pytest.mark.slow
def test_killed_ten_times_and_resumed(tmp_path: Path) -> None:
    killed_and_resumed(tmp_path, 10)


@pytest.mark.slow
def test_the_command_goes_on_after_a_kill(tmp_path: Path) -> None:
    """A whole process, killed as soon as its first part is there."""
    save_model(tmp_path / "run", "linear", (4,))
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(300_000, 4)).astype(np.float32))
    out, parts = tmp_path / "p.csv", tmp_path / "p.csv.parts"
    command = [sys.executable, "-m", "pals", "predict", str(tmp_path / "run"), str(tmp_path / "x.npy"), "--out", str(out)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while not (parts / "00000.json").exists():
            assert process.poll() is None
            time.sleep(0.01)
        process.kill()
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    assert ended.startswith("Resuming: ") and "300,000 predictions in" in ended and "were done before" in ended
    with out.open() as file:
        assert [line.partition(",")[0] for line in file] == ["item", *map(str, range(300_000))]


def test_parts_of_another_table_are_refused(run: Path, photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "p.csv"
    with pytest.raises(StopError):
        predict(run, photos, out, progress=stop_after(4))
    before = {path: path.read_bytes() for path in (tmp_path / "p.csv.parts").glob("0*")}
    other = save_model(tmp_path / "other", "small-cnn", (3, 8, 8), seed=1)
    for options, words in (
        ({"top": 2}, r"top = 3 \(now 2\)"),
        ({"threshold": 0.5, "top": 1}, r"top = 3 \(now 1\), threshold = None \(now 0\.5\)"),
        ({"shard": (1, 2)}, r"other items, or some that have changed since, shard = None \(now 1/2\)"),
        ({"run": other}, "another classifier"),
        ({"batch": 4}, r"batch = 3 \(now 4\)"),
    ):
        refused(rf"parts holds .* started with {words}\.", predict, **{"run": run, "items": photos, "out": out, **options})
    (photos / "0020.png").write_bytes(png(99))
    refused("started with other items, or some that have changed since", predict, run, photos, out)
    assert {path: path.read_bytes() for path in (tmp_path / "p.csv.parts").glob("0*")} == before


def test_two_at_once_are_refused_and_files_of_others_stay(run: Path, photos: Path, tmp_path: Path) -> None:
    with (
        held_by_another(tmp_path / "p.csv.parts") as other,
        pytest.raises(InputError, match=f"is in use: process {other.pid} on"),
    ):
        predict(run, photos, tmp_path / "p.csv")
    assert predict(run, photos, tmp_path / "p.csv").counts.items == COUNT  # it was killed, and holds nothing any more
    (tmp_path / "p.csv.parts").mkdir()
    (tmp_path / "p.csv.parts" / "thesis.txt").write_text("years of work")
    refused(r"holds thesis\.txt, which is not a part. Move it, or give another --out", predict, run, photos, tmp_path / "p.csv")
    assert (tmp_path / "p.csv.parts" / "thesis.txt").exists()
    refused(r"photos is a folder: name the file to write in it, such as .*photos/labels\.csv", predict, run, photos, photos)
    assert left(photos) == ["photos"]


def test_damaged_parts_are_refused(run: Path, photos: Path, tmp_path: Path) -> None:
    for ending, name, data in (
        ("csv", "00000.csv", b"short"), ("csv", "00000.json", b'{"items": "many"}'), ("csv", "00000.json", b"[]"),
        ("csv", "manifest.json", b"{"), ("parquet", "00000.parquet", None),
    ):  # fmt: skip
        out = tmp_path / f"{name}-{len(data or b'')}.{ending}"
        with pytest.raises(StopError):
            predict(run, photos, out, progress=stop_after(6))
        part = tmp_path / f"{out.name}.parts" / name
        part.write_bytes(data if data is not None else bytes(part.stat().st_size))
        message = refused(r"elete|Restore", predict, run, photos, out)
        assert "\n" not in message and not out.exists()


def test_nothing_stays_where_nothing_was_done(run: Path, photos: Path, tmp_path: Path) -> None:
    (photos / "0000.png").write_bytes(b"no picture")
    write_samples(tmp_path / "x.tar", [])
    for items, options, message in (
        (photos, {}, r"0000\.png: not an image of a known format"),
        (photos / "0000.png", {"skip_bad": True}, r"No picture of .* can be read; the first of 1: 0000\.png"),
        (tmp_path / "x.tar", {}, r"x\.tar holds no item"),
    ):
        refused(message, predict, run, items, tmp_path / "p.csv", **options)
        assert left(tmp_path / "p.csv") == []


def test_bad_items_are_left_out_and_listed(run: Path, photos: Path, tmp_path: Path) -> None:
    """One may turn --skip-bad on when the first comes, but not off again."""
    for number in range(4, COUNT - 3):
        (photos / f"{number:04}.png").write_bytes(b"no picture")
    out = tmp_path / "p.csv"
    refused(r"0004\.png.*--skip-bad", predict, run, photos, out)
    with pytest.raises(StopError):
        predict(run, photos, out, skip_bad=True, progress=stop_after(5))
    refused(r"started with --skip-bad and left out 0004\.png .*Continue with --skip-bad", predict, run, photos, out)
    tally = predict(run, photos, out, skip_bad=True).counts
    assert (tally.items, tally.bad, len(tally.first_bad)) == (7, COUNT - 7, 10)
    bad = pd.read_csv(tmp_path / "p.csv.bad.csv")
    assert bad["name"].tolist() == [f"{number:04}.png" for number in range(4, COUNT - 3)]
    assert set(bad["reason"]) == {"not an image of a known format"}
    assert predict(run, photos / "0000.png", out).counts.items == 1 and left(out) == ["p.csv"]  # the old list goes, too


def test_a_bad_picture_in_a_shard_is_named_with_it(run: Path, tmp_path: Path) -> None:
    write_samples(tmp_path / "x.tar", range(3))
    data = (tmp_path / "x.tar").read_bytes().replace(b"\x89PNG", b"\x89pnG", 1)
    (tmp_path / "x.tar").write_bytes(data)
    refused(r"x\.tar: 0000: not an image of a known format", predict, run, tmp_path / "x.tar", tmp_path / "p.csv")
    assert predict(run, tmp_path / "x.tar", tmp_path / "p.csv", skip_bad=True).counts.first_bad[0].name == "0000"


@pytest.mark.parametrize("of", [3, 30])
def test_shares_together_are_the_whole(vectors: Path, tmp_path: Path, of: int) -> None:
    """A share without items is a table without rows, so that as many machines as one likes may be started."""
    flat = tmp_path / "flat"
    predict(flat, vectors, tmp_path / "whole.csv", batch=1)
    head, rows = "", ""
    for number in range(1, of + 1):
        written = predict(flat, vectors, tmp_path / f"{number}.csv", batch=1, shard=(number, of))
        head, _, more = (tmp_path / f"{number}.csv").read_text().partition("\n")
        rows += more
        assert written.counts.items == more.count("\n")
    assert f"{head}\n{rows}" == (tmp_path / "whole.csv").read_text()
    predict(flat, vectors, tmp_path / "none.parquet", shard=(1, 1000))
    assert pd.read_parquet(tmp_path / "none.parquet").columns.tolist() == head.split(",")


def test_memory_does_not_grow_with_the_items(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_parts, "MAX_PART_ROWS", 500)
    save_model(tmp_path / "flat", "linear", (4,))

    def peak(rows: int, ending: str) -> int:
        np.save(tmp_path / f"{rows}.npy", np.zeros((rows, 4), dtype=np.float32))
        tracemalloc.start()
        try:
            predict(tmp_path / "flat", tmp_path / f"{rows}.npy", tmp_path / f"p.{ending}", batch=250, top=1)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(1000, "csv")
    assert peak(10_000, "csv") < 1.3 * peak(1000, "csv")


def test_the_command_says_what_was_done(pals: Callable[..., Answer], run: Path, tmp_path: Path) -> None:
    for number in range(2):
        write_samples(tmp_path / f"s-{number}.tar", range(5 * number, 5 * number + 5))
    answer = pals("predict", "run", "s-{0..2}.tar", "--out", "p.parquet", "--device", "cpu")
    assert answer.code == 2 and "s-2.tar: the file does not exist. Fetch this shard again" in answer.err
    assert answer.err.count("\n") == 1 and left(tmp_path / "p.parquet") == []
    options = ("--out", "p.parquet", "--device", "cpu", "--skip-bad", "--threshold", "0")
    answer = pals("predict", "run", "s-{0..2}.tar", *options, code=0)
    assert answer.out.splitlines() == [
        "Left out: s-2.tar: the file does not exist",
        "10 predictions in p.parquet; 0 without a label; 1 left out, listed in p.parquet.bad.csv",
    ]
    assert pals("predict", "run", "s-0.tar", "s-1.tar", "--shard", "2/2", "--out", "p.csv", "--device", "cpu").code == 0
    assert pd.read_csv("p.csv", dtype=str)["item"].tolist() == [f"{number:04}" for number in range(5, 10)]


def test_shares_that_make_no_sense(pals: Callable[..., Answer], run: Path, vectors: Path) -> None:
    for share in ("0/2", "3/2", "1", "1/2/3", "a/b", "-1/2", "1/0", "", "1.5/2"):
        answer = pals("predict", "flat", "x.npy", f"--shard={share}", "--out", "p.csv", code=2)
        assert answer.err.startswith(f"Error: --shard {share}: give i/n with i from 1 to n")
