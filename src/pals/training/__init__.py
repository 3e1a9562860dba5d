"""The training loop: engine (devices, precision), optimiser, schedules, trainer, log and checkpoints; and `inference`, for
networks that only predict.

It trains any `Method` on any items. Which data, settings and folder those are is for `runs` to say.
"""
