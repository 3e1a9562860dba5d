"""Many runs: plan them, execute those that are missing on this machine or a cluster, collect their results.

`grid` and `paper` define experiments, `jobs` plans their runs, `work` executes one in any process, `launchers` (`on_ray`,
`on_slurm`) distribute them, `run_records` reads results, `report` makes tables and figures of them. `demo` is `pals demo`.
Training itself is in `runs`.
"""

from __future__ import annotations
