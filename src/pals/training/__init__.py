"""The training loop: engine (devices, precision), optimiser, schedules, trainer, the log and checkpoints that it writes;
and `inference`, the networks that only answer.

It trains any `Method` on any items. Which data, settings and folder those are is for `runs` to say.
"""
