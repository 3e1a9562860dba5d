"""How fast PALS labels: votes, belief and selection against a straightforward version; torch neighbours against faiss.

    python benchmarks/speed/labeling.py [--device cuda]
    python benchmarks/speed/labeling.py --device cuda --growth 50000 200000 500000 1000000   # exact neighbours alone

The straightforward version does what the authors' code does: it gathers an N x (K+1) x C table for each vote and goes
through the classes one by one. Both versions get the same neighbours and must agree before anything is timed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from _measure import Times, in_fresh_process, peak_bytes, report, seconds
from torch import Tensor

from pals.pseudo_labels.knn import MIN_SCREENED_ITEMS, Neighbors, _is_screened, nearest, nearest_to
from pals.pseudo_labels.knn_vote import neighbor_weight, vote, vote_posterior
from pals.pseudo_labels.reliable_subset import Labeling, agreeing_counts, quota_of, select_reliable

FAISS_AT_ITS_BEST = {"OPENBLAS_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}


def ours(near: Neighbors, allowed_NC: Tensor) -> Labeling:
    """The part of `pals.pseudo_labels.pseudo_label` that follows the neighbour search."""
    weight_NK = neighbor_weight(near.similarity_NK)
    pseudo_N = vote(near.index_NK, weight_NK, allowed_NC).argmax(dim=1)
    posterior_NC = vote_posterior(near.index_NK, weight_NK, pseudo_N, allowed_NC.shape[1])
    quota = quota_of(agreeing_counts(posterior_NC, allowed_NC), 0.25)
    return Labeling(pseudo_N, posterior_NC, *select_reliable(posterior_NC, allowed_NC, quota), quota)


def straightforward(near: Neighbors, allowed_NC: Tensor) -> Labeling:
    """The same as the authors' code goes about it."""
    items, classes = allowed_NC.shape
    label_NC = allowed_NC.to(torch.float32)
    weight_NK1 = (near.similarity_NK / 0.1).exp().unsqueeze(2)
    pseudo_N = (weight_NK1 * label_NC[near.index_NK]).sum(dim=1).argmax(dim=1)
    one_hot_NC = F.one_hot(pseudo_N, classes).to(torch.float32)
    posterior_NC = (weight_NK1 * one_hot_NC[near.index_NK]).sum(dim=1)
    posterior_NC = posterior_NC / posterior_NC.sum(dim=1, keepdim=True)
    best_N = posterior_NC.argmax(dim=1)
    agrees_N = allowed_NC[torch.arange(items, device=best_N.device), best_N]
    counts = torch.stack([(agrees_N & (best_N == c)).sum() for c in range(classes)]).to(torch.float32)
    quota = int(torch.quantile(counts, 0.25))
    loss_NC = torch.full_like(posterior_NC, float("inf"))
    for c in range(classes):
        pool_P = allowed_NC[:, c].nonzero().flatten()
        doubt_P = -posterior_NC[pool_P, c].clamp(0.01, 0.99).log()
        kept_M = doubt_P.topk(min(quota, len(pool_P)), largest=False)
        loss_NC[pool_P[kept_M.indices], c] = kept_M.values
    least_N, label_N = loss_NC.min(dim=1)
    selected_N = torch.isfinite(least_N)
    return Labeling(pseudo_N, posterior_NC, selected_N, torch.where(selected_N, label_N, -1), quota)


def check_agreement(a: Labeling, b: Labeling, allowed_NC: Tensor) -> None:
    """Same pseudo-labels, posteriors and quota; the same items selected but for ties of the clamped posterior."""
    assert torch.equal(a.pseudo_N, b.pseudo_N)
    torch.testing.assert_close(a.posterior_NC, b.posterior_NC, atol=1e-5, rtol=0)
    assert a.quota == b.quota > 1
    score_NC = torch.where(allowed_NC, b.posterior_NC.clamp(0.01, 0.99), -1.0)
    lowest_C = score_NC.topk(a.quota, dim=0).values[-1]
    near_zero = 1e-5  # rounding: the two versions scale their weights differently
    certain_N = (score_NC > lowest_C + near_zero).any(dim=1)
    possible_N = (allowed_NC & (score_NC >= lowest_C - near_zero)).any(dim=1)
    for found in (a, b):
        assert found.selected_N[certain_N].all()
        assert possible_N[found.selected_N].all()
        assert allowed_NC.gather(1, found.label_N.clamp_min(0)[:, None])[found.selected_N].all()
    same_N = a.selected_N & b.selected_N
    differ_N = same_N & (a.label_N != b.label_N)
    # A label may differ only where another class's tie took or left the item, or where clamping made two classes equal.
    assert (a.label_N[same_N] == b.label_N[same_N]).float().mean() > 0.98, int(differ_N.sum())
    print(
        f"both agree: quota {a.quota}, {int(certain_N.sum())} items certain, chosen {int(a.selected_N.sum())} and "
        f"{int(b.selected_N.sum())}, {int(same_N.sum())} in common, {int(differ_N.sum())} of them with another label"
    )


