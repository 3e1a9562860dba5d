"""Training and inference of networks, for any `Method` on any items.

`trainer` has the loop, `engine` devices and precision, `cuda_graph` and `distributed` what makes it fast, `batches`, `optim`
and `checkpoint` its parts; `inference` predicts, and `extract` computes features of images by a frozen encoder.
"""
