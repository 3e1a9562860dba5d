"""The annotator model: who gives the right label how often, and which labels are confused.

`answer_table` arranges what was written, `annotator_model` states the model and has its E and M step, `em` alternates them,
`correlation` estimates how far the answers to one item share their mistakes.

Shape letters: N items, C classes, A answers, R listed labels, F forms of answers, W annotators.
"""
