"""The HTML report of `pals fit`.

Two steps: `data` builds plain values from the findings (`report.json`); `render` makes `report.html` from these alone, with
`sections` (what the template of each section shows), `charts`, `heatmap`, `format` and the templates. C stands for classes, N
for items, M for some of the items, K for neighbours, R for drawn rows, X for non-zero cells.
"""
