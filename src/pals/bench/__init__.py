"""Many runs: plan them, execute those that are missing on this machine or a cluster, collect their results.

`grid` and `paper` define experiments, `jobs` plans their runs, `work` executes one in any process, `launchers` (`on_ray`,
`on_slurm`) distribute them, `run_records` reads results, `report` makes tables and figures of them. `demo` is `pals demo`.
Training itself is in `runs`.
"""

from __future__ import annotations

from pals.bench.grid import read_grid
from pals.bench.jobs import Job, State, plan, state
from pals.bench.launchers import LAUNCHERS, launch
from pals.bench.report.statistics import Paired, Summary, paired, summarise, verdict
from pals.bench.run_records import RunResult, collect, read_records, read_result, record, write_records
from pals.bench.work import Outcome, Stop, Work, run_job, work_for, work_of

__all__ = [
    "LAUNCHERS",
    "Job",
    "Outcome",
    "Paired",
    "RunResult",
    "State",
    "Stop",
    "Summary",
    "Work",
    "collect",
    "launch",
    "paired",
    "plan",
    "read_grid",
    "read_records",
    "read_result",
    "record",
    "run_job",
    "state",
    "summarise",
    "verdict",
    "work_for",
    "work_of",
    "write_records",
]
