"""Functions that several methods share: losses, mix-up and FMix, orders of items, averages of networks, schedules.

`selection` holds those of ProMix. No file here is a method or a base class (those are in `bases`), and none imports one.
"""
