"""What the documents show is what comes out."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"


@pytest.mark.parametrize("name", ["rl-step.md", "training.md"])
def test_examples_come_out_as_printed(name: str) -> None:
    result = doctest.testfile(str(DOCS / name), module_relative=False)
    assert result.attempted > 5 and result.failed == 0
