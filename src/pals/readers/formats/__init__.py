"""One file per format of annotations: each turns a `Source` into a `Table` of answers.

To add a format: a file in this folder, a line in this table, and its detection in `readers/detect.py`. How tables become
`Votes` is in `readers/build_votes.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from pals.readers.columns import Columns
from pals.readers.formats.cleanlab import read_cleanlab
from pals.readers.formats.coco import read_coco
from pals.readers.formats.cvat import read_cvat
from pals.readers.formats.datumaro import read_datumaro
from pals.readers.formats.dcic import read_dcic
from pals.readers.formats.label_studio import read_label_studio
from pals.readers.formats.long import read_candidates, read_long
from pals.readers.formats.mat import read_mat
from pals.readers.formats.peerannot import read_peerannot
from pals.readers.formats.records import read_huggingface, read_json_list, read_jsonl
from pals.readers.formats.wide import read_wide
from pals.readers.formats.zooniverse import read_zooniverse
from pals.readers.reader_table import Table
from pals.readers.source import Source

Reader = Callable[[Source, Columns], Table]

FORMATS: dict[str, Reader] = {
    "long": read_long,
    "wide": read_wide,
    "candidates": read_candidates,
    "jsonl": read_jsonl,
    "json": read_json_list,
    "dcic": read_dcic,
    "label-studio": read_label_studio,
    "zooniverse": read_zooniverse,
    "cvat": read_cvat,
    "cleanlab": read_cleanlab,
    "huggingface": read_huggingface,
    "mat": read_mat,
    "peerannot": read_peerannot,
    "datumaro": read_datumaro,
    "coco": read_coco,
}
