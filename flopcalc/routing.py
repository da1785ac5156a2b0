"""How experts were really used in a batch, in place of top_k.

The router's choice is a number of assignments (a token computed by an expert) per MoE layer. Under
`top_k` that is top_k a token; dropped tokens and zero-computation experts make it less.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from flopcalc.batch import read_lengths
from flopcalc.errors import InvalidBatch

__all__ = ["read_routing"]


def read_routing(routing: Any, experts: Mapping[str, tuple[int, int]], tokens: int) -> dict[str, int]:
    """Assignments of each MoE layer, by its path.

    Args:
        routing: the tokens that each expert computed, as (MoE layers, experts); or one number, the
            mean number of experts that computed a token.
        experts: (experts, top_k) of each MoE layer, in order.
        tokens: tokens of the batch.

    Raises InvalidBatch for numbers that do not fit the model.
    """
    if not experts:
        raise InvalidBatch("routing: given, but this model has no routed experts; leave routing out")
    if hasattr(routing, "detach"):  # a torch tensor
        routing = routing.detach().cpu()
    if hasattr(routing, "tolist"):
        routing = routing.tolist()
    if isinstance(routing, (int, float, Fraction)):
        return _from_mean(routing, experts, tokens)
    if isinstance(routing, (str, bytes, Mapping)) or not isinstance(routing, Iterable):
        raise InvalidBatch(f"routing: found {routing!r}, expected tokens as (MoE layers, experts), or one number")
    rows = [read_lengths(row, f"routing[{i}]") for i, row in enumerate(routing)]
    counts = [[int(count) for count in (row if isinstance(row, list) else row.values)] for row in rows]
    numbers = [number for number, _ in experts.values()]
    if [len(row) for row in counts] != numbers:
        found = f"{len(counts)} rows of {', '.join(sorted({str(len(row)) for row in counts}))}"
        layers = f"{len(experts)} rows (MoE layers) of {', '.join(sorted(map(str, set(numbers))))}"
        raise InvalidBatch(f"routing: found {found} numbers, expected the tokens of each expert, {layers}")
    for i, (row, (_, top_k)) in enumerate(zip(counts, experts.values(), strict=True)):
        if sum(row) > top_k * tokens:
            raise InvalidBatch(
                f"routing[{i}]: found {sum(row)} tokens, expected at most {tokens} of the batch times top_k = {top_k}; "
                f"give the counts of this batch alone"
            )
    return dict(zip(experts, map(sum, counts), strict=True))


def _from_mean(mean: float | Fraction, experts: Mapping[str, tuple[int, int]], tokens: int) -> dict[str, int]:
    most = min(top_k for _, top_k in experts.values())
    if not 0 <= mean <= most:
        raise InvalidBatch(f"routing: found {mean!r} experts a token, expected a number in [0, {most}]")
    exact = mean if isinstance(mean, Fraction) else Fraction(str(mean))
    return dict.fromkeys(experts, round(exact * tokens))
