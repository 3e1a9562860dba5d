"""Several processes that train together, started once for many questions."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Any

import torch
import torch.multiprocessing as processes

from pals.training.ranks import Ranks, joined


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def variables(rank: int, size: int, port: int) -> dict[str, str]:
    """What torchrun would set."""
    here = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return {name: str(value) for name, value in here.items()}


def by_several(size: int, work: Callable[[Ranks], Any]) -> list[Any]:
    """What `work`, a function of a module, gives in each of so many processes."""
    answers: Any = processes.get_context("spawn").SimpleQueue()
    started = processes.start_processes(_begin, (size, free_port(), work, answers), size, join=False, start_method="spawn")
    found = dict(answers.get() for _ in range(size))
    while not started.join():
        pass
    return [found[rank] for rank in range(size)]


def _begin(rank: int, size: int, port: int, work: Callable[[Ranks], Any], answers: Any) -> None:
    os.environ.update(variables(rank, size, port))
    torch.set_num_threads(1)
    with joined() as ranks:
        answers.put((rank, work(ranks)))
