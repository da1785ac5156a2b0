"""Peaks: the right figure for a whole name, an error or None with one warning for anything else."""

import csv
import math
import re
import subprocess
import sys
import warnings
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import flopcalc
from flopcalc import facts, hardware
from flopcalc.errors import InvalidOption, UnknownDevice

TFLOPS = 10**12


def rows(name):
    with (facts.folder("hardware") / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


PEAKS = rows("peaks.csv")
REPORTED = [
    line.split("\t")[:2]
    for line in (facts.folder("hardware") / "device_names.txt").read_text(encoding="utf-8").splitlines()
]
ALIASES: dict[str, set[str]] = {}
for row in rows("aliases.csv"):
    ALIASES.setdefault(row["alias"], set()).add(row["device"])


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """No peak in the environment, nothing registered, nothing warned about yet."""
    monkeypatch.delenv("FLOPCALC_PEAK_FLOPS", raising=False)
    monkeypatch.setattr(hardware, "_registered", {})
    monkeypatch.setattr(hardware, "_warned", set())


def silent_peak(*args, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return flopcalc.resolve_peak(*args, **kwargs)


# --- the figures ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("device", "dtype", "flops_per_second"),
    [
        ("NVIDIA H100 80GB HBM3", "bf16", 989_500_000_000_000),
        ("NVIDIA H100 PCIe", "bf16", 756_000_000_000_000),
        ("NVIDIA H100 NVL", "bf16", 835_500_000_000_000),
        ("NVIDIA H200", "bf16", 989_500_000_000_000),
        ("NVIDIA H200 NVL", "bf16", 835_500_000_000_000),
        ("NVIDIA GH200 480GB", "bf16", 989_500_000_000_000),
        ("NVIDIA A100-SXM4-40GB", "bf16", 312_000_000_000_000),
        ("NVIDIA A100-SXM4-80GB", "bf16", 312_000_000_000_000),
        ("NVIDIA A100-PCIE-40GB", "bf16", 312_000_000_000_000),
        ("NVIDIA A100 80GB PCIe", "bf16", 312_000_000_000_000),
        ("NVIDIA L40S", "bf16", 362_050_000_000_000),
        ("NVIDIA L40S", "fp8", 733_000_000_000_000),
        ("NVIDIA L40", "bf16", 181_050_000_000_000),
        ("NVIDIA L4", "bf16", 121_000_000_000_000),
        ("NVIDIA A10", "bf16", 125_000_000_000_000),
        ("NVIDIA A10G", "bf16", 70_000_000_000_000),
        ("NVIDIA H20", "bf16", 148_000_000_000_000),
        ("NVIDIA H800", "bf16", 989_500_000_000_000),
        ("NVIDIA A800-SXM4-80GB", "bf16", 312_000_000_000_000),
        ("NVIDIA A40", "bf16", 149_700_000_000_000),
        ("NVIDIA RTX A4000", "bf16", 76_700_000_000_000),
        ("NVIDIA B200", "bf16", 2_250_000_000_000_000),
        ("NVIDIA B300 SXM6 AC", "bf16", 2_250_000_000_000_000),
        ("NVIDIA GB200", "bf16", 2_500_000_000_000_000),
        ("NVIDIA RTX A6000", "bf16", 154_800_000_000_000),
        ("NVIDIA GeForce RTX 4090", "bf16", 165_200_000_000_000),
        ("AMD Instinct MI250X", "bf16", 191_500_000_000_000),
        ("AMD Instinct MI300X", "bf16", 1_307_400_000_000_000),
        ("AMD Instinct MI325X", "bf16", 1_307_400_000_000_000),
        ("AMD Instinct MI350X", "bf16", 2_306_900_000_000_000),
        ("AMD Instinct MI355X", "bf16", 2_516_600_000_000_000),
        ("Tesla V100-SXM2-16GB", "fp16", 125_000_000_000_000),
        ("Tesla T4", "fp16", 65_000_000_000_000),
    ],
)
def test_peak_of_what_the_runtime_reports_is_the_dense_tensor_figure(device, dtype, flops_per_second):
    assert flopcalc.peak_flops(device, dtype) == flops_per_second


def test_every_row_of_the_table_is_returned_exactly():
    for row in PEAKS:
        peak = silent_peak(row["device"], row["precision"])
        assert Decimal(peak.flops_per_second) == Decimal(row["peak_tflops"]) * TFLOPS, row
        assert (peak.device, peak.dtype, peak.source) == (row["device"], row["precision"], "table")


SPARSE_HEADLINES = {  # what the sheets print "with sparsity", in TFLOP/s
    "NVIDIA H100 SXM5": {"tf32": 989, "bf16": 1979, "fp16": 1979, "fp8": 3958, "int8": 3958},
    "NVIDIA H100 PCIe": {"tf32": 756, "bf16": 1513, "fp16": 1513, "fp8": 3026, "int8": 3026},
    "NVIDIA H100 NVL": {"tf32": 835, "bf16": 1671, "fp16": 1671, "fp8": 3341, "int8": 3341},
    "NVIDIA H200 SXM": {"bf16": 1979, "fp8": 3958},
    "NVIDIA A100 SXM4 80GB": {"tf32": 312, "bf16": 624, "fp16": 624, "int8": 1248},
    "NVIDIA A30": {"bf16": 330, "int8": 661},
    "NVIDIA A10": {"bf16": 250, "int8": 500},
    "NVIDIA A40": {"bf16": 299.4, "int8": 598.6},
    "NVIDIA RTX A6000": {"bf16": 309.7},
    "NVIDIA L4": {"bf16": 242, "fp8": 485},
    "NVIDIA L40S": {"bf16": 733, "fp8": 1466},
    "NVIDIA L40": {"bf16": 362.1, "fp8": 724},
    "NVIDIA RTX 6000 Ada Generation": {"fp8": 1457},
    "NVIDIA GeForce RTX 4090": {"bf16": 330.3, "fp8": 660.6},
    "NVIDIA B200 SXM": {"bf16": 4500, "fp8": 9000, "fp4": 18000},
    "NVIDIA GB200": {"bf16": 5000, "fp8": 10000, "fp4": 20000},
    "NVIDIA GeForce RTX 5090": {"fp4": 3352},
    "AMD Instinct MI300X": {"bf16": 2614.9, "fp8": 5229.8},
}


def test_no_sparse_headline_stands_in_the_table():
    for device, headlines in SPARSE_HEADLINES.items():
        for precision, headline in headlines.items():
            assert flopcalc.peak_flops(device, precision) / TFLOPS == pytest.approx(headline / 2, rel=0.015), device
    in_16_bit = {float(row["peak_tflops"]) for row in PEAKS if row["precision"] in ("bf16", "fp16")}
    assert not in_16_bit & {624, 733, 1513, 1671, 1979, 2614.9, 4500, 5000}


FP8_IS_NOT_TWICE_BF16 = {
    "NVIDIA L40S": "the sheet prints 733 beside 362.05: 1.2 % above twice",
    "NVIDIA Rubin (VR200)": "17.5 PF of fp8 beside 4 PF of bf16",
    "Google TPU v5p": "fp8 at the bf16 rate",
    "Google TPU v6e (Trillium)": "fp8 at the bf16 rate",
    "AWS Trainium1 (one NeuronCore-v2)": "fp8 at the bf16 rate",
    "AWS Trainium2 (one logical core, LNC=2)": "1299 beside 667 for the chip: 1.95",
    "AWS Trainium2 (one physical core, LNC=1)": "1299 beside 667 for the chip: 1.95",
    "AWS Trainium3 (one logical core, LNC=2)": "2517 beside 671 for the chip: 3.75",
    "Intel Gaudi 3": "fp8 at the bf16 rate",
    "Huawei Ascend 950PR": "fp8 is a rounded headline of 1 PF",
    "Huawei Ascend 950DT": "fp8 is a rounded headline of 1 PF",
}


def test_fp8_is_twice_bf16_unless_the_vendor_says_otherwise():
    ratios = {
        name: device.peaks["fp8"].flops_per_second / device.peaks["bf16"].flops_per_second
        for name, device in hardware.devices().items()
        if {"bf16", "fp8"} <= set(device.peaks)
    }
    assert len(ratios) > 80
    assert {name for name, ratio in ratios.items() if abs(ratio / 2 - 1) > 0.01} == set(FP8_IS_NOT_TWICE_BF16)


def test_bf16_is_never_a_stand_in_for_another_precision():
    for name in ("Tesla T4", "Tesla V100-SXM2-32GB", "NVIDIA TITAN RTX", "Ascend910A", "Apple M1 Max"):
        assert silent_peak(name, "fp16") is not None
        assert silent_peak(name, "bf16") is None


def test_a_slice_has_its_share_of_the_cores_of_the_whole_part():
    whole = {
        "NVIDIA A100 MIG": "NVIDIA A100 SXM4 80GB",
        "NVIDIA A30 MIG": "NVIDIA A30",
        "NVIDIA H100 SXM5 MIG": "NVIDIA H100 SXM5",
        "NVIDIA H100 PCIe MIG": "NVIDIA H100 PCIe",
        "NVIDIA H200 SXM MIG": "NVIDIA H200 SXM",
    }
    slices = [row for row in PEAKS if " MIG " in row["device"] and row["precision"] == "bf16"]
    assert len(slices) == 24
    for row in slices:
        part, total = map(int, re.match(r"(\d+) of (\d+) SMs", row["note"]).groups())
        full = flopcalc.peak_flops(whole[row["device"].rpartition(" MIG ")[0] + " MIG"])
        assert float(row["peak_tflops"]) * TFLOPS == pytest.approx(full * part / total, abs=0.06 * TFLOPS)


def test_a_laptop_part_is_not_its_namesake():
    for generation in ("3060", "3070 Ti", "3080", "4060", "4070", "4080", "4090", "5070", "5070 Ti", "5080", "5090"):
        laptop = flopcalc.peak_flops(f"NVIDIA GeForce RTX {generation} Laptop GPU")
        assert laptop < flopcalc.peak_flops(f"NVIDIA GeForce RTX {generation}")
    assert silent_peak("NVIDIA GeForce RTX 3090 Laptop GPU") is None


# --- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "device"), REPORTED)
def test_what_a_runtime_reports_is_exactly_one_device(name, device):
    assert [found.name for found in hardware.find_devices(name)] == [device]
    assert [found.name for found in hardware.devices().values() if found.pattern.fullmatch(name)] == [device]


def test_a_letter_or_digit_more_is_another_device():
    for name, device in REPORTED:
        if not name.startswith(("NVIDIA", "AMD", "Tesla", "Apple")):
            continue  # "v4-8" and "GAUDI2" take a digit or letter more: a size, a revision
        for near in (f"X{name}", f"{name}Z", f"{name}0", f"{name} Laptop", f"{name} MIG 1c.1g.5gb"):
            assert device not in [found.name for found in hardware.find_devices(near)], near


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
@pytest.mark.parametrize("device", hardware.devices().values(), ids=list(hardware.devices()))
def test_no_string_fits_the_patterns_of_two_devices(device, data):
    name = data.draw(st.from_regex(device.pattern, fullmatch=True))
    assert [found.name for found in hardware.devices().values() if found.pattern.fullmatch(name)] == [device.name]


@pytest.mark.parametrize(
    "name",
    [
        "Foo Accelerator 9000",
        "NVIDIA A1000",
        "NVIDIA RTX A1000",
        "NVIDIA XA100",
        "NVIDIA A100X",
        "NVIDIA A100-SXM4-40GB MIG 1c.1g.5gb",
        "NVIDIA H1000",
        "NVIDIA H100 80GB HBM3 MIG",
        "NVIDIA L400",
        "NVIDIA B2000",
        "AMD Instinct MI300X HF",
        "AMD Instinct MI3000X",
        "Not an AMD Instinct MI300X",
        "AMD Radeon Graphics",
        "TPU",
        "",
        "\n",
    ],
)
def test_an_unknown_name_is_none_with_one_warning_that_quotes_it(name):
    with pytest.warns(UserWarning) as caught:
        assert flopcalc.peak_flops(name) is None
        assert flopcalc.peak_flops(name, "fp8") is None
    assert len(caught) == 1
    assert repr(name) in str(caught[0].message)
    assert "FLOPCALC_PEAK_FLOPS" in str(caught[0].message)
    assert caught[0].filename == __file__


def test_a_precision_without_a_row_is_none_with_one_warning_that_says_what_there_is():
    with pytest.warns(UserWarning, match="'Tesla T4': no peak for bf16.*NVIDIA T4 has fp32, fp16, int8") as caught:
        assert flopcalc.peak_flops("Tesla T4", "bf16") is None
        assert flopcalc.peak_flops("Tesla T4") is None
    assert len(caught) == 1


def test_a_name_that_parts_with_other_peaks_report_too_is_answered_with_a_warning():
    with pytest.warns(UserWarning, match="'Ascend910': parts with other peaks report this name"):
        assert flopcalc.peak_flops("Ascend910") == 353_900_000_000_000


def test_near_names_keep_their_own_figures():
    figures = {
        name: flopcalc.peak_flops(f"NVIDIA {name}") for name in ("L4", "L40", "L40S", "A10", "A10G", "A100-SXM4-80GB")
    }
    assert len(set(figures.values())) == 6


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(max_size=30), st.text("AHBLMINVD xsgt014-_", max_size=12)))
def test_a_random_string_is_none_or_a_device_that_says_so_itself(name):
    try:
        peak = silent_peak(name)
    except UnknownDevice:
        assert len(hardware.find_devices(name)) > 1
        return
    if peak is not None:
        assert 0 < peak.flops_per_second < math.inf
        assert hardware._key(name) in ALIASES or any(
            hardware._key(name) == hardware._key(found.name) or found.pattern.fullmatch(" ".join(name.split()))
            for found in hardware.find_devices(name)
        )


