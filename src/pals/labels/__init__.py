"""Labels: candidate sets and the truth, noise protocols, taxonomies, and metrics.

Only this package reads the truth. Functions take and return tensors; there are no networks and no training.

Shape letters: N items, C classes, T nodes of a taxonomy, L levels of it, B batch, G groups, M some of the items, X any number.
"""
