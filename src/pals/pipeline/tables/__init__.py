"""The result of a fit as tables: one data frame per CSV file of the run folder.

`result_tables` makes them; `flag_columns`, `unsure_columns` and `taxonomy_columns` add the columns of annotator flags, of
unsure answers and of a taxonomy. Nothing is estimated or written here.
"""
