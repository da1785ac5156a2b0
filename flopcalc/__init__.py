"""flopcalc: exact training FLOPs of a model from its Hugging Face config alone.

>>> import flopcalc
>>> flopcalc.estimate_flops({"model_type": "llama"}, [4096, 300])
200805132042240
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from flopcalc.config import Schema
from flopcalc.conventions import CONVENTIONS, Convention
from flopcalc.counting import Breakdown, FlopCounter, estimate_flops
from flopcalc.errors import (
    FlopcalcError,
    InvalidBatch,
    InvalidConfig,
    InvalidOption,
    UnknownDevice,
    UnsupportedModel,
)
from flopcalc.estimators import ESTIMATORS, Estimator, describe, is_supported, register, supported_model_types
from flopcalc.lora import Lora
from flopcalc.training import Training

if TYPE_CHECKING:
    from flopcalc.comparison import compare
    from flopcalc.generation import decode_flops, prefill_flops, rollout_flops
    from flopcalc.hardware import Peak, peak_flops, register_device, resolve_peak
    from flopcalc.lengths import Documents, document_lengths
    from flopcalc.mfu import MfuMeter
    from flopcalc.packing import balance, pack

__version__ = "0.1.0"

__all__ = [
    "CONVENTIONS",
    "ESTIMATORS",
    "Breakdown",
    "Convention",
    "Documents",
    "Estimator",
    "FlopCounter",
    "FlopcalcError",
    "InvalidBatch",
    "InvalidConfig",
    "InvalidOption",
    "Lora",
    "MfuMeter",
    "Peak",
    "Schema",
    "Training",
    "UnknownDevice",
    "UnsupportedModel",
    "balance",
    "compare",
    "decode_flops",
    "describe",
    "document_lengths",
    "estimate_flops",
    "is_supported",
    "pack",
    "peak_flops",
    "prefill_flops",
    "register",
    "register_device",
    "resolve_peak",
    "rollout_flops",
    "supported_model_types",
]

_LAZY = {
    "Documents": "flopcalc.lengths",
    "MfuMeter": "flopcalc.mfu",
    "Peak": "flopcalc.hardware",
    "balance": "flopcalc.packing",
    "compare": "flopcalc.comparison",
    "decode_flops": "flopcalc.generation",
    "document_lengths": "flopcalc.lengths",
    "pack": "flopcalc.packing",
    "peak_flops": "flopcalc.hardware",
    "prefill_flops": "flopcalc.generation",
    "register_device": "flopcalc.hardware",
    "resolve_peak": "flopcalc.hardware",
    "rollout_flops": "flopcalc.generation",
}
"""What is imported when it is first asked for: name -> module."""


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_LAZY[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
