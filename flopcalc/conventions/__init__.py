"""How to count: each convention is a frozen value, data and no code.

The knobs are those in which the counters of the field really differ; `docs/conventions.md` holds
the rules of each framework with its source.
"""

from __future__ import annotations

from flopcalc.conventions.convention import Convention
from flopcalc.conventions.presets import CONVENTIONS
from flopcalc.errors import InvalidOption

__all__ = ["CONVENTIONS", "Convention", "get_convention"]


def get_convention(convention: str | Convention) -> Convention:
    """The preset of that name, or the value itself.

    Raises InvalidOption for a name that is no preset.
    """
    if isinstance(convention, Convention):
        return convention
    try:
        return CONVENTIONS[convention]
    except (KeyError, TypeError):
        raise InvalidOption(
            f"convention: found {convention!r}, expected one of {', '.join(CONVENTIONS)} or a Convention value"
        ) from None
