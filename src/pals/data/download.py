"""Download data sets and weights from their makers' addresses. Only when the user asks: nothing else here goes online."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import itertools
import os
import shlex
import tarfile
import tempfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pals.util.errors import InputError, unknown

VARIABLE = "PALS_DATA"
"""The environment variable that names the data folder where no folder is given."""

WEIGHTS_FOLDER = "weights"
"""Where in the data folder weights go."""

CHUNK = 1 << 20
TIMEOUT_SECONDS = 30

Progress = Callable[[int, int | None], None]
"""Called with the bytes there so far and the bytes in all, None where the server does not say."""

Notice = Callable[[str], None]
"""Called with a sentence that the user should read."""


@dataclass(frozen=True)
class Archive:
    """A tar file on the web, the folder that it unpacks to, and the files in there that hold the items."""

    url: str
    sha256: str
    folder: str
    train_files: tuple[str, ...]
    test_files: tuple[str, ...]

    @property
    def file_name(self) -> str:
        return self.url.rpartition("/")[2]

    def missing(self, folder: Path) -> list[str]:
        return [file for file in (*self.train_files, *self.test_files) if not (folder / file).exists()]


@dataclass(frozen=True)
class WeightsFile:
    """A file of weights on the web."""

    url: str
    sha256: str

    @property
    def file_name(self) -> str:
        return self.url.rpartition("/")[2]


# The makers of CIFAR publish the MD5 alone. These are Keras' (keras-team/keras, keras/src/datasets/cifar10.py and cifar100.py);
# torchvision's prototype loaders had the same, and many who checked both sums of one file recorded them beside each other.
ARCHIVES: dict[str, Archive] = {
    "cifar10": Archive(
        url="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        sha256="6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
        folder="cifar-10-batches-py",
        train_files=tuple(f"data_batch_{i}" for i in range(1, 6)),
        test_files=("test_batch",),
    ),
    "cifar100": Archive(
        url="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
        sha256="85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
        folder="cifar-100-python",
        train_files=("train",),
        test_files=("test",),
    ),
}

# PyTorch puts the first eight digits into the names of its files; the others are as recorded by many who fetched them.
WEIGHTS: dict[str, WeightsFile] = {
    "resnet18-weights": WeightsFile(
        "https://download.pytorch.org/models/resnet18-f37072fd.pth",
        sha256="f37072fd47e89c5e827621c5baffa7500819f7896bbacec160b1a16c560e07ec",
    ),
    "resnet50-weights": WeightsFile(
        "https://download.pytorch.org/models/resnet50-0676ba61.pth",
        sha256="0676ba61b6795bbe1773cffd859882e5e297624d384b6993f7c9e683e722fb8a",
    ),
}
"""Trained on ImageNet, torchvision's IMAGENET1K_V1."""


def data_folder(data_dir: Path | None) -> Path | None:
    """Where the user keeps data: the folder named, or the one in the environment, or None."""
    named = str(data_dir) if data_dir is not None else os.environ.get(VARIABLE, "")
    return Path(named).expanduser() if named else None


def fetch_command(name: str, data_dir: Path | None) -> str:
    """What to type to get it into this folder, or into one of the user's choice."""
    return f"`pals data fetch {name} --data-dir {'FOLDER' if data_dir is None else shlex.quote(str(data_dir))}`"


def fetch(name: str, data_dir: Path, progress: Progress, notice: Notice = lambda _: None) -> Path:
    """The unpacked folder, or the file of weights, under `data_dir`, downloaded if it is not there yet.

    A download that broke off leaves a `.part` file, and the next call goes on from there. What came is used only if its
    checksum is right, and appears whole or not at all. An archive saved by hand into `data_dir` is used too, and
    stays. A folder that lacks files is fetched anew; what it holds is kept under another name.
    """
    if name not in (*ARCHIVES, *WEIGHTS):
        raise unknown("download", name, (*ARCHIVES, *WEIGHTS))
    try:
        if name in WEIGHTS:
            return _fetch_file(WEIGHTS[name], data_dir / WEIGHTS_FOLDER, progress)
        archive = ARCHIVES[name]
        target = data_dir / archive.folder
        missing = archive.missing(target)
        if missing:
            aside = _free_name(target)
            if target.exists():
                notice(f"{target} lacks {', '.join(missing)}: fetching {name} again and keeping the old files in {aside}.")
            by_hand = (data_dir / archive.file_name).exists()
            saved = _fetch_file(archive, data_dir, progress)
            _unpack(saved, archive, target, aside)
            if not by_hand:
                saved.unlink()
        return target
    except OSError as error:
        raise InputError(f"Cannot write to {data_dir}: {error}. Free some space or choose another folder.") from None


