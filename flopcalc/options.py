"""The base of values that a user states: what is trained, how adapters sit, how experts were used."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from flopcalc.errors import InvalidOption

__all__ = ["Options"]


class Options(BaseModel):
    """A frozen value with named, checked fields. Raises InvalidOption for a field that does not
    exist or does not fit."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise InvalidOption(_explain(type(self).__name__, error)) from None


def _explain(name: str, error: ValidationError) -> str:
    problems = []
    for problem in error.errors(include_url=False):
        place = ".".join((name, *map(str, problem["loc"])))
        if problem["type"] == "value_error":  # a ValueError of a validator, which says what it expected
            problems.append(f"{place}: {problem['ctx']['error']}")
        else:
            problems.append(f"{place}: found {problem['input']!r}, expected: {problem['msg']}")
    return "; ".join(problems)
