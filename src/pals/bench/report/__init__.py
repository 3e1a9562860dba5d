"""Tables and figures of finished runs beside the paper's numbers.

`results_frame` makes data frames of results, `table_text` renders them, `plots`, `speed_plots` and `learning_curves` draw them,
`reproduction` writes the page with all tables. Nothing here starts a run.
"""
