"""Dawid and Skene's model of annotators: who errs how, and the label of each item.

`em` fits it by alternating `e_step` (posterior of the items, from all answers) and `annotators` (a confusion matrix each,
shrunk towards the common one); `sparse` and `sparse_em` are the same for very many answers, `taxonomy_levels` for answers at
inner nodes of a taxonomy, `unsure` for unsure answers and "don't know". Nothing here knows images or files.
"""
