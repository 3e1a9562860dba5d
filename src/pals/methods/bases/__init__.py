"""Base classes of methods: what several methods share beyond the interface.

`knn_labeling`, `confidences`, `prototypes`, `holdout` (with `noise_rate` and `early_stopping`), `feature_based` (with
`frozen_features`) and `two_networks`. No file here is a method, and none knows one.
"""
