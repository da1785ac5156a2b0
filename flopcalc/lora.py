"""LoRA under the names and meanings of `peft.LoraConfig`: which names get adapters, of what rank.

The matching is that of peft 0.21 (`tuners_utils.check_target_module_exists`,
`other.get_pattern_key`, `other._set_trainable`); `adapters.py` applies it to a tree.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from flopcalc.errors import InvalidOption
from flopcalc.options import Options

__all__ = ["Lora", "ends_with", "named"]

Names = tuple[str, ...]

_NOT_COUNTED = frozenset({
    "layer_replication", "trainable_token_indices", "alora_invocation_tokens", "megatron_config", "use_bdlora",
    "velora_config", "kasa_config", "arrow_config", "monteclora_config", "use_qalora", "ensure_weight_tying",
})  # fmt: skip
"""Fields of LoraConfig that change what runs in ways that are not counted."""


class Lora(Options):
    """Low-rank adapters, under the names and meanings of `peft.LoraConfig`.

    Args:
        r: the rank.
        rank_pattern: ranks of single targets, by regex of the end of their name.
        target_modules: names or endings of names, one regex of whole names, or "all-linear" (every
            linear layer but the output head). None: peft's default for the model type.
        target_parameters: names or endings of names of parameters, for experts that are stored
            fused ("mlp.experts.gate_up_proj").
        exclude_modules: names, endings or a regex of modules that get none.
        layers_to_transform: indices of the layers that get adapters; with `layers_pattern`, those of
            the lists of that name.
        modules_to_save: endings of names of modules that are trained as a whole.
        bias: biases trained beside the adapters: "none", "all" or "lora_only" (of adapted modules).
        lora_bias: a bias on B.
        use_dora: DoRA's magnitude vector (its norm of the merged weight, taken once a step, is not counted).

    Scaling and dropout (`lora_alpha`, `use_rslora`, `lora_dropout`) change no FLOPs.
    """

    r: int = Field(8, gt=0, strict=True)
    rank_pattern: dict[str, int] = Field(default_factory=dict)
    target_modules: str | Names | None = None
    target_parameters: Names | None = None
    exclude_modules: str | Names | None = None
    layers_to_transform: int | tuple[int, ...] | None = None
    layers_pattern: str | Names | None = None
    modules_to_save: Names | None = None
    bias: Literal["none", "all", "lora_only"] = "none"
    lora_bias: bool = False
    use_dora: bool = False
    lora_alpha: float | None = Field(None, exclude=True, repr=False)
    lora_dropout: float | None = Field(None, exclude=True, repr=False)
    use_rslora: bool | None = Field(None, exclude=True, repr=False)

    @field_validator(
        "target_modules", "target_parameters", "exclude_modules", "layers_pattern", "modules_to_save", mode="before"
    )
    @classmethod
    def _sorted(cls, names: Any) -> Any:
        return tuple(sorted(names)) if isinstance(names, (set, frozenset)) else names

    @model_validator(mode="after")
    def _consistent(self) -> Lora:
        if isinstance(self.target_modules, str) and (self.layers_to_transform is not None or self.layers_pattern):
            raise ValueError(
                "layers_to_transform and layers_pattern go with a list of target_modules, not with a regex"
            )
        if self.layers_pattern and self.layers_to_transform is None:
            raise ValueError("layers_pattern needs layers_to_transform")
        for name, pattern in self._patterns():
            if (problem := _regex_problem(pattern)) is not None:
                raise ValueError(f"{name}: found {pattern!r}, which is no regular expression: {problem}")
        return self

    def _patterns(self) -> Iterator[tuple[str, str]]:
        for name in ("target_modules", "exclude_modules"):
            if isinstance(pattern := getattr(self, name), str):
                yield name, pattern
        for name in ("rank_pattern", "layers_pattern", "modules_to_save"):
            yield from ((name, pattern) for pattern in _several(getattr(self, name)))

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Lora:
        """The same from the fields of a `peft.LoraConfig`.

        Raises InvalidOption for another method than LoRA, and for a variant of it that is not counted.
        """
        method = getattr(fields["peft_type"], "value", fields["peft_type"])
        if method != "LORA":
            raise InvalidOption(f"peft_type: found {method!r}, expected 'LORA'; no other method is counted")
        for name in sorted(_NOT_COUNTED & fields.keys()):
            if fields[name]:
                raise InvalidOption(
                    f"LoraConfig.{name}: found {fields[name]!r}; this variant is not counted, expected it left out"
                )
        return cls(**{name: fields[name] for name in cls.model_fields if fields.get(name) is not None})

    def rank(self, name: str) -> int:
        """The rank of the adapter on the module or parameter of that full name."""
        return next((rank for pattern, rank in self.rank_pattern.items() if ends_with(name, pattern)), self.r)

    def excludes(self, name: str) -> bool:
        """Whether a module gets no adapter whatever its target says."""
        if self.exclude_modules and named(name, self.exclude_modules):
            return True
        return any(re.match(rf"(^|.*\.){saved}($|\..*)", name) for saved in self.modules_to_save or ())

    def targets(self, name: str) -> bool:
        """Whether `target_modules` names the module, excluded or not."""
        targets = self.target_modules or ()
        if isinstance(targets, str) or name in targets or not named(name, targets):
            return named(name, targets)
        layers = self.layers_to_transform
        if layers is None or layers == ():
            return True
        lists = _several(self.layers_pattern) or (None,)
        found = [re.match(r".*?\.[^.]*\.(\d+)\." if at is None else rf"(?:^|.*?\.){at}\.(\d+)\.", name) for at in lists]
        index = next((int(match[1]) for match in found if match), None)
        return index == layers if isinstance(layers, int) else index in layers

    def saves(self, name: str) -> bool:
        """Whether the module is trained as a whole."""
        return any(name.endswith(saved) for saved in self.modules_to_save or ())


def _regex_problem(pattern: str) -> str | None:
    try:
        re.compile(pattern)
    except re.error as error:
        return str(error)
    return None


def _several(names: Iterable[str] | str | None) -> Names:
    return (names,) if isinstance(names, str) else tuple(names or ())


def ends_with(name: str, pattern: str) -> bool:
    """Whether a regex matches the last parts of a full name."""
    return re.match(rf"(.*\.)?({pattern})$", name) is not None


def named(name: str, targets: str | Names) -> bool:
    """Whether a full name is one of the targets or ends with one; a single string is a regex."""
    if isinstance(targets, str):
        return re.fullmatch(targets, name) is not None
    return name in targets or any(name.endswith(f".{target}") for target in targets)
