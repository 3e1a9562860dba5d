"""Several processes on this machine for one command, started and monitored by torch's elastic launcher (`torchrun`)."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Mapping, Sequence

import torch

from pals.training.distributed import RESUME_HINT
from pals.util.errors import InputError

LAUNCHED = "PALS_LAUNCHED"
"""Environment variable of processes that `run_by` has started, and whose errors it reports."""
ENDED_BY_OTHERS = 75
"""Exit code of a process that ends because another has."""
INPUT_ERROR_EXIT = 2


def is_launched() -> bool:
    return LAUNCHED in os.environ


def run_by(processes: int, arguments: Sequence[str]) -> int:
    """Run `pals ARGUMENTS` by several processes that share the cores; if one is killed, all end.

    Args:
        processes: how many.
        arguments: of the command line.

    Returns:
        The exit code.

    Raises:
        InputError: a process was killed, or failed without an error message.
    """
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import parse_args, run

    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, torch.get_num_threads() // processes)))
    os.environ[LAUNCHED] = "1"
    logging.getLogger("torch.distributed").setLevel(logging.CRITICAL)  # its report is replaced by the error below
    try:
        command = ["--standalone", f"--nproc-per-node={processes}", "-m", "pals", *arguments]
        run(parse_args(command))  # type: ignore[no-untyped-call]
    except SignalException as stopped:
        return 128 + stopped.sigval
    except ChildFailedError as failed:
        return _explain({rank: failure.exitcode for rank, failure in failed.failures.items()}, processes)
    return 0


def report_to_torchrun(error: InputError) -> None:
    """Record an error for torchrun's final report, which then shows the message in place of advice on tracebacks."""
    from torch.distributed.elastic.multiprocessing.errors import get_error_handler

    try:
        raise InputError(str(error)) from None
    except InputError as plain:
        get_error_handler().record_exception(plain.with_traceback(None))


def _explain(codes: Mapping[int, int], processes: int) -> int:
    """The exit code of the process that failed first; one that ended without a message is an `InputError`."""
    followed = (ENDED_BY_OTHERS, -signal.SIGTERM, 128 + signal.SIGTERM)
    rank, code = min(codes.items(), key=lambda found: found[1] in followed)
    if code in (INPUT_ERROR_EXIT, ENDED_BY_OTHERS) or code > 128:
        return code
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"failed with exit code {code}"
    raise InputError(f"Process {rank} of {processes} {how}, so all of them have ended. {RESUME_HINT}")
