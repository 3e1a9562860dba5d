"""Skill on each level of a taxonomy: learned, better than the same answers without the tree, and nothing without one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from pals.crowd.dawid_skene.annotators import confusion_matrices, initial_annotators, m_step
from pals.crowd.dawid_skene.e_step import e_step
from pals.crowd.dawid_skene.taxonomy_levels import RingCounts, initial_levels

from _crowd import many_people, votes_of
from pals.crowd import Result, closed_form, dawid_skene, majority_vote
from pals.crowd.answers import arrange
from pals.crowd.next_answer import typical_person
from pals.crowd.taxonomy_results import answer_levels, node_counts
from pals.labels.taxonomy import Taxonomy
from pals.readers import Votes

BRANCHES, EACH = 4, 3
TREE = Taxonomy(
    tuple(name for b in range(BRANCHES) for name in (f"b{b}", *(f"b{b}c{c}" for c in range(EACH)))),
    tuple(parent for b in range(BRANCHES) for parent in (-1, *[b * (EACH + 1)] * EACH)),
)
UNEVEN = Taxonomy.from_parents({"a": None, "b": None, "b1": "b", "b2": "b", "b21": "b2", "b22": "b2", "b23": "b2"})


def crowd(
    items: int, people: list[tuple[float, float]], coarse: float, seed: int, tree: Taxonomy | None = TREE
) -> tuple[Votes, np.ndarray]:
    """Everybody answers for every item, with a skill for the branch and one for the class in it."""
    rng = np.random.default_rng(seed)
    truth_N = rng.integers(BRANCHES * EACH, size=items)
    rows, answer = [], []
    for item, truth in enumerate(truth_N.tolist()):
        for person, (branch_skill, skill) in enumerate(people):
            branch, place = divmod(truth, EACH)
            if rng.random() >= branch_skill:
                branch, place = (branch + int(rng.integers(1, BRANCHES))) % BRANCHES, int(rng.integers(EACH))
            elif rng.random() >= skill:
                place = (place + int(rng.integers(1, EACH))) % EACH
            named = range(EACH) if rng.random() < coarse else [place]
            rows += [(item, person, branch * EACH + one) for one in named]
            answer += [item * len(people) + person] * len(named)
    votes = votes_of(rows, items, BRANCHES * EACH, answer=answer)
    return replace(votes, class_names=TREE.leaves, taxonomy=tree), truth_N


PEOPLE = [(0.98, 0.9), (0.98, 0.4), (0.75, 0.75), (0.9, 0.55)]


def test_who_is_asked_next_knows_what_people_know_on_each_level() -> None:
    """So few answers that the prior, which is by each person's skill on each level, decides."""
    votes, _ = crowd(40, PEOPLE, coarse=0.0, seed=0)
    found = dawid_skene(votes, strength=100.0)
    person = typical_person(found.answers, found.annotators)
    given_W = np.bincount(votes.annotator_R, minlength=found.answers.num_annotators)
    assert person.easy_CC == pytest.approx(np.average(found.confusion_WCC, axis=0, weights=given_W))


def test_skills_are_found_level_by_level() -> None:
    votes, _ = crowd(500, PEOPLE, coarse=0.2, seed=0)
    levels = dawid_skene(votes, strength=10.0).annotators.levels
    assert levels is not None
    assert np.abs(levels.skill_WL[:4] - np.array(PEOPLE)).max() < 0.12
    assert levels.skill_WL[1, 0] > 0.9  # knows the branch
    assert levels.skill_WL[1, 1] < 0.55  # not which class of it


