"""Numbers that others published or computed, reproduced to their last digit."""

from __future__ import annotations

import csv
import json
from typing import Any

import pytest

from flopcalc import CONVENTIONS, FlopCounter, describe, facts

PUBLISHED = facts.folder("registry") / "published"
ROWS = list(csv.DictReader((PUBLISHED / "per_document_table.csv").open(encoding="utf-8")))
TORCHTITAN = json.loads((PUBLISHED / "torchtitan_reference.json").read_text(encoding="utf-8"))["cases"]


def as_printed(flops: float, printed: str) -> str:
    """A number in the form of the table: as many digits, no sign or padding in the exponent."""
    digits = len(printed.partition("e")[0].partition(".")[2])
    mantissa, _, exponent = f"{flops:.{digits}e}".partition("e")
    return f"{mantissa}e{int(exponent)}"


def row_id(row: dict[str, str]) -> str:
    return f"{row['model']}-{row['seq_len']}"


@pytest.mark.parametrize("row", ROWS, ids=row_id)
def test_the_per_document_table_comes_out_under_standard(row: dict[str, str]) -> None:
    counter = FlopCounter(row["config"].replace("__", "/", 1))
    assert as_printed(counter.flops_per_token(int(row["seq_len"])), row["flops_per_token"]) == row["flops_per_token"]


@pytest.mark.parametrize("row", [row for row in ROWS if row["torchtitan_flops_per_token"]], ids=row_id)
def test_the_torchtitan_column_comes_out_under_torchtitan(row: dict[str, str]) -> None:
    printed = row["torchtitan_flops_per_token"]
    counter = FlopCounter(row["config"].replace("__", "/", 1), "torchtitan")
    assert as_printed(counter.flops_per_token(int(row["seq_len"])), printed) == printed


def test_the_table_is_whole() -> None:
    assert len(ROWS) == 18 and sum(bool(row["torchtitan_flops_per_token"]) for row in ROWS) == 10


@pytest.mark.parametrize("case", TORCHTITAN, ids=lambda case: case["flavor"])
def test_torchtitan_0_3_itself_says_the_same_integer(case: dict[str, Any]) -> None:
    """`get_nparams_and_flops` of torchtitan 0.3.0, run on the meta device."""
    assert describe(case["config"]).num_params() == case["num_params"]
    counter = FlopCounter(case["config"], "torchtitan_0_3")
    computed = {seq_len: counter([int(seq_len)]) for seq_len in case["flops_per_token"]}
    assert computed == {seq_len: flops * int(seq_len) for seq_len, flops in case["flops_per_token"].items()}


@pytest.mark.parametrize(("seq_len", "percent"), [(8192, "1.5"), (32768, "5.8"), (65536, "11.0"), (131072, "19.8")])
def test_the_indexer_of_glm_5_3_trained_in_full_takes_its_published_share(seq_len: int, percent: str) -> None:
    """The share of the indexer's scores in the total, counted with a backward pass (6x)."""
    trained = CONVENTIONS["standard"].changed(name="trained indexer", indexer_scores="trained")
    breakdown = FlopCounter("zai-org/GLM-5.3", trained).breakdown([seq_len])
    assert f"{100 * breakdown.by_kind()['index_scores'] / breakdown.total():.1f}" == percent
