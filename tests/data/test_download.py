from __future__ import annotations

import hashlib
import io
import re
import tarfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from _refused import refused
from pals.data import download as module
from pals.data.download import ARCHIVES, WEIGHTS, Archive, RemoteFile, fetch, fetch_command, find_weights


def make_tar(*names: str) -> bytes:
    noise = np.random.default_rng(0).bytes(30_000)  # does not compress, so that the archive has some length
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name in names:
            entry = tarfile.TarInfo(name)
            entry.size = len(noise)
            tar.addfile(entry, io.BytesIO(noise))
    return buffer.getvalue()


@dataclass
class Site:
    """A web server with one file and moods."""

    content: bytes
    url: str = ""
    knows_ranges: bool = True
    tells_length: bool = True
    breaks_after: int | None = None
    wrong_range: bool = False
    status: int = 200
    asked: list[str | None] = field(default_factory=list)  # the Range header of each request


def handler_of(site: Site) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers["Range"]
            site.asked.append(wanted)
            start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and site.knows_ranges else 0
            if site.status != 200 or start >= len(site.content):
                self.send_error(site.status if site.status != 200 else 416)
                return
            self.send_response(206 if start else 200)
            if start:
                shown = 0 if site.wrong_range else start
                self.send_header("Content-Range", f"bytes {shown}-{len(site.content) - 1}/{len(site.content)}")
            if site.tells_length:
                self.send_header("Content-Length", str(len(site.content) - start))
            self.end_headers()
            self.wfile.write(site.content[start : site.breaks_after])

        def log_message(self, *_: object) -> None:
            pass

    return Handler


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(module, "DOWNLOAD_CHUNK_BYTES", 4096)
    site = Site(make_tar("toy-folder/one", "toy-folder/two"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler_of(site)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        site.url = f"http://127.0.0.1:{server.server_port}/some/toy.tar.gz"
        offer(monkeypatch, site)
        yield site
        server.shutdown()
        thread.join()


def offer(monkeypatch: pytest.MonkeyPatch, site: Site, sha256: str | None = None) -> None:
    right = hashlib.sha256(site.content).hexdigest()
    monkeypatch.setitem(ARCHIVES, "toy", Archive(site.url, sha256 or right, "toy-folder", ("one",), ("two",)))


class Bar(list[tuple[int, int | None]]):
    """The calls of a progress bar."""

    def __call__(self, done: int, total: int | None) -> None:
        self.append((done, total))


def names_in(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*"))


WHOLE = ["toy-folder", "toy-folder/one", "toy-folder/two"]


def test_download_check_unpack(tmp_path, site):
    bar = Bar()
    folder = fetch("toy", tmp_path / "new" / "data", bar)
    assert fetch("toy", tmp_path / "new" / "data", Bar()) == folder and site.asked == [None]  # only once
    assert folder == tmp_path / "new" / "data" / "toy-folder"
    assert names_in(folder.parent) == WHOLE  # no archive, no .part, no temporary folder left
    size = len(site.content)
    assert bar[0] == (0, size) and bar[-1] == (size, size)
    assert bar == sorted(bar) and len(bar) > 5


@pytest.mark.parametrize("lacking", ["one", "two", "one, two"])
def test_a_folder_that_lacks_files_is_fetched_anew(tmp_path, site, lacking):
    folder = tmp_path / "toy-folder"
    folder.mkdir()
    mine = {"one", "two", "three"} - set(lacking.split(", "))
    for name in mine:
        (folder / name).write_text("mine")
    said: list[str] = []
    assert fetch("toy", tmp_path, Bar(), said.append) == folder
    aside = tmp_path / "toy-folder.incomplete"
    assert said == [f"{folder} lacks {lacking}: fetching toy again and keeping the old files in {aside}."]
    assert sorted(path.name for path in folder.iterdir()) == ["one", "two"]
    assert {path.stat().st_size for path in folder.iterdir()} == {30_000}  # nothing of the old in the new
    assert {path.name: path.read_text() for path in aside.iterdir()} == dict.fromkeys(mine, "mine")
    (folder / "mine").write_text("mine")
    fetch("toy", tmp_path, Bar(), said.append)  # a complete folder is left alone
    assert (len(site.asked), len(said), (folder / "mine").read_text()) == (1, 1, "mine")
    (folder / "one").unlink()
    fetch("toy", tmp_path, Bar(), said.append)  # what was kept is never written over
    assert {path.name for path in aside.iterdir()} == mine
    assert names_in(tmp_path / "toy-folder.incomplete-2") == ["mine", "two"]


def test_a_failed_download_leaves_the_incomplete_folder_as_it_is(tmp_path, site):
    (tmp_path / "toy-folder").mkdir()
    (tmp_path / "toy-folder" / "one").write_text("mine")
    site.status = 404
    refused(r"refused http://.*404.*save http://.* as .*toy.tar.gz by other means", fetch, "toy", tmp_path, Bar())
    assert names_in(tmp_path) == ["toy-folder", "toy-folder/one"]
    assert (tmp_path / "toy-folder" / "one").read_text() == "mine"


def test_the_command_says_that_files_are_missing(tmp_path, site, pals: Callable[..., Any]):
    (tmp_path / "data" / "toy-folder").mkdir(parents=True)
    (tmp_path / "data" / "toy-folder" / "two").touch()
    answer = pals("data", "fetch", "toy", "--data-dir", "data", code=0)
    kept = "data/toy-folder.incomplete"
    assert f"data/toy-folder lacks one: fetching toy again and keeping the old files in {kept}.\n" in answer.out
    assert answer.out.endswith("toy is in data/toy-folder\n")
    assert "lacks" not in pals("data", "fetch", "toy", "--data-dir", "data").out


def test_the_command_to_type_and_checksums() -> None:
    folders = {Path("/data"): "/data", Path("/my data"): "'/my data'", None: "FOLDER"}
    for folder, word in folders.items():
        assert fetch_command("cifar10", folder) == f"`pals data fetch cifar10 --data-dir {word}`"
    for file in (*WEIGHTS.values(), *ARCHIVES.values()):
        assert re.fullmatch("[0-9a-f]{64}", file.sha256) and file.url.startswith("https://")
    assert all(file.file_name.endswith(f"-{file.sha256[:8]}.pth") for file in WEIGHTS.values())


def test_a_download_that_broke_off_goes_on_where_it_stopped(tmp_path, site):
    site.breaks_after = 10_000
    refused(rf"broke off after 10,000 of {len(site.content):,} bytes.*Run the command again", fetch, "toy", tmp_path, Bar())
    assert (tmp_path / "toy.tar.gz.part").read_bytes() == site.content[:10_000]
    site.breaks_after = None
    bar = Bar()
    fetch("toy", tmp_path, bar)
    assert site.asked == [None, "bytes=10000-"] and bar[0] == (10_000, len(site.content))
    assert bar[-1] == (len(site.content), len(site.content)) and names_in(tmp_path) == WHOLE


@pytest.mark.parametrize(("lacks", "asked"), [("knows_ranges", "bytes=10000-"), ("tells_length", None)])
def test_a_server_without_ranges_or_lengths_sends_everything(tmp_path, site, lacks, asked):
    setattr(site, lacks, False)
    (tmp_path / "toy.tar.gz.part").write_bytes(b"x" * (10_000 if asked else 0))
    bar, size = Bar(), len(site.content)
    fetch("toy", tmp_path, bar)
    assert site.asked == [asked]
    assert (bar[0], bar[-1]) == (((0, size), (size, size)) if asked else ((0, None), (size, None)))
    assert names_in(tmp_path) == WHOLE


def test_a_complete_part_is_used_as_it_is_and_a_wrong_piece_refused(tmp_path, site):
    part = tmp_path / "toy.tar.gz.part"
    site.wrong_range = True
    part.write_bytes(site.content[:10_000])
    refused(r"a different part of the file.*Delete .*toy.tar.gz.part", fetch, "toy", tmp_path, Bar())
    assert part.stat().st_size == 10_000
    part.write_bytes(site.content)
    fetch("toy", tmp_path, Bar())
    assert site.asked[-1] == f"bytes={len(site.content)}-" and names_in(tmp_path) == WHOLE


def test_a_wrong_checksum_is_refused_and_leaves_nothing(tmp_path, site, monkeypatch):
    offer(monkeypatch, site, sha256="0" * 64)
    refused(r"toy.tar.gz.part was damaged.*should be 0{64}.*It was deleted; run the same", fetch, "toy", tmp_path, Bar())
    assert names_in(tmp_path) == []
    offer(monkeypatch, site)
    (tmp_path / "toy.tar.gz.part").write_bytes(b"x" * 10_000)
    refused("damaged", fetch, "toy", tmp_path, Bar())
    fetch("toy", tmp_path, Bar())  # a damaged part is not kept for ever
    assert names_in(tmp_path) == WHOLE


def test_an_archive_saved_by_hand(tmp_path, site):
    (tmp_path / "toy.tar.gz").write_bytes(site.content[:-1])
    refused(r"toy.tar.gz was damaged.*Delete it", fetch, "toy", tmp_path, Bar())
    (tmp_path / "toy.tar.gz").write_bytes(site.content)
    fetch("toy", tmp_path, Bar())
    assert names_in(tmp_path) == [*WHOLE, "toy.tar.gz"]  # it stays: it is the user's
    assert site.asked == []


def test_a_bad_archive_leaves_no_folder(tmp_path, site, monkeypatch):
    data = tmp_path / "data"
    for content, found in (
        (make_tar("toy-folder/one", "../outside"), "Cannot unpack"),
        (make_tar("other/one"), "holds no folder toy-folder"),
        (make_tar("toy-folder/one")[:-5000], "Cannot unpack"),
        (b"no archive", "Cannot unpack"),
    ):
        site.content = content
        offer(monkeypatch, site)
        refused(rf"{found}.*Delete it and run the same command again|toy.tar.gz {found}", fetch, "toy", data, Bar())
        assert names_in(tmp_path) == ["data", "data/toy.tar.gz"]
        (data / "toy.tar.gz").unlink()


def test_no_server_or_no_folder(tmp_path, monkeypatch):
    refused("did you mean 'cifar10'", fetch, "cifar", tmp_path, Bar())
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setitem(ARCHIVES, "toy", Archive("http://127.0.0.1:9/toy.tar.gz", "", "toy-folder", ("one",), ("two",)))
    (tmp_path / "file").write_text("")
    refused("Cannot write to", fetch, "toy", tmp_path / "file" / "data", Bar())
    refused(r"Cannot reach http://127.0.0.1:9/toy.tar.gz.*Check the internet connection", fetch, "toy", tmp_path, Bar())


def offer_weights(monkeypatch: pytest.MonkeyPatch, site: Site, sha256: str | None = None) -> str:
    """The site's file under the kind of name that PyTorch gives to weights."""
    right = hashlib.sha256(site.content).hexdigest()
    name = f"toynet-{right[:8]}.pth"
    monkeypatch.setitem(WEIGHTS, "toy-weights", RemoteFile(site.url.rpartition("/")[0] + f"/{name}", sha256 or right))
    return name


def test_weights_are_checked_by_all_digits(tmp_path, site, monkeypatch):
    name = offer_weights(monkeypatch, site)
    site.breaks_after = 10_000
    refused("broke off after 10,000", fetch, "toy-weights", tmp_path, Bar())
    site.breaks_after = None
    path = fetch("toy-weights", tmp_path, Bar())
    assert path == tmp_path / "weights" / name and path.read_bytes() == site.content
    assert site.asked == [None, "bytes=10000-"] and fetch("toy-weights", tmp_path, Bar()) == path
    assert len(site.asked) == 2
    path.write_bytes(b"something else")
    refused(r"its SHA-256 is [0-9a-f]{64}, it should be [0-9a-f]{64}.*Delete it", fetch, "toy-weights", tmp_path, Bar())


def test_damaged_weights_are_not_kept(tmp_path, site, monkeypatch):
    right = hashlib.sha256(site.content).hexdigest()
    offer_weights(monkeypatch, site, right[:8] + "0" * 56)  # the digits that are in the name are not enough
    refused(rf"should be {right[:8]}0{{56}}\. It was deleted", fetch, "toy-weights", tmp_path, Bar())
    assert names_in(tmp_path) == ["weights"]


def test_weights_are_looked_for_in_the_data_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PALS_DATA", raising=False)
    name = "resnet18-f37072fd.pth"
    refused(rf"looked for {tmp_path}/{name} \(PALS_DATA, the folder of data and weights, is", find_weights, name)
    data = tmp_path / "data"
    official = rf"{data}/{name}, {data}/weights/{name}\. .*fetch resnet18-weights --data-dir {data}` or from https://.*/{name}"
    refused(official, find_weights, name, data)
    refused(r"no weights file mine\.pt; .* never downloaded", find_weights, "mine.pt", data)
    (data / "weights").mkdir(parents=True)
    for place in (data / "weights" / name, data / name, tmp_path / name):  # the later are looked at earlier
        place.touch()
        assert find_weights(name, data).absolute() == place
    monkeypatch.setenv("PALS_DATA", str(data))
    (tmp_path / name).unlink()
    assert find_weights(name) == data / name
    assert find_weights(str(data / "weights" / name)) == data / "weights" / name
