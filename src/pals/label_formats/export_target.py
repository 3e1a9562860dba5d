"""Files and folders of an export: written beside the target under another name and renamed when they are complete."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from pals.util.errors import InputError
from pals.util.files import UNFINISHED
from pals.util.words import quoted

EXPORT_MARK = ".pals-export"
"""Hidden file of an exported folder: only such a folder is ever replaced."""
FORBIDDEN_IN_NAMES = '/\\:*?"<>|'


@contextmanager
def new_target(path: Path, *, folder: bool, overwrite: bool) -> Iterator[Path]:
    """A file or an empty folder to fill, which takes the name `path` at the end of the block.

    Args:
        path: The target.
        folder: Whether it is a folder.
        overwrite: Whether an earlier export of this name is replaced.

    Raises:
        InputError: The target exists, is not an earlier export, or cannot be written.
    """
    _refuse_existing(path, folder, overwrite)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.", suffix=UNFINISHED) as name:
            made = Path(name, path.name)
            if folder:
                made.mkdir()
                (made / EXPORT_MARK).touch()
            yield made
            if folder and path.exists():
                path.rename(Path(name, "before"))
            made.replace(path)
    except OSError as error:
        reason = error.strerror or error
        raise InputError(
            f"Could not write {path}: {reason}. Nothing of it was left; make room or choose another place."
        ) from None


def _refuse_existing(path: Path, folder: bool, overwrite: bool) -> None:
    if not os.path.lexists(path):
        return
    what = "folder" if path.is_dir() else "file"
    if not overwrite:
        raise InputError(f"The {what} {path} exists. Choose another with --out, or replace it with --overwrite.")
    if path.is_dir() != folder or (folder and not (path / EXPORT_MARK).is_file()):
        raise InputError(
            f"The {what} {path} was not written by `pals export`, so it is not replaced. Choose another with --out."
        )


def place_image(source: Path | bytes, target: Path, *, link: bool) -> None:
    """A copy of an image, or a symbolic link to its file.

    Args:
        source: The image file, or its bytes.
        target: The new file; missing folders are made.
        link: Whether to make a link.

    Raises:
        InputError: A link is asked for and the image lies in a shard, or the system has no links.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    if not link:
        if isinstance(source, bytes):
            target.write_bytes(source)
        else:
            shutil.copyfile(source, target)
        return
    if isinstance(source, bytes):
        raise InputError("Images in shards cannot be linked. Leave out --link to copy them.")
    try:
        target.symlink_to(source)
    except OSError as error:
        raise InputError(
            f"No link can be made here ({error.strerror or error}). Leave out --link to copy the images."
        ) from None


def flat_names(items: Iterable[str]) -> dict[str, str]:
    """A file name for each item without folders, "pond/a.jpg" as "pond_a.jpg"; a number is added where two would be the same.

    >>> flat_names(["pond/a.jpg", "pond_a.jpg"])
    {'pond/a.jpg': 'pond_a.jpg', 'pond_a.jpg': 'pond_a~2.jpg'}
    """
    return _distinct({item: "_".join(PurePosixPath(item).parts) for item in items})


def flat_stems(items: Iterable[str]) -> dict[str, str]:
    """The same without the endings, different also where the items differ in their endings alone.

    >>> flat_stems(["pond/a.jpg", "pond/a.png"])
    {'pond/a.jpg': 'pond_a', 'pond/a.png': 'pond_a~2'}
    """
    return _distinct({item: "_".join(PurePosixPath(item).with_suffix("").parts) for item in items})


def folder_names(classes: Iterable[str]) -> dict[str, str]:
    """A folder name for each class, without characters that a file system forbids.

    >>> folder_names(["newt", "frog/toad"])
    {'newt': 'newt', 'frog/toad': 'frog_toad'}
    """
    return _distinct({name: name.strip(". ") or "_" for name in classes})


def _distinct(wanted: dict[str, str]) -> dict[str, str]:
    """The names without forbidden characters, different even where a file system ignores the case."""
    found, taken = dict[str, str](), set[str]()
    for key, name in wanted.items():
        name = "".join("_" if letter in FORBIDDEN_IN_NAMES or ord(letter) < 32 else letter for letter in name)
        path, number = PurePosixPath(name), 1
        while name.casefold() in taken:
            number += 1
            name = f"{path.stem}~{number}{path.suffix}"
        if len(name.encode("utf-8", "surrogatepass")) > 255:
            raise InputError(f"No file can be named after {quoted(key)}, it is too long. Rename it and fit again.")
        taken.add(name.casefold())
        found[key] = name
    return found
