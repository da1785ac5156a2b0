"""flopcalc: exact training FLOPs of a model from its Hugging Face config alone.

>>> import flopcalc
>>> flopcalc.estimate_flops({"model_type": "llama"}, [4096, 300])
199080411037696
"""

from __future__ import annotations

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

__version__ = "0.1.0"

__all__ = [
    "CONVENTIONS",
    "ESTIMATORS",
    "Breakdown",
    "Convention",
    "Estimator",
    "FlopCounter",
    "FlopcalcError",
    "InvalidBatch",
    "InvalidConfig",
    "InvalidOption",
    "Schema",
    "UnknownDevice",
    "UnsupportedModel",
    "describe",
    "estimate_flops",
    "is_supported",
    "register",
    "supported_model_types",
]
