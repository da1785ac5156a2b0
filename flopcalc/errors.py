"""The one family of errors. Each message says which field of which model_type, what was found,
what was expected and what to do."""

from __future__ import annotations

__all__ = ["FlopcalcError", "InvalidBatch", "InvalidConfig", "InvalidOption", "UnknownDevice", "UnsupportedModel"]


class FlopcalcError(Exception):
    """Base of every error that flopcalc raises on purpose."""


class UnsupportedModel(FlopcalcError):
    """The config's `model_type` has no estimator, or its work does not follow from lengths."""


class InvalidConfig(FlopcalcError):
    """A config could not be read, or a field of it is missing, ill-typed or contradictory."""


class InvalidBatch(FlopcalcError):
    """Document lengths (or images, audios) that cannot be counted."""


class InvalidOption(FlopcalcError):
    """A convention, phase, training or packing option that does not exist or does not fit."""


class UnknownDevice(FlopcalcError):
    """A device name that fits no device, or several with different peaks."""
