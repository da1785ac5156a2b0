"""Granite MoE with an MLP shared by all tokens."""

from __future__ import annotations

from flopcalc.architectures.granitemoe import GraniteMoeSharedConfig, granitemoeshared
from flopcalc.estimators import register

register("granitemoeshared", GraniteMoeSharedConfig)(granitemoeshared)
