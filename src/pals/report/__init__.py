"""The page `report.html` of `pals fit`.

`data` and `data_parts` build its content as plain values (`report.json`); `render` makes the page of it with `contents`,
`sections`, `charts`, `heatmap` and the templates. The renderer computes nothing about labels and imports none of the builder.
"""
