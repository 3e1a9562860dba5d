"""Items in folders, arrays, tar and Parquet files: every one once, in order, from any place on; damage is noticed."""

from __future__ import annotations

import os
import re
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from _refused import refused
from _shards import png, write_folder, write_parquet, write_pictures, write_samples, write_tar
from pals.data.shards import shard as shards_base
from pals.data.shards.arrow import ParquetShard
from pals.data.shards.plain_files import ArrayShard, FolderShard
from pals.data.shards.shard import BadShardError, EncodedImage, Shard
from pals.data.shards.stream import Stream
from pals.data.shards.tar import TarShard
from pals.vision.images.decoding import BadImageError

COUNT = 11


def folder(path: Path) -> Shard:
    return FolderShard(path, tuple(sorted(file.name for file in write_folder(path, range(COUNT)).iterdir())))


def rows(path: Path) -> Shard:
    np.save(path.with_suffix(".npy"), np.arange(2 * COUNT).reshape(COUNT, 2))
    return ArrayShard(path.with_suffix(".npy"))


def tar(path: Path) -> Shard:
    return TarShard(write_samples(path, range(COUNT)))


def parquet(path: Path) -> Shard:
    return ParquetShard(write_pictures(path, range(COUNT)))


KINDS = pytest.mark.parametrize("make", [folder, rows, tar, parquet])


def items(shard: Shard, size: int = 3, start: int = 0, stop: int | None = None) -> list[tuple[str, Any]]:
    """(name, input) of each; the input as something that can be compared."""
    found: list[tuple[str, Any]] = []
    for names, inputs in shard.chunks(size, start, stop):
        assert 1 <= len(names) == len(inputs) <= size
        plain = inputs.tolist() if isinstance(inputs, np.ndarray) else inputs
        found += zip(names, plain, strict=True)
    return found


@KINDS
def test_any_stretch_of_a_shard_is_that_of_the_whole(tmp_path: Path, make: Callable[[Path], Shard]) -> None:
    shard = make(tmp_path / "x")
    whole = items(shard, size=100)
    assert len(whole) == len(dict(whole)) == COUNT == shard.count() and shard.known_count in (COUNT, None)
    for start in range(COUNT + 2):
        for stop in (None, 0, start, start + 1, start + 5, COUNT, COUNT + 3):
            assert items(shard, 3, start, stop) == whole[start:stop], (start, stop)


def test_pictures_are_those_that_were_put_in_and_a_chunk_holds_few_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [png(number) for number in range(COUNT)]
    assert items(tar(tmp_path / "x.tar")) == [(f"{number:04}", data) for number, data in enumerate(expected)]
    assert items(parquet(tmp_path / "x.parquet")) == [(f"{number:04}.png", data) for number, data in enumerate(expected)]
    monkeypatch.setattr(shards_base, "CHUNK_BYTES", 2 * len(png(0)))
    for shard in (tar(tmp_path / "x.tar"), parquet(tmp_path / "x.parquet")):
        assert {len(names) for names, _ in shard.chunks(100, 0, None)} <= {1, 2, 3}


def reason(picture: EncodedImage) -> str:
    assert isinstance(picture, BadImageError)
    return str(picture)


def test_samples_of_a_tar_file(tmp_path: Path) -> None:
    """The picture is the first that is called `x.jpg`; hidden files are not there."""
    members = {"./a/1.mask.png": b"mask", "./a/1.JPG": b"first", "./a/1.png": b"second", "a/._1.jpg": b"finder's"}
    members |= {"__MACOSX/1.jpg": b"finder's", "b/1.left.jpg": b"left", "b/1.right.jpg": b"right", "b/2.txt": b"words"}
    path = write_tar(tmp_path / "x.tar", {**members, "1.jpeg": b"of no folder"}.items())
    found = dict(items(TarShard(path)))
    assert list(found) == ["a/1", "b/1", "b/2", "1"]
    assert (found["a/1"], found["b/1"], found["1"]) == (b"first", b"left", b"of no folder")
    assert reason(found["b/2"]) == f"{path}: b/2: there is no image in it."
    with tarfile.open(tmp_path / "y.tar", "w") as archive:
        archive.add(path, "x.png")
        link = tarfile.TarInfo("y.png")
        link.type, link.linkname = tarfile.LNKTYPE, "x.png"
        archive.addfile(link)
    assert [name for name, _ in items(TarShard(tmp_path / "y.tar"))] == ["x"]


