"""What items lie in, where they are too many to be held: folders, .npy files, WebDataset tar files, Parquet with
pictures, data sets saved by Hugging Face datasets.

Each kind gives its items a chunk at a time, from any of them on; a `Stream` is several of them in order. Neither a file nor the
number of its items has to fit into memory, and who was stopped can go on in the middle. Nothing here knows networks or labels.
"""

from __future__ import annotations

from pals.data.shards.parquet_shards import ParquetShard, require_pyarrow
from pals.data.shards.plain_files import PictureFiles, Rows
from pals.data.shards.random_access import ShardPictures
from pals.data.shards.saved_datasets import SavedDataset, is_saved
from pals.data.shards.shard import BadShardError, Chunk, Picture, Shard
from pals.data.shards.stream import START, Place, Stream, Stretch
from pals.data.shards.tar import TarShard

__all__ = [
    "START",
    "BadShardError",
    "Chunk",
    "ParquetShard",
    "Picture",
    "PictureFiles",
    "Place",
    "Rows",
    "SavedDataset",
    "Shard",
    "ShardPictures",
    "Stream",
    "Stretch",
    "TarShard",
    "is_saved",
    "require_pyarrow",
]
