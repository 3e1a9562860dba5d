"""The paper's tables and figures: the numbers that it prints, and for each of them the settings of the runs that give ours.

Data and look-ups: nothing here starts a run or reads what came of one.
"""

from __future__ import annotations