def good_until_damaged(shard: Shard) -> tuple[int, str]:
    """How many good items come before the error, and what it says; "" if there is none."""
    found: list[str] = []
    try:
        for names, _ in shard.chunks(3, 0, None):
            found += names
    except BadShardError as error:
        return len(found), str(error)
    return len(found), ""


def test_a_tar_file_that_is_cut_or_damaged_anywhere_is_noticed(tmp_path: Path) -> None:
    path = write_samples(tmp_path / "x.tar", range(4))
    whole = path.read_bytes()
    mark = len(whole.rstrip(b"\0")) // 512 * 512 + 512  # where the zeros at the end begin
    before = -1
    for end in [*range(0, mark + 512, 256), len(whole)]:
        path.write_bytes(whole[:end])
        good, said = good_until_damaged(TarShard(path))
        assert good >= before and ((said == "" and good == 4) if end >= mark + 512 else "cut off" in said), (end, said)
        assert TarShard(path).count() >= good
        before = good
    path = write_samples(tmp_path / "x.tar", range(4))
    data = bytearray(path.read_bytes())
    place = data.index(b"0002.cls")
    data[place] ^= 1
    path.write_bytes(data)
    assert good_until_damaged(TarShard(path)) == (2, f"{path}: the tar file is damaged at byte {place:,}.")
    path.write_bytes(b"<html>not found</html>")
    assert good_until_damaged(TarShard(path))[0] == 0 and "cut off or damaged" in good_until_damaged(TarShard(path))[1]
    path.unlink()
    assert good_until_damaged(TarShard(path)) == (0, f"{path}: the file does not exist.")


def test_what_a_member_claims_is_looked_at_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALS_MAX_BYTES", "1000")
    shard = TarShard(write_tar(tmp_path / "x.tar", [("a.png", b"small"), ("b.png", bytes(2000))]))
    found = dict(items(shard))
    assert found["a"] == b"small" and "b.png: the image takes 2,000 bytes" in reason(found["b"])
    assert "PALS_MAX_BYTES=2000" in reason(found["b"])


def test_memory_does_not_grow_with_a_tar_file(tmp_path: Path) -> None:
    def peak(count: int) -> int:
        shard = TarShard(write_tar(tmp_path / "x.tar", ((f"{number}.png", b"x" * 100) for number in range(count))))
        tracemalloc.start()
        try:
            assert sum(len(names) for names, _ in shard.chunks(50, 0, None)) == count
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(10)
    # the least of some: other threads of the tests may allocate meanwhile
    assert min(peak(3000) for _ in range(3)) < 300_000  # what tarfile remembers of them would be more than 1 MB


def test_names_and_columns_of_a_parquet_file(tmp_path: Path) -> None:
    data = [png(number) for number in range(3)]
    cells = [{"bytes": data[0], "path": "a.png"}, {"bytes": data[1], "path": None}, {"bytes": None, "path": "c.png"}]
    for columns, names in (
        ({"image": data}, ["x.parquet:0", "x.parquet:1", "x.parquet:2"]),
        ({"jpg": data, "id": [7, 8, 9]}, ["7", "8", "9"]),
        ({"id": [7, 8, 9], "item": ["a", None, "ü"], "image": data}, ["a", "x.parquet:1", "ü"]),
        ({"thumbnail": data, "image": data, "__key__": ["a", "b", "c"]}, ["a", "b", "c"]),
        ({"image": cells}, ["a.png", "x.parquet:1", "c.png"]),
        ({"image": cells, "path": ["p", "q", "r"]}, ["p", "q", "r"]),
        ({"id": ["p", None, ""], "image": cells}, ["p", "x.parquet:1", "c.png"]),
        ({"image": [{"bytes": one} for one in data]}, ["x.parquet:0", "x.parquet:1", "x.parquet:2"]),
    ):
        shard = ParquetShard(write_parquet(tmp_path / "x.parquet", columns, rows=2))
        found = items(shard)
        assert [name for name, _ in found] == shard.names() == names
        assert [picture for _, picture in found[:2]] == data[:2]
        if columns.get("image") is cells:
            assert reason(found[2][1]).endswith("x.parquet, row 2 (from 0): there is no image in it.")


