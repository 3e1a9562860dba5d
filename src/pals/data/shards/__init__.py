"""Shards: files and folders of items that need not fit in memory, read in order or at random.

Folders of images, .npy files, WebDataset tar files, Parquet files with images, and data sets saved by Hugging Face `datasets`.
A shard gives its items in chunks, from any item on. A `Stream` reads several shards in order; `ShardImages` reads images in any
order. Networks and labels are not used here.
"""
