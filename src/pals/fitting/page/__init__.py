"""The page `report.html` of `pals fit`: templates, sections, charts and the values that they show.

Made from `report.json` and tools alone: it computes nothing about labels and imports no other part of PALS.
"""
