"""The paper's tables and figures: the numbers that it prints, and for each of them the settings of the runs that give ours.

Data (`experiments.yaml`, `numbers.json`) and their readers: nothing here starts a run or reads its results, and nothing is
computed by importing it.
"""

from __future__ import annotations
