"""FLOP imbalance and time of `flopcalc.pack` beside the packers of the field, in one run.

    python benchmarks/bench_packing.py            # prints the tables of packing.md; about ten minutes
    python benchmarks/bench_packing.py --quick    # 10 thousand documents only; about a minute

A cell of the large tables is "imbalance (micro-batches a rank; CPU seconds)", imbalance being
makespan / (all FLOPs / ranks). The others split by tokens or n*n, so their split does not depend on the
model; each is then placed as well as its micro-batches can be (see `makespan`), and may leave some of
them empty, which flopcalc does not.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from packing_baselines import first_fit_by_tokens, greedy_by_tokens, karmarkar_karp_by_squares, makespan

import flopcalc

MODELS = {
    "llama2-7b": "meta-llama/Llama-2-7b-hf",
    "Gemma-3-4B": "google/gemma-3-4b-it",
    "Qwen3.5-35B-A3B": "Qwen/Qwen3.5-35B-A3B",
    "GLM-5.2": "zai-org/GLM-5.2",
    "DeepSeek-V4-Flash": "deepseek-ai/DeepSeek-V4-Flash",
}
CAP = 65536
BASELINES = (first_fit_by_tokens, greedy_by_tokens, karmarkar_karp_by_squares)
SIZES = ((10_000, 8), (10_000, 64), (100_000, 256), (100_000, 1024), (1_000_000, 1024))
SLOW = {karmarkar_karp_by_squares: 100_000}  # documents, above which it takes hours


def rollouts(rng: np.random.Generator, num: int) -> np.ndarray:
    """RL rollouts: log-normal, cut at 32 thousand tokens."""
    return np.clip(rng.lognormal(7.8, 0.9, num), 32, 32768).astype(np.int64)


def instructions(rng: np.random.Generator, num: int) -> np.ndarray:
    """SFT: short chats and long documents."""
    long = np.clip(rng.normal(12_000, 4_000, num), 256, 30_000)
    return np.where(rng.random(num) < 0.8, np.clip(rng.normal(700, 300, num), 32, None), long).astype(np.int64)


def web(rng: np.random.Generator, num: int) -> np.ndarray:
    """Pre-training: a long tail, cut at the cap itself."""
    return np.clip((rng.pareto(1.1, num) + 1) * 300, 64, CAP).astype(np.int64)


def timed(call: Callable[..., Any], *args: Any, repeats: int = 1, **options: Any) -> tuple[Any, float]:
    """(result, CPU seconds of the fastest call): nothing here runs in parallel, and other work on the
    machine counts less."""
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        result = call(*args, **options)
        seconds.append(time.process_time() - start)
    return result, min(seconds)


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    print("|", " | ".join(headings), "|")
    print("|", " | ".join("---" for _ in headings), "|")
    for row in rows:
        print("|", " | ".join(row), "|", flush=True)
    print()


def quality(counters: dict[str, flopcalc.FlopCounter], sizes: Sequence[tuple[int, int]]) -> None:
    """Each row: the lower bound, and the imbalance and time of each method."""
    rows: dict[str, list[list[str]]] = {"micro_batch": [], "step": []}
    for distribution in (rollouts, instructions, web):
        for num, ranks in sizes:
            lengths = distribution(np.random.default_rng(num + ranks), num)
            others = [timed(split, lengths, CAP, ranks) for split in BASELINES if num <= SLOW.get(split, num)]
            for name, counter in counters.items():
                flops = counter.per_document(lengths).astype(object)
                for sync, row_of in rows.items():
                    options = {"max_tokens": CAP, "num_ranks": ranks, "counter": counter, "sync": sync}
                    plan, seconds = timed(flopcalc.pack, lengths, repeats=3, **options)
                    mean = plan.total_flops / ranks
                    row = [distribution.__name__, f"{num:,}", f"{ranks:,}", name, f"{plan.lower_bound / mean:.6f}"]
                    row.append(f"**{plan.imbalance:.6f}** ({plan.num_micro_batches}; {seconds:.3f} s)")
                    for bins, taken in others:
                        span = makespan(bins, flops, ranks, sync)
                        better = " (better)" if f"{span / mean:.6f}" < f"{plan.imbalance:.6f}" else ""
                        row.append(f"{span / mean:.6f}{better} ({len(bins) // ranks}; {taken:.2f} s)")
                    row_of.append(row + ["-"] * (len(BASELINES) - len(others)))
                    print(*row, file=sys.stderr, flush=True)
    headings = ["lengths", "documents", "ranks", "model", "bound", "flopcalc"]
    for sync, row_of in rows.items():
        print(f"### Ranks meet {'at every micro-batch' if sync == 'micro_batch' else 'once a step'}\n")
        table([*headings, "first-fit tokens", "greedy tokens", "Karmarkar-Karp n*n"], row_of)


def speed(counters: dict[str, flopcalc.FlopCounter]) -> None:
    """100 thousand documents onto 256 ranks, against a sort and a cost evaluation of them."""
    rows = []
    for distribution in (rollouts, instructions, web):
        lengths = distribution(np.random.default_rng(0), 100_000)
        _, sort = timed(np.sort, lengths, repeats=50)
        for name, counter in counters.items():
            _, cost = timed(counter.per_document, lengths, repeats=50)
            options = {"max_tokens": CAP, "num_ranks": 256, "counter": counter}
            row = [distribution.__name__, name, f"{sort * 1e3:.2f}", f"{cost * 1e3:.2f}"]
            for _, seconds in (
                timed(flopcalc.balance, lengths, 256, counter, repeats=50),
                timed(flopcalc.pack, lengths, repeats=50, **options),
                timed(flopcalc.pack, lengths, repeats=50, **options, sync="step"),
            ):
                ratios = seconds / (5 * sort + 20 * cost), seconds / (5 * (sort + 20 * cost))
                row.append(f"{seconds * 1e3:.1f} ms ({ratios[0]:.2f}, {ratios[1]:.2f})")
            rows.append(row)
    print("### Time of 100,000 documents onto 256 ranks\n")
    table(["lengths", "model", "sort, ms", "cost, ms", "balance", "pack", "pack, sync='step'"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="10 thousand documents only")
    quick = parser.parse_args().quick
    counters = {name: flopcalc.FlopCounter(config) for name, config in MODELS.items()}
    speed(counters)
    quality(counters, SIZES[:2] if quick else SIZES)


if __name__ == "__main__":
    main()
