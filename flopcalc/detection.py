"""Which accelerator is this? The names that the runtime of this process reports.

Each probe answers the names it sees, or none. Several different names mean a host with mixed cards,
of which none is known to be the one in use. The libraries are imported only where they are present:
torch where it is loaded, then JAX, NVML, AMD SMI, the TPU's environment, macOS, and torch once more
where it is installed but not loaded yet.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from flopcalc.errors import UnknownDevice

__all__ = ["detect", "device_names"]

_TORCH_BACKENDS = ("cuda", "xpu", "npu", "hpu", "mlu", "musa")  # cuda is ROCm as well, npu Ascend, hpu Gaudi
_TORCH_DEVICE = re.compile(rf"({'|'.join(_TORCH_BACKENDS)}|mps|xla)(?::(\d+))?")

Names = tuple[str, ...]


def device_names(device: Any = None) -> Names:
    """The names that stand for `device`: a name is its own; a torch.device (or its string, "cuda:0")
    is what its runtime calls it; None is `detect()`. Raises UnknownDevice for any other type."""
    if device is None:
        return detect()
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(device, torch.device):
        device = str(device)
    if not isinstance(device, str):
        raise UnknownDevice(f"device: found {device!r}, expected a name, a torch.device or None")
    place = _TORCH_DEVICE.fullmatch(device)
    if place is None:
        return (device,)
    kind, index = place[1], place[2]
    if kind == "mps":
        return _apple() or (device,)
    if kind == "xla":
        return _first(_tpu, _jax) or (device,)
    return _first(lambda: _torch_backend(kind, index)) or (device,)


def detect() -> Names:
    """The accelerator of this process; ("cpu",) where there is none."""
    return _first(_loaded_torch, _jax, _nvml, _amdsmi, _tpu, _apple, _installed_torch) or ("cpu",)


def _first(*probes: Callable[[], Names]) -> Names:
    """The answer of the first probe that has one."""
    for probe in probes:
        try:
            names = probe()
        except Exception:  # a library without its driver raises anything; the next probe may know
            continue
        if names:
            return names
    return ()


def _distinct(names: Iterable[str | bytes]) -> Names:
    return tuple(dict.fromkeys(name.decode() if isinstance(name, bytes) else name for name in names if name))


def _loaded_torch() -> Names:
    """The current device of the torch that this process has loaded."""
    if "torch" not in sys.modules:
        return ()
    for kind in _TORCH_BACKENDS:
        if names := _torch_backend(kind):
            return names
    return ()


def _installed_torch() -> Names:
    if "torch" in sys.modules or find_spec("torch") is None:
        return ()
    import_module("torch")
    return _loaded_torch()


def _torch_backend(kind: str, index: str | None = None) -> Names:
    """torch.cuda, torch.npu, torch.hpu, ... all answer is_available() and get_device_name()."""
    backend = getattr(import_module("torch"), kind, None)
    if backend is None or not backend.is_available():
        return ()
    return _distinct([backend.get_device_name(None if index is None else int(index))])


def _jax() -> Names:
    """The devices of a JAX that this process has loaded."""
    jax = sys.modules.get("jax")
    if jax is None:
        return ()
    return _distinct(device.device_kind for device in jax.local_devices() if device.platform != "cpu")


def _nvml() -> Names:
    """NVIDIA cards by NVML, which sees the whole host: the slices of a card that MIG has cut, and
    where CUDA_VISIBLE_DEVICES begins with the id of a card or slice, that one alone."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    first = None if visible is None else visible.split(",")[0].strip()
    if first in ("", "-1"):
        return ()
    nvml = import_module("pynvml")
    nvml.nvmlInit()
    try:
        if first is not None and first.startswith(("GPU-", "MIG-")):
            handles = [nvml.nvmlDeviceGetHandleByUUID(first)]
        else:
            cards = map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount()))
            handles = [handle for card in cards for handle in _slices(nvml, card)]
        return _distinct(map(nvml.nvmlDeviceGetName, handles))
    finally:
        nvml.nvmlShutdown()


def _slices(nvml: Any, card: Any) -> list[Any]:
    """The MIG slices of a card, or the card itself where MIG is off."""
    try:
        if not nvml.nvmlDeviceGetMigMode(card)[0]:
            return [card]
    except nvml.NVMLError:  # a card that cannot be cut
        return [card]
    slices = []
    for place in range(nvml.nvmlDeviceGetMaxMigDeviceCount(card)):
        try:
            slices.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(card, place))
        except nvml.NVMLError:  # noqa: PERF203  a place without a slice
            continue
    return slices


def _amdsmi() -> Names:
    """AMD cards by AMD SMI."""
    amdsmi = import_module("amdsmi")
    amdsmi.amdsmi_init()
    try:
        handles = amdsmi.amdsmi_get_processor_handles()
        return _distinct(amdsmi.amdsmi_get_gpu_asic_info(handle)["market_name"] for handle in handles)
    finally:
        amdsmi.amdsmi_shut_down()


def _tpu() -> Names:
    """The accelerator type of a TPU host, as "v5litepod-16"."""
    return _distinct([os.environ.get("TPU_ACCELERATOR_TYPE", "")])


def _apple() -> Names:
    """The chip of a Mac, as "Apple M3 Max": torch's MPS backend has no name of its own."""
    if platform.system() != "Darwin" or platform.machine() != "arm64":
        return ()
    command = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
    return _distinct([subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()])