def test_parquet_without_pictures_or_with_damage_is_noticed(tmp_path: Path) -> None:
    for columns, message in (
        ({"label": [1, 2]}, "no column with the bytes of images; name the one of images image .found: 'label'"),
        ({"a": [b"1"], "b": [b"2"]}, "several columns with bytes .'a', 'b'"),
    ):
        with pytest.raises(BadShardError, match=message):
            items(ParquetShard(write_parquet(tmp_path / "x.parquet", columns)))
    path = write_pictures(tmp_path / "x.parquet", range(8))
    whole = path.read_bytes()
    cut = [whole[:end] for end in (0, 3, 11, 12, len(whole) // 2, len(whole) - 9, len(whole) - 1)]
    for content in (*cut, whole[:4] + b"\xff" * 40 + whole[44:]):  # at last the header of the first page
        path.write_bytes(content)
        good, said = good_until_damaged(ParquetShard(path))
        assert good == 0 and "incomplete or damaged" in said
        assert ParquetShard(path).count() == (0 if content in cut else 8)
    path.unlink()
    assert good_until_damaged(ParquetShard(path)) == (0, f"{path}: the file does not exist.")


def test_a_parquet_bomb_is_refused_unopened_and_without_pyarrow_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "x.parquet"
    cells = [number.to_bytes(2, "big") + bytes(100_000) for number in range(50)]
    pq.write_table(pa.table({"image": cells}), path, compression="zstd", use_dictionary=False)
    assert path.stat().st_size < 100_000
    monkeypatch.setenv("PALS_MAX_BYTES", "1000000")
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", lambda *_, **__: pytest.fail("it was read"))
    with pytest.raises(BadShardError, match=r"a row group, once unpacked, takes 5,\d+,\d+ bytes.*PALS_MAX_BYTES="):
        items(ParquetShard(path))
    shard = parquet(tmp_path / "x.parquet")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    refused(r"Reading Parquet needs the package pyarrow: pip install 'pals-learn\[parquet\]'", items, shard)


def names_of(stream: Stream, size: int = 3, **options: Any) -> list[str]:
    return [name for stretch in stream.parts(size, **options) for name in stretch.chunk.names]


def test_what_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s").mkdir()
    for number in range(12):
        write_samples(Path(f"s/x-{number:02}.tar"), [2 * number, 2 * number + 1])
    every = [f"{number:04}" for number in range(24)]
    for named in ("s", "s/x-{00..11}.tar", "s/x-*.tar", "s/x-{0,1}?.tar", [f"s/x-{number:02}.tar" for number in range(12)]):
        assert names_of(Stream.of(named)) == every, named
    assert names_of(Stream.of("s/x-{03..01}.tar")) == ["0006", "0007", "0004", "0005", "0002", "0003"]
    assert names_of(Stream.of(Path("s/x-07.tar"))) == ["0014", "0015"]
    write_samples(Path("s/odd{1..2}.tar"), [99])
    assert names_of(Stream.of("s/odd{1..2}.tar")) == ["0099"]  # a file that is called so
    write_folder(Path("p"), range(3))
    write_samples(Path("p/more.tar"), [5])
    assert names_of(Stream.of("p")) == ["0000.png", "0001.png", "0002.png"]  # pictures come before shards
    assert names_of(Stream.of(["p/0001.png", "s/x-00.tar"])) == ["0001.png", "0000", "0001"]


def test_what_cannot_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.tar.gz").write_bytes(b"")
    Path("empty").mkdir()
    for named, message in (
        ("nowhere", "nowhere does not exist. Name a folder of images, one image, an .npy file, or shards"),
        ("x-{0..3}.tar", r"x-\{0..3\}.tar does not exist"), ("x-*.tar", r"No file matches x-\*\.tar"),
        ("x-{0..99999999}.tar", "stands for more than 1,000,000 files"),
        ("x.tar.gz", "x.tar.gz is compressed .* Decompress it to a plain .tar file"), ([], "Nothing does not exist"),
        (["x.tar.gz", "other"], "compressed"), ("empty", "empty holds no image"),
    ):  # fmt: skip
        assert "\n" not in refused(message, Stream.of, named)
    os.mkfifo("pipe.npy")  # is not waited for
    refused(r"pipe\.npy: this is a pipe or a device, not a file", Stream.of(Path("pipe.npy")).count)
    for share in ((0, 3), (4, 3), (1, 0), (-1, 2)):
        refused("does not exist: give i/n with i from 1 to n", Stream.of(rows(tmp_path / "x").path).share, *share)


@pytest.mark.parametrize("of", [1, 2, 3, 4, 5, 7, 11, 30])
@KINDS
def test_shares_are_everything_once(tmp_path: Path, make: Callable[[Path], Shard], of: int) -> None:
    """Three shards: whole files where there are enough, ranges of items where there are not. Some shares may be empty."""
    ending = {tar: ".tar", parquet: ".parquet"}.get(make, "")
    paths = [make(tmp_path / f"{part}{ending}").path for part in "abc"]
    stream = Stream.of(paths)
    whole = names_of(stream)
    shares = [stream.share(number, of) for number in range(1, of + 1)]
    assert [name for share in shares for name in names_of(share)] == whole and len(whole) == 3 * COUNT
    sizes = [share.count() for share in shares]
    assert sum(sizes) == 3 * COUNT and (max(sizes) - min(sizes) <= 1 or of <= 3)
    assert len({share.fingerprint() for share in shares}) == min(of, 3 * COUNT + (of > 3 * COUNT))
    if make in (tar, parquet) and of == 3:
        assert [[span.shard.path for span in share.ranges] for share in shares] == [[path] for path in paths]


def test_a_stream_goes_on_from_the_end_of_any_stretch(tmp_path: Path) -> None:
    stream = Stream.of([tar(tmp_path / "a.tar").path, parquet(tmp_path / "b.parquet").path, folder(tmp_path / "c").path])
    stretches = list(stream.parts(4))
    assert [stretch.end for stretch in stretches[:4]] == [(0, 4), (0, 8), (0, 11), (1, 4)]
    for number, stretch in enumerate(stretches):
        assert list(stream.parts(4, stretch.end)) == stretches[number + 1 :]


def test_bad_shards_are_named(tmp_path: Path) -> None:
    """Good items before the damage stay."""
    for number in range(3):
        write_samples(tmp_path / f"{number}.tar", range(5 * number, 5 * number + 5))
    cut = tmp_path / "1.tar"
    cut.write_bytes(cut.read_bytes()[: cut.read_bytes().index(b"0008.cls")])
    stream = Stream.of(str(tmp_path / "{0..3}.tar"))
    refused(re.escape(str(cut)) + r": the tar file is cut off.*Fetch this shard again.*--skip-bad", names_of, stream)
    assert names_of(stream, skip_bad=True) == [f"{number:04}" for number in (*range(8), *range(10, 15))]
    bad = [bad for stretch in stream.parts(3, skip_bad=True) for bad in stretch.bad]
    assert [Path(one.name).name for one in bad] == ["1.tar", "3.tar"] and bad[1].reason == "the file does not exist"
    shares = [stream.share(number, 7) for number in range(1, 8)]  # more than there are files: each is a part of one
    assert [name for share in shares for name in names_of(share, skip_bad=True)] == names_of(stream, skip_bad=True)
    assert [one for share in shares for stretch in share.parts(3, skip_bad=True) for one in stretch.bad] == bad


def test_the_fingerprint_knows_what_has_changed(tmp_path: Path) -> None:
    paths = [write_folder(tmp_path / "p", range(3)), write_samples(tmp_path / "x.tar", range(3))]
    seen = [Stream.of(paths).fingerprint()]
    assert Stream.of(paths).fingerprint() == seen[0]
    for change in (
        lambda: (tmp_path / "p" / "0001.png").write_bytes(png(7)), lambda: write_folder(tmp_path / "p" / "more", [9]),
        lambda: write_samples(tmp_path / "x.tar", range(20)), paths.reverse, (tmp_path / "x.tar").unlink,
    ):  # fmt: skip
        change()
        seen.append(Stream.of(paths).fingerprint())
    assert len(set(seen)) == len(seen)


def test_a_large_row_group_is_read_piece_by_piece(tmp_path: Path) -> None:
    """One row group of 64 MB in pages of 1 MB is never held as a whole."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    table = pa.table({"image": [rng.bytes(64 << 10) for _ in range(1024)]})
    pq.write_table(table, tmp_path / "x.parquet", use_dictionary=False, compression="none", write_batch_size=16)
    before, most = pa.total_allocated_bytes(), 0
    for _ in ParquetShard(tmp_path / "x.parquet").chunks(64, 0, None):
        most = max(most, pa.total_allocated_bytes() - before)
    assert 0 < most < 20 << 20