def _fetch_file(file: Archive | WeightsFile, folder: Path, progress: Progress) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    saved = folder / file.file_name
    if saved.exists():
        _check(saved, file)
    else:
        part = saved.with_name(saved.name + ".part")
        _download(file.url, part, progress)
        _check(part, file)
        part.replace(saved)
    return saved


def _download(url: str, part: Path, progress: Progress) -> None:
    """Append what is missing to `part`; start over where the server cannot send the rest alone."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            return  # nothing is missing: the checksum says whether what we have is right
        raise InputError(f"The server refused {url}: {error}. Try again later, or {_by_hand(url, part)}") from None
    except (OSError, http.client.HTTPException) as error:
        raise InputError(f"Cannot reach {url}: {error}. Check the internet connection, or {_by_hand(url, part)}") from None
    with response:
        _save(response, part, have, progress)


def _save(response: http.client.HTTPResponse, part: Path, have: int, progress: Progress) -> None:
    resumed = response.status == http.client.PARTIAL_CONTENT
    if resumed and not response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
        raise InputError(f"The server sent a different part of the file than requested. Delete {part} and start again.")
    done = have if resumed else 0
    length = response.headers.get("Content-Length", "")
    total = done + int(length) if length.isdigit() else None
    progress(done, total)
    broken = ""
    with part.open("ab" if resumed else "wb") as file:
        while True:
            try:
                chunk = response.read(CHUNK)
            except (OSError, http.client.HTTPException) as error:
                broken = f" ({error})"
                break
            if not chunk:
                break
            file.write(chunk)
            done += len(chunk)
            progress(done, total)
    if broken or (total is not None and done < total):
        size = "" if total is None else f" of {total:,}"
        raise InputError(
            f"The download broke off after {done:,}{size} bytes{broken}. Run the same command again to continue from there."
        )


def _check(file: Path, wanted: Archive | WeightsFile) -> None:
    """Guards against damage on the way, and against another file in its place. A wrong `.part` is of no use to anyone, so it
    goes; a user's file stays."""
    with file.open("rb") as opened:
        found = hashlib.file_digest(opened, "sha256").hexdigest()
    if found == wanted.sha256:
        return
    if file.suffix == ".part":
        file.unlink()
        remedy = "It was deleted; run the same command again."
    else:
        remedy = "Delete it and run the same command again."
    raise InputError(
        f"{file} was damaged in transit or changed: its SHA-256 is {found}, it should be {wanted.sha256}. {remedy}"
    )


def _unpack(saved: Path, archive: Archive, target: Path, aside: Path) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".unpacking-") as place:
        try:
            with tarfile.open(saved, "r:gz") as tar:
                tar.extractall(place, filter="data")  # refuses paths and links that lead outside
        except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError) as error:
            raise InputError(f"Cannot unpack {saved}: {error}. Delete it and run the same command again.") from None
        unpacked = Path(place) / archive.folder
        if not unpacked.is_dir():
            raise InputError(f"{saved} holds no folder {archive.folder}. Delete it and run the same command again.")
        if target.exists():
            target.replace(aside)
        unpacked.replace(target)


def _free_name(folder: Path) -> Path:
    numbered = (folder.with_name(f"{folder.name}.incomplete{'' if i == 1 else f'-{i}'}") for i in itertools.count(1))
    return next(path for path in numbered if not path.exists())


def _by_hand(url: str, part: Path) -> str:
    return f"save {url} as {part.with_suffix('')} by other means and run the same command again."