# --- what a person types -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "tflops"),
    [
        ("a100", 312),
        ("A100", 312),
        ("a100-80gb", 312),
        ("A100 40GB", 312),
        ("a100_sxm", 312),
        ("h100-sxm", 989.5),
        ("H100 SXM5", 989.5),
        ("h100-pcie", 756),
        ("h100-nvl", 835.5),
        ("h200", 989.5),
        ("gh200", 989.5),
        ("b200", 2250),
        ("b300", 2250),
        ("gb200", 2500),
        ("gb200-nvl72", 2500),
        ("l40s", 362.05),
        ("l4", 121),
        ("rtx4090", 165.2),
        ("RTX 4090", 165.2),
        ("4090", 165.2),
        ("a6000", 154.8),
        ("mi250x", 191.5),
        ("mi300x", 1307.4),
        ("MI355X", 2516.6),
        ("v5e", 197),
        ("v5p", 459),
        ("tpu-v6e", 918),
        ("trillium", 918),
        ("trn2", 166.75),
        ("gaudi2", 432),
        ("gaudi3", 1678),
        ("max-1550", 419.4),
        ("910B2", 353.9),
    ],
)
def test_what_a_person_types_resolves(typed, tflops):
    assert flopcalc.peak_flops(typed) == tflops * TFLOPS


