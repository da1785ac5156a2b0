"""Speed of the core, each group a ratio within one run: the number in brackets is the multiple of
the group's fastest.

    pytest benchmarks/bench_core.py --benchmark-enable --benchmark-columns=min,median,rounds

What each ratio should be at most stands with its group; README.md beside this file has the figures.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import flopcalc
from flopcalc import facts

DOCUMENTS = [8192, 300, 1777, 4096, 512, 77, 900, 1200, 33, 2048, 640, 128, 999, 3000, 15, 7]
COUNTER = flopcalc.FlopCounter("Qwen/Qwen3-30B-A3B")
# FLOPs(n) = LINEAR * n + SQUARE * n * n, solved from two documents
SQUARE = (COUNTER([2]) - 2 * COUNTER([1])) // 2
LINEAR = COUNTER([1]) - SQUARE


def bare_sums(lengths: list[int]) -> int:
    return LINEAR * sum(lengths) + SQUARE * sum([n * n for n in lengths])


def bare_numpy_sums(lengths: Any) -> int:
    return LINEAR * int(lengths.sum()) + SQUARE * int((lengths * lengths).sum())


@pytest.mark.benchmark(group="a call on 16 documents: at most 2 times the bare sums")
@pytest.mark.parametrize("count", [bare_sums, COUNTER], ids=["bare sums", "counter"])
def test_call(benchmark: Any, count: Callable[[list[int]], int]) -> None:
    assert benchmark.pedantic(count, (DOCUMENTS,), rounds=2000, iterations=50) == bare_sums(DOCUMENTS)


@pytest.mark.benchmark(group="a million documents in numpy: at most 1.2 times the bare numpy sums")
@pytest.mark.parametrize("count", [bare_numpy_sums, COUNTER], ids=["bare sums", "counter"])
def test_million(benchmark: Any, count: Callable[[Any], int]) -> None:
    import numpy as np

    lengths = np.random.default_rng(0).integers(1, 65536, 1_000_000)
    assert benchmark.pedantic(count, (lengths,), rounds=100, warmup_rounds=3) == bare_numpy_sums(lengths)


def build_real_model(fields: dict[str, Any]) -> Any:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    with torch.device("meta"):
        config = AutoConfig.for_model(**{key: value for key, value in fields.items() if key != "auto_map"})
        return AutoModelForCausalLM.from_config(config)


def builds(name: str) -> Any:
    """A pair of benchmarks: a counter from the config's dict, the model on the meta device."""
    fields = json.loads(facts.bundled_configs()[name].read_text(encoding="utf-8"))
    group = pytest.mark.benchmark(group=f"building {name}: at least 100 times faster than the model on meta")
    return [
        pytest.param(flopcalc.FlopCounter, fields, 200, marks=group, id=f"{name} counter"),
        pytest.param(build_real_model, fields, 3, marks=group, id=f"{name} transformers"),
    ]


BUILDS = [
    build
    for name in ("deepseek-ai/DeepSeek-V4-Pro", "zai-org/GLM-5.2", "Qwen/Qwen3-235B-A22B")
    for build in builds(name)
]


@pytest.mark.parametrize(("build", "fields", "rounds"), BUILDS)
def test_build(benchmark: Any, build: Callable[[dict[str, Any]], Any], fields: dict[str, Any], rounds: int) -> None:
    benchmark.pedantic(build, (fields,), rounds=rounds, warmup_rounds=1)


BASE = pytest.param(["-c", "import numpy, pydantic"], id="import numpy, pydantic")
ESTIMATE = ["-m", "flopcalc", "estimate", "Qwen/Qwen3-30B-A3B", "--seq-len", "8192", "--seq-len", "65536"]


def start_python(args: list[str]) -> None:
    subprocess.run([sys.executable, *args], check=True, stdout=subprocess.DEVNULL, cwd=Path(__file__).parent.parent)


@pytest.mark.benchmark(group="import flopcalc: at most 1.3 times import numpy, pydantic")
@pytest.mark.parametrize("args", [BASE, pytest.param(["-c", "import flopcalc"], id="import flopcalc")])
def test_import(benchmark: Any, args: list[str]) -> None:
    benchmark.pedantic(start_python, (args,), rounds=40, warmup_rounds=1)


@pytest.mark.benchmark(group="flopcalc estimate from cold: at most 2.5 times import numpy, pydantic")
@pytest.mark.parametrize("args", [BASE, pytest.param(ESTIMATE, id="flopcalc estimate")])
def test_command_line(benchmark: Any, args: list[str]) -> None:
    benchmark.pedantic(start_python, (args,), rounds=40, warmup_rounds=1)
