"""What is known of labels: candidate sets and the truth, how noise is made, and how answers are graded.

Only here may the truth be looked at. Tensors in, tensors out: no files, no networks, no training.
"""
