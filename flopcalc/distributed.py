"""An interval of a distributed run, with numerator and denominator of one scope.

Every rank tells what it counted, how long it took and what its devices can do; one collective
carries the words of all, and every rank reads the same sums from them:

* FLOPs and tokens are summed over data-parallel replicas. The ranks of one replica (tensor, context,
  sequence, pipeline or expert parallel) share its batch, which is counted once.
* Seconds are the maximum: the step lasts until its slowest rank is done.
* Devices and peaks are summed over all ranks, of whatever kind; one unknown peak makes the sum unknown.

A process alone is a group of one, by the same code. `docs/distributed.md` has the rules per kind of
parallelism.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from flopcalc.errors import InvalidBatch, InvalidOption

__all__ = ["Interval", "Share", "combine", "gather", "metering_group", "replica_of"]

_LIMB_BITS = 62
_LIMBS = 3  # 186 bits: no interval of FLOPs comes near it


class Share(NamedTuple):
    """What one rank counted in an interval. Seconds that could not be measured are NaN."""

    replica: int
    """The data-parallel replica that the rank works for."""
    flops: int
    hardware_flops: int
    """With the activations that are computed again."""
    tokens: int
    positions: int
    """Tokens with padding."""
    seconds: float
    wall_seconds: float
    """Seconds with pauses."""
    devices: int
    """The devices that the rank answers for."""
    peak_flops_per_second: float | None
    """Of all of the rank's devices; None where unknown."""


class Interval(NamedTuple):
    """The sum of all ranks' shares."""

    flops: int
    hardware_flops: int
    tokens: int
    positions: int
    seconds: float
    wall_seconds: float
    devices: int
    peak_flops_per_second: float | None
    ranks: int
    replicas: int
    disagreeing: tuple[int, ...] = ()
    """Replicas whose ranks counted different work; the largest of their counts is in the sum."""


def combine(shares: Sequence[Share]) -> Interval:
    """The interval that the ranks' shares make. Raises InvalidBatch where a rank has no valid time.

    A rank that counted nothing (a pipeline stage that never sees the batch) leaves its replica's work
    to the others.
    """
    untimed = [rank for rank, share in enumerate(shares) if math.isnan(share.seconds)]
    if untimed:
        raise InvalidBatch(
            f"ranks {', '.join(map(str, untimed))} reported no valid time for the interval; it stays open on all ranks"
        )
    replicas: dict[int, list[Share]] = {}
    for share in shares:
        replicas.setdefault(share.replica, []).append(share)
    whole = [max(members, key=lambda share: share.flops) for members in replicas.values()]
    peaks = [share.peak_flops_per_second for share in shares]
    return Interval(
        flops=sum(share.flops for share in whole),
        hardware_flops=sum(share.hardware_flops for share in whole),
        tokens=sum(share.tokens for share in whole),
        positions=sum(share.positions for share in whole),
        seconds=max(share.seconds for share in shares),
        wall_seconds=max(share.wall_seconds for share in shares),
        devices=sum(share.devices for share in shares),
        peak_flops_per_second=None if None in peaks else sum(filter(None, peaks)),
        ranks=len(shares),
        replicas=len(replicas),
        disagreeing=tuple(
            replica
            for replica, members in replicas.items()
            if len({share.flops for share in members if share.flops}) > 1
        ),
    )


def gather(share: Share, group: Any = None) -> Interval:
    """The interval of a whole process group, the same on every rank: one all_gather.

    Args:
        share: what this rank counted.
        group: a torch.distributed process group that this rank is in; None for this process alone.

    What torch raises when a rank fails or the group's time-out passes is raised as it is.
    """
    if group is None:
        return combine([share])
    import torch
    import torch.distributed as dist

    if dist.get_rank(group) < 0:
        raise InvalidOption("group: this rank is not in the process group; pass one that holds every training rank")
    words = torch.tensor(encode(share), dtype=torch.int64, device=_device(group))
    received = [torch.empty_like(words) for _ in range(dist.get_world_size(group))]
    dist.all_gather(received, words, group=group)
    return combine([decode(row) for row in torch.stack(received).tolist()])


def _device(group: Any) -> Any:
    """Where the group's tensors live: the CPU if its backend takes it, else this rank's accelerator."""
    import torch
    import torch.distributed as dist

    if "cpu" in dist.get_backend_config(group):
        return torch.device("cpu")
    accelerator = torch.accelerator.current_accelerator()
    assert accelerator is not None  # a backend without CPU has one
    return torch.device(accelerator.type, torch.accelerator.current_device_index())


def metering_group(timeout_seconds: float = 60.0) -> Any:
    """A group of all ranks on the CPU (gloo) for metering alone, None where this process is alone.

    The meter's words then never meet the training's own collectives: they do not wait for the
    device, and a rank that stops metering costs the others one time-out, not their training.
    Every rank must call it, as every rank calls torch.distributed.new_group.
    """
    from datetime import timedelta

    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return None
    return dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout_seconds))


def replica_of(mesh: Any, dims: Sequence[str] | None = None) -> int:
    """The data-parallel replica of this rank: its place along the data-parallel dimensions of a
    torch DeviceMesh.

    Args:
        mesh: a DeviceMesh with named dimensions.
        dims: the data-parallel dimensions; those whose name begins with "dp" if None.

    Raises InvalidOption.
    """
    names = tuple(mesh.mesh_dim_names or ())
    chosen = [name for name in names if name.startswith("dp")] if dims is None else list(dims)
    if not chosen or not set(chosen) <= set(names):
        raise InvalidOption(
            f"replica_of: found the mesh dimensions {names}, expected {chosen or 'names beginning with dp'}; "
            f"pass the data-parallel ones as dims"
        )
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        raise InvalidOption("replica_of: this rank is not in the mesh")
    replica = 0
    for place, name in enumerate(names):
        if name in chosen:
            replica = replica * mesh.size(place) + coordinate[place]
    return replica


# --- words ---------------------------------------------------------------------------------------


def encode(share: Share) -> list[int]:
    """A share as int64 words: big ints in limbs, floats bit for bit."""
    peak = math.nan if share.peak_flops_per_second is None else share.peak_flops_per_second
    return [
        share.replica,
        share.devices,
        *(
            limb
            for count in (share.flops, share.hardware_flops, share.tokens, share.positions)
            for limb in _limbs(count)
        ),
        *(_bits(number) for number in (share.seconds, share.wall_seconds, peak)),
    ]


def decode(words: Sequence[int]) -> Share:
    """The share that `encode` made these words of."""
    replica, devices, *rest = words
    *limbs, seconds, wall_seconds, peak = rest
    flops, hardware, tokens, positions = (_joined(limbs[at : at + _LIMBS]) for at in range(0, 4 * _LIMBS, _LIMBS))
    times = _number(seconds), _number(wall_seconds)
    known = None if math.isnan(_number(peak)) else _number(peak)
    return Share(replica, flops, hardware, tokens, positions, *times, devices, known)


def _limbs(count: int) -> list[int]:
    if count >> (_LIMBS * _LIMB_BITS):
        raise InvalidBatch("interval: found 2**186 FLOPs or tokens or more; close it with step() earlier")
    return [(count >> (place * _LIMB_BITS)) & (2**_LIMB_BITS - 1) for place in range(_LIMBS)]


def _joined(limbs: Sequence[int]) -> int:
    return sum(limb << (place * _LIMB_BITS) for place, limb in enumerate(limbs))


def _bits(number: float) -> int:
    return int(struct.unpack("<q", struct.pack("<d", number))[0])


def _number(bits: int) -> float:
    return float(struct.unpack("<d", struct.pack("<q", bits))[0])
