"""`flopcalc devices`: finds a device by any of its names and prints dense TFLOP/s."""

import json

import pytest

from flopcalc.cli import main
from flopcalc.hardware import devices


def lines(capsys, *arguments):
    assert main(["devices", *arguments]) == 0
    return [line.split() for line in capsys.readouterr().out.splitlines()]


def test_without_a_search_every_device_is_listed_with_the_unit_in_the_heading(capsys):
    heading, *rows = lines(capsys)
    assert " ".join(heading) == "device bf16 (TFLOP/s) fp16 (TFLOP/s) fp8 (TFLOP/s)"
    assert len(rows) == len(devices())
    assert ["NVIDIA", "L40S", "362.05", "362.05", "733.00"] in rows
    assert ["NVIDIA", "T4", "-", "65.00", "-"] in rows


@pytest.mark.parametrize(
    ("search", "device"),
    [
        (["rtx", "4090", "laptop"], "NVIDIA GeForce RTX 4090 Laptop GPU"),
        (["Tesla V100-SXM3-32GB"], "NVIDIA V100 SXM2"),  # fits the pattern alone
        (["HL-225"], "Intel Gaudi 2"),  # reported
        (["trillium"], "Google TPU v6e (Trillium)"),  # typed
    ],
)
def test_a_device_is_found_by_any_of_its_names(capsys, search, device):
    assert main(["devices", "--json", *search]) == 0
    assert [found["device"] for found in json.loads(capsys.readouterr().out)] == [device]


def test_a_family_lists_its_parts(capsys):
    found = {" ".join(row[:-3]) for row in lines(capsys, "h100")[1:]}
    assert {"NVIDIA H100 SXM5", "NVIDIA H100 PCIe", "NVIDIA H100 NVL"} <= found
    assert all("H100" in name for name in found)


def test_precisions_are_columns_and_devices_without_them_are_left_out(capsys):
    heading, *rows = lines(capsys, "--dtype", "torch.bfloat16", "--dtype", "fp64", "apple", "--dtype", "fp32")
    assert " ".join(heading) == "device bf16 (TFLOP/s) fp64 (TFLOP/s) fp32 (TFLOP/s)"
    assert ["Apple", "M1", "Max", "-", "-", "10.40"] in rows
    assert main(["devices", "apple", "--dtype", "bf16"]) == 2


def test_json_gives_flops_per_second_and_their_source(capsys):
    assert main(["devices", "NVIDIA L40S", "--dtype", "fp8", "--json"]) == 0
    (device,) = json.loads(capsys.readouterr().out)
    assert (device["device"], device["vendor"]) == ("NVIDIA L40S", "NVIDIA")
    assert set(device["peaks"]) == {"fp8"}
    assert device["peaks"]["fp8"]["flops_per_second"] == 733_000_000_000_000
    assert "L40S datasheet" in device["peaks"]["fp8"]["reference"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mi300z"], "found none named 'mi300z'; nearest: mi300"),
        (["l40s", "--dtype", "fp64"], "found none named 'l40s' with a peak for fp64"),
        (["--dtype", "bf15"], "found 'bf15', expected one of bf16, fp16"),
    ],
)
def test_what_is_not_there_is_one_line_on_stderr(capsys, arguments, message):
    assert main(["devices", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err
    assert printed.err.count("\n") == 1