def make_problem(items: int, classes: int, device: str) -> tuple[Neighbors, Tensor]:
    """Items around class centres, candidates with partial rate 0.05 and noise rate 0.3, and 15 neighbours each."""
    generator = torch.Generator().manual_seed(0)
    truth_N = torch.randint(0, classes, (items,), generator=generator)
    center_CD = torch.randn(classes, 64, generator=generator)
    features_ND = center_CD[truth_N] + 1.2 * torch.randn(items, 64, generator=generator)
    allowed_NC = torch.rand(items, classes, generator=generator) < 0.05
    kept_N = torch.rand(items, generator=generator) >= 0.3
    allowed_NC[torch.arange(items), truth_N] = kept_N | ~allowed_NC.any(dim=1)
    return nearest(features_ND.to(device), 15), allowed_NC.to(device)


def load(path: str, device: str) -> tuple[Neighbors, Tensor]:
    index_NK, similarity_NK, allowed_NC = torch.load(path, map_location=device)
    return Neighbors(index_NK, similarity_NK), allowed_NC


VARIANTS = {"ours": ours, "straightforward": straightforward}


def compare_steps(options: argparse.Namespace) -> None:
    near, allowed_NC = make_problem(options.items, options.classes, options.device)
    check_agreement(ours(near, allowed_NC), straightforward(near, allowed_NC), allowed_NC)
    runs = {name: lambda run=run: run(near, allowed_NC) for name, run in VARIANTS.items()}  # type: ignore[misc]
    times = seconds(runs, options.repeats, options.device)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "problem.pt")
        torch.save((*near, allowed_NC), path)
        memory = {name: in_fresh_process([*same(options), "--memory-of", name, path]) for name in VARIANTS}
    results = [
        {
            "variant": name,
            "ms": times[name].median * 1e3,
            "best_ms": times[name].best * 1e3,
            "peak_MB": memory[name] / 1e6,
            "times_slower": times[name].median / times["ours"].median,
            "times_memory": memory[name] / memory["ours"],
        }
        for name in VARIANTS
    ]
    report(f"labelling step, N={options.items} C={options.classes} K=15+1, neighbours given", results, options.device)


def measure_memory(name: str, path: str, device: str) -> None:
    tiny = make_problem(500, 10, device)
    VARIANTS[name](*tiny)  # libraries and threads are loaded before the measurement
    near, allowed_NC = load(path, device)
    print(json.dumps(peak_bytes(lambda: VARIANTS[name](near, allowed_NC), device)))


def time_search(backend: str, items: int, width: int, device: str) -> None:
    features_ND = random_features(items, width).to(device)
    times = seconds({backend: lambda: nearest(features_ND, 15, backend=backend)}, 1, device)  # type: ignore[arg-type]
    print(json.dumps(times[backend].best))


def compare_searches(options: argparse.Namespace) -> None:
    features_ND = random_features(options.search_items, options.width)
    exact, faiss = nearest(features_ND, 15), nearest(features_ND, 15, backend="faiss-flat")
    torch.testing.assert_close(exact.similarity_NK, faiss.similarity_NK, atol=1e-6, rtol=0)
    alike = float((exact.index_NK == faiss.index_NK).float().mean())
    size = [str(options.search_items), str(options.width)]
    settings: dict[str, dict[str, str]] = {"torch": {}, "faiss-flat": {}, "faiss-flat, tuned": FAISS_AT_ITS_BEST}
    # A fresh process each, since the two libraries' threads get in each other's way; in turns, as in `seconds`.
    runs: dict[str, list[float]] = {name: [] for name in settings}
    for _ in range(options.search_repeats):
        for name, environment in settings.items():
            arguments = [*same(options), "--search", name.partition(",")[0], *size]
            runs[name].append(in_fresh_process(arguments, environment))
    times = {name: Times(statistics.median(values), min(values)) for name, values in runs.items()}
    results = [
        {
            "variant": name,
            "seconds": times[name].median,
            "best_seconds": times[name].best,
            "times_slower": times[name].median / times["torch"].median,
            "environment": " ".join(f"{key}={value}" for key, value in environment.items()) or None,
        }
        for name, environment in settings.items()
    ]
    report(f"16 neighbours of {size[0]} x {size[1]}, exact, same index in {alike:.2%} of places", results, options.device)


