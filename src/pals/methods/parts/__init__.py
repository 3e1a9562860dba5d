"""Pieces that several methods share: losses, mixing, sampling, confidences, contrastive and robust parts.

No file here is a method, and none knows one: what a single method needs stands in the file of that method.
"""
