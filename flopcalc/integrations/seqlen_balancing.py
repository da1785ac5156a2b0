"""verl's partitioner, by flopcalc: `verl.utils.seqlen_balancing.get_seqlen_balanced_partitions` under
the same signature. verl hands it workloads that it estimates itself; both parts can be replaced:

    import verl.utils.seqlen_balancing as balancing
    from flopcalc.integrations.seqlen_balancing import get_seqlen_balanced_partitions, workload

    balancing.calculate_workload = workload(flopcalc.FlopCounter(config))
    balancing.get_seqlen_balanced_partitions = get_seqlen_balanced_partitions

A module of verl that has imported the names before keeps its own; replace them there too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flopcalc.errors import InvalidBatch
from flopcalc.packing import balance

__all__ = ["get_seqlen_balanced_partitions", "workload"]


class _AsGiven:
    """Prices a document at the number it came with."""

    def per_document(self, values: Any) -> Any:
        return values


def get_seqlen_balanced_partitions(
    seqlen_list: Any, k_partitions: int, equal_size: bool, *, counter: Any = None
) -> list[list[int]]:
    """Places of `seqlen_list` in `k_partitions` lists of about the same sum, each ascending and none
    empty.

    Args:
        seqlen_list: whole numbers: lengths, or workloads.
        equal_size: all lists get as many places.
        counter: a `FlopCounter`, by which lengths are priced; without one the numbers themselves count.

    Raises InvalidBatch (where verl asserts) for fewer numbers than partitions and, with `equal_size`,
    for a number of them that is no multiple.
    """
    plan = balance(seqlen_list, k_partitions, counter if counter is not None else _AsGiven(), equal_size)
    if not all(plan.ranks):
        raise InvalidBatch(f"seqlen_list: found {len(seqlen_list)} documents, expected at least {k_partitions}")
    return plan.ranks


def workload(counter: Any) -> Callable[[Any], Any]:
    """What to put in the place of verl's `calculate_workload`: a function of an integer tensor of
    lengths to the tensor of their FLOPs, on the same device."""

    def calculate_workload(seqlen_list: Any) -> Any:
        import torch

        return torch.as_tensor(counter.per_document(seqlen_list), device=seqlen_list.device)

    return calculate_workload
