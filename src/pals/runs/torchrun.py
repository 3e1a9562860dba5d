"""Several processes of this machine for one command, started and watched by torch's elastic launcher (`torchrun`)."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Mapping, Sequence

import torch

from pals.training.distributed import RESUME_HINT
from pals.util.errors import InputError

LAUNCHED = "PALS_LAUNCHED"
"""Set in processes that are watched from here, which tells what became of them."""
ENDED_BY_OTHERS = 75
"""Exit code of a process that ends because another has."""
BAD_INPUT = 2


def is_launched() -> bool:
    return LAUNCHED in os.environ


def run_by(processes: int, arguments: Sequence[str]) -> int:
    """`pals ARGUMENTS` by so many processes that share the cores; gives the exit code. If one is killed, all end."""
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import parse_args, run

    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, torch.get_num_threads() // processes)))
    os.environ[LAUNCHED] = "1"
    logging.getLogger("torch.distributed").setLevel(logging.CRITICAL)  # what it would report is said below
    try:
        asked = ["--standalone", f"--nproc-per-node={processes}", "-m", "pals", *arguments]
        run(parse_args(asked))  # type: ignore[no-untyped-call]
    except SignalException as stopped:
        return 128 + stopped.sigval
    except ChildFailedError as failed:
        return _explain({rank: failure.exitcode for rank, failure in failed.failures.items()}, processes)
    return 0


def tell_torchrun(error: InputError) -> None:
    """What went wrong, for the report with which torchrun ends: the sentence, where it would tell how to get a traceback."""
    from torch.distributed.elastic.multiprocessing.errors import get_error_handler

    try:
        raise InputError(str(error)) from None
    except InputError as plain:
        get_error_handler().record_exception(plain.with_traceback(None))


def _explain(codes: Mapping[int, int], processes: int) -> int:
    """The exit code of the process that failed first. One that could not say why gets a sentence."""
    followed = (ENDED_BY_OTHERS, -signal.SIGTERM, 128 + signal.SIGTERM)
    rank, code = min(codes.items(), key=lambda found: found[1] in followed)
    if code in (BAD_INPUT, ENDED_BY_OTHERS) or code > 128:
        return code
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"failed with exit code {code}"
    raise InputError(f"Process {rank} of {processes} {how}, so all of them have ended. {RESUME_HINT}")