@pytest.mark.parametrize("typed", ["H100", "h100", " H100 "])
def test_a_name_of_several_parts_with_different_peaks_is_an_error_that_lists_them(typed):
    with pytest.raises(UnknownDevice) as error:
        flopcalc.peak_flops(typed)
    for part in (
        "NVIDIA H100 SXM5 (989.5 TFLOP/s)",
        "NVIDIA H100 PCIe (756 TFLOP/s)",
        "NVIDIA H100 NVL (835.5 TFLOP/s)",
    ):
        assert part in str(error.value)


@pytest.mark.parametrize("typed", ["h800", "mi300", "rtx-pro-6000", "rtx-6000", "gaudi", "910b"])
def test_other_families_are_as_ambiguous(typed):
    with pytest.raises(UnknownDevice, match="several parts"):
        flopcalc.peak_flops(typed)


def test_parts_with_one_peak_answer_together():
    assert flopcalc.resolve_peak("a100-80gb").device == "NVIDIA A100 SXM4 80GB or NVIDIA A100 PCIe 80GB"
    assert silent_peak("v100", "bf16") is None  # none of them has any
    with pytest.raises(UnknownDevice):
        flopcalc.peak_flops("v100", "fp16")


def test_every_alias_and_every_name_of_the_table_resolves():
    for alias, names in ALIASES.items():
        assert {device.name for device in hardware.find_devices(alias)} == names
    for name in hardware.devices():
        assert [device.name for device in hardware.find_devices(name)] == [name]