def test_the_tree_makes_labels_better() -> None:
    """Over a few draws: alone and with features, against the same answers as plain sets of candidates."""
    wrong: dict[str, list[float]] = {"majority": [], "flat": [], "tree": [], "flat form": [], "tree form": []}
    for seed in range(3):
        votes, truth_N = crowd(150, PEOPLE, coarse=0.3, seed=seed)
        flat = replace(votes, taxonomy=None)
        features_ND = torch.eye(12)[truth_N] + 0.8 * torch.randn(150, 12, generator=torch.Generator().manual_seed(seed))
        found = {
            "majority": majority_vote(votes).argmax(axis=1),
            "flat": dawid_skene(flat, strength=3.0, iterations=40).label_N,  # each with what suits it
            "tree": dawid_skene(votes, strength=100.0, iterations=40).label_N,
            "flat form": closed_form(flat, features_ND).label_N,
            "tree form": closed_form(votes, features_ND).label_N,
        }
        for name, label_N in found.items():
            wrong[name].append(float((label_N != truth_N).mean()))
    mean = {name: float(np.mean(shares)) for name, shares in wrong.items()}
    assert mean["tree"] < 0.9 * min(mean["flat"], mean["majority"])
    assert mean["tree form"] < mean["flat form"]


@pytest.mark.parametrize("hard_items", [False, True])
def test_without_levels_nothing_changes(hard_items: bool) -> None:
    """A tree whose leaves are all roots says nothing, and gives the very numbers that no tree gives."""
    votes, _ = many_people(80, 12, 4, seed=3)
    tree = Taxonomy.from_parents(dict.fromkeys(votes.class_names))
    with_tree = dawid_skene(replace(votes, taxonomy=tree), hard_items=hard_items)
    without = dawid_skene(votes, hard_items=hard_items)
    assert with_tree.annotators.levels is None
    assert np.array_equal(with_tree.posterior_NC, without.posterior_NC)
    assert np.array_equal(with_tree.confusion_WCC, without.confusion_WCC)


def test_coarse_answers_of_one_person_to_one_node_share_a_symbol() -> None:
    """However many there are: all that is kept of them grows with people and nodes, not with answers."""
    item_A = np.arange(20_000)
    rows = [(int(item), int(item) % 5, (int(item) % BRANCHES) * EACH + place) for item in item_A for place in range(EACH)]
    votes = votes_of(rows, len(item_A), BRANCHES * EACH, answer=np.repeat(item_A, EACH).tolist())
    votes = replace(votes, class_names=TREE.leaves, taxonomy=TREE)
    answers = arrange(votes)
    pairs, nodes = 5 * BRANCHES * EACH, 5 * BRANCHES
    assert answers.given_NS.shape == (20_000, pairs + nodes)
    assert answers.given_NS.nnz == 20_000
    assert answers.members_SP.nnz == pairs + nodes * EACH
    assert arrange(replace(votes, taxonomy=None)).given_NS.shape[1] == pairs + 20_000


def test_sharing_a_symbol_keeps_what_was_said() -> None:
    votes, _ = crowd(50, PEOPLE, coarse=0.5, seed=1)
    shared, apart = arrange(votes), arrange(replace(votes, taxonomy=None))
    for answers in (shared, apart):
        assert answers.annotator_S.shape == (answers.given_NS.shape[1],)
    named = [answers.given_NS @ answers.members_SP for answers in (shared, apart)]
    assert (named[0] != named[1]).nnz == 0


