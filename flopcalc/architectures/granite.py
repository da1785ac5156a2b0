"""Granite: llama in shape; its multipliers are scalars."""

from __future__ import annotations

from flopcalc.architectures.llama import LlamaConfig, llama
from flopcalc.estimators import register

register("granite", LlamaConfig)(llama)