# --- the files -----------------------------------------------------------------------------------


def test_rows_of_one_device_agree_and_each_names_its_source():
    identity = {}
    for row in PEAKS:
        assert identity.setdefault(row["device"], (row["vendor"], row["match"])) == (row["vendor"], row["match"])
        assert row["source"], row
        assert row["confidence"] in ("datasheet", "derived", "peer-table", "ambiguous")
        assert row["precision"] in ("bf16", "fp16", "tf32", "fp32", "fp64", "fp8", "fp6", "fp4", "int8")
        assert 0 < float(row["peak_tflops"]) < 1e6
        assert float(row["sparse_factor"]) >= 1
    assert len({(row["device"], row["precision"]) for row in PEAKS}) == len(PEAKS)
    assert len({match for _, match in identity.values()}) == len(identity)


def test_aliases_are_written_as_they_are_looked_up_and_hide_no_other_name():
    for alias, names in ALIASES.items():
        assert hardware._key(alias) == alias
        assert names <= set(hardware.devices())
    for name in [*hardware.devices(), *(name for name, _ in REPORTED)]:
        assert hardware._key(name) not in ALIASES


# --- precisions ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spelling", "precision"),
    [
        ("bf16", "bf16"),
        ("BF16", "bf16"),
        ("bfloat16", "bf16"),
        ("torch.bfloat16", "bf16"),
        ("bf16-mixed", "bf16"),
        ("float16", "fp16"),
        ("half", "fp16"),
        (np.float16, "fp16"),
        (np.dtype("float32"), "fp32"),
        ("float32", "fp32"),
        ("tf32", "tf32"),
        ("fp8", "fp8"),
        ("float8_e4m3fn", "fp8"),
        ("mxfp4", "fp4"),
        ("int8", "int8"),
    ],
)
def test_spellings_of_a_precision(spelling, precision):
    assert hardware.read_precision(spelling) == precision


