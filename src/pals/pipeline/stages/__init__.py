"""The five stages of a fit: plan, load, encode, learn, findings.

Each is a function of the result of the stage before. `read_answers`, `images`, `vectors` and `warm_start` read what the user
gave; `fit_defaults` and `encoder_choice` choose what the user left open; `learn` dispatches to `networks` and `solve`.
"""