@pytest.mark.parametrize("tree", [TREE, UNEVEN], ids=["even", "uneven"])
def test_shares_of_rings_are_probabilities(tree: Taxonomy) -> None:
    levels = initial_levels(tree, 2)
    assert levels is not None
    classes = len(tree.leaves)
    levels = replace(levels, skill_WL=np.random.default_rng(0).uniform(0.2, 0.95, levels.skill_WL.shape))
    count_CC = np.random.default_rng(1).uniform(0.1, 1, (classes, classes))
    annotator_P, label_P = np.repeat([0, 1], classes), np.tile(np.arange(classes), 2)
    said_PC = levels.of_pairs(count_CC, annotator_P, label_P)
    assert said_PC[:classes].sum(axis=0) == pytest.approx(np.ones(classes))
    assert said_PC[classes:].sum(axis=0) == pytest.approx(np.ones(classes))
    assert levels.wrong(count_CC).sum(axis=1) == pytest.approx(np.ones(classes))
    assert np.diag(levels.wrong(count_CC)) == pytest.approx(np.zeros(classes))
    # by hand: right on both levels above the class in the even tree
    right_C = said_PC[np.arange(classes), np.arange(classes)]
    if tree is TREE:
        assert right_C == pytest.approx(np.full(classes, levels.skill_WL[0].prod()))
    else:
        assert right_C[0] == pytest.approx(levels.skill_WL[0, 0])  # the class that ends on the first level
        assert right_C[-1] == pytest.approx(levels.skill_WL[0].prod())


def test_confusion_matrices_have_rows_that_sum_to_one() -> None:
    votes, _ = crowd(60, PEOPLE, coarse=0.3, seed=2)
    answers = arrange(votes)
    people = initial_annotators(answers, 10.0, hard=True)
    found = e_step(answers, people, np.zeros((answers.num_items, answers.num_classes)))
    people = m_step(answers, found, people)
    assert confusion_matrices(answers, people).sum(axis=2) == pytest.approx(np.ones((5, 12)))


def test_taking_an_answer_out_is_counting_without_it() -> None:
    """Of single labels, by hand: the count of the label and of its ring are less by what the answer added."""
    votes, _ = crowd(30, PEOPLE, coarse=0.0, seed=4)
    answers, levels = arrange(votes), initial_levels(TREE, 5)
    assert levels is not None
    count_CC = np.random.default_rng(5).uniform(2, 5, (12, 12))
    table = RingCounts(levels, answers, count_CC, levels.share_MWC, least=1.0)
    symbol_E = np.array([0, 3, 7])
    who_E, own_EC = answers.annotator_S[symbol_E], np.full((3, 12), 0.5)
    kind_EC, who_EC = (number_E[:, None] * 12 + np.arange(12) for number_E in (answers.kind_S[symbol_E], who_E))
    found_EC = table.without(kind_EC, who_EC, np.arange(12), own_EC)
    for entry, symbol in enumerate(symbol_E):
        label, who = answers.label_P[symbol], who_E[entry]
        for c in range(12):
            ring = levels.ring_CC[c, label]
            total = count_CC[c][levels.ring_CC[c] == ring].sum()
            expected = levels.share_MWC[ring, who, c] * (count_CC[c, label] - 0.5) / (total - 0.5)
            assert found_EC[entry, c] == pytest.approx(expected)


def test_accuracy_level_by_level_counts_what_answers_claim() -> None:
    """Two items of b0c0: one person says the class, the branch, a sister class; another another branch."""
    rows = [(0, 0, 0), (1, 0, 0), (1, 0, 1), (1, 0, 2), (0, 1, 1), (1, 1, 3)]
    votes = replace(votes_of(rows, 2, 12, answer=[0, 1, 1, 1, 2, 3]), class_names=TREE.leaves, taxonomy=TREE)
    result = Result(votes, np.tile(np.eye(12)[0], (2, 1)))
    accuracy_WL = answer_levels(result, TREE).accuracy(result.annotator_A, 2)
    assert accuracy_WL.tolist() == [[1.0, 1.0], [0.5, 0.0]]  # the branch alone claims nothing about the class
    assert result.node_A.tolist() == [-1, 0, -1, -1]
    counts = node_counts(result, TREE, 0.9)
    assert counts.items_T[:4].tolist() == [2, 2, 0, 0]
    assert counts.answers_T[:6].tolist() == [1, 1, 1, 0, 0, 1]
    assert counts.claims_T[:2].tolist() == [4, 3]
    assert counts.right_T[:2].tolist() == [3, 1]
    assert counts.rolled_up_T[:2].tolist() == [0, 2]
