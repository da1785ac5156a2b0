"""The page on adding a model shows the file that is shipped, and its outside door works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import flopcalc
from flopcalc import architectures, estimators
from flopcalc.architectures.arcee import ArceeConfig, arcee

PAGE = Path(__file__).parent.parent / "docs" / "adding-a-model.md"


def test_the_example_of_the_page_is_the_shipped_file() -> None:
    example = re.search(r'```python\n(""".*?)```', PAGE.read_text(), re.DOTALL)
    shipped = Path(architectures.__path__[0]) / "arcee.py"
    assert example is not None and example[1] == shipped.read_text()


def test_a_type_registered_from_outside_is_counted_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimators, "_registered", dict(estimators._registered))  # for this test alone
    flopcalc.register("my_private_type", ArceeConfig)(arcee)
    assert flopcalc.is_supported("my_private_type")
    # M: 32 layers of 4 * 2560^2 (32 heads of 80, all kv) and 2 * 2560 * 18432, and the head
    matmul = 32 * (26_214_400 + 94_371_840) + 32000 * 2560
    assert matmul == 3_940_679_680
    fields = {"model_type": "my_private_type"}
    assert flopcalc.describe(fields).num_matmul_params() == matmul
    # 6 * M * 100 tokens and 12 * 32 heads * 80 * 100^2 in each of 32 layers
    assert flopcalc.estimate_flops(fields, [100], convention="matmul-dense") == 2_364_407_808_000 + 9_830_400_000
