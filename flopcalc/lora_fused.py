"""LoRA targets that name experts as they were before transformers 5 fused them.

A Mixtral of transformers 4 had a Linear for each projection of each expert, and configs still say
`gate_proj` or `w1`. peft 0.21 (`utils/transformers_weight_conversion.py`) turns such targets into
target parameters of the fused tensors, for the model types in `FUSED`: gate and up together double
the rank, one of the two alone is refused. Dense MLPs of the same names then get no adapter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from flopcalc.errors import InvalidOption
from flopcalc.lora import Lora

__all__ = ["retarget"]


def retarget(
    lora: Lora, renamed: Mapping[str, str], modules: Iterable[str], parameters: Iterable[str], all_linear: Iterable[str]
) -> Lora:
    """The same adapters under the names of today.

    Args:
        renamed: old name -> name of today.
        modules, parameters: full names of the model's.
        all_linear: what "all-linear" means, where the config says that.

    Raises InvalidOption for one of gate and up without the other.
    """
    targets = lora.target_modules or ()
    if isinstance(targets, str):
        spelled = {_leaf(name) for name in all_linear} | renamed.keys() if all_linear else set()
        targets = tuple(sorted(spelled or _spelled_out(lora, renamed, [*modules], [*parameters])))
        if not targets:
            return lora
    old_names = {target: next((old for old in renamed if _ends(target, old)), None) for target in targets}
    moved = {old for old in old_names.values() if old is not None}
    fused = [old for old, name in renamed.items() if name == "gate_up_proj"]
    missing = [old for old in fused if old not in moved]
    if missing and len(missing) < len(fused):
        present = ", ".join(sorted(set(fused) - set(missing)))
        raise InvalidOption(
            f"Lora.target_modules: found {present} without {', '.join(missing)}; the model stores them as one "
            f"matrix, gate_up_proj, so expected both or neither"
        )
    rank_pattern = lora.rank_pattern
    if not missing:
        rank_pattern = {**rank_pattern, r".*\.gate_up_proj": lora.r * len(fused)}
    new_parameters = {renamed[old] for old in moved}
    return lora.model_copy(
        update={
            "target_modules": tuple(target for target, old in old_names.items() if old is None),
            "target_parameters": tuple(sorted({*(lora.target_parameters or ()), *new_parameters})),
            "rank_pattern": rank_pattern,
        }
    )


def _spelled_out(lora: Lora, renamed: Mapping[str, str], modules: list[str], parameters: list[str]) -> set[str]:
    """Last parts of the names that a regex matches, those of today and those of old."""

    def matches(name: str) -> bool:
        return lora.targets(name) and not lora.excludes(name)

    holders = {old: {p.rpartition(".")[0] for p in parameters if _leaf(p) == new} for old, new in renamed.items()}
    return {_leaf(name) for name in (*modules, *parameters) if matches(name)} | {
        old for old, holding in holders.items() if any(matches(f"{holder}.{old}") for holder in holding)
    }


def _leaf(name: str) -> str:
    return name.rpartition(".")[2]


def _ends(target: str, name: str) -> bool:
    return target == name or target.endswith(f".{name}")
