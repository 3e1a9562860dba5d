"""The five stages of a fit: plan, load, encode, learn, findings.

Each is a function of the result of the stage before. `read_answers`, `images`, `vectors` and `warm_start` read what the user
gave; `fit_defaults` and `encoder_choice` choose what the user left open; `learn` solves in closed form or trains `networks`;
`analysis` computes tables and estimates, which `findings` puts into words.
"""
