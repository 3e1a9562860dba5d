"""Damages files and reads them: `python _fuzz.py FIRST LAST FOLDER`. Each number makes one input, always the same. The number
being read is kept in FOLDER/number and its input beside it, so that whoever started this can tell what ended it.

An input may be read, or refused with one line of at most `LONGEST` characters that names the file or the encoding. Nothing
else: no other error, no warning, no crash, and no more than `PATIENCE` seconds or `MEMORY` bytes.
"""

from __future__ import annotations

import faulthandler
import json
import random
import resource
import sys
import warnings
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
from _reader_examples import EXPECTED, JSON_MIN, mat_bytes, parquet_bytes
from scipy.sparse import csc_matrix

from pals.readers import read_votes
from pals.util.errors import InputError

LONGEST = 500
PATIENCE = 20.0
MEMORY = 8 << 30
ENCODINGS = (None, None, None, None, "cp1252", "utf-16", "utf-7", "punycode", "idna", "rot13", "unicode_escape", "x\0y", "")
PIECES = (
    b'"', b"'", b"\n", b"\r", b",", b";", b"\t", b"|", b"\\", b"\x00", b"\xff", b"\xef\xbb\xbf", b"{", b"}", b"[", b"]", b"<",
    b">", b"<!DOCTYPE x>", b"<image>", b"</image>", b"NaN", b"Infinity", b"null", b"1e999", b"-1", b"\\ud800", b"[" * 3000,
    b"<a>" * 500, b'{"a":' * 2000, b"\n" * 2000, b",x" * 300, b"x" * 3000, b"=cmd()", b"item,annotator,label\n", b"9" * 5000,
    "蛙Ω".encode(),
)  # fmt: skip
ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 1e308, float("nan"), 10**400, "", "x", "x" * 2000, "a\nb"),
    *([], {}, [[]], [None], {"a": []}, ["newt", 3]),
)


def examples() -> list[tuple[str, str, bytes]]:
    """(format, name of the file, content) of everything that is damaged here."""
    eye = np.eye(3, 4)
    more = [
        ("label-studio", "min.json", JSON_MIN.encode()),
        ("mat", "dense.mat", mat_bytes(data=np.zeros((4, 2)), partial_target=eye, target=eye)),
        ("mat", "sparse.mat", mat_bytes(data=np.zeros((4, 2)), partial_target=csc_matrix(eye), target=csc_matrix(eye))),
        ("mat", "packed.mat", mat_bytes(True, data=np.zeros((4, 2)), partial_target=eye, target=csc_matrix(eye))),
        (
            "long",
            "votes.parquet",
            parquet_bytes(item=["a", "b"], worker=["ann", None], label=["newt", "frog"], weight=[1.0, 2.0]),
        ),
        ("huggingface", "metadata.parquet", parquet_bytes(file_name=["a", "b"], candidates=[["newt", "frog"], ["frog"]])),
        ("wide", "wide.parquet", parquet_bytes(image=["a", "b"], ann=[1.0, None], bob=[1, 2])),
    ]
    return [(name, file, text.encode()) for name, (text, file, _) in EXPECTED.items()] + more


def damaged(data: bytes, chance: random.Random) -> bytes:
    """A few bytes changed, taken out, put in, repeated or cut off."""
    content = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 6))):
        at = chance.randrange(len(content) + 1)
        kind = chance.choice(("change", "change", "change", "delete", "insert", "cut", "twice", "number"))
        if kind == "change" and at < len(content):
            content[at] = chance.choice(
                (0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256), content[at] ^ (1 << chance.randrange(8)))
            )
        elif kind == "delete":
            del content[at : at + chance.randrange(1, 20)]
        elif kind == "insert":
            content[at:at] = chance.choice(PIECES)
        elif kind == "twice":
            content[at:at] = content[at : at + chance.randrange(1, 400)]
        elif kind == "number":
            content[at : at + 4] = chance.choice(
                (b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\x00\x00\x00\x80", b"\x00\x00\x10\x00")
            )
        elif kind == "cut" and chance.random() < 0.3:
            del content[at:]
    return bytes(content)


def reshaped(data: bytes, chance: random.Random) -> bytes:
    """JSON with a value anywhere in it replaced by one that does not belong there, or taken out."""
    lines = data.decode().splitlines()
    try:
        tree: Any = [json.loads(line) for line in lines if line]
    except ValueError:
        tree = [json.loads(data)]
    node: Any = tree
    while keys := list(node) if isinstance(node, dict) else list(range(len(node))):
        key = chance.choice(keys)
        if not isinstance(node[key], (dict, list)) or chance.random() < 0.2:
            if isinstance(node, dict) and chance.random() < 0.3:
                del node[key]
            else:
                node[key] = deepcopy(chance.choice(ODD))
            break
        node = node[key]
    return "\n".join(map(json.dumps, tree)).encode()


def read(path: Path, name: str | None, encoding: str | None) -> str:
    """What came of it: "read", or the refusal."""
    try:
        votes = read_votes(path, format=name, encoding=encoding)
    except InputError as error:
        message = str(error).replace(str(path), path.name)  # how long the path is, is not ours to say
        assert len(message) <= LONGEST and "\n" not in message and message.encode(), f"{len(message)} characters: {message!r}"
        assert path.name in message or "encoding" in message, message
        return message
    assert votes.summary.answers == votes.num_answers and str(votes.summary).encode()
    if len(votes.class_names) > 1:
        sets = votes.to_candidates(on_empty="drop")
        assert set(sets.ids) == {votes.items[i] for i in votes.item_R[votes.weight_R > 0]}
    return "read"


def main(first: int, last: int, folder: Path) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    warnings.simplefilter("error")
    whole, outcomes = examples(), [0, 0]
    for number in range(first, last):
        chance = random.Random(number)
        name, file, data = whole[number % len(whole)]
        is_json = data[:1] in b"[{"
        content = reshaped(data, chance) if is_json and chance.random() < 0.4 else damaged(data, chance)
        path = folder / file
        path.write_bytes(content)
        (folder / "number").write_text(f"{number} {file}")
        faulthandler.dump_traceback_later(PATIENCE, exit=True)
        outcome = read(path, chance.choice((name, None)), chance.choice(ENCODINGS) if number % 4 == 0 else None)
        faulthandler.cancel_dump_traceback_later()
        path.unlink()
        outcomes[outcome == "read"] += 1
    sys.stdout.write(f"{outcomes[1]} read, {outcomes[0]} refused\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
