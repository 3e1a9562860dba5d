"""Several processes that train together, started once for many questions."""

from __future__ import annotations

import os
import pickle
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.multiprocessing as processes

from _toy import WIDTH, run_all, toy_data, toy_trainer
from pals.methods import METHODS
from pals.training.distributed import ALONE, Ranks, joined
from pals.training.engine import EngineConfig
from pals.vision.augment import vector_views

EPOCHS = 3
"""Of each run in `first_losses`."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def variables(rank: int, size: int, port: int) -> dict[str, str]:
    """What torchrun would set."""
    here = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return {name: str(value) for name, value in here.items()}


def by_several(size: int, work: Callable[[Ranks], Any]) -> list[Any]:
    """What `work`, a function of a module, gives in each of so many processes. An error in one of them is raised here."""
    with TemporaryDirectory() as folder:
        processes.start_processes(_begin, (size, free_port(), work, folder), size, start_method="spawn")
        return [pickle.loads((Path(folder) / str(rank)).read_bytes()) for rank in range(size)]


def _begin(rank: int, size: int, port: int, work: Callable[[Ranks], Any], folder: str) -> None:
    os.environ.update(variables(rank, size, port))
    torch.set_num_threads(1)
    with joined() as ranks:
        (Path(folder) / str(rank)).write_bytes(pickle.dumps(work(ranks)))
    left = [name for task in Path("/proc/self/task").glob("*/comm") if "gloo" in (name := task.read_text())]
    assert not left, "threads that outlive the group can abort the process at its end"


def first_losses(ranks: Ranks = ALONE) -> dict[str, list[Any]]:
    """Of all methods in their first epochs, with each metric that they search neighbours by, whose last batch is of one item,
    and of one without common batch statistics; and at the end a sum of each tensor that the method remembers, in which every
    number has a weight of its own. (A method without steps has no loss.)"""
    data, found = toy_data(items=41, apart=2.0), {}
    data = replace(data, views=vector_views(torch.full((WIDTH,), 2.0), torch.ones(WIDTH)))  # vectors whose mean is not zero
    runs = [*((name, name, {}, True) for name in METHODS)]
    runs += [("pl-knn, cosine", "pl-knn", {"weighting": "exp"}, True), ("average, own norms", "average", {}, False)]
    for title, name, options, sync in runs:
        engine = EngineConfig(device="cpu", sync_norms=sync)
        train = {"epochs": 4, "batch_size": 20}
        trainer = toy_trainer(name, data, options=options, train=train, engine=engine, ranks=ranks)
        losses = [record["loss"] or 0.0 for record in run_all(trainer, stop_after=EPOCHS)]
        found[title] = [*losses, *(weighted_sum(value) for value in trainer.method.state_dict().values())]
    return found


def weighted_sum(value: torch.Tensor) -> float:
    """One that changes where rows change places."""
    weight = torch.linspace(0.5, 1.5, value.numel(), dtype=torch.float64)
    return float((value.flatten().double() * weight).sum())
