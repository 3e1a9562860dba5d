from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from pals.labels.candidates import CandidateSets, Truth, default_names
from pals.labels.noise import Noise, Protocol, draw_annotators, make_candidates, official_candidates
from pals.util.errors import InputError

PROTOCOLS: tuple[Protocol, ...] = ("g1", "g2", "g3", "g4")
MANY = 100_000
FIVES = torch.arange(100) // 5


def truth_of(items: int, classes: int) -> Truth:
    return Truth.of(torch.arange(items) % classes, default_names(classes))


def make(truth: Truth, q: float, eta: float, protocol: Protocol = "g1", seed: int = 0, **more: Any) -> Noise:
    generator = torch.Generator().manual_seed(seed)
    return make_candidates(truth, partial_rate=q, noise_rate=eta, protocol=protocol, generator=generator, **more)


def sets(candidates: CandidateSets) -> list[set[int]]:
    return [set(row.nonzero().flatten().tolist()) for row in candidates.allowed_NC]


def near(share: float, items: int = MANY) -> Any:
    """Within five standard deviations of a share counted over so many independent items."""
    return pytest.approx(share, abs=5 * math.sqrt(share * (1 - share) / items) + 1e-12)


EFFECTIVE_NOISE = {  # (classes, partial rate): the rate of missing true labels at noise rates 0.1, 0.2, 0.3 and 0.5
    (10, 0.1): (0.064, 0.133, 0.208, 0.380),
    (10, 0.3): (0.096, 0.194, 0.291, 0.490),
    (10, 0.5): (0.100, 0.200, 0.300, 0.500),
    (100, 0.01): (0.065, 0.136, 0.213, 0.387),
    (100, 0.03): (0.096, 0.192, 0.290, 0.487),
    (100, 0.05): (0.099, 0.199, 0.299, 0.498),
    (200, 0.05): (0.100, 0.200, 0.300, 0.500),
}


class TestClosedForms:
    @pytest.mark.parametrize(("classes", "q"), EFFECTIVE_NOISE)
    def test_effective_noise_of_g1(self, classes: int, q: float) -> None:
        for eta, value in zip((0.1, 0.2, 0.3, 0.5), EFFECTIVE_NOISE[classes, q], strict=True):
            assert make(truth_of(classes, classes), q, eta).expected_rate == pytest.approx(value, abs=5.1e-4)

    def test_g1_in_groups_of_five(self) -> None:
        truth = Truth.of(torch.arange(MANY) % 100)
        noise = make(truth, 0.5, 0.2, group_C=FIVES)
        assert noise.expected_rate == pytest.approx(0.190, abs=5e-4)
        assert noise.effective_rate == near(noise.expected_rate)

    @pytest.mark.parametrize(
        ("protocol", "expected", "size"),
        [("g1", 0.3 * (1 - 0.8**7) / (1 - 0.3 * 0.8**7), (0.7 + 7 * 0.2) / (1 - 0.3 * 0.8**7)), ("g2", 0.3, 1 + 7 * 0.2),
         ("g3", 0.3, None), ("g4", 0.3 * 0.8, None)],
    )  # fmt: skip
    def test_rates_and_sizes_on_many_draws(self, protocol: Protocol, expected: float, size: float | None) -> None:
        noise = make(truth_of(MANY, 8), 0.2, 0.3, protocol)
        assert noise.expected_rate == pytest.approx(expected, abs=1e-5)  # g2: full sets, 0.3 * 0.2^7
        assert noise.effective_rate == near(expected)
        assert (noise.protocol, noise.partial_rate, noise.noise_rate) == (protocol, 0.2, 0.3)
        size_N = noise.candidates.size_N.double()
        assert noise.mean_size == float(size_N.mean())
        assert size is None or noise.mean_size == pytest.approx(size, abs=5 * float(size_N.std()) / math.sqrt(MANY))


Law = dict[frozenset[int], float]


def subsets(labels: list[int], q: float) -> Iterator[tuple[frozenset[int], float]]:
    for inside in itertools.product([False, True], repeat=len(labels)):
        chosen = frozenset(c for c, one in zip(labels, inside, strict=True) if one)
        yield chosen, q ** len(chosen) * (1 - q) ** (len(labels) - len(chosen))


