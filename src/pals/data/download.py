"""Downloads of data sets and weights from their makers' addresses, only when the user asks; nothing else goes online."""

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
"""Environment variable with the data folder, if no folder is given."""

WEIGHTS_FOLDER = "weights"
"""Subfolder of the data folder for weights."""

DOWNLOAD_CHUNK_BYTES = 1 << 20
TIMEOUT_SECONDS = 30

Progress = Callable[[int, int | None], None]
"""Called with the bytes loaded and the bytes in all (None: unknown)."""

Notice = Callable[[str], None]
"""Called with a sentence for the user."""


@dataclass(frozen=True)
class RemoteFile:
    """A file on the web with its checksum."""

    url: str
    sha256: str

    @property
    def file_name(self) -> str:
        return self.url.rpartition("/")[2]


@dataclass(frozen=True)
class Archive(RemoteFile):
    """A tar file on the web, the folder that it unpacks to, and the files in the folder that hold the items."""

    folder: str
    train_files: tuple[str, ...]
    test_files: tuple[str, ...]

    def missing(self, folder: Path) -> list[str]:
        return [file for file in (*self.train_files, *self.test_files) if not (folder / file).exists()]


# The makers of CIFAR publish only the MD5. These are from Keras (keras/src/datasets/cifar10.py and cifar100.py); torchvision's
# prototype loaders had the same.
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

# The names of PyTorch's files have the first eight digits.
WEIGHTS: dict[str, RemoteFile] = {
    "resnet18-weights": RemoteFile(
        "https://download.pytorch.org/models/resnet18-f37072fd.pth",
        sha256="f37072fd47e89c5e827621c5baffa7500819f7896bbacec160b1a16c560e07ec",
    ),
    "resnet50-weights": RemoteFile(
        "https://download.pytorch.org/models/resnet50-0676ba61.pth",
        sha256="0676ba61b6795bbe1773cffd859882e5e297624d384b6993f7c9e683e722fb8a",
    ),
}
"""Trained on ImageNet, torchvision's IMAGENET1K_V1."""


def data_folder(data_dir: Path | None) -> Path | None:
    """The data folder: the given one, or that of the environment variable, or None."""
    named = str(data_dir) if data_dir is not None else os.environ.get(VARIABLE, "")
    return Path(named).expanduser() if named else None


def needed_folder(title: str, data_dir: Path | None, hint: str) -> Path:
    """The data folder; raises an InputError with the hint if there is none."""
    place = data_folder(data_dir)
    if place is None:
        raise InputError(f"No folder to look for {title} in: {VARIABLE} is not set and no --data-dir is given. {hint}")
    return place


def find_weights(weights: str, data_dir: Path | None = None) -> Path:
    """The file of weights that a network starts from.

    Args:
        weights: Path of the file, or its name in the data folder or in the subfolder `weights` of it.
        data_dir: Data folder; default that of the environment variable PALS_DATA.

    Raises:
        InputError: There is no such file; the message lists the places that were tried.
    """
    place = data_folder(data_dir)
    tried = [Path(weights).expanduser()]
    if place is not None:
        tried += [place / weights, place / WEIGHTS_FOLDER / weights]
    for path in tried:
        if path.exists():
            return path
    places = ", ".join(dict.fromkeys(str(path.absolute()) for path in tried))
    unset = "" if place is not None else f" ({VARIABLE}, the folder of data and weights, is not set)"
    hint = "Check the path; weights are never downloaded unasked."
    for name, file in WEIGHTS.items():
        if file.file_name == Path(weights).name:
            command = fetch_command(name, place)
            hint = f"Get it with {command} or from {file.url}, or do without: --set network.weights=null."
    raise InputError(f"There is no weights file {weights}; looked for {places}{unset}. {hint}")


def fetch_command(name: str, data_dir: Path | None) -> str:
    """The command that downloads it into this folder, or into one of the user's choice."""
    return f"`pals data fetch {name} --data-dir {'FOLDER' if data_dir is None else shlex.quote(str(data_dir))}`"


def fetch(name: str, data_dir: Path, progress: Progress, notice: Notice = lambda _: None) -> Path:
    """Downloads a data set or a file of weights, unless it is there.

    An interrupted download leaves a `.part` file, from which the next call continues. The file is used only if its checksum is
    right. An archive that the user saved in `data_dir` is used and kept. A folder that lacks files is renamed and downloaded
    again.

    Args:
        name: A key of `ARCHIVES` or `WEIGHTS`.
        data_dir: Data folder.
        progress: Called with the bytes loaded and the bytes in all.
        notice: Called with a sentence if a folder is renamed; default none.

    Returns:
        The unpacked folder, or the file of weights.

    Raises:
        InputError: The server cannot be reached, the checksum is wrong, or the folder cannot be written.
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
            names = (f"{target.name}.incomplete{'' if i == 1 else f'-{i}'}" for i in itertools.count(1))
            aside = next(path for path in map(target.with_name, names) if not path.exists())
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


def _fetch_file(file: RemoteFile, folder: Path, progress: Progress) -> Path:
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
    """Appends the missing bytes to `part`, or downloads all if the server cannot send a range."""
    by_hand = f"save {url} as {part.with_suffix('')} by other means and run the same command again."
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            return  # no byte is missing; the checksum is compared next
        raise InputError(f"The server refused {url}: {error}. Try again later, or {by_hand}") from None
    except (OSError, http.client.HTTPException) as error:
        raise InputError(f"Cannot reach {url}: {error}. Check the internet connection, or {by_hand}") from None
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
                chunk = response.read(DOWNLOAD_CHUNK_BYTES)
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
        raise InputError(f"The download broke off after {done:,}{size} bytes{broken}. Run the command again to continue.")


def _check(file: Path, wanted: RemoteFile) -> None:
    """Compares the checksum. A wrong `.part` file is deleted; a file of the user is kept."""
    with file.open("rb") as opened:
        found = hashlib.file_digest(opened, "sha256").hexdigest()
    if found == wanted.sha256:
        return
    hint = "Delete it and run the same command again."
    if file.suffix == ".part":
        file.unlink()
        hint = "It was deleted; run the same command again."
    raise InputError(f"{file} was damaged in transit or changed: its SHA-256 is {found}, it should be {wanted.sha256}. {hint}")


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
