"""Several processes that train together, started once for many questions."""

from __future__ import annotations

import os
import pickle
import socket
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.multiprocessing as processes

from _toy import run_all, toy_data, toy_trainer
from pals.methods import METHODS
from pals.training.engine import EngineConfig
from pals.training.ranks import ALONE, Ranks, joined


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
    """Of all methods in their first epochs, whose last batch is of one item, and of one without common batch statistics; and
    at the end a sum of all that the method remembers. (A method without steps has no loss.)"""
    data, found = toy_data(items=41), {}
    for name, sync in [*((name, True) for name in METHODS), ("average", False)]:
        engine = EngineConfig(device="cpu", sync_norms=sync)
        trainer = toy_trainer(name, data, train={"epochs": 4, "batch_size": 20}, engine=engine, ranks=ranks)
        losses = [record["loss"] or 0.0 for record in run_all(trainer, stop_after=3)]
        state = trainer.method.state_dict().values()
        found[name if sync else f"{name}, own norms"] = [*losses, sum(float(value.double().sum()) for value in state)]
    return found