def test_torch_dtypes_are_precisions():
    torch = pytest.importorskip("torch")
    dtypes = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32", torch.float64: "fp64"}
    dtypes |= {torch.float8_e4m3fn: "fp8", torch.float8_e5m2: "fp8", torch.int8: "int8"}
    for dtype, precision in dtypes.items():
        assert flopcalc.peak_flops("h200", dtype) == flopcalc.peak_flops("h200", precision)


def test_torch_devices_are_read():
    torch = pytest.importorskip("torch")
    flopcalc.register_device("cpu", {"bf16": 1e12})
    assert flopcalc.peak_flops(torch.device("cpu")) == 1e12
    with pytest.warns(UserWarning, match="'meta'"):
        assert flopcalc.peak_flops(torch.device("meta")) is None


@pytest.mark.parametrize("word", ["bf15", "", "16", "complex64", None, 16])
def test_a_word_that_is_no_precision_is_an_error_that_lists_them(word):
    with pytest.raises(InvalidOption, match="expected one of bf16, fp16, tf32, fp32, fp64, fp8, fp6, fp4, int8"):
        flopcalc.peak_flops("h200", word)


# --- argument, environment, registered, table ----------------------------------------------------


def test_argument_comes_before_environment_before_registered_before_table_and_each_says_so(monkeypatch):
    def used(**given):
        peak = flopcalc.resolve_peak("NVIDIA H200", **given)
        return peak.flops_per_second, peak.source

    assert used() == (989.5e12, "table")
    flopcalc.register_device("NVIDIA H200", {"bf16": 3e12}, replace=True)
    assert used() == (3e12, "registered")
    monkeypatch.setenv("FLOPCALC_PEAK_FLOPS", "2e12")
    assert used() == (2e12, "environment")
    assert used(peak=1e12) == (1e12, "argument")
    assert flopcalc.peak_flops("NVIDIA H200") == 2e12


def test_a_peak_in_the_environment_serves_any_device_without_a_warning(monkeypatch):
    monkeypatch.setenv("FLOPCALC_PEAK_FLOPS", "989.5e12")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert flopcalc.peak_flops("Foo Accelerator 9000") == 989_500_000_000_000
        assert flopcalc.peak_flops() == 989_500_000_000_000


def test_an_empty_variable_is_an_unset_one(monkeypatch):
    monkeypatch.setenv("FLOPCALC_PEAK_FLOPS", "")
    assert flopcalc.resolve_peak("h200").source == "table"


