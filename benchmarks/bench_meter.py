"""`MfuMeter.add` beside the counter call that it wraps: `python benchmarks/bench_meter.py`.

Both run in turns within one process, and the fastest turn of each is compared, so that a busy machine
does not decide the ratio. The exit code is 1 where it is above 3.
"""

from __future__ import annotations

import sys
import timeit

import numpy as np

from flopcalc import Documents, FlopCounter, MfuMeter

LIMIT = 3.0
QWEN3_30B_A3B = {
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
    "vocab_size": 151936,
}
LENGTHS = {documents: [1 + (7919 * i) % 8192 for i in range(documents)] for documents in (1, 16, 256, 4096)}


def fastest(turns: int, *calls: timeit.Timer) -> list[float]:
    """Seconds of one call of each, the fastest of `turns` turns."""
    best = [float("inf")] * len(calls)
    for _ in range(turns):
        for place, timer in enumerate(calls):
            best[place] = min(best[place], timer.timeit(200) / 200)
    return best


def main() -> int:
    counter = FlopCounter(QWEN3_30B_A3B)
    meter = MfuMeter(counter, peak_flops=1e15)
    worst = 0.0
    for documents, lengths in LENGTHS.items():
        array = np.array(lengths)
        for form, given, fed in (
            ("list", lengths, lengths),
            ("array", array, array),
            ("Documents", lengths, Documents(lengths, sum(lengths))),
        ):
            count, add = fastest(
                30,
                timeit.Timer(lambda given=given: counter(given)),
                timeit.Timer(lambda fed=fed: meter.add(fed)),
            )
            worst = max(worst, add / count)
            print(f"{documents:5} {form:9}  counter {1e6 * count:8.2f} us  add {1e6 * add:8.2f} us  {add / count:.2f}x")
    print(f"worst: {worst:.2f}x (limit {LIMIT:g}x)")
    return int(worst > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
