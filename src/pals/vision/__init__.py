"""Pictures and networks: reading and caching images, making views of them, and the networks that look at them.

Knows nothing of candidates, methods or runs: a network is given a shape and a number of classes, no data set.
"""