@pytest.mark.parametrize("text", ["abc", "989.5 TFLOP/s", "0", "-1e12", "inf", "nan", "1e999"])
def test_a_variable_that_is_no_peak_is_an_error_that_names_it(monkeypatch, text):
    monkeypatch.setenv("FLOPCALC_PEAK_FLOPS", text)
    with pytest.raises(InvalidOption, match=re.escape(f"FLOPCALC_PEAK_FLOPS: found {text!r}")):
        flopcalc.peak_flops("h200")


@pytest.mark.parametrize("peak", [0, -1.0, math.inf, math.nan, "fast", True, [1e12]])
def test_an_argument_that_is_no_peak_is_an_error(peak):
    with pytest.raises(InvalidOption, match="peak: found"):
        flopcalc.resolve_peak("h200", peak=peak)


def test_a_peak_says_what_it_is_and_cannot_be_changed():
    peak = flopcalc.resolve_peak("NVIDIA L40S", "torch.bfloat16")
    assert (peak.device, peak.dtype, peak.source) == ("NVIDIA L40S", "bf16", "table")
    assert "L40S datasheet" in peak.reference
    with pytest.raises(AttributeError):
        peak.flops_per_second = 1.0


# --- one's own devices ---------------------------------------------------------------------------


def test_a_registered_device_answers_to_its_name_in_any_case_and_to_its_pattern():
    flopcalc.register_device("Foo Accelerator", {"bf16": 5e14, "torch.float16": 4e14}, pattern=r"foo accelerator v\d")
    assert flopcalc.peak_flops("foo  accelerator") == 5e14
    assert flopcalc.peak_flops("Foo Accelerator V2", "fp16") == 4e14
    assert flopcalc.resolve_peak("Foo Accelerator V2").device == "Foo Accelerator"
    assert silent_peak("Foo Accelerator V22") is None
    assert silent_peak("Foo Accelerator", "fp8") is None


def test_a_registered_cpu_serves_a_run_without_an_accelerator(monkeypatch):
    monkeypatch.setattr(hardware, "device_names", lambda device: ("cpu",))
    flopcalc.register_device("cpu", {"bf16": 1e12})
    assert flopcalc.peak_flops() == 1e12


@pytest.mark.parametrize("name", ["H100", "NVIDIA H100 80GB HBM3", "a100"])
def test_a_name_that_is_taken_is_registered_only_where_that_is_meant(name):
    with pytest.raises(InvalidOption, match="replace=True"):
        flopcalc.register_device(name, {"bf16": 1e12})
    flopcalc.register_device(name, {"bf16": 1e12}, replace=True)
    assert flopcalc.peak_flops(name) == 1e12


@pytest.mark.parametrize(
    ("name", "peaks", "pattern"),
    [
        ("", {"bf16": 1e12}, None),
        ("Foo", {}, None),
        ("Foo", {"bf16": 0}, None),
        ("Foo", {"bf16": math.inf}, None),
        ("Foo", {"bf15": 1e12}, None),
        ("Foo", {"bf16": 1e12}, "("),
    ],
)
def test_a_device_that_cannot_be_registered_is_an_error(name, peaks, pattern):
    with pytest.raises(InvalidOption):
        flopcalc.register_device(name, peaks, pattern=pattern)
    assert not hardware._registered


# --- several devices, and no cost at import ------------------------------------------------------


def test_a_host_with_cards_of_different_peaks_asks_which_one_is_meant(monkeypatch):
    monkeypatch.setattr(hardware, "device_names", lambda device: ("NVIDIA L40", "NVIDIA L40S"))
    with pytest.raises(UnknownDevice, match=r"'NVIDIA L40' and 'NVIDIA L40S'.*181.05.*362.05"):
        flopcalc.peak_flops()
    monkeypatch.setattr(hardware, "device_names", lambda device: ("NVIDIA A100-SXM4-40GB", "NVIDIA A100 80GB PCIe"))
    assert flopcalc.peak_flops() == 312e12


def test_a_host_with_one_unknown_card_has_no_peak(monkeypatch):
    monkeypatch.setattr(hardware, "device_names", lambda device: ("NVIDIA L40", "Foo"))
    with pytest.warns(UserWarning, match="'Foo'"):
        assert flopcalc.peak_flops() is None


def test_importing_flopcalc_reads_no_peak():
    code = "import sys, flopcalc; print('flopcalc.hardware' in sys.modules, 'torch' in sys.modules)"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.split() == ["False", "False"]
