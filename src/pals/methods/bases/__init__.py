"""Base classes of methods: what several methods share beyond the interface.

`knn_labeling`, `confidences`, `prototypes`, `holdout` (with early stopping and the estimate of the noise rate),
`feature_based` (with `frozen_features`) and `two_networks`. No file here is a method, and none imports one.
"""
