"""Images and networks: reading and caching images, augmented views of them, and the networks.

Knows nothing of candidates, methods or runs: a network is given a shape and a number of classes, no data set.
"""
