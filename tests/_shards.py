"""Small pictures in tar and Parquet files, as WebDataset and Hugging Face datasets write them."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

Member = tuple[str, bytes]


def png(number: int, side: int = 9) -> bytes:
    file = io.BytesIO()
    noise = np.random.default_rng(number).integers(0, 256, (side, side + 2, 3), dtype=np.uint8)
    Image.fromarray(noise).save(file, "PNG")
    return file.getvalue()


def write_tar(path: Path, members: Iterable[Member]) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, data in members:
            about = tarfile.TarInfo(name)
            about.size = len(data)
            archive.addfile(about, io.BytesIO(data))
    return path


def sample(number: int) -> list[Member]:
    """A picture with what often lies beside it."""
    return [(f"{number:04}.cls", b"3"), (f"{number:04}.png", png(number)), (f"{number:04}.json", b"{}")]


def write_samples(path: Path, numbers: Iterable[int]) -> Path:
    return write_tar(path, (member for number in numbers for member in sample(number)))


def write_parquet(path: Path, columns: dict[str, Sequence[Any]], rows: int = 4) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table(columns), path, row_group_size=rows)
    return path


def write_pictures(path: Path, numbers: Sequence[int], rows: int = 4) -> Path:
    """As Hugging Face datasets writes a column of pictures."""
    cells = [{"bytes": png(number), "path": f"{number:04}.png"} for number in numbers]
    return write_parquet(path, {"image": cells, "label": list(numbers)}, rows)


def write_folder(folder: Path, numbers: Iterable[int]) -> Path:
    folder.mkdir(parents=True)
    for number in numbers:
        (folder / f"{number:04}.png").write_bytes(png(number))
    return folder
