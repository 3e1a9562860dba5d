"""What is known about labels: candidate sets and the truth, how noise is made, and how results are graded.

Only here may the truth be looked at. Tensors in, tensors out: no files, no networks, no training.
"""
