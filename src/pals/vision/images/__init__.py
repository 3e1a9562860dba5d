"""Folders of images as one uint8 tensor, decoded once into a cache on disk.

Names of the image files (`listing`), decoding (`decoding`), the cache (`image_cache`, `load_folder`), and sizes and colours
(`pixel_statistics`). The first two need no torch, so names are imported from the modules.

Shape letters: N images, S pixels a side, C channels, V grey levels.
"""
