"""Many runs: planning them, running what is missing (locally or on a cluster), collecting the results.

The paper's numbers and settings are in `paper`, what is made of finished runs is in `report`. A run itself is made by `runs`:
a bench only says which, and starts them.
"""

from __future__ import annotations

from pals.bench.grid import read_grid
from pals.bench.jobs import Job, State, plan, state
from pals.bench.launchers import LAUNCHERS, launch
from pals.bench.report.statistics import Paired, Summary, paired, summarise, verdict
from pals.bench.run_records import Result, collect, read_records, read_result, record, write_records
from pals.bench.work import Outcome, Stop, Work, run_job, work_for, work_of

__all__ = [
    "LAUNCHERS",
    "Job",
    "Outcome",
    "Paired",
    "Result",
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
