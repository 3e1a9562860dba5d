"""The paper's tables and figures: the numbers that it prints, and for each of them the settings of the runs that give ours."""

from __future__ import annotations
