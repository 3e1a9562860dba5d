"""A run, from settings to a folder: settings and their defaults, the folder, and the code that puts the parts together.

Every default of a setting is here (`published_settings`) or beside the class that reads it. It knows
neither what is made of runs (`pipeline`, `bench`) nor the command line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pals.util.lazy import lazily

if TYPE_CHECKING:
    from pals.runs.extractor import starting_network
    from pals.runs.run import Run, evaluate, summarise_seeds
    from pals.runs.run_config import DataConfig, NetworkConfig, RunConfig, VotesConfig
    from pals.runs.run_folder import check_base, check_folder, claim_folder, commit, default_folder, load_run_config

__all__ = [
    "DataConfig",
    "NetworkConfig",
    "Run",
    "RunConfig",
    "VotesConfig",
    "check_base",
    "check_folder",
    "claim_folder",
    "commit",
    "default_folder",
    "evaluate",
    "load_run_config",
    "starting_network",
    "summarise_seeds",
]

__getattr__ = lazily(
    __name__,
    {
        "run_folder": (
            "check_base",
            "check_folder",
            "claim_folder",
            "commit",
            "default_folder",
            "load_run_config",
        ),
        "starting_networks": ("starting_network",),
        "run": (
            "Run",
            "evaluate",
            "summarise_seeds",
        ),
        "run_config": (
            "DataConfig",
            "NetworkConfig",
            "RunConfig",
            "VotesConfig",
        ),
    },
)
