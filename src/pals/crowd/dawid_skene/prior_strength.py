"""How much the prior of a person's confusion matrix weighs: candidates, and how to the best of them."""

from __future__ import annotations

from collections.abc import Callable

STRENGTHS = (3.0, 10.0, 30.0, 100.0, 300.0)
"""Weights, in answers per class, that the prior of a person's confusion matrix may have; the answers decide between them."""

MIDDLE = len(STRENGTHS) // 2

ROUGHLY = 1e-3, 40
"""Tolerance and iterations of expectation and maximisation where strengths are compared."""


def climb(likelihood: Callable[[float], float]) -> float:
    """The strength with the largest likelihood, which has one summit: step by step from the middle."""
    best = STRENGTHS[MIDDLE]
    highest = likelihood(best)
    for slope in (STRENGTHS[MIDDLE + 1 :], STRENGTHS[MIDDLE - 1 :: -1]):
        for strength in slope:
            now = likelihood(strength)
            if now <= highest:
                break
            best, highest = strength, now
        if best != STRENGTHS[MIDDLE]:
            break
    return best
