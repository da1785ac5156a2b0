"""What learns in a live model: its adapters and its frozen parts, as a `flopcalc.Training`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flopcalc.errors import InvalidOption
from flopcalc.training import Training

__all__ = ["training_of"]


def training_of(model: Any) -> Training | None:
    """What learns in a torch module: the active LoRA adapter of a PEFT model, or all but the frozen
    modules and parameters; None where everything learns.

    Raises InvalidOption for adapters that are not counted.
    """
    adapters = getattr(model, "peft_config", None)
    if adapters:
        active = getattr(model, "active_adapters", list(adapters))
        names = active() if callable(active) else active
        if len(names) != 1:
            raise InvalidOption(f"adapters: found {list(names)} active, expected one; pass training= what learns")
        config = adapters[names[0]]
        if type(config).__name__ != "LoraConfig":
            raise InvalidOption(
                f"adapters: found {type(config).__name__}, expected LoraConfig; pass training= what learns, or a "
                f"counter of your own"
            )
        return Training(lora=config)
    frozen = tuple(_frozen(model, ""))
    return Training(frozen=frozen) if frozen else None


def _frozen(module: Any, name: str) -> Iterator[str]:
    """The largest modules without a trained parameter, and frozen parameters beside trained ones."""
    if not any(parameter.requires_grad for parameter in module.parameters()):
        if next(module.parameters(), None) is not None:
            yield name or "*"
        return
    prefix = f"{name}." if name else ""
    for own, parameter in module.named_parameters(recurse=False):
        if not parameter.requires_grad:
            yield prefix + own
    for child, inner in module.named_children():
        yield from _frozen(inner, prefix + child)
