"""Shards: items that are too many to be held in memory, read in order or at random.

Folders of images, .npy files, WebDataset tar files, Parquet files with images, and data sets saved by Hugging Face `datasets`.
Each gives its items a chunk at a time from any item on; a `Stream` is several of them in order, and `ShardImages` reads images
in any order. Neither a file nor its number of items has to fit in memory. Nothing here knows networks or labels.
"""

from __future__ import annotations

from pals.data.shards.arrow import ParquetShard, SavedShard, is_saved, require_pyarrow
from pals.data.shards.plain_files import ArrayShard, FolderShard
from pals.data.shards.random_access import ShardImages
from pals.data.shards.shard import BadShardError, Chunk, EncodedImage, Shard
from pals.data.shards.stream import STREAM_START, Stream, StreamPart, StreamPosition
from pals.data.shards.tar import TarShard

__all__ = [
    "STREAM_START",
    "ArrayShard",
    "BadShardError",
    "Chunk",
    "EncodedImage",
    "FolderShard",
    "ParquetShard",
    "SavedShard",
    "Shard",
    "ShardImages",
    "Stream",
    "StreamPart",
    "StreamPosition",
    "TarShard",
    "is_saved",
    "require_pyarrow",
]
