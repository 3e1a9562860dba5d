"""Dawid and Skene's model as it was first written: every answer weighed by all others one after the other. Slow, and what the
quick one is held to."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pals.crowd.answers import Answers
from pals.crowd.dawid_skene.annotators import (
    CARE_PSEUDO_COUNTS,
    HARD_PSEUDO_COUNTS,
    Annotators,
    ItemPosterior,
    all_wrong,
    half_right,
    initial_annotators,
)
from pals.crowd.dawid_skene.unsure import learned_unsure


def estimate(answers: Answers, strength: float, hard: bool, tolerance: float = 1e-5, iterations: int = 200) -> ItemPosterior:
    """What the items are held to be at the end."""
    people = initial_annotators(answers, strength, hard)
    found = weigh(answers, people, np.zeros(answers.num_classes), None)
    for _ in range(iterations):
        known_N, classes = answers.known_N, answers.num_classes
        share_C = (found.posterior_NC[known_N].sum(axis=0) + 1 / classes) / (known_N.sum() + 1)
        people = learn(answers, found, people)
        before, found = found, weigh(answers, people, np.log(share_C), found)
        if 0.5 * np.abs(found.posterior_NC - before.posterior_NC).sum() <= tolerance * answers.num_items:
            break
    return found


def weigh(answers: Answers, people: Annotators, log_prior_C: np.ndarray, before: ItemPosterior | None) -> ItemPosterior:
    """The E-step, answer by answer."""
    log_NT = np.zeros((answers.num_items, 2 * answers.num_classes))
    with np.errstate(divide="ignore"):
        log_NT += np.concatenate([np.log1p(-people.hard_C), np.log(people.hard_C)]) + np.tile(log_prior_C, 2)
    if people.caution is not None:
        log_NT[:, answers.num_classes :] += people.caution.log_hard_N1()
    for entry, item in enumerate(answers.item_E):
        chance_T = np.concatenate(chances(answers, people, before, entry))
        log_NT[item] += answers.given_NS.data[entry] * np.log(chance_T)
    for item in np.flatnonzero(answers.gold_N >= 0):
        others = np.arange(answers.num_classes) != answers.gold_N[item]
        log_NT[item, np.tile(others, 2)] = -np.inf
        log_NT[item] -= np.tile(log_prior_C, 2)  # nothing but the answers' own evidence is left
    evidence_N = np.logaddexp.reduce(log_NT, axis=1)
    easy_NC, hard_NC = np.split(np.exp(log_NT - evidence_N[:, None]), 2, axis=1)
    return ItemPosterior(easy_NC, hard_NC, evidence_N)


def chances(answers: Answers, people: Annotators, before: ItemPosterior | None, entry: int) -> tuple[np.ndarray, np.ndarray]:
    """Probability of one answer for an easy and for a hard item of each class, its own part taken out."""
    symbol, item, weight = answers.given_NS.indices[entry], answers.item_E[entry], answers.given_NS.data[entry]
    who, pairs = answers.annotator_S[symbol], answers.members_SP[[symbol]].indices
    labels, classes = answers.label_P[pairs], answers.num_classes
    easy_C, hard_C = np.zeros(classes), np.zeros(classes)
    if before is not None:
        easy_C, hard_C = weight * before.easy_NC[item], weight * before.hard_NC[item]
    unsure = people.unsure
    place = -1 if unsure is None else unsure.place_S[symbol]
    if unsure is not None and place >= 0:
        easy_C, hard_C = easy_C * unsure.as_sure_UC[0][place], hard_C * unsure.as_sure_UC[1][place]
    care, first = people.care_W[who], people.first
    least_CC = table(half_right(classes, first), classes)
    blind = (1 - care) * people.habit_WC[who, labels].sum()
    like_all_C = care * said_by_all(people, people.common_CC, labels, who, np.zeros(classes), least_CC)
    careful_C = easy_C * like_all_C / (like_all_C + blind)
    like_others_C = said_by_all(people, people.common_CC, labels, who, careful_C, least_CC)
    said_C = (people.count_PC[pairs].sum(axis=0) - easy_C).clip(min=0) + people.strength * (care * like_others_C + blind)
    chance_C = said_C / ((people.total_WC[who] - easy_C).clip(min=0) + people.strength)
    named_C = np.isin(np.arange(classes), labels).astype(float)
    mistaken_C = (careful_C + hard_C) * (1 - named_C)
    wrong_C = said_by_all(people, people.wrong_CC, labels, None, mistaken_C, table(all_wrong(classes, first), classes))
    both = chance_C, 0.5 * named_C + 0.5 * wrong_C
    if unsure is None or place < 0:
        return both
    trust, base = unsure.trust_W[who], unsure.base_U1[place, 0]
    easy, hard = (trust * found_C + (1 - trust) * base for found_C in both)
    return easy, hard


def table(first: tuple[float, float], classes: int) -> np.ndarray:
    """Of what a class begins with for itself and for another, a row per class."""
    return np.where(np.eye(classes, dtype=bool), *first)


def said_by_all(
    people: Annotators, count_CC: np.ndarray, labels: np.ndarray, who: int | None, own_C: np.ndarray, least_CC: np.ndarray
) -> np.ndarray:
    """Probability that one of these labels is said of an item of each class, without what one answer added to the counts; with
    a taxonomy ring by ring, where `who` is the person or, if nobody, wrong answers are meant."""
    levels = people.levels
    if levels is None:
        left_C = np.maximum(count_CC[:, labels].sum(axis=1) - own_C, least_CC[:, labels].sum(axis=1))
        return left_C / (count_CC.sum(axis=1) - own_C)
    least, share_MC = 0.5 * people.first / len(count_CC), (levels.wrong_M1C[:, 0] if who is None else levels.share_MWC[:, who])
    found_C = np.zeros(len(count_CC))
    for c in range(len(count_CC)):
        rings = [levels.ring_CC[c] == ring for ring in range(levels.num_rings)]
        total_M = np.array([count_CC[c][ring].sum() for ring in rings])
        count_M = np.array([count_CC[c][[label for label in labels if ring[label]]].sum() for ring in rings])
        part_M = share_MC[:, c] * np.divide(count_M, total_M, out=np.zeros(len(rings)), where=total_M > 0)
        gone_M = own_C[c] * part_M / part_M.sum() if part_M.sum() > 0 else np.zeros(len(rings))
        left_M = np.maximum(count_M - gone_M, np.where(count_M > 0, least, 0.0))
        rest_M = total_M - gone_M
        found_C[c] = (share_MC[:, c] * np.divide(left_M, rest_M, out=np.zeros(len(rings)), where=rest_M > 0)).sum()
    return found_C


def learn(answers: Answers, found: ItemPosterior, before: Annotators) -> Annotators:
    """The M-step, in whole tables."""
    annotator_P, label_P, classes = answers.annotator_P, answers.label_P, answers.num_classes
    like_all_PC = before.care_W[annotator_P, None] * before.like_all(annotator_P, label_P)
    prior_PC = like_all_PC + ((1 - before.care_W[annotator_P]) * before.habit_WC[annotator_P, label_P])[:, None]
    chance_PC = (before.count_PC + before.strength * prior_PC) / (before.total_WC[annotator_P] + before.strength)
    both_PC = chance_PC, before.hard_CC[:, label_P].T
    found_SC = answers.given_NS.T @ found.easy_NC, answers.given_NS.T @ found.hard_NC
    both_SC = answers.members_SP @ both_PC[0], answers.members_SP @ both_PC[1]
    unsure = None if before.unsure is None else learned_unsure(before.unsure, found_SC, both_SC)
    counts = []
    for hard in (False, True):
        given_SC = found_SC[hard]
        if unsure is not None:
            given_SC = unsure.without_guesses(given_SC, np.arange(len(given_SC)), hard)
        counts.append(both_PC[hard] * (answers.members_SP.T @ (given_SC / both_SC[hard])))
    count_PC, hard_PC = counts
    careful_PC = count_PC * like_all_PC / prior_PC
    total_WC, careful_CC, hard_CC = np.zeros_like(before.total_WC), np.zeros((classes, classes)), np.zeros((classes, classes))
    np.add.at(total_WC, annotator_P, count_PC)
    np.add.at(careful_CC, label_P, careful_PC)
    np.add.at(hard_CC, label_P, hard_PC)
    wrong_CC = (careful_CC + hard_CC).T * (1 - np.eye(classes))
    careful_W = np.bincount(annotator_P, careful_PC.sum(axis=1), minlength=answers.num_annotators)
    answered_N = answers.answered_N
    hard_C, items_C = found.hard_NC[answered_N].sum(axis=0), found.posterior_NC[answered_N].sum(axis=0)
    care_W = (careful_W + CARE_PSEUDO_COUNTS[0]) / (total_WC.sum(axis=1) + sum(CARE_PSEUDO_COUNTS))
    count_PC[annotator_P == answers.num_annotators - 1] = total_WC[-1] = 0  # whoever has no name has no matrix
    return replace(
        before,
        count_PC=count_PC,
        total_WC=total_WC,
        common_CC=careful_CC.T + table(half_right(classes, before.first), classes),
        wrong_CC=wrong_CC + table(all_wrong(classes, before.first), classes),
        care_W=care_W,
        hard_C=(hard_C + HARD_PSEUDO_COUNTS[0]) / (items_C + sum(HARD_PSEUDO_COUNTS)) if before.hard_C.any() else before.hard_C,
        levels=None if before.levels is None else before.levels.learned(answers, careful_PC),
        unsure=unsure,
        caution=None if before.caution is None else before.caution.learned(found.hard_NC.sum(axis=1)),
    )
