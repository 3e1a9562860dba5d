"""What `pals export` refuses, and that a failure leaves nothing behind."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from PIL import Image

import pals as package
from _toy import Answer
from pals.label_formats import to_folder
from pals.label_formats.export_formats import LABEL_FORMATS
from pals.util.errors import InputError

Pals = Callable[..., Answer]


@pytest.mark.parametrize(
    ("more", "word"),
    [
        (("--to", "exel"), "label-studio"),
        (("--to", "csv", "--link"), "--link"),
        (("--to", "coco", "--package", "x"), "--package"),
        (("--to", "onnx", "--prefix", "x"), "--prefix"),
        (("--to", "csv", "--onnx", "m.onnx"), "--to csv"),
        (("--onnx", "m.onnx", "--numbers", "int4"), "int4"),
    ],
)
def test_options_that_do_not_fit(pals: Pals, run: Path, more: tuple[str, ...], word: str) -> None:
    answer = pals("export", run, *more)
    assert answer.code == 2 and word in answer.err and not list(run.parent.glob("ponds-*"))


def test_the_help_names_every_format(pals: Pals) -> None:
    said = pals("export", "--help").out
    assert [name for name in (*LABEL_FORMATS, "onnx") if name not in said] == []


def test_what_exists_is_kept(pals: Pals, run: Path) -> None:
    """Without --overwrite always; with it, anything that is not an earlier export."""
    Path("mine").mkdir()
    Path("mine/notes.txt").write_text("mine")
    for flags in ((), ("--overwrite",)):
        answer = pals("export", run, "--to", "folder", "--out", "mine", *flags)
        assert answer.code == 2 and "mine" in answer.err and Path("mine/notes.txt").read_text() == "mine"
    Path("x.csv").write_text("mine")
    assert pals("export", run, "--to", "csv", "--out", "x.csv").code == 2 and Path("x.csv").read_text() == "mine"
    assert pals("export", run, "--to", "csv", "--out", "x.csv", "--overwrite").code == 0
    assert len(pd.read_csv("x.csv")) == 30
    assert pals("export", run, "--to", "csv", "--out", "mine", "--overwrite").code == 2


def test_the_folder_beside_the_run_is_the_default(run: Path) -> None:
    found = package.export_labels(run, "cleanlab")
    assert found.path == run.parent / "ponds-cleanlab" and str(found).startswith("Wrote ") and found.items == 30
    shutil.rmtree(found.path)


def test_a_failure_leaves_nothing(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the earlier export as it was."""
    package.export_labels(run, "folder", tmp_path / "made")
    before = sorted(tmp_path.rglob("*"))

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(to_folder, "place_image", full)
    with pytest.raises(InputError, match="No space left"):
        package.export_labels(run, "folder", tmp_path / "made", overwrite=True)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("to", ["folder", "hf", "coco", "fiftyone"])
def test_missing_images_are_named(to: str, run: Path, tmp_path: Path) -> None:
    photo = run.parent / "photos" / "a.jpg"
    photo.rename(tmp_path / "a.jpg")
    try:
        with pytest.raises(InputError, match=r"1 image is not in .*'a\.jpg'.*--to csv"):
            package.export_labels(run, to, tmp_path / "made")
    finally:
        (tmp_path / "a.jpg").rename(photo)


def test_a_run_that_is_not_finished(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "half")
    (tmp_path / "half" / "summary.json").unlink()
    with pytest.raises(InputError, match="not a finished run"):
        package.export_labels(tmp_path / "half", "csv")


def test_without_images(tmp_path: Path) -> None:
    """Tables are written; what needs images says so."""
    rows = [(str(item), who, "ab"[item % 2]) for item in range(12) for who in ("ann", "bob")]
    answers = pd.DataFrame(rows, columns=["item", "annotator", "label"])
    found = package.fit(None, answers, out=tmp_path / "run", no_images=True)
    for to in ("csv", "coco", "label-studio", "cleanlab", "hf"):
        assert package.export_labels(found, to).items == 12
    for to in ("folder", "fiftyone"):
        with pytest.raises(InputError, match="without images"):
            package.export_labels(found, to)


def test_the_newest_round_is_exported(tmp_path: Path) -> None:
    rows = [(str(item), who, "ab"[item % 2]) for item in range(12) for who in ("ann", "bob")]
    package.fit(None, pd.DataFrame(rows, columns=["item", "annotator", "label"]), out=tmp_path / "run", no_images=True)
    (tmp_path / "more.csv").write_text("item,annotator,label\n0,fay,b\n")
    found = package.update(tmp_path / "run", tmp_path / "more.csv", settings={"data": {"trusted": ["fay"]}})
    for run in (tmp_path / "run", found):
        made = package.export_labels(run, "csv", tmp_path / "made.csv", overwrite=True)
        assert pd.read_csv(made.path)["label"].tolist() == ["b", *"babababababa"[:11]]
    assert package.export_labels(found, "cleanlab").path == tmp_path / "run-cleanlab"


def test_images_in_shards_are_copied(tmp_path: Path, run: Path) -> None:
    """Bytes as they are in the shard; they cannot be linked."""
    import io
    import tarfile

    rows = []
    with tarfile.open(tmp_path / "all.tar", "w") as archive:
        for number in range(12):
            data = io.BytesIO()
            Image.new("RGB", (12, 12), (250 * (number % 2), 9, number)).save(data, "PNG")
            member = tarfile.TarInfo(f"{number}.png")
            member.size = len(data.getvalue())
            archive.addfile(member, io.BytesIO(data.getvalue()))
            rows += [(f"{number}.png", who, "ab"[number % 2]) for who in ("ann", "bob")]
    answers = pd.DataFrame(rows, columns=["item", "annotator", "label"])
    settings = {"data": {"size": 12}, "files": {"cache": tmp_path / "cache"}}
    found = package.fit(tmp_path / "all.tar", answers, out=tmp_path / "run", encoder="patches", settings=settings)
    package.export_labels(found, "folder", tmp_path / "made")
    assert Image.open(tmp_path / "made" / "b" / "11.png").getpixel((0, 0)) == (250, 9, 11)
    with pytest.raises(InputError, match="shards"):
        package.export_labels(found, "folder", tmp_path / "linked", link=True)
    assert not (tmp_path / "linked").exists()


def test_pyarrow_is_asked_for(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"pip install 'pals-learn\[parquet\]'"):
        package.export_labels(run, "hf", tmp_path / "made")
