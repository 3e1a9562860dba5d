"""Shards: files and folders of items that need not fit in memory, read in order or at random.

Folders of images, .npy files, WebDataset tar files, Parquet files with images, and data sets saved by Hugging Face `datasets`.
A shard gives its items in chunks, from any item on. A `Stream` reads several shards in order; `ShardImages` reads images in any
order. Networks and labels are not used here.
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