def gather(cases: Iterator[tuple[frozenset[int], float]]) -> Law:
    law: Law = {}
    for chosen, chance in cases:
        law[chosen] = law.get(chosen, 0.0) + chance
    return law


def without_empty(law: Law) -> Law:
    """What redrawing empty sets leads to."""
    kept = {chosen: chance for chosen, chance in law.items() if chosen}
    return {chosen: chance / sum(kept.values()) for chosen, chance in kept.items()}


def first_labels(y: int, wrong: list[int], eta: float, pair_flip: bool) -> list[tuple[int, float]]:
    if not wrong:
        return [(y, 1.0)]
    flipped = ([c for c in wrong if c > y] or wrong)[:1] if pair_flip else wrong
    return [(y, 1 - eta), *((c, eta / len(flipped)) for c in flipped)]


def law_of(protocol: str, y: int, group: list[int], q: float, eta: float, pair_flip: bool = False) -> Law:
    wrong = [c for c in range(len(group)) if c != y and group[c] == group[y]]
    if protocol == "g1":
        own = [(frozenset({y}), 1 - eta), (frozenset[int](), eta)]
        return without_empty(gather((a | b, p * r) for a, p in own for b, r in subsets(wrong, q)))
    if protocol == "g2":

        def flip() -> Iterator[tuple[frozenset[int], float]]:
            for chosen, chance in subsets(wrong, q):
                spare = [c for c in wrong if c not in chosen]
                yield chosen | {y}, chance * ((1 - eta) if spare else 1)
                for c in spare:
                    yield chosen | {c}, chance * eta / len(spare)

        return gather(flip())
    first = first_labels(y, wrong, eta, pair_flip)
    rest = without_empty(gather(subsets(wrong, q))) if protocol == "g3" else gather(subsets([*wrong, y], q))
    return gather((b | {label}, p * r) for label, p in first for b, r in rest.items())


def check_law(noise: Noise, y: int, expected: Law) -> None:
    code_N = (noise.candidates.allowed_NC.long() << torch.arange(noise.candidates.num_classes)).sum(dim=1)
    code, count = np.unique(code_N.numpy(), return_counts=True)
    pairs = zip(code.tolist(), count.tolist(), strict=True)
    found = {frozenset(c for c in range(8) if n >> c & 1): k / len(code_N) for n, k in pairs}
    assert found.keys() <= {chosen for chosen, chance in expected.items() if chance > 0}
    assert sum(expected.values()) == pytest.approx(1)
    for chosen, chance in expected.items():
        assert found.get(chosen, 0.0) == near(chance, len(code_N)), chosen


