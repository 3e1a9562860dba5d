"""Functions that several methods share: losses, mix-up, sampling, selection.

No file here is a method or a base class (those are in `bases`), and none knows one.
"""