def search_part(items: int, width: int, queries: int) -> None:
    """Exact neighbours among many items, for some of them: time is linear in the queries, the memory is that of all."""
    features_ND = random_features(items, width)
    nearest_to(features_ND[:100], features_ND[:1000], 16)  # libraries and threads are loaded before the measurement
    start = time.process_time()
    peak = peak_bytes(lambda: nearest_to(features_ND[:queries], features_ND, 16))
    cpu = time.process_time() - start
    result = {"queries": queries, "cpu seconds": cpu, "cpu seconds, all": cpu * items / queries, "peak_MB": peak / 1e6}
    report(f"16 neighbours among {items} x {width}, exact, of a part of them; peak beside the features given", [result])


def search_growth(options: argparse.Namespace) -> None:
    """Exact neighbours of all items, of more and more of them: time, memory beside the features, and whether it is exact."""
    results: list[dict[str, Any]] = []
    nearest(random_features(MIN_SCREENED_ITEMS, options.width).to(options.device), 15)  # loads libraries
    for items in options.growth:
        features_ND = random_features(items, options.width).to(options.device)
        peak = peak_bytes(lambda: nearest(features_ND, 15), options.device)  # noqa: B023
        found = list[Neighbors]()
        times = seconds({"": lambda: found.append(nearest(features_ND, 15))}, 1, options.device)[""]  # noqa: B023
        del found[1:]
        first = results[0] if results else {"items": items, "seconds": times.best}
        results.append(
            {
                "items": items,
                "screened": _is_screened(features_ND),
                "seconds": times.best,
                "times_slower": times.best / first["seconds"],
                "times_squared": (items / first["items"]) ** 2,
                "peak_MB": peak / 1e6,
                "largest_difference": difference(found[0], features_ND),
            }
        )
        print(json.dumps(results[-1]), file=sys.stderr, flush=True)  # what is done, should the next not fit
    report(f"16 neighbours of all items, width {options.width}, exact; peak beside the features", results, options.device)


def difference(found: Neighbors, features_ND: Tensor, queries: int = 64) -> float:
    """Of some items: by how much a similarity that was found differs, at most, from that of the true neighbour in its place,
    all in float64. Neighbours that were missed would show."""
    row_M = torch.linspace(0, len(features_ND) - 1, min(queries, len(features_ND))).long().to(features_ND.device)
    query_MD = F.normalize(features_ND[row_M].double())
    parts = features_ND.split(100_000)
    score_MN = torch.cat([query_MD @ F.normalize(part.double()).T for part in parts], dim=1)
    best_MK = score_MN.topk(found.index_NK.shape[1], dim=1).values
    return float((score_MN.gather(1, found.index_NK[row_M]) - best_MK).abs().max())


def random_features(items: int, width: int) -> Tensor:
    return torch.randn(items, width, generator=torch.Generator().manual_seed(0))


def same(options: argparse.Namespace) -> list[str]:
    """The settings that a fresh process must share."""
    return ["--device", options.device, "--threads", str(options.threads)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=20_000)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--search-items", type=int, default=10_000)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--search-repeats", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--no-search", action="store_true", help="leave the neighbour search out (without faiss, say)")
    parser.add_argument("--memory-of", nargs=2, metavar=("VARIANT", "FILE"), help=argparse.SUPPRESS)
    parser.add_argument("--search", nargs=3, metavar=("BACKEND", "N", "D"), help=argparse.SUPPRESS)
    parser.add_argument("--growth", nargs="+", type=int, metavar="N", help="neighbours of all of N items, alone, for each N")
    parser.add_argument("--part", nargs=2, type=int, metavar=("N", "QUERIES"), help="neighbours of some among N items, alone")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.memory_of:
        measure_memory(*options.memory_of, options.device)
    elif options.search:
        backend, *numbers = options.search
        time_search(backend, *map(int, numbers), options.device)
    elif options.growth:
        search_growth(options)
    elif options.part:
        items, queries = options.part
        search_part(items, options.width, queries)
    else:
        compare_steps(options)
        if not options.no_search:
            compare_searches(options)


if __name__ == "__main__":
    main()