class TestDistribution:
    @pytest.mark.parametrize("protocol", PROTOCOLS)
    @pytest.mark.parametrize(("q", "eta"), [(0.3, 0.4), (0.1, 0.9), (0.9, 0.2), (1.0, 0.5), (0.02, 0.0), (0.3, 1.0)])
    @pytest.mark.parametrize("group", [[0, 0, 0, 0], [1, 0, 1, 1, 0]])
    def test_every_set_is_as_likely_as_the_recipe(self, protocol: Protocol, q: float, eta: float, group: list[int]) -> None:
        y = 2
        truth = Truth.of(torch.full((20_000,), y), default_names(len(group)))
        noise = make(truth, q, eta, protocol, group_C=torch.tensor(group))
        expected = law_of(protocol, y, group, q, eta)
        check_law(noise, y, expected)
        assert noise.expected_rate == pytest.approx(sum(p for chosen, p in expected.items() if y not in chosen))

    @pytest.mark.parametrize("y", [0, 2, 4])
    @pytest.mark.parametrize("group", [None, [0, 1, 0, 1, 0], [0, 1, 0, 1, 2]])
    def test_pair_flip(self, y: int, group: list[int] | None) -> None:
        truth = Truth.of(torch.full((20_000,), y), default_names(5))
        noise = make(truth, 0.2, 0.3, "g4", pair_flip=True, group_C=None if group is None else torch.tensor(group))
        check_law(noise, y, law_of("g4", y, group or [0] * 5, 0.2, 0.3, pair_flip=True))

    def test_pair_flip_goes_to_the_next_class(self) -> None:
        noise = make(truth_of(5, 5), 0.0, 1.0, "g4", pair_flip=True)
        assert sets(noise.candidates) == [{1}, {2}, {3}, {4}, {0}]
        noise = make(truth_of(5, 5), 0.0, 1.0, "g4", pair_flip=True, group_C=torch.tensor([0, 1, 0, 1, 0]))
        assert sets(noise.candidates) == [{2}, {3}, {4}, {1}, {0}]

    @pytest.mark.parametrize(("protocol", "eta", "own"), [("g1", 1.0, 0), ("g3", 0.0, 1)])
    def test_rare_labels_need_no_redraws(self, protocol: Protocol, eta: float, own: int) -> None:
        """With q = 1e-9 a draw is empty a billion times before it is not; then it holds one wrong label, any of them."""
        noise = make(Truth.of(torch.zeros(20_000), default_names(4)), 1e-9, eta, protocol)
        assert noise.mean_size == own + 1
        assert noise.candidates.allowed_NC.double().mean(dim=0).tolist() == [own, *[near(1 / 3, 20_000)] * 3]

    def test_draws_in_blocks_differ_from_one_another(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("pals.labels.noise.MAX_DRAWN_ENTRIES", 70)
        noise = make(truth_of(1003, 10), 0.5, 0.2)
        assert len(noise.candidates) == 1003 and len({tuple(row) for row in noise.candidates.allowed_NC.tolist()}) > 500


class TestProperties:
    @settings(max_examples=60, deadline=None)
    @given(
        protocol=st.sampled_from(PROTOCOLS),
        q=st.floats(0, 1),
        eta=st.floats(0, 1),
        group=st.lists(st.integers(0, 3), min_size=2, max_size=9),
        seed=st.integers(0, 2**40),
    )
    def test_sets_hold_some_of_their_group(self, protocol: Protocol, q: float, eta: float, group: list[int], seed: int) -> None:
        truth = truth_of(40, len(group))
        group_C = torch.tensor(group)
        alone = min(group.count(g) for g in group) == 1
        if (protocol == "g3" or (protocol == "g1" and eta == 1)) and (q == 0 or alone):
            with pytest.raises(InputError, match=r"wrong label|no true label"):
                make(truth, q, eta, protocol, seed, group_C=group_C)
            return
        noise = make(truth, q, eta, protocol, seed, group_C=group_C)
        allowed_NC = noise.candidates.allowed_NC
        assert allowed_NC.any(dim=1).all() and not (allowed_NC & (group_C[truth.label_N][:, None] != group_C)).any()
        assert 0 <= noise.expected_rate <= 1
        missing_N = ~allowed_NC[torch.arange(40), truth.label_N]
        assert noise.effective_rate == pytest.approx(float(missing_N.double().mean()))
        if eta == 0 or all(group.count(g) == 1 for g in group):  # a class alone in its group keeps its label
            assert noise.effective_rate == noise.expected_rate == 0

    @pytest.mark.parametrize("protocol", PROTOCOLS)
    def test_the_generator_decides(self, protocol: Protocol) -> None:
        named = make(Truth.of([0, 1], ("cat", "dog")), 0.1, 0.0, ids=["a", "b"]).candidates
        assert named.ids == ("a", "b") and named.class_names == ("cat", "dog")
        truth = truth_of(500, 10)
        state = torch.random.get_rng_state()
        first, same, other = (make(truth, 0.3, 0.3, protocol, seed) for seed in (1, 1, 2))
        assert torch.equal(first.candidates.allowed_NC, same.candidates.allowed_NC)
        assert not torch.equal(first.candidates.allowed_NC, other.candidates.allowed_NC)
        assert torch.equal(state, torch.random.get_rng_state()), "the global generator is left alone"


class TestBadInput:
    @pytest.mark.parametrize("rate", [-0.1, 1.1, math.nan, math.inf])
    @pytest.mark.parametrize("name", ["partial_rate", "noise_rate"])
    def test_rates(self, name: str, rate: float) -> None:
        rates: dict[str, Any] = {"partial_rate": 0.1, "noise_rate": 0.1} | {name: rate}
        for draw in (partial(make_candidates, generator=torch.Generator()), official_candidates):
            with pytest.raises(InputError, match=f"{name} is {rate}"):
                draw(truth_of(4, 2), **rates)

    @pytest.mark.parametrize(
        ("protocol", "q", "eta", "more", "message"),
        [
            ("g5", 0.1, 0.1, {}, "Unknown noise protocol 'g5': did you mean 'g"),
            ("g1", 0.0, 1.0, {}, "no true label is left, but with partial_rate=0 .* Raise partial_rate"),
            ("g1", 0.5, 1.0, {"group_C": torch.tensor([0, 1, 1])}, "item 0 has the true class '0', which is alone"),
            ("g3", 0.0, 0.1, {}, "at least one wrong label .* Raise partial_rate"),
            ("g3", 0.5, 0.1, {"group_C": torch.tensor([1, 1, 0])}, "item 2 has the true class '2', .* into a larger group"),
            ("g1", 0.1, 0.1, {"pair_flip": True}, "pair_flip belongs to protocol g4, not g1"),
            ("g1", 0.1, 0.1, {"group_C": torch.tensor([0, 1])}, r"each of the 3 classes; found shape \(2,\) of int64"),
            ("g1", 0.1, 0.1, {"group_C": torch.tensor([0.0, 1.0, 1.0])}, r"found shape \(3,\) of float32"),
            ("g1", 0.1, 0.1, {"ids": ["a"]}, "1 item names for 6 items"),
        ],
    )
    def test_settings(self, protocol: Any, q: float, eta: float, more: Any, message: str) -> None:
        with pytest.raises(InputError, match=message):
            make(truth_of(6, 3), q, eta, protocol, **more)

    def test_no_items_one_class_and_a_generator_elsewhere(self) -> None:
        elsewhere = Truth(torch.zeros(3, dtype=torch.int64), ("cat", "dog"))
        object.__setattr__(elsewhere, "label_N", elsewhere.label_N.to("meta"))
        for truth, message in (
            (Truth.of([], ("cat", "dog")), "no items"),
            (Truth.of([0, 0]), "Only one class"),
            (elsewhere, "generator is on cpu, the true labels on meta"),
        ):
            with pytest.raises(InputError, match=message):
                make(truth, 0.1, 0.1)


def official_loop(label: list[int], group: list[int], q: float, eta: float, seed: int) -> list[set[int]]:
    """The authors' procedure, one image at a time."""
    rng = np.random.RandomState(seed)
    rng.rand(len(label), len(group))
    result = []
    for y in label:
        threshold = np.array([q if g == group[y] else -1.0 for g in group])
        threshold[y] = 1 - eta
        chosen: set[int] = set()
        while not chosen:
            chosen = set(np.flatnonzero(rng.rand(len(group)) <= threshold).tolist())
        result.append(chosen)
    return result


class TestOfficial:
    def test_known_draws(self) -> None:
        noise = official_candidates(Truth.of([0, 1, 2, 0, 1, 2]), partial_rate=0.3, noise_rate=0.5)
        assert sets(noise.candidates) == [{0, 1}, {0, 1}, {2}, {2}, {1, 2}, {1}] and noise.protocol == "g1"
        truth = truth_of(50_000, 10)
        noise = official_candidates(truth, partial_rate=0.3, noise_rate=0.3, seed=42)
        assert sets(noise.candidates)[:3] == [{0, 8, 9}, {3, 4, 6, 8}, {2, 7, 8}]
        assert round(noise.mean_size, 4) == 3.4384 and round(noise.effective_rate, 4) == 0.2921
        assert noise.effective_rate == near(noise.expected_rate, 50_000)
        np.random.seed(3)
        expected = np.random.rand()
        np.random.seed(3)
        noise = official_candidates(truth_of(1000, 5), partial_rate=0.1, noise_rate=0.0)
        assert noise.expected_rate == noise.effective_rate == 0 and np.random.rand() == expected

    @settings(max_examples=60, deadline=None)
    @given(
        q=st.floats(0.01, 1),
        eta=st.floats(0, 1),
        group=st.lists(st.integers(0, 2), min_size=4, max_size=8).filter(lambda group: min(group.count(g) for g in group) > 1),
        seed=st.integers(0, 2**32 - 1),
    )
    def test_is_the_loop_number_for_number(self, q: float, eta: float, group: list[int], seed: int) -> None:
        truth = truth_of(50, len(group))
        noise = official_candidates(truth, partial_rate=q, noise_rate=eta, seed=seed, group_C=torch.tensor(group))
        assert sets(noise.candidates) == official_loop(truth.label_N.tolist(), group, q, eta, seed)

    @pytest.mark.parametrize(
        ("rates", "message"),
        [
            ({"partial_rate": 0.0, "noise_rate": 1.0}, "Raise partial_rate"),
            ({"partial_rate": 1e-6, "noise_rate": 1.0}, r"about 2.5e\+05 times each. make_candidates draws"),
            ({"partial_rate": 1e-300, "noise_rate": 1.0}, "make_candidates draws"),
            ({"partial_rate": 0.1, "noise_rate": 0.1, "seed": -1}, "seed is -1; use a whole number from 0 to 4294967295"),
            ({"partial_rate": 0.1, "noise_rate": 0.1, "seed": 2**32}, "seed is 4294967296"),
            ({"partial_rate": 0.1, "noise_rate": 0.1, "group_C": torch.zeros(2, 2)}, r"found shape \(2, 2\)"),
        ],
    )
    def test_refuses(self, rates: Any, message: str) -> None:
        with pytest.raises(InputError, match=message):
            official_candidates(truth_of(10, 5), **rates)


class TestAnnotators:
    def test_three_items(self) -> None:
        for dtype in (torch.float32, torch.float64):
            frequency_NC = torch.tensor([[0.5, 0.5, 0], [0.2, 0.3, 0.5], [0, 0, 1]], dtype=dtype)
            count_NC = draw_annotators(frequency_NC, 3, seed=42)  # answers 1 0 1 | 2 0 2 | 2 2 2
            assert count_NC.tolist() == [[1, 2, 0], [1, 0, 2], [0, 0, 3]]

    @settings(deadline=None)
    @given(
        counts=st.lists(st.lists(st.integers(0, 9), min_size=4, max_size=4).filter(any), min_size=1, max_size=20),
        labels_per_item=st.integers(1, 12),
        seed=st.integers(0, 2**63),
    )
    def test_is_choice_item_after_item(self, counts: list[list[int]], labels_per_item: int, seed: int) -> None:
        count_NC = np.array(counts)
        frequency_NC = count_NC / count_NC.sum(axis=1, keepdims=True)
        rng = np.random.default_rng(seed)
        expected = [np.bincount(rng.choice(4, size=labels_per_item, p=p), minlength=4).tolist() for p in frequency_NC]
        assert draw_annotators(frequency_NC, labels_per_item, seed).tolist() == expected
        assert draw_annotators(torch.from_numpy(count_NC), labels_per_item, seed).tolist() == expected

    @pytest.mark.parametrize(
        ("frequency", "labels", "seed", "message"),
        [
            ([[0.5, 0.5]], 0, 42, "labels_per_item is 0"),
            ([[0.5, 0.5]], 3, -1, "seed is -1; use a whole number from 0"),
            ([0.5, 0.5], 3, 42, r"found shape \(2,\)"),
            ([[0.5, 0.5], [0.0, 0.0]], 3, 42, "Row 1 of the label frequencies"),
            ([[0.5, 0.5], [1.5, -0.5]], 3, 42, "Row 1 of the label frequencies"),
            ([[0.5, math.nan]], 3, 42, "Row 0 of the label frequencies"),
            ([[1.0, 0.0], [math.inf, 0.0]], 3, 42, "Row 1 of the label frequencies"),
        ],
    )
    def test_refuses(self, frequency: Any, labels: int, seed: int, message: str) -> None:
        with pytest.raises(InputError, match=message):
            draw_annotators(torch.tensor(frequency), labels, seed)


@pytest.mark.gpu
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_on_the_gpu(protocol: Protocol) -> None:
    truth = Truth.of((torch.arange(MANY) % 8).cuda())
    generator = torch.Generator("cuda").manual_seed(0)
    group_C: Tensor = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2])
    noise = make_candidates(truth, partial_rate=0.3, noise_rate=0.3, protocol=protocol, generator=generator, group_C=group_C)
    assert noise.candidates.allowed_NC.is_cuda and noise.effective_rate == near(noise.expected_rate)
